"""What profilers say."""

from __future__ import annotations

from typing import Literal

from workbench.records.base import Provenance, record
from workbench.records.launch import Finding, KernelBuild, Launch


@record
class KernelMetrics:
    """Counters of one kernel launch.

    They are by Nsight Compute ("measured"), or by the emulator with a modelled time ("counted": bytes, sectors and
    wavefronts are counted; a field that is modelled has it in its name). None is unknown, not zero. Rates and hit rates
    are fractions from 0 to 1.
    """

    kernel: str
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)
    provenance: Provenance = "measured"
    duration_s: float | None = None  # measured by ncu with cold caches and the clocks as they are
    modelled_s: float | None = None  # on the emulator
    flops: float | None = None  # executed, tensor cores included where ncu counts them
    dram_read_bytes: float | None = None
    dram_write_bytes: float | None = None
    l2_bytes: float | None = None  # asked of L2: 32 bytes a sector
    l2_hit_rate: float | None = None
    l1_bytes: float | None = None  # asked of L1 for global memory: 32 bytes a sector
    l1_hit_rate: float | None = None
    shared_bytes: float | None = None  # 128 bytes a wavefront of loads and stores; what TMA and wgmma move is not in it
    shared_wavefronts: float | None = None
    shared_bank_conflicts: float | None = None  # wavefronts beyond what the widths need
    warp_instructions: float | None = None
    sm_throughput: float | None = None  # of the busiest unit of the SMs
    memory_throughput: float | None = None
    sm_clock_hz: float | None = None
    achieved_occupancy: float | None = None
    theoretical_occupancy: float | None = None
    limiter: str = ""
    limits: tuple[tuple[str, float], ...] = ()  # what a resident CTA needs -> how many CTAs of an SM that allows
    registers: int | None = None  # per thread
    static_shared_bytes: float | None = None  # per CTA, as the next
    dynamic_shared_bytes: float | None = None
    waves: float | None = None
    pipes: tuple[tuple[str, float], ...] = ()  # fraction of its peak, busiest first (modelled on the emulator)
    stalls: tuple[tuple[str, float], ...] = ()  # reason -> warp cycles per issued instruction, longest first


@record
class LineProfile:
    """One source line of the candidate: its machine instructions by pipe, and where warps wait.

    `stalls` are samples by reason (measured, by ncu), or cycles that a warp waits there (modelled, by the emulator):
    `stall_unit` says which.
    """

    line: int
    text: str = ""
    instructions: tuple[tuple[str, int], ...] = ()  # machine instructions in the binary by pipe, most first (counted)
    executed: float | None = None  # warp-instructions (measured or counted)
    stalls: tuple[tuple[str, float], ...] = ()
    stall_unit: Literal["samples", "modelled cycles"] = "samples"


@record
class Span:
    """One stretch of time on the device: a kernel, a copy or a memset, from the first one's start on."""

    name: str
    start_s: float
    duration_s: float
    stream: int = 0
    kind: Literal["kernel", "copy", "memset"] = "kernel"
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)
    registers: int | None = None
    shared_bytes: int | None = None


@record
class Timeline:
    """What ran on the device during some calls (CUPTI, by torch's profiler).

    Times are measured, with the profiler's own overhead on the host.
    """

    calls: int
    spans: tuple[Span, ...]
    total_s: float  # from the first start to the last end
    busy_s: float  # in which at least one of them ran
    launch_gaps: tuple[float, ...] = ()  # seconds of idleness between one and the next, longest first


@record
class Energy:
    """Energy of one call in a steady loop, from NVML's total-energy counter (corrections: profilers/energy.py)."""

    joules_per_call: float  # with idle power taken off for the part of the loop in which nothing ran
    low_joules: float  # smallest and largest of the windows
    high_joules: float
    uncorrected_joules: float  # energy of the whole loop, start and gaps included, over its calls
    average_w: float  # while the loop ran
    idle_w: float  # with the context alive and nothing running
    duty: float  # part of the windows in which calls were running, by events
    calls: int
    window_s: float  # of all windows
    seconds_per_call: float
    samples: tuple[tuple[float, float], ...] = ()  # (seconds from the start, joules of the counter from the start)
    marks: tuple[tuple[str, float], ...] = ()  # what began when


@record
class Profile:
    """What counters and the binary say about one version's launches; one entry per kernel in the tuples."""

    launches: tuple[Launch, ...]
    builds: tuple[KernelBuild, ...]
    occupancy: tuple[tuple[str, float, str], ...]  # kernel, fraction of the device's threads, limiter
    limits: tuple[tuple[str, float], ...]  # seconds by resource at the full case, modelled, largest first
    findings: tuple[Finding, ...]
    summary: str
    provenance: Provenance = "counted"
    by: str = "counters"  # the profilers that made it, joined by "+"
    device: str = ""
    case: str = ""
    kernels: tuple[KernelMetrics, ...] = ()  # one per launch
    lines: tuple[LineProfile, ...] = ()
    timeline: Timeline | None = None
    energy: Energy | None = None
    notes: tuple[str, ...] = ()  # what is missing, and why
    protections: tuple[str, ...] = ()  # sandbox layers that were active while the candidate was profiled
    versions: tuple[tuple[str, str], ...] = ()
