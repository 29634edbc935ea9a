"""What the compiler and the emulator made of a candidate: builds, launches, what went wrong."""

from __future__ import annotations

from typing import Literal

from workbench.records.base import Stage, record


@record
class Failure:
    """Why a candidate did not pass. `line` is 1-based in the candidate's own file; `kind` is a short slug."""

    stage: Stage
    kind: str
    message: str  # one line
    line: int | None = None
    hint: str = ""
    detail: str = ""  # the long form: compiler log, traceback, who waits for what


@record
class Finding:
    """Something the emulator (or a profiler) noticed: severity "error" fails the candidate, "advice" does not."""

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
class KernelBuild:
    """What the compiler made of one kernel; sizes in bytes, registers per thread."""

    kernel: str
    arch: str
    registers: int | None = None
    spill_bytes: int | None = None
    static_shared_bytes: int = 0
    compile_s: float | None = None
    mix: tuple[tuple[str, int], ...] = ()  # SASS (or PTX) instructions by class, static count
    ptx: str = ""
    sass: str = ""


@record
class LineCounts:
    """Counted on one source line of the candidate, summed over all lanes of all CTAs that were executed."""

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
    """Some CTAs of a launch followed in time, each as if alone on its SM and through the L1 cache (emulator/timing)."""

    ctas: int
    cycles: float  # of the SM clock, until a CTA's last warp is done; mean over the CTAs
    issue: float  # warp-instructions of a CTA, as the device issues them (moves are folded, 64-bit integers take two)
    l1_requests: int = (
        0  # of warps, for global memory through L1, stores and atomics included; this and the rest summed over the CTAs
    )
    l1_lines: int = 0  # 128 bytes, counted once for each request: the tags that are compared
    l1_sectors: int = 0  # 32 bytes, likewise, of loads
    l1_missed: int = 0  # sectors of loads that L2 was asked for
    written: int = 0  # sectors of stores and atomics
    wgmma: bool = False  # whether tensor cores are used by warpgroups
    l2_missed: int = 0  # sectors that the CTA's share of L2 did not hold, of all that L2 was asked for
    touched: int = 0  # different sectors that L2 was asked for
    stalls: tuple[
        tuple[int, float], ...
    ] = ()  # (source line, cycles that a warp waits there on average), longest first


@record
class Launch:
    """One kernel launch on the emulator: geometry, counters in all, by source line and by instruction class."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    dynamic_shared_bytes: int = 0
    total: LineCounts
    lines: tuple[LineCounts, ...] = ()
    classes: tuple[tuple[str, int], ...] = ()  # thread-instructions by class: fp32, int, load, store, mma, barrier, ...
    findings: tuple[Finding, ...] = ()
    printed: str = ""
    sampled: int | None = None  # CTAs that were executed; the counters are scaled to the whole grid
    paced: CtaTimeline | None = None
