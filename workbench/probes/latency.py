"""Probes of waiting: memory latency, barriers, the depth of a pipeline, TMA and clusters, the epilogue."""

from __future__ import annotations

import math
import re

from workbench.probes.base import (
    FEW_THREADS,
    LESS,
    MORE,
    OTHER,
    KernelProbe,
    most_waited,
    moves,
    spread_rows,
    worst_line,
)
from workbench.probes.grid import fills_device
from workbench.probes.memory import NARROW, mean_access
from workbench.probes.signals import LATENCY, MEMORY_STALLS, WAITS, Signals
from workbench.probes.two_stage import SATURATED
from workbench.records import Advice, Bound, LineProfile, Measure, Profile

STALLED = 0.4  # share of the dominant reason among all stalls (KernelPro's trigger)
WARP = 32
LOOPED = 16  # barriers that each warp meets, from which they are in a loop (chosen)
ACCESSES = 2.0  # of a warp to global memory for a barrier: a loop with more has the loads in flight at once (chosen)
HELD = 0.3  # part of the waiting for memory that goes where warps need not wait for each other's loads (chosen)
BARRIER = 0.3  # share of barriers among all stalls (KernelPro's trigger)
PRESSED = 0.3  # part of the waiting that goes where registers keep warps off: they are the larger cause (chosen)
EPILOGUE = 0.25  # share of the warps' waiting after the first store (inferred)
SHARED_L2 = 0.4  # share of L2 (inferred)
SHARED = {"L2": 0.7, LATENCY: 0.9}  # what is left where two CTAs share an operand (inferred)
HIDDEN = {"L2": 0.85}  # and where a further stage fits: the waiting is left to `pipeline_depth` (chosen)
SHARED_ROOM = 1.5  # a further stage must fit: limit of an SM over what a CTA uses (inferred)
BARRIER_STALLS = ("barrier", "membar")
AT_BARRIER = r"sync_threads|barrier|sync_warp|cluster_(arrive|wait)"  # text of lines where warps meet
TMA_COPY = r"cute\.copy\(\s*tma|cute\.copy\($"
AT_COPIES = r"consumer_wait|wait_group|mbarrier_wait"  # text of lines that wait for asynchronous copies
PRODUCT = re.compile(r"\bgemm\(|warpgroup\.wait_group|\.advance\(\)|consumer_release")  # text of a main loop's lines
ASYNC = re.compile(r"cp_async|cpasync|CopyG2S|PipelineTma|make_tiled_tma_atom")


