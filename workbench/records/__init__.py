"""Every noun that flows through the workbench: frozen, keyword-only, JSON-able records (see wire.py).

Units are in the names: `_s` seconds, `_bytes` bytes, `_flops` floating-point operations. Shapes and strides are in
elements. A number is `counted` (exact, by the emulator or from tensor sizes), `modelled` (computed from counted ones
and a device's rates) or `measured` (by a clock on a GPU); the three never share a field.
"""

from __future__ import annotations

from workbench.records.base import Mode, Precision, Provenance, Scalar, Settings, Stage, record
from workbench.records.history import Ask, Bound, Decision, Event, Trial, Verdict, Version
from workbench.records.launch import Failure, Finding, KernelBuild, Launch, LineCounts, Paced
from workbench.records.outcome import Check, Job, Outcome, Ratio, Surroundings, Timing
from workbench.records.problem import Case, Degeneracy, Facts, Operation, Problem, TensorSpec, Work
from workbench.records.profile import Energy, KernelMetrics, LineProfile, Profile, Span, Timeline
from workbench.records.proposal import Candidate, Exchange, Proposal

__all__ = [
    "Ask", "Bound", "Candidate", "Case", "Check", "Decision", "Degeneracy", "Energy", "Event", "Exchange", "Facts", "Failure", "Finding", "Job", "KernelBuild",
    "KernelMetrics", "Launch", "LineCounts", "LineProfile", "Mode", "Operation", "Outcome", "Paced", "Precision", "Problem", "Profile", "Proposal", "Provenance",
    "Ratio", "Scalar", "Settings", "Span", "Stage", "Surroundings", "TensorSpec", "Timeline", "Timing", "Trial", "Verdict", "Version", "Work", "record",
]  # fmt: skip
