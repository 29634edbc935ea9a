"""The records that pass between the parts of the workbench: frozen, keyword-only, JSON-able (see wire.py).

Units are in the names: `_s` seconds, `_bytes` bytes, `_flops` floating-point operations. Shapes and strides are in
elements. A number is `counted` (exact, by the emulator or from tensor sizes), `modelled` (computed from counts and a
device's rates) or `measured` (by a clock on a GPU). The three never share a field.
"""

from __future__ import annotations

from workbench.records.advice import NO_ROOM, Advice, Bottleneck, Diagnosis, Experience, Measure, Move, Severity
from workbench.records.base import Mode, Precision, Provenance, Scalar, Settings, Stage, TorchCompile, record
from workbench.records.conversation import Message, Reply, Spent, ToolCall
from workbench.records.history import Ask, Bound, Decision, Event, RecordedTime, Trial, Verdict, Version
from workbench.records.launch import (
    CodeDepth,
    CtaTimeline,
    Failure,
    Finding,
    KernelBuild,
    L2Traffic,
    L2Use,
    Launch,
    LineCounts,
    kernel_function,
)
from workbench.records.lesson import Lesson, LessonOutcome
from workbench.records.outcome import Check, DeviceState, Job, Outcome, Ratio, Refusal, Timing, TorchWork, WrongValues
from workbench.records.problem import (
    LONGEST_VALUE,
    NOTHING,
    Case,
    Degeneracy,
    Facts,
    GivenNumber,
    NumberUse,
    Opened,
    Operation,
    Problem,
    Size,
    TensorSpec,
    Work,
)
from workbench.records.profile import (
    Energy,
    EnergyEstimate,
    KernelMetrics,
    LineProfile,
    Profile,
    Span,
    StoredProfile,
    Timeline,
)
from workbench.records.proposal import Candidate, Exchange, Proposal

__all__ = [
    "LONGEST_VALUE",
    "NOTHING",
    "NO_ROOM",
    "Advice",
    "Ask",
    "Bottleneck",
    "Bound",
    "Candidate",
    "Case",
    "Check",
    "CodeDepth",
    "CtaTimeline",
    "Decision",
    "Degeneracy",
    "DeviceState",
    "Diagnosis",
    "Energy",
    "EnergyEstimate",
    "Event",
    "Exchange",
    "Experience",
    "Facts",
    "Failure",
    "Finding",
    "GivenNumber",
    "Job",
    "KernelBuild",
    "KernelMetrics",
    "L2Traffic",
    "L2Use",
    "Launch",
    "Lesson",
    "LessonOutcome",
    "LineCounts",
    "LineProfile",
    "Measure",
    "Message",
    "Mode",
    "Move",
    "NumberUse",
    "Opened",
    "Operation",
    "Outcome",
    "Precision",
    "Problem",
    "Profile",
    "Proposal",
    "Provenance",
    "Ratio",
    "RecordedTime",
    "Refusal",
    "Reply",
    "Scalar",
    "Settings",
    "Severity",
    "Size",
    "Span",
    "Spent",
    "Stage",
    "StoredProfile",
    "TensorSpec",
    "Timeline",
    "Timing",
    "ToolCall",
    "TorchCompile",
    "TorchWork",
    "Trial",
    "Verdict",
    "Version",
    "Work",
    "WrongValues",
    "kernel_function",
    "record",
]