class MemoryLatency(KernelProbe):
    """Are enough bytes in flight?"""

    name = "memory_latency"
    question = "Are enough loads in flight to cover the latency of memory?"
    classes = frozenset({"latency", "memory"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: warps wait for memory for over STALLED of their stalls, and latency is over WAITS of the time."""
        share = kernel.stall_share(*MEMORY_STALLS)
        if share <= STALLED or kernel.waiting <= WAITS or kernel.busy["DRAM"] > 0.8:
            return None
        if kernel.busiest[1] < SATURATED and waits_for_copies(kernel, source):  # `pipeline_depth` says more
            return None
        if meets_after_loads(kernel, profile):  # `barrier_stalls`: further loads wait behind the barrier
            return None
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain({LATENCY: 1 - (PRESSED if kernel.pressed else 0.45) * share}),
            cause=f"warps wait for memory in {share:.0%} of their stalls; DRAM is busy for {kernel.busy['DRAM']:.0%}",
            action="start more loads before the first is needed: unroll, wider vectors, several rows at a time, "
            "larger tiles, asynchronous copies in stages, or more resident warps",
            evidence=(
                Measure(name="stalls for memory", value=share, limit=STALLED, unit="%"),
                Measure(name="waiting", value=kernel.waiting, limit=WAITS, unit="%"),
            ),
            changes=moves(
                *(() if kernel.pressed else deepen(kernel)),
                *((("tile", MORE),) if fills_device(kernel) else ()),
                *spread_rows(kernel),
                *((("threads", MORE),) if math.prod(kernel.metrics.block) < FEW_THREADS else ()),
            ),
            line=most_waited(profile.lines, *MEMORY_STALLS),
            pattern="prefetch unroll cp.async multistage pipeline",
        )


def deepen(kernel: Signals) -> tuple[tuple[str, str], ...]:
    """The moves that give a thread more loads in flight, for which it needs registers."""
    narrow = (mean_access(kernel) or 0.0) <= NARROW
    return (*((("vector", MORE),) if narrow else ()), ("unroll", MORE), ("rows", MORE))


class BarrierStalls(KernelProbe):
    """Do warps wait for each other?"""

    name = "barrier_stalls"
    question = "Do warps wait for each other at barriers?"
    classes = frozenset({"latency", "memory", "compute"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: over BARRIER of the stalls are at barriers; or a loop has at most ACCESSES accesses to
        global memory for a barrier, and warps wait for memory before it.
        """
        share = kernel.stall_share(*BARRIER_STALLS)
        if share <= BARRIER:
            return self._after_loads(kernel, profile)
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain({LATENCY: max(1 - share, 0.5)}),
            cause=f"warps wait at barriers in {share:.0%} of their stalls",
            action="use fewer barriers: reduce inside warps first, fewer warps for a row, several rows for a barrier, "
            "or named barriers and a producer warp",
            evidence=(Measure(name="stalls at barriers", value=share, limit=BARRIER, unit="%"),),
            changes=moves(("threads_per_row", LESS), ("parts", OTHER), ("schedule", OTHER), ("threads", LESS)),
            line=most_waited(profile.lines, *BARRIER_STALLS, text=AT_BARRIER),
            pattern="warp reduce shuffle named barrier",
        )

    def _after_loads(self, kernel: Signals, profile: Profile) -> Advice | None:
        if not meets_after_loads(kernel, profile):
            return None
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain({LATENCY: 1 - HELD * kernel.stall_share(*MEMORY_STALLS)}),
            cause="a loop has a barrier for every few loads: all warps of a CTA wait for the slowest load of each turn",
            action="take the barrier out of the loop where no warp reads what another wrote in that turn; else load "
            "the next turn's values before the barrier, or do several turns for a barrier",
            evidence=(
                Measure(name="accesses for a barrier", value=_barriers_of(kernel, profile)[1], limit=ACCESSES),
                Measure(name="stalls for memory", value=kernel.stall_share(*MEMORY_STALLS), limit=STALLED, unit="%"),
            ),
            line=most_waited(profile.lines, *BARRIER_STALLS, text=AT_BARRIER),
            pattern="multistage pipeline named barrier",
        )


def meets_after_loads(kernel: Signals, profile: Profile) -> bool:
    """Whether a loop without tensor cores and asynchronous copies has barriers at which the slowest load is waited for;
    only the emulator counts them.
    """
    metrics = kernel.metrics
    if metrics.tensor_flops or metrics.async_copies or kernel.waiting <= WAITS:
        return False
    met, accesses = _barriers_of(kernel, profile)
    return met >= LOOPED and accesses <= ACCESSES and kernel.stall_share(*MEMORY_STALLS) > STALLED


def _barriers_of(kernel: Signals, profile: Profile) -> tuple[float, float]:
    """The barriers that a warp meets, and its accesses to global memory for each; (0, 0) where unknown."""
    launch = next((item for item in profile.launches if item.kernel == kernel.metrics.kernel), None)
    barriers = dict(launch.classes).get("barrier", 0) / WARP if launch is not None else 0.0
    if launch is None or not barriers:
        return 0.0, 0.0
    warps = math.prod(launch.grid) * math.prod(launch.block) / WARP
    return barriers / warps, launch.total.global_requests / barriers


