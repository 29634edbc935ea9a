"""Probes of global memory: coalescing, width of accesses, reuse in L2, repeated reads, the rate of DRAM."""

from __future__ import annotations

import math
from dataclasses import replace

from workbench.probes.base import (
    LESS,
    MANY_THREADS,
    MORE,
    OTHER,
    KernelProbe,
    excess_sectors,
    most_waited,
    moves,
    worst_access,
)
from workbench.probes.grid import fewer_parts
from workbench.probes.signals import CTA_LAUNCH, LATENCY, MEMORY_STALLS, SPILLED, WAITS, Signals, read_signals
from workbench.records import Advice, Bound, KernelMetrics, LineProfile, Measure, Profile

WASTE = 1.2  # sectors over the least (KernelPro's trigger for uncoalesced access)
WIDE = 16  # bytes of the widest access of a thread
NARROW = 8.0  # mean bytes of an access that are worth widening (inferred)
MISSES = 0.1  # L1 hit rate of a kernel that streams (inferred)
AGAIN = 1.2  # DRAM reads over the least (inferred)
REPEATED = 1.5  # requested bytes over those that come from beyond L1 (inferred)
PASSES = 6.0  # requested bytes over the problem's above which a kernel reuses data rather than streams it (inferred)
COMPUTES = 0.5  # share of the fp32 units below which they do not limit a kernel that moves data (chosen)
CACHED = 0.3  # share of a cache or of shared memory below which it holds nothing up (inferred)
FULL = 0.8  # share of DRAM's rate (KernelPro's trigger)


