"""What became of it: judgements, decisions, versions, and what is asked and told."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from workbench.records.base import Provenance, Scalar, record
from workbench.records.launch import Failure
from workbench.records.outcome import Outcome
from workbench.records.problem import Facts, Problem
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
    floor_s: float | None = None  # with the most permissive rates: what no correct kernel can beat (the suspect test)
    attainable_s: float | None = (
        None  # with measured ceilings of this device (a copy, a library matmul); None where none was measured
    )
    dtype: str = ""  # whose rate it is: the policy on precision, as `Work.dtype`


@record
class Verdict:
    """The judgement of one outcome, in the words that a person is shown."""

    correct: bool
    failure: Failure | None = None
    worst_error: float | None = None  # in tolerances
    time_s: float | None = None
    time_provenance: Provenance | None = None  # "measured" on a GPU, "modelled" from the emulator's counters
    bound: Bound | None = None
    fraction_of_bound: float | None = None  # bound / time; 1 is the speed of light
    speedup: float | None = None  # over the parent version
    distinguishable: bool | None = None  # whether that speed-up is larger than the noise
    suspect: tuple[str, ...] = ()  # integrity doubts, each a sentence
    speedup_interval: tuple[float, float] | None = None  # of the speed-up, where both were timed in one run
    disturbed: tuple[str, ...] = ()  # why the time may not hold, each a sentence
    refused: str = ""  # the doubt that no policy accepts, and a person only with force: faster than the device can be


@record
class Trial:
    """One candidate evaluated once."""

    outcome: Outcome
    verdict: Verdict
    at: str  # ISO time, UTC


@record
class Decision:
    """What the person (or a policy) said about a version."""

    kind: Literal["accept", "reject", "undo"]
    version: int
    source_hash: str
    by: str = "person"
    reason: str = ""
    hunks: tuple[int, ...] | None = None  # None = all
    at: str = ""


@record
class Version:
    """One step of a session, as the store tells it: proposal, trials so far, the standing decision."""

    number: int
    parent: int | None
    proposal: Proposal
    source_hash: str
    path: str  # the immutable file
    trials: tuple[Trial, ...] = ()
    decision: Decision | None = None
    at: str = ""


@record
class Ask:
    """What a proposer is given: the problem, everything tried so far, the version to improve and the person's words."""

    problem: Problem
    facts: Facts
    history: tuple[Version, ...] = ()
    baseline: Version | None = None  # the accepted version to start from; None = write the first
    instruction: str = ""
    constraints: tuple[str, ...] = ()
    arch: str = "sm_80"
    device: str = "H200"
    repair: Version | None = None  # the failed version to repair; None = improve the baseline
    question: str = ""  # answer this about the baseline instead of writing a version
    depth: int = 0  # of the version that is asked for
    profile: str = ""  # what counters say about the baseline, where the time has come to show it


@record
class Event:
    """Something to show while work goes on. `fraction` is 0..1 where progress is known."""

    kind: Literal["proposing", "token", "proposed", "running", "judged", "decided", "note", "stopped", "failed"]
    message: str = ""
    version: int | None = None
    fraction: float | None = None
    data: tuple[tuple[str, Scalar], ...] = field(default=())
