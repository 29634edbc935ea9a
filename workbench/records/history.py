"""Verdicts, decisions and versions of a session; requests to proposers; events."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from workbench.records.advice import Diagnosis
from workbench.records.base import LATER, Provenance, Scalar, record
from workbench.records.launch import Failure
from workbench.records.outcome import Outcome
from workbench.records.problem import Facts, Problem
from workbench.records.profile import Energy, EnergyEstimate
from workbench.records.proposal import Proposal


@record
class Bound:
    """Speed of light at one case (muCUTLASS, section 2.3 of its paper): max(FLOPs / peak, bytes / bandwidth)."""

    case: str
    device: str
    flops: int
    least_bytes: int
    peak_flops: float  # per second
    bandwidth: float  # bytes per second
    compute_s: float
    memory_s: float
    bound_s: float
    limited_by: Literal["compute", "memory"]
    intensity: float  # FLOPs per byte
    ridge: float  # FLOPs per byte
    rates: str  # where the peak rates come from
    provenance: Provenance = "modelled"
    floor_s: float | None = None  # at the most permissive rates; a faster time makes a version suspect
    attainable_s: float | None = None  # at measured ceilings of the device (copy, library matmul), if there are any
    dtype: str = ""  # the dtype of `peak_flops`, as in `Work.dtype`


@record
class RecordedTime:
    """The time of the very same program in a landscape, measured on a GPU at full size. Seconds, of the median."""

    seconds: float
    low_s: float
    high_s: float
    device: str
    date: str


@record
class Verdict:
    """The judgement of one outcome, with messages for the user."""

    correct: bool
    failure: Failure | None = None
    worst_error: float | None = None  # in tolerances
    time_s: float | None = None
    time_provenance: Provenance | None = None  # "measured" on a GPU, "modelled" from the emulator's counters
    time_interval: tuple[float, float] | None = None  # of 90 %, of a modelled time
    limit: str = ""  # the resource that limits a modelled time
    time_note: str = ""  # why there is no time
    recorded: RecordedTime | None = None  # of this program, beside a modelled time
    bound: Bound | None = None
    fraction_of_bound: float | None = None  # bound / time; 1 is the speed of light
    speedup: float | None = None  # over the parent version
    # whether the speed-up is larger than the noise; of modelled times: whether the order can be told without a GPU
    distinguishable: bool | None = None
    suspect: tuple[str, ...] = ()  # integrity doubts, each a sentence
    # of the speed-up: measured if both were timed in one run; of modelled times the range that decides the order
    speedup_interval: tuple[float, float] | None = None
    recorded_speedup: float | None = None  # over the parent, if both programs were recorded
    disturbed: tuple[str, ...] = ()  # why the time may be unreliable, each a sentence
    # about a correct result, each a sentence that begins with its kind: "drops NaN: ..."; they decide nothing
    doubts: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()  # sizes that the candidate's host code refuses: "batch_size=1 (ValueError: ...)"
    untested: tuple[str, ...] = ()  # sizes that no case varied: "N was only tested at 8192"
    # what the cases had: "rows from 0 to 2049", "values: drawn, large", "layouts: as given, transposed"
    tested: tuple[str, ...] = field(default=(), metadata=LATER)
    left_out: tuple[str, ...] = field(default=(), metadata=LATER)  # as in `Outcome`
    refused: str = ""  # set for a time below the device's limit; only a person can accept it, with force
    energy: EnergyEstimate | None = field(default=None, metadata=LATER)  # beside a modelled time
    energy_note: str = field(default="", metadata=LATER)  # why there is no modelled energy beside a modelled time
    # the times that `speedup` compares: of kernels, or of whole calls where the GPU waits for the host
    speedup_of: Literal["kernels", "calls"] = field(default="kernels", metadata=LATER)

    @property
    def basis(self) -> str:
        """What a speed-up rests on: the provenance of the times, and which times decided if not those of kernels."""
        calls = ", of whole calls, because the GPU waits for the host" if self.speedup_of == "calls" else ""
        return f"{self.time_provenance}{calls}"


@record
class Trial:
    """One evaluation of a candidate."""

    outcome: Outcome
    verdict: Verdict
    at: str  # ISO time, UTC


@record
class Decision:
    """A decision by a person or a policy about a version. "part" says that some of its hunks became another version,
    which was accepted.
    """

    kind: Literal["accept", "reject", "part", "undo"]
    version: int
    source_hash: str
    by: str = "person"
    reason: str = ""
    hunks: tuple[int, ...] | None = None  # None = all
    at: str = ""

    @property
    def participle(self) -> str:
        """The decision as a participle: accepted, rejected, accepted in part, taken back."""
        return {"accept": "accepted", "reject": "rejected", "part": "accepted in part", "undo": "taken back"}[self.kind]

    @property
    def taken_back(self) -> str:
        """What is said where this decision was taken back."""
        return f"taken back: v{self.version} {self.participle}"


@record
class Version:
    """One version of a session: its proposal, its trials so far, the decision that holds, its last measured energy."""

    number: int
    parent: int | None
    proposal: Proposal
    source_hash: str
    path: str  # of the file, which is never changed
    trials: tuple[Trial, ...] = ()
    decision: Decision | None = None
    at: str = ""
    energy: Energy | None = field(default=None, metadata=LATER)  # without samples

    @property
    def needs_verdict(self) -> bool:
        """Whether it had no trial yet, or only a quick one of a search (`Job.quick`): no ground to accept it."""
        return not self.trials or self.trials[-1].outcome.quick

    @property
    def standing(self) -> str:
        """accepted, rejected or accepted in part by the decision, else pending."""
        return self.decision.participle if self.decision is not None else "pending"


@record
class Ask:
    """A request to a proposer: the problem, all versions so far, the version to improve, the user's instruction."""

    problem: Problem
    facts: Facts
    history: tuple[Version, ...] = ()
    baseline: Version | None = None  # the accepted version to improve; None = write the first one
    instruction: str = ""
    constraints: tuple[str, ...] = ()
    arch: str = "sm_80"
    device: str = "H200"
    repair: Version | None = None  # the failed version to repair; None = improve the baseline
    question: str = ""  # if set, the proposer answers it about the baseline and writes no version
    depth: int = 0  # of the requested version
    profile: str = ""  # findings of the counters about the baseline; empty if they are not shown
    directives: tuple[str, ...] = ()  # what probes advise on the baseline, in words; empty if they are not shown
    questions: tuple[str, ...] = ()  # "probe: question" of those that a model may ask by its tool `probe`
    diagnosis: Diagnosis | None = None  # of the baseline, from what its test counted
    learnt: tuple[str, ...] = ()  # what the search that asks has found so far, in sentences
    lessons: tuple[str, ...] = ()  # of this user's earlier sessions, in sentences (workbench/lessons.py)
    rules: tuple[str, ...] = ()  # on recorded times of problems of this kind, in sentences (structure.kernels)


@record
class Event:
    """A message during work. `fraction` is the progress from 0 to 1, if known."""

    kind: Literal[
        "proposing",
        "token",
        "proposed",
        "running",
        "waiting",
        "judged",
        "decided",
        "note",
        "stopped",
        "failed",
        "search",  # an event of a search, which its own table has; never stored here
        "closed",  # the session; never stored
    ]
    message: str = ""
    version: int | None = None
    fraction: float | None = None
    data: tuple[tuple[str, Scalar], ...] = field(default=())
