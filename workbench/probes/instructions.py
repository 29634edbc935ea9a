"""Probes of the arithmetic: tensor cores, what feeds them, divergence, index arithmetic, needless FLOPs."""

from __future__ import annotations

from collections import Counter

from workbench.probes.base import LESS, MORE, OTHER, KernelProbe, most_waited, moves, worst_line
from workbench.probes.grid import fills_device
from workbench.probes.latency import shares_nothing, waiting_after_stores, waits_for_copies
from workbench.probes.signals import LATENCY, Signals
from workbench.records import Advice, Bound, Measure, Profile

REACHED = 0.5  # share of the data sheet's ratio of tensor cores to fp32 units that a first version gains (inferred)
REUSED = 70.0  # uses of an operand that comes from L2: tiles of 128 x 256 have 85, less what stores take (inferred)
SHALLOW = 0.25  # of the waiting is left to `pipeline_depth` or `tma_clusters` where they advise (chosen)
SLOW_PATH = 0.6  # share of Hopper's tensor cores that mma.sync reaches (inferred)
UNFED = 0.6  # share of the tensor cores' rate (inferred)
IDLE = 0.02  # share below which a kernel's products are not its work, unless they are most of the problem's (inferred)
MOST = 0.5  # share of the problem's FLOPs (chosen)
LANES = 26.0  # active threads of a warp-instruction, of 32 (inferred)
ISSUE = 0.5  # share of the issue slots (inferred)
INTEGER = 0.5  # share of integer, move and branch instructions (inferred)
REDUNDANT = 2.0  # FLOPs over the problem's (inferred)
MATH_STALLS = ("math", "math_pipe_throttle", "wait")
TENSOR_DTYPES = ("float16", "bfloat16", "tfloat32", "float8_e4m3fn", "float8_e5m2", "int8")


class TensorCores(KernelProbe):
    """Do matrix products run on tensor cores?"""

    name = "tensor_cores"
    question = "Do matrix products run on the device's fastest tensor-core instruction?"
    classes = frozenset({"compute", "memory", "latency"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: the problem's FLOPs may use tensor cores and this kernel uses none, or mma.sync on Hopper."""
        if bound is None or bound.dtype not in TENSOR_DTYPES or bound.flops < bound.least_bytes:
            return None
        if bound.peak_flops <= kernel.device.peak(bound.dtype, tensor_cores=False):  # no matrix products
            return None
        if kernel.metrics.tensor_flops:
            return self._slow_path(kernel, profile)
        if not kernel.metrics.flops or kernel.metrics.flops < 0.3 * bound.flops:
            return None
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain(
                dict.fromkeys(("issue", "fp32", "shared memory", LATENCY), 1 / _faster(kernel, bound.dtype))
            ),
            cause="the product's FLOPs run on the fp32 units; tensor cores are idle",
            action="compute the product with tensor cores (mma, on Hopper wgmma)",
            evidence=(Measure(name="tensor cores", value=kernel.busy["tensor cores"], limit=UNFED, unit="%"),),
            changes=moves(("mma", MORE), ("schedule", MORE)),
            line=worst_line(profile.lines, lambda line: line.executed or 0.0),
            pattern="tiled mma warpgroup",
        )

    def _slow_path(self, kernel: Signals, profile: Profile) -> Advice | None:
        if not kernel.on_slow_path:
            return None
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain(dict.fromkeys(("issue", "shared memory", "tensor cores", LATENCY), SLOW_PATH)),
            cause=f"the product uses mma.sync, which reaches about {SLOW_PATH:.0%} of this device's tensor cores",
            action="use warpgroups (wgmma) with operands in shared memory, loaded by TMA",
            evidence=(Measure(name="tensor cores", value=kernel.busy["tensor cores"], limit=UNFED, unit="%"),),
            changes=moves(("schedule", MORE)),
            line=most_waited(profile.lines, "math_pipe_throttle", text=r"\bgemm\("),
            pattern="wgmma warpgroup mma tma pipeline",
        )


def _faster(kernel: Signals, dtype: str) -> float:
    """How many times faster a product is on tensor cores than on fp32 units."""
    device = kernel.device
    return max(REACHED * device.peak(dtype, tensor_cores=True) / device.peak("float32", tensor_cores=False), 2.0)


def _does_most(kernel: Signals, bound: Bound | None) -> bool:
    """Whether the products of a kernel are most of the problem's FLOPs."""
    return bound is not None and sum(flops for _, flops in kernel.metrics.tensor_flops) > MOST * bound.flops


