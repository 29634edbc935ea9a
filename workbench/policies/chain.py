"""The policy `chain`: improves one kernel step by step.

After CuTeGen (arXiv 2604.01489, sections 3 to 5) and the authors' repository.

A node is one depth of the chain: depth 0 writes the first version, each further depth makes one change. A failed
version of a node is repaired up to `repair_rounds` times. Then the best state by rank is restored (passes, wrong
result, does not compile, nothing), and the node is generated again from scratch, up to `regenerate` times. A version
that timed out is run again; that uses no round.
"""

from __future__ import annotations

from typing import Literal

from workbench.errors import UserError
from workbench.records import Failure, Verdict, record

# Kind of computation -> the depth after which the model is shown the profile (the paper's values for 10 steps).
# Softmax and norms count as reductions.
PROFILE_FROM = (
    ("matmul", 6),
    ("attention", 6),
    ("convolution", 6),
    ("reduction", 5),
    ("loss", 3),
    ("elementwise", 2),
    ("other", 5),
)
RANKS = ("nothing", "compile", "wrong", "pass")
Action = Literal["generate", "repair", "retest", "done", "failed"]


@record
class ChainSettings:
    """The constants of the paper with its values as defaults, except `accept`."""

    depth: int = 10
    repair_rounds: int = 5
    regenerate: int = 3
    timeouts: int = 3
    profile_from: tuple[tuple[str, int], ...] = PROFILE_FROM
    profile: Literal["late", "always", "never"] = "late"
    accept: Literal["faster", "correct"] = "faster"  # the paper accepts every correct version
    continue_from: Literal["latest", "best"] = "latest"

    def __post_init__(self) -> None:
        for name in ("depth", "repair_rounds", "regenerate", "timeouts"):
            if getattr(self, name) < (1 if name == "regenerate" else 0):
                raise UserError(
                    f"chain: {name} is {getattr(self, name)}; it must be at least {1 if name == 'regenerate' else 0}"
                )

    def shows_profile(self, workload: str, depth: int) -> bool:
        """Whether a step to this depth is shown the profile."""
        if self.profile != "late":
            return self.profile == "always"
        return depth > dict(self.profile_from).get(workload, dict(self.profile_from)["other"])


@record
class NodeTrial:
    """One evaluated version of a node: its number, its rank, and the repair round that made it.

    A round without a usable answer is an entry of the broken version with that round's number.
    """

    version: int
    rank: int
    round: int = 0
    timed_out: bool = False


def rank(verdict: Verdict | None) -> int:
    """3 if it passes, 2 for a wrong result or a run-time failure, 1 if it does not compile, 0 without a verdict."""
    if verdict is None:
        return 0
    if verdict.correct:
        return 3
    failure: Failure | None = verdict.failure
    return 1 if failure is not None and failure.stage in ("source", "import", "compile") else 2


def next_action(settings: ChainSettings, attempts: tuple[tuple[NodeTrial, ...], ...]) -> Action:
    """The next action in a node, given its attempts so far.

    An attempt lists its evaluated versions in order. A re-test is an entry of its own.
    """
    if not attempts:
        return "generate"
    now = attempts[-1]
    if any(tried.rank == 3 for tried in now):
        return "done"
    if now and now[-1].timed_out and sum(tried.timed_out for tried in now) <= settings.timeouts:
        return "retest"
    if now and now[-1].round < settings.repair_rounds:
        return "repair"
    return "generate" if len(attempts) < settings.regenerate else "failed"


def furthest_version(attempts: tuple[tuple[NodeTrial, ...], ...]) -> int | None:
    """The version that a failed node restores: the best by rank, the latest among equals."""
    everything = [tried for attempt in attempts for tried in attempt]
    return max(enumerate(everything), key=lambda item: (item[1].rank, item[0]))[1].version if everything else None