class PipelineDepth(KernelProbe):
    """Do copies run far enough ahead of the arithmetic?"""

    name = "pipeline_depth"
    question = "Do asynchronous copies run far enough ahead of the arithmetic?"
    classes = frozenset({"compute", "latency"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: over STALLED of the stalls wait for asynchronous copies, and a further stage fits."""
        share = kernel.stall_share(*MEMORY_STALLS)
        if not waits_for_copies(kernel, source):
            return None
        used = _shared_bytes(kernel)
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain({LATENCY: 1 - 0.6 * share}),
            cause=f"{share:.0%} of the stalls wait for copies, and {used / 1024:.0f} KB of shared memory are used of "
            f"{kernel.device.shared_bytes_per_block / 1024:.0f}",
            action="add stages: copies of later tiles run while this one is computed",
            evidence=(
                Measure(name="stalls for memory", value=share, limit=STALLED, unit="%"),
                Measure(
                    name="shared memory", value=used, limit=float(kernel.device.shared_bytes_per_block), unit="bytes"
                ),
            ),
            changes=moves(("stages", MORE)),
            line=most_waited(profile.lines, *MEMORY_STALLS, text=AT_COPIES),
            pattern="multistage pipeline stages cp.async tma",
        )


class TmaAndClusters(KernelProbe):
    """Does a product on Hopper load by TMA, and share operands in clusters?"""

    name = "tma_clusters"
    question = "Do tiles come by TMA, and do CTAs of a cluster share them?"
    classes = frozenset({"compute", "latency", "memory"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: a Hopper kernel with wgmma and no cluster, while L2 is busy for over SHARED_L2 of the time."""
        if not shares_nothing(kernel):
            return None
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain(HIDDEN if waits_for_copies(kernel, source) else SHARED),
            cause=f"each CTA loads both operands by itself, and L2 is busy for {kernel.busy['L2']:.0%} of the time",
            action="put two CTAs into a cluster that share an operand by TMA multicast",
            evidence=(Measure(name="L2", value=kernel.busy["L2"], limit=SHARED_L2, unit="%"),),
            changes=moves(("cluster", MORE)),
            line=worst_line(profile.lines, lambda line: line.sectors or 0.0)
            or most_waited(profile.lines, text=TMA_COPY),
            pattern="tma multicast cluster",
        )


class EpilogueCost(KernelProbe):
    """Does the epilogue hold up the next tile?"""

    name = "epilogue"
    question = "Does storing the result hold up the next tile?"
    classes = frozenset({"compute", "latency"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: in a kernel with tensor cores, over EPILOGUE of the waiting is at lines of the store or after it."""
        if not kernel.metrics.tensor_flops or kernel.on_slow_path:
            return None
        share, line = waiting_after_stores(profile.lines)
        if share <= EPILOGUE:
            return None
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain({LATENCY: max(1 - share, 0.6), "issue": 0.95}),
            cause=f"{share:.0%} of the warps' waiting is in the epilogue, while the tensor cores are idle",
            action="let two warpgroups take turns (pingpong), or store through shared memory by TMA",
            evidence=(Measure(name="waiting in the epilogue", value=share, limit=EPILOGUE, unit="%"),),
            changes=moves(("schedule", OTHER), ("store", OTHER), ("tile", LESS)),
            line=line,
            pattern="pingpong epilogue tma store",
        )


def shares_nothing(kernel: Signals) -> bool:
    """Whether a kernel for Hopper with wgmma has no cluster, while L2 is busy for over SHARED_L2 of the time."""
    on_wgmma = kernel.device.arch == "sm_90a" and bool(kernel.metrics.tensor_flops) and not kernel.on_slow_path
    return on_wgmma and kernel.metrics.cluster == 1 and kernel.busy["L2"] >= SHARED_L2


def waits_for_copies(kernel: Signals, source: str) -> bool:
    """Whether over STALLED of the stalls wait for asynchronous copies, and a further stage fits."""
    share, used = kernel.stall_share(*MEMORY_STALLS), _shared_bytes(kernel)
    if not _copies(kernel, source) or share <= STALLED or kernel.busiest[1] > 0.8:
        return False
    return used > 0 and kernel.device.shared_bytes_per_block / used >= SHARED_ROOM


def _shared_bytes(kernel: Signals) -> float:
    return (kernel.metrics.dynamic_shared_bytes or 0.0) + (kernel.metrics.static_shared_bytes or 0.0)


def _copies(kernel: Signals, source: str) -> bool:
    """Whether the kernel copies asynchronously: counted, else by the names in its source."""
    counted = kernel.metrics.async_copies
    return bool(ASYNC.search(source)) if counted is None else counted


def waiting_after_stores(lines: tuple[LineProfile, ...]) -> tuple[float, int | None]:
    """(share of all waiting at lines from the first store of results on, the line there with the most)."""
    stores = [line for line in lines if line.stored_bytes]  # of results: the line that stores most
    first = max(stores, key=lambda line: line.stored_bytes or 0.0).line if stores else None
    whole = sum(_waiting(line) for line in lines)
    if first is None or not whole:
        return 0.0, None
    products = [line.line for line in lines if PRODUCT.search(line.text)]
    before = [line for line in products if line < first]
    if before:
        first, end = before[-1] + 1, math.inf
    else:  # the product is written below the epilogue
        end = products[0] if products else math.inf
    late = [line for line in lines if first <= line.line < end]
    return sum(map(_waiting, late)) / whole, worst_line(late, _waiting)


def _waiting(line: LineProfile) -> float:
    return sum(amount for _, amount in line.stalls)