class TensorFeed(KernelProbe):
    """Do the tensor cores get their operands in time?"""

    name = "tensor_feed"
    question = "Do the tensor cores get their operands in time?"
    classes = frozenset({"compute", "latency"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: tensor cores are used, but for less than UNFED of the time, and DRAM is not the reason; of mma.sync
        on Hopper only where an operand from L2 is used fewer than REUSED times.
        """
        share = kernel.busy["tensor cores"]
        if not kernel.metrics.tensor_flops or share >= UNFED or kernel.busy["DRAM"] > UNFED:
            return None
        if share <= IDLE and not _does_most(kernel, bound):
            return None
        reachable = UNFED * (SLOW_PATH if kernel.on_slow_path else 1.0)
        uses = kernel.operand_uses
        small = uses is not None and uses < REUSED
        if kernel.on_slow_path and (not small or share > reachable / 2):
            return None  # `tensor_cores` says more
        full = fills_device(kernel)
        late, _ = waiting_after_stores(profile.lines)  # not for operands
        if waits_for_copies(kernel, source) or (not small and shares_nothing(kernel)):
            late = max(late, SHALLOW)
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain(
                {
                    LATENCY: 1 - (1 - max(share / reachable, 0.4)) * (1 - late),
                    "shared memory": 0.7,
                    "issue": 0.7,
                    "L2": 0.7,
                }
            ),
            cause=f"tensor cores are busy for {share:.0%} of the time: each tile brings too little work for its loads",
            action="use larger tiles (128 x 256), so that each loaded byte is used more often, with two warpgroups",
            evidence=(
                Measure(name="tensor cores", value=share, limit=UNFED, unit="%"),
                *((Measure(name="uses of an operand from L2", value=uses, limit=REUSED),) if uses is not None else ()),
            ),
            changes=moves(
                *((("tile", MORE),) if small and full else ()),
                ("stages", MORE),
                *((("cluster", MORE),) if full else ()),
            ),
            line=most_waited(profile.lines, "gmma", "math_pipe_throttle", text=r"\bgemm\(|wait_group|consumer_wait"),
            pattern="cooperative pingpong warpgroup tile",
        )


class Divergence(KernelProbe):
    """Do the threads of a warp run the same instructions?"""

    name = "divergence"
    question = "Are the threads of a warp active together?"

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: fewer than LANES of 32 threads are active in the mean instruction."""
        active = kernel.metrics.active_threads
        if active is None or active >= LANES:
            return None
        share = active / 32
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain({"issue": share, LATENCY: max(share, 0.5)}),
            cause=f"{active:.0f} of a warp's 32 threads are active in the mean instruction",
            action="give all threads of a warp the same branch: whole warps for a row or a part, tails by predicates",
            evidence=(Measure(name="active threads of a warp", value=active, limit=LANES),),
            changes=moves(("threads_per_row", OTHER), ("threads", OTHER), ("split", OTHER), ("vector", LESS)),
            line=_divergent_line(profile),
            pattern="predicate tensor residue tail",
        )


def _divergent_line(profile: Profile) -> int | None:
    """The line where warps wait for branches; the emulator's waiting has no reasons: the line that executes most and
    is no access to global memory.
    """
    measured = [line for line in profile.lines if any(reason == "branch_resolving" for reason, _ in line.stalls)]
    if measured:
        return most_waited(measured, "branch_resolving")
    return worst_line([line for line in profile.lines if not line.sectors], lambda line: line.executed or 0.0)


class InstructionMix(KernelProbe):
    """Do the issue slots go to the arithmetic that the problem needs?"""

    name = "instruction_mix"
    question = "Do the issue slots go to the problem's own arithmetic?"
    classes = frozenset({"compute", "memory", "latency"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: issue slots are busy for over ISSUE of the time, over INTEGER of it with indices and moves."""
        share, busy = kernel.metrics.integer_share, kernel.busy["issue"]
        if share is None or share <= INTEGER or busy <= ISSUE:
            return None
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain({"issue": 1 - share / 2, LATENCY: 0.8}),
            cause=f"issue slots are busy for {busy:.0%} of the time, {share:.0%} of it with index arithmetic and moves",
            action="compute addresses once for several elements: wider vectors, unrolled loops, static layouts",
            evidence=(
                Measure(name="issue slots", value=busy, limit=ISSUE, unit="%"),
                Measure(name="integer instructions", value=share, limit=INTEGER, unit="%"),
            ),
            changes=moves(("vector", MORE), ("unroll", MORE), ("rows", MORE), ("filters", MORE), ("thread_tile", MORE)),
            line=worst_line(profile.lines, lambda line: line.executed or 0.0),
            pattern="static layout unroll vector",
        )


class RedundantWork(KernelProbe):
    """Does the kernel compute more than the problem asks for?"""

    name = "redundant_work"
    question = "Does the kernel do only the FLOPs that the problem needs?"

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: FLOPs of the fp32 units over REDUNDANT times the problem's, which keep them or the issue slots busy
        for over ISSUE of the time.
        """
        busy = max(kernel.busy["fp32"], kernel.busy["issue"])
        if bound is None or not bound.flops or busy <= ISSUE:
            return None
        done = (kernel.metrics.flops or 0.0) - sum(flops for _, flops in kernel.metrics.tensor_flops)
        ratio = done / bound.flops
        if ratio <= REDUNDANT:
            return None
        computing = kernel.stall_share(*MATH_STALLS)
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain({"fp32": 1 / ratio, "issue": 1 / ratio, LATENCY: 1 - computing * (1 - 1 / ratio)}),
            cause=f"the kernel does {ratio:.1f}x the FLOPs of the problem, and computes for {busy:.0%} of the time",
            action="compute each value once, in one thread: no turn of a loop whose result is thrown away, no branch "
            "that only picks a result (both sides run), no sum that neighbouring threads have too",
            evidence=(
                Measure(name="FLOPs over the problem's", value=ratio, limit=REDUNDANT, unit="x"),
                Measure(name="issue slots or fp32 units", value=busy, limit=ISSUE, unit="%"),
            ),
            changes=moves(("threads_per_row", LESS)),  # sums across a CTA are each thread's
            line=_computing_line(profile, kernel.metrics.kernel),
            pattern="predicate tensor select",
        )


def _computing_line(profile: Profile, kernel: str) -> int | None:
    """The line with the most FLOPs; where they are not known by line, the one that executes most."""
    flops: Counter[int] = Counter()
    for launch in profile.launches:
        if launch.kernel == kernel:
            flops.update({line.line: line.flops for line in launch.lines if line.flops})
    if flops:
        return flops.most_common(1)[0][0]
    return worst_line(profile.lines, lambda line: line.executed or 0.0)
