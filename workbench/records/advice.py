"""What probes say about a kernel (workbench/probes): advice, and the diagnosis that ranks it."""

from __future__ import annotations

from typing import Literal

from workbench.records.base import Provenance, record

Severity = Literal["high", "medium", "low"]
Bottleneck = Literal["memory", "compute", "latency", "mixed", "CTA launch"]
Direction = Literal["more", "less", "other"]


@record
class Measure:
    """One number behind an advice, and the limit that it passes."""

    name: str
    value: float
    limit: float | None = None
    unit: Literal["", "%", "x", "bytes", "s", "cycles"] = ""  # "%": `value` is a fraction; "x": a ratio


@record
class Move:
    """A change of one setting of a program: a larger value, a smaller one, or another (also: set it, leave it out)."""

    setting: str
    direction: Direction


@record
class Advice:
    """What one probe advises for one kernel of a version."""

    probe: str
    severity: Severity
    cause: str  # one sentence: what costs time
    action: str  # one sentence: what to change
    kernel: str = ""
    line: int | None = None  # 1-based, in the candidate's file
    evidence: tuple[Measure, ...] = ()
    moves: tuple[Move, ...] = ()  # the change as settings of a program, most promising first
    pattern: str = ""  # what code search is asked for an example
    # so many times faster without this cost alone, by the shares of the time; never above the room to the bound
    gain: float = 1.0
    hit_rate: float | None = None  # how often such advice helped in landscapes; None = not calibrated
    mean_gain: float | None = None  # the speed-up of the advised change there, in the mean
    tried: int = 0  # changes of this user's on such advice, and how many of them helped (workbench/lessons.py)
    helped: int = 0
    provenance: Provenance = "counted"


@record
class Experience:
    """How often the changes on a probe's advice helped this user."""

    tried: int = 0
    helped: int = 0


@record
class Diagnosis:
    """All advice for one version, best first, and the class of the kernel from the two-stage analysis."""

    device: str
    case: str
    provenance: Provenance  # of the profile
    bottleneck: Bottleneck
    analytic: Bottleneck  # by the problem's FLOPs and bytes against the device's ridge
    measured: Bottleneck  # by the shares of the profile
    note: str = ""  # where the two disagree
    seconds: float | None = None  # of the call
    room: float | None = None  # time over the attainable bound; None = unknown
    advice: tuple[Advice, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()  # (probe, why it was not asked)

    @property
    def exhausted(self) -> bool:
        """Whether the bound leaves nothing to gain."""
        return self.room is not None and self.room < NO_ROOM


NO_ROOM = 1.05  # time over the attainable bound below which nothing is to be gained (chosen)
