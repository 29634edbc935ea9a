"""What a run on a GPU consists of: turns in rounds, how many of them, and what it has found."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from workbench.records import Check, Failure, Job, Ratio, Timing, record

ROUNDS, LEAST_ROUNDS = 8, 4
MOST_TIMING_S = 0.75  # of all samples, and of whole calls; more than that, and fewer are taken (inferred)


class Hold(Protocol):
    """Holds the device during a block, alone or shared (turns.py)."""

    def __call__(self, *, shared: bool = False) -> AbstractContextManager[None]:
        """The context manager of the block."""


def hold_nothing(*, shared: bool = False) -> AbstractContextManager[None]:
    """For a device that nobody else uses."""
    return nullcontext()


class WrongResult(Exception):
    """A checked result is wrong, or could not be read. The run is over."""

    def __init__(self, failure: Failure | None = None) -> None:
        super().__init__(failure.message if failure else "wrong result")
        self.failure = failure


@record
class Turn:
    """One turn of a contestant: `size` samples in round `number`, of which those in `kept` are checked."""

    case: str
    model_seed: int
    method: str
    size: int
    kept: frozenset[int]
    number: int


@dataclass(slots=True)
class RunResult:
    """Checks, times and ratios of a run."""

    checks: list[Check] = field(default_factory=list)
    timings: dict[str, Timing] = field(default_factory=dict)
    ratios: tuple[Ratio, ...] = ()
    notes: list[str] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    failure: Failure | None = None


def round_shape(job: Job, sample_s: float = 0.0) -> tuple[int, int]:
    """Rounds, and samples of each contestant in a round: at least `timed_calls` in all.

    A quick job has LEAST_ROUNDS. Where one sample of each contestant takes so long (`sample_s`) that these take more
    than MOST_TIMING_S, it is as many as fit, and one in each of LEAST_ROUNDS at the least.
    """
    rounds = max(min(LEAST_ROUNDS if job.quick else ROUNDS, job.timed_calls), 1)
    size = -(-job.timed_calls // rounds)
    if sample_s * rounds * size > MOST_TIMING_S:
        rounds = min(rounds, LEAST_ROUNDS)
        size = max(min(size, int(MOST_TIMING_S / (rounds * sample_s))), 1)
    return rounds, size
