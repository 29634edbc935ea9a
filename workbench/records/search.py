"""A search over versions of a kernel: candidates, priors, results, and the events that are the whole of its log.

`SearchCandidate` is what a search may try; `Candidate` (proposal.py) is a source that an executor runs.
"""

from __future__ import annotations

import math
from typing import Literal

from workbench.records.base import Scalar, record

CandidateKind = Literal["idea", "repair"]
SearchOutcome = Literal["passed", "failed", "compile-error"]
SearchAim = Literal["time", "energy"]
SearchAuthor = Literal["strategy", "expander", "engine", "person"]
SearchEventKind = Literal[
    "started",  # `setup` holds the strategy, its constants, the seed and the budget
    "added",  # `candidates` has one; by the strategy: it is tried at once
    "tried",  # `result`
    "verified",  # `result` replaces one of a quick trial
    "opened",  # the expander was asked for children of `node`; `candidates` are new nodes, none = nothing is left
    "pruned",
    "revived",
    "pinned",
    "unpinned",
    "idea",  # a person's idea in words; `candidates` has one, of which the expander makes children
    "budget",  # `budget` replaces the one before
    "taken",  # the node became a version of the session
    "stopped",
]


@record
class Prior:
    """What is expected of a candidate before it is tried. It never enters a verdict.

    `log_speedup` is the natural logarithm of the speed-up over a reference that all candidates of a search share;
    strategies use differences only. `low` and `high` bound 90 %.
    """

    log_speedup: float
    low: float
    high: float
    source: str  # time model, rules of landscapes, planner, advice, ROI

    @property
    def deviation(self) -> float:
        """The standard deviation of a normal distribution with this interval."""
        return (self.high - self.low) / (2 * NORMAL_90)


NORMAL_90 = 1.645  # standard deviations on either side of the mean that hold 90 %


@record
class SearchCandidate:
    """Something to try: a muCUTLASS program, a source, or an idea in words that the expander makes into one.

    `key` is a hash of the emitted code; two candidates with one key are one, and it is tried once.
    """

    key: str
    text: str
    title: str
    prior: Prior | None = None
    kind: CandidateKind = "idea"  # a repair of a failed parent is no idea of its own
    in_words: bool = False  # `text` is an instruction for the expander, which is never tried itself


@record
class NodeResult:
    """What trying a candidate gave, and what it cost. Times of the kernel are seconds per call, `seconds` is spent."""

    outcome: SearchOutcome
    time_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    joules: float | None = None  # of a call
    message: str = ""
    seconds: float = 0.0
    spent_joules: float = 0.0  # by trying it
    tokens: int = 0
    usd: float = 0.0
    screened: bool = False  # judged without a GPU and not sent there, so it costs no trial
    version: int | None = None  # of the session
    quick: bool = False  # by a quick trial: no ground to be the best


@record
class SearchBudget:
    """What a search may spend at most; None = without limit."""

    trials: int | None = None  # results that were not screened out
    seconds: float | None = None
    tokens: int | None = None
    usd: float | None = None
    joules: float | None = None


@record
class Reward:
    """The reward of a result lies in [-1 / clip, 1]. KernelPro's own constants were not found; all are inferred.

    passed: clip(log2(reference / time), -1, clip) / clip, with the first correct time of the search as the reference.
    """

    clip: float = 4.0  # log2 of the speed-up that gives a reward of 1
    wrong: float = -0.25  # compiled, and wrong: as a pass at half the speed
    broken: float = -0.25  # did not compile

    def of(self, result: NodeResult, reference_s: float | None) -> float:
        """The reward of one result; `reference_s` is the reference's time in seconds."""
        if result.outcome == "compile-error":
            return self.broken
        if result.outcome == "failed" or not result.time_s or not reference_s:
            return self.wrong
        return min(self.clip, max(-1.0, math.log2(reference_s / result.time_s))) / self.clip


@record
class SearchSetup:
    """How a search began. A search is resumed only with the same strategy and constants."""

    strategy: str
    seed: int
    constants: tuple[tuple[str, Scalar], ...]
    aim: SearchAim = "time"
    expander: str = ""  # what writes its candidates: the proposer of a session's search
    start: int | None = None  # the version of the session from which it began
    reward: Reward = Reward()


@record
class SearchEvent:
    """One entry of a search's log. Which fields count depends on `kind`; nodes are numbered in the order of the log."""

    number: int
    kind: SearchEventKind
    node: int | None = None  # the node that it is about; of `added` and `idea` not set: a new node has the next number
    parent: int | None = None
    candidates: tuple[SearchCandidate, ...] = ()
    result: NodeResult | None = None
    reason: str = ""
    by: SearchAuthor = "strategy"
    setup: SearchSetup | None = None
    budget: SearchBudget | None = None
    at: str = ""  # ISO time, UTC; nothing depends on it
