"""The two-stage analysis of KernelPro: the class of a kernel, then the probes that suit it.

Stage 1 has two answers: `analytic`, the problem's FLOPs and bytes against the device's ridge, and `measured`, the
profile's busiest resources. Where one says memory and the other compute, the analytic one holds, because it is the
limit of the problem and not of this implementation. Stage 2 asks the probes whose classes have it.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.probes.signals import COMPUTE, CTA_LAUNCH, MEMORY, Signals
from workbench.records import Bottleneck, Bound

SATURATED = 0.6  # a resource that is busy for this share of the time limits the kernel (inferred)
NEAR = 1.5  # compute and memory times of the bound within this ratio: mixed (inferred)


def classify_bound(bound: Bound) -> Bottleneck:
    """The class of the problem itself."""
    low, high = sorted((bound.compute_s, bound.memory_s))
    if low > 0 and high / low < NEAR:
        return "mixed"
    return bound.limited_by


def classify_profile(kernels: Sequence[Signals]) -> Bottleneck:
    """The class of a run: of its longest kernel."""
    longest = max(kernels, key=lambda kernel: kernel.seconds)
    memory = max(longest.busy[name] for name in MEMORY)
    compute = max(longest.busy[name] for name in COMPUTE)
    if longest.busy[CTA_LAUNCH] >= max(longest.busy.values()):
        return "CTA launch"
    if max(memory, compute) < SATURATED:
        return "latency"
    if min(memory, compute) >= SATURATED:
        return "mixed"
    return "memory" if memory > compute else "compute"


def choose_class(analytic: Bottleneck, measured: Bottleneck) -> tuple[Bottleneck, str]:
    """(the class that holds, a sentence where the two answers disagree)."""
    if {analytic, measured} == {"memory", "compute"}:
        return analytic, (
            f"the problem is limited by {analytic}, this kernel keeps {_units(measured)} busiest: "
            f"the problem's own limit decides which probes are asked"
        )
    if measured == "CTA launch":
        return analytic, "its many CTAs take longer to start than to work"
    if measured == "latency":
        return analytic, f"no unit is busy for {SATURATED:.0%} of the time: warps wait"
    return (measured if analytic == "mixed" else analytic), ""


def _units(bottleneck: Bottleneck) -> str:
    return "the memory system" if bottleneck == "memory" else "the arithmetic units"


def select_classes(chosen: Bottleneck, measured: Bottleneck) -> frozenset[str]:
    """The classes whose probes are asked: the chosen one, both if it is mixed, and latency where warps wait."""
    found = {"memory", "compute"} if chosen == "mixed" else {chosen}
    return frozenset(
        found | ({"latency"} if measured in ("latency", "mixed", "CTA launch") or chosen == "latency" else set())
    )
