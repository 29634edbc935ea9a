"""Probes: micro-profiling tools that turn a profile into advice (KernelPro's semantic feedback operator).

    diagnose(profile, bound, source)     all advice for a version, best first

A probe is a plug-in (entry point `workbench.probes`). It looks at one question: trigger, analysis, recommendation. The
profile comes from Nsight Compute or from the emulator's counters at full size; both fill the same fields.
"""

from __future__ import annotations

from workbench.probes.base import KernelProbe
from workbench.probes.diagnosing import diagnose, load_probes
from workbench.probes.signals import Signals

__all__ = ["KernelProbe", "Signals", "diagnose", "load_probes"]
