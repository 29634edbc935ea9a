"""Results of compiling and emulating a candidate: builds, launches, counters, findings and failures."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Literal

from workbench.records.base import LATER, Stage, record

_ARGUMENTS = re.compile(r"_(?:tensorptr|CopyAtom|Tiled|Layout|ptr[a-z0-9]+_)|_\d+$")


def kernel_function(name: str) -> str:
    """The name of the function that CuTe DSL made a kernel of: without its prefix and the types of its arguments."""
    return _ARGUMENTS.split(name.removeprefix("kernel_cutlass_"), maxsplit=1)[0]


@record
class Failure:
    """Why a candidate did not pass. `line` is 1-based in the candidate's own file; `kind` is a short slug."""

    stage: Stage
    kind: str
    message: str  # one line
    line: int | None = None
    hint: str = ""
    detail: str = ""  # long form: compiler log, traceback, or which warp waits for what


@record
class Finding:
    """A finding of the emulator or a profiler. Severity "error" fails the candidate, "advice" does not."""

    kind: str  # out_of_bounds, misaligned, uninitialised, bank_conflict, uncoalesced, ...
    severity: Literal["error", "advice"]
    message: str
    line: int | None = None
    kernel: str = ""
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    address: int | None = None
    count: int = 1


@record
class CodeDepth:
    """The SASS instructions of a kernel that so many loops enclose, static counts."""

    instructions: int
    loads: int  # from global memory to registers
    trips: float  # waits for these, one after the other
    local: int  # loads and stores of local memory: spilled registers


@record
class KernelBuild:
    """The compiled form of one kernel. Sizes are in bytes, registers per thread."""

    kernel: str
    arch: str
    registers: int | None = None
    spill_bytes: int | None = None
    static_shared_bytes: int = 0
    compile_s: float | None = None
    mix: tuple[tuple[str, int], ...] = ()  # SASS (or PTX) instructions by class, static count
    code: tuple[CodeDepth, ...] = ()  # SASS outside of all loops, in loops, in loops in loops, ...
    ptx: str = ""
    sass: str = ""


@record
class LineCounts:
    """Counters of one source line of the candidate, summed over all lanes of all executed CTAs."""

    line: int
    instructions: int = 0  # thread-instructions
    flops: int = 0
    global_read_bytes: int = 0
    global_write_bytes: int = 0
    global_requests: int = 0  # warp-level requests
    global_sectors: int = 0  # 32-byte sectors
    global_ideal_sectors: int = 0
    shared_requests: int = 0
    shared_wavefronts: int = 0
    shared_ideal_wavefronts: int = 0


@record
class CtaTimeline:
    """Modelled time of a few CTAs of a launch, each alone on its SM with its L1 cache (emulator/timing).

    Counts from `l1_requests` on are sums over these CTAs.
    """

    ctas: int
    cycles: float  # SM clock cycles until the last warp of a CTA ends; mean over the CTAs
    issue: float  # issued warp-instructions of a CTA (moves are folded, 64-bit integer operations count twice)
    l1_requests: int = 0  # warp-level requests to global memory through L1, stores and atomics included
    l1_lines: int = 0  # 128-byte lines, once per request: the tag lookups
    l1_sectors: int = 0  # 32-byte sectors of loads, once per request
    l1_missed: int = 0  # sectors of loads that missed L1
    written: int = 0  # sectors of stores and atomics
    wgmma: bool = False  # whether warpgroups use the tensor cores
    l2_missed: int = 0  # requested sectors that missed the CTA's share of L2
    touched: int = 0  # distinct sectors requested from L2
    stalls: tuple[tuple[int, float], ...] = ()  # (source line, mean cycles that a warp waits there), longest first
    # (what a warp waits for: memory, barrier, math; mean cycles), longest first; () = not counted
    waits: tuple[tuple[str, float], ...] = field(default=(), metadata=LATER)
    # mean threads that are active in an executed warp-instruction, 1 to 32; None = not counted
    active_threads: float | None = field(default=None, metadata=LATER)


@record
class L2Use:
    """What a source line or a tensor asked of L2, in sectors of 32 bytes."""

    name: str  # the tensor, or the number of the line in the candidate's file
    loaded: int
    missed: int  # of those loaded
    stored: int

    @property
    def hit_rate(self) -> float | None:
        """The share of loaded sectors that were in L2; None without loads."""
        return 1 - self.missed / self.loaded if self.loaded else None


@record
class L2Traffic:
    """The requests of all CTAs of a launch in an L2 of the device that starts empty (emulator/timing/l2_trace).

    Counts are sectors of 32 bytes. For a shrunk case capacity and CTAs in flight are a `share` of the device's.
    """

    capacity: int  # bytes
    share: float
    in_flight: int  # CTAs
    loaded: int
    missed: int  # of those loaded, in the partition that was asked
    stored: int
    touched: int  # different sectors among the loaded ones: misses of a cache without limits
    fetched: int  # of those loaded, from DRAM: missed in all partitions
    lines: tuple[L2Use, ...] = ()  # most loaded first
    tensors: tuple[L2Use, ...] = ()
    unseen_bytes: int = 0  # moved by bulk copies (TMA), which are not followed

    @property
    def hit_rate(self) -> float:
        """The share of all sectors that were in L2 or were stored to it, as `lts__t_sector_hit_rate` counts them."""
        return 1 - self.missed / max(self.loaded + self.stored, 1)


@record
class Launch:
    """One kernel launch on the emulator: geometry, and counters in total, by source line and by instruction class."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    dynamic_shared_bytes: int = 0
    total: LineCounts
    lines: tuple[LineCounts, ...] = ()
    classes: tuple[tuple[str, int], ...] = ()  # thread-instructions by class: fp32, int, load, store, mma, barrier, ...
    tensor_flops: tuple[tuple[str, int], ...] = ()  # FLOPs on tensor cores by the operands' torch dtype, largest first
    findings: tuple[Finding, ...] = ()
    printed: str = ""
    sampled: int | None = None  # executed CTAs; None = all. Counters are scaled to the whole grid
    paced: CtaTimeline | None = None
    l2: L2Traffic | None = field(default=None, metadata=LATER)  # None where not all CTAs were followed