class Coalescing(KernelProbe):
    """Do the threads of a warp read and write neighbouring addresses?"""

    name = "coalescing"
    question = "Do the threads of a warp access neighbouring addresses?"
    classes = frozenset({"memory", "latency", "compute"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: sectors over WASTE times those that the accessed bytes need."""
        used, least = kernel.metrics.l1_bytes, kernel.metrics.l1_ideal_bytes
        if not used or not least or used / least <= WASTE:
            return None
        ratio = used / least
        line = worst_access(profile.lines, excess_sectors, source)
        wider = [("threads_per_row", MORE)] if math.prod(kernel.metrics.block) <= MANY_THREADS else []
        by_thread = [*wider, ("vector", LESS)]  # a vector of several accesses spreads each of them
        if (mean_access(kernel) or 0.0) <= NARROW:
            by_thread = [("vector", MORE), *wider]
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain(dict.fromkeys(("L1", "L2", "latency"), 1 / ratio)),
            cause=f"each warp access touches {ratio:.1f}x the 32-byte sectors that its bytes need",
            action="let consecutive threads take consecutive elements; if the layout forbids it, stage a tile through "
            "shared memory and write it out transposed",
            evidence=(Measure(name="sectors over the least", value=ratio, limit=WASTE, unit="x"),),
            changes=moves(*by_thread, ("tile", OTHER)),
            line=line,
            pattern="coalesced copy shared memory transpose",
        )


class AccessWidth(KernelProbe):
    """Does a thread move 16 bytes with one instruction?"""

    name = "access_width"
    question = "Does each thread move 16 bytes with one instruction?"
    classes = frozenset({"memory", "latency"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: a mean access of fewer than NARROW bytes for each thread, in a kernel that streams."""
        width = _moved_by_access(kernel, profile)
        if width is None or not 1 <= width <= NARROW or not streams(kernel, bound):
            return None  # under a byte: few threads of a warp access, which `coalescing` is about
        fewer = max(width / WIDE, 0.25)
        # also fewer threads; a thread with more in flight needs registers, which pressed kernels lack
        saved = ("issue", "L1", CTA_LAUNCH, *(() if kernel.pressed else (LATENCY,)))
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain(dict.fromkeys(saved, fewer)),
            cause=f"a thread moves {width:.0f} bytes with an access of at most {WIDE}",
            action="use wider vector accesses, up to 16 bytes each: fewer instructions, and more bytes in flight",
            evidence=(Measure(name="bytes of an access", value=width, limit=NARROW, unit="bytes"),),
            changes=moves(("vector", MORE), *(() if kernel.pressed else (("unroll", MORE),))),
            line=worst_access(profile.lines, lambda line: line.sectors or 0.0, source),
            pattern="vectorized load 128 bit copy atom",
        )


def streams(kernel: Signals, bound: Bound | None) -> bool:
    """Whether a kernel is about moving data: a memory behind the SM is busier than its arithmetic and shared memory
    (fp32 units count where they are busy for COMPUTES of the time), and it does not ask for the problem's bytes PASSES
    times or more.
    """
    if bound is not None and (kernel.metrics.l1_ideal_bytes or 0.0) > PASSES * bound.least_bytes:
        return False
    moves_data = max(kernel.busy[name] for name in ("DRAM", "L2", "L1"))
    limits = kernel.busy["fp32"] if kernel.busy["fp32"] >= COMPUTES else 0.0
    return moves_data >= max(limits, kernel.busy["shared memory"], kernel.busy["tensor cores"])


def mean_access(kernel: Signals) -> float | None:
    """Mean bytes that a thread moves with one access through L1; None if unknown."""
    requests, least = kernel.metrics.l1_requests, kernel.metrics.l1_ideal_bytes
    return least / requests / 32 if requests and least else None


def _moved_by_access(kernel: Signals, profile: Profile) -> float | None:
    """Mean bytes that a thread moves with one access, what all threads of a warp read at once included where that was
    counted; None if unknown.
    """
    launch = next((item for item in profile.launches if item.kernel == kernel.metrics.kernel), None)
    if launch is None or not launch.total.global_requests:
        return mean_access(kernel)
    total = launch.total
    return (total.global_read_bytes + total.global_write_bytes) / total.global_requests / 32


class L2Locality(KernelProbe):
    """Is data read from DRAM once?"""

    name = "l2_locality"
    question = "Does data that several CTAs need come from DRAM only once?"
    classes = frozenset({"memory", "compute", "latency"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: DRAM traffic of the call over AGAIN times the problem's least bytes, or sectors that the emulated L2
        loads more than AGAIN times in the mean.
        """
        if bound is None or not bound.least_bytes or kernel.spilled > SPILLED:
            return None  # `register_spills`: local memory is what goes through DRAM
        several = len(profile.kernels) > 1
        moved = sum(_dram_bytes(item, bound.least_bytes, kernel.device.l2_bytes, several) for item in profile.kernels)
        modelled, reloads = moved / bound.least_bytes, _count_reloads(profile)
        ratio = max(modelled, reloads)
        if ratio <= AGAIN:
            return None
        if reloads > modelled:  # the model of time has DRAM busy for each byte once
            kernel = replace(kernel, busy={**kernel.busy, "DRAM": kernel.busy["DRAM"] * reloads / modelled})
        waits = kernel.explained_waiting("DRAM")
        if several:  # the call as a whole: its kernels are bound by the same bytes
            kernel = replace(kernel, share=1.0)
        shared = (("cluster", MORE),) if kernel.metrics.tensor_flops else ()  # CTAs of a row share no data
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain(
                {"DRAM": 1 / ratio, LATENCY: 1 - waits * (1 - 1 / ratio), **({"L2": 1 / ratio} if several else {})}
            ),
            cause=f"DRAM moves {ratio:.1f}x the bytes that the problem needs",
            action="let CTAs that share data run at the same time (raster, clusters), use larger tiles, or keep the "
            "data in registers or shared memory between passes; fuse what goes through DRAM in between",
            evidence=(Measure(name="DRAM bytes over the least", value=ratio, limit=AGAIN, unit="x"),),
            # fewer parts: each kernel of a row in parts reads it again
            changes=moves(
                ("kept", MORE), ("raster", OTHER), ("tile", MORE), *shared, *fewer_parts(read_signals(profile))
            ),
            line=worst_access(profile.lines, _read_sectors, source) or most_waited(profile.lines, "long_scoreboard"),
            pattern="raster order swizzle tile scheduler",
        )


def _count_reloads(profile: Profile) -> float:
    """How often a sector comes from DRAM in the emulated L2, over all launches; 0 where not all CTAs were followed."""
    seen = [launch.l2 for launch in profile.launches if launch.l2 is not None and not launch.l2.unseen_bytes]
    touched = sum(l2.touched for l2 in seen)
    return sum(l2.fetched for l2 in seen) / touched if touched and len(seen) == len(profile.launches) else 0.0


def _dram_bytes(item: KernelMetrics, least: float, l2_bytes: float, several: bool) -> float:
    """DRAM bytes of a kernel. Where they are not measured, the model gives the launches of a call the problem's least
    bytes together; a kernel that streams more than L2 holds past L1 moves its own, at most the problem's.
    """
    moved = (item.dram_read_bytes or 0.0) + (item.dram_write_bytes or 0.0)
    asked = item.l1_ideal_bytes or 0.0
    streams = asked > 2 * l2_bytes and item.l1_hit_rate is not None and item.l1_hit_rate < MISSES
    if not several or item.provenance == "measured" or item.tensor_flops or not streams:
        return moved
    return max(moved, min(asked, least))


def _read_sectors(line: LineProfile) -> float:
    return (line.sectors or 0.0) - (line.stored_bytes or 0.0) / 32


class RepeatedReads(KernelProbe):
    """Are elements that a CTA needs several times kept on the SM?"""

    name = "repeated_reads"
    question = "Are elements that a CTA needs several times kept in shared memory or registers?"
    classes = frozenset({"memory", "compute", "latency"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: L1 or L2 are busier than DRAM, with more bytes requested than the problem has; or L2 serves over
        REPEATED times the problem's bytes, while warps wait for memory.
        """
        asked = kernel.metrics.l1_ideal_bytes or kernel.metrics.l1_bytes  # without what `coalescing` is about
        if not asked or bound is None or not bound.least_bytes or kernel.metrics.tensor_flops:
            return None  # tiles of tensor cores: `tensor_feed` and `tma_clusters`
        ratio = asked / bound.least_bytes
        cached = max(kernel.busy[name] for name in ("L1", "L2", "shared memory"))
        waits, cache = 1.0, "L1"
        if cached <= max(kernel.busy["DRAM"], CACHED):
            ratio = min(ratio, (kernel.metrics.l2_bytes or 0.0) / bound.least_bytes)
            cache, waits = "L2", kernel.explained_waiting("L2") * kernel.stall_share(*MEMORY_STALLS)
            if cached <= CACHED or kernel.waiting <= WAITS or kernel.pressed:
                return None  # pressed: `register_pressure` is the larger cause
        if ratio <= REPEATED:
            return None
        if cache == "L2":  # of passes that read as much, the last
            line = worst_access(profile.lines[::-1], _read_sectors, source)
        else:
            shared = kernel.busy["shared memory"] == cached
            line = worst_access(
                profile.lines, lambda line: (line.wavefronts if shared else line.sectors) or 0.0, source
            )
        left = max(1 / ratio, 0.25)
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain(
                {**dict.fromkeys(("L1", "L2", "shared memory", "issue"), left), LATENCY: 1 - waits * (1 - left)}
            ),
            cause=f"the kernel asks {cache} for {ratio:.1f}x the bytes of the problem",
            action="stage tiles in shared memory, keep a row in registers between passes, or let each thread compute "
            "several results from registers",
            evidence=(Measure(name="requested bytes over the least", value=ratio, limit=REPEATED, unit="x"),),
            changes=moves(
                ("tile", MORE), ("thread_tile", MORE), ("kept", MORE), ("filters", MORE), ("rows", MORE), ("mma", MORE)
            ),
            line=line,
            pattern="shared memory tile cp.async copy",
        )


class DramRate(KernelProbe):
    """Is DRAM busy all the time?"""

    name = "dram_rate"
    question = "Is DRAM's rate reached?"
    classes = frozenset({"memory"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: DRAM busy for over FULL of the time, and no bytes to save: only a smaller problem is faster."""
        if kernel.busy["DRAM"] <= FULL or bound is None or bound.attainable_s is None:
            return None
        seconds = sum(item.duration_s or item.modelled_s or 0.0 for item in profile.kernels)
        moved = sum(_dram_bytes(item, bound.least_bytes, kernel.device.l2_bytes, False) for item in profile.kernels)
        if moved > AGAIN * bound.least_bytes or not seconds:
            return None  # `l2_locality`
        return self.advise(
            kernel,
            profile,
            gain=min(seconds / bound.attainable_s, 1 / kernel.busy["DRAM"]),
            cause=f"DRAM is busy for {kernel.busy['DRAM']:.0%} of the time",
            action="move fewer bytes: fuse with the operation before or after it, or store in 16 bits; "
            "a last few percent may come from streaming accesses without temporary spikes (CTAs of another size)",
            evidence=(Measure(name="DRAM", value=kernel.busy["DRAM"], limit=FULL, unit="%"),),
            line=most_waited(profile.lines, "long_scoreboard"),
            pattern="persistent streaming kernel",
        )
