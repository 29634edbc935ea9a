"""Results of profilers."""

from __future__ import annotations

from typing import Literal

from workbench.records.base import Provenance, record
from workbench.records.launch import Finding, KernelBuild, Launch


@record
class KernelMetrics:
    """Counters of one kernel launch.

    The source is Nsight Compute ("measured") or the emulator ("counted"; its modelled fields have `modelled` in their
    names). None is unknown, not zero. Rates and hit rates are fractions from 0 to 1.
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
    l2_bytes: float | None = None  # requested from L2: 32 bytes per sector
    l2_hit_rate: float | None = None
    l1_bytes: float | None = None  # requested from L1 for global memory: 32 bytes per sector
    l1_hit_rate: float | None = None
    shared_bytes: float | None = None  # loads and stores, 128 bytes per wavefront; without TMA and wgmma
    shared_wavefronts: float | None = None
    shared_bank_conflicts: float | None = None  # wavefronts beyond the minimum for the access widths
    warp_instructions: float | None = None
    sm_throughput: float | None = None  # of the busiest unit of the SMs
    memory_throughput: float | None = None
    sm_clock_hz: float | None = None
    achieved_occupancy: float | None = None
    theoretical_occupancy: float | None = None
    limiter: str = ""
    limits: tuple[tuple[str, float], ...] = ()  # resource -> CTAs per SM that it allows
    registers: int | None = None  # per thread
    static_shared_bytes: float | None = None  # per CTA
    dynamic_shared_bytes: float | None = None  # per CTA
    waves: float | None = None
    pipes: tuple[tuple[str, float], ...] = ()  # fraction of peak, busiest first (modelled on the emulator)
    # reason -> warp cycles per issued instruction (measured), or cycles of a warp of a CTA alone (modelled); longest
    # first
    stalls: tuple[tuple[str, float], ...] = ()
    l1_requests: float | None = None  # warp-level loads and stores of global memory that go through L1
    l1_ideal_bytes: float | None = None  # what `l1_bytes` would be if every byte of every sector was asked for
    shared_ideal_wavefronts: float | None = None
    local_requests: float | None = None  # warp-level loads and stores of local memory: spilled registers
    active_threads: float | None = None  # mean of an executed warp-instruction, 1 to 32
    tensor_flops: tuple[tuple[str, float], ...] = ()  # on tensor cores, by torch dtype of the operands
    wgmma: bool | None = None  # whether warpgroups use the tensor cores
    async_copies: bool | None = None  # whether it copies to shared memory by cp.async or TMA
    cluster: int | None = None  # CTAs of a cluster
    integer_share: float | None = None  # of the thread-instructions that do no floating-point or memory work


@record
class LineProfile:
    """One source line of the candidate: its machine instructions by pipe, and the stalls of warps there.

    `stall_unit` says whether `stalls` are samples by reason (measured by ncu) or cycles per warp (modelled by the
    emulator).
    """

    line: int
    text: str = ""
    instructions: tuple[tuple[str, int], ...] = ()  # (pipe, machine instructions in the binary), most first (counted)
    executed: float | None = None  # warp-instructions (measured or counted)
    stalls: tuple[tuple[str, float], ...] = ()
    stall_unit: Literal["samples", "modelled cycles"] = "samples"
    sectors: float | None = None  # 32-byte sectors of global memory that its accesses ask for
    ideal_sectors: float | None = None
    wavefronts: float | None = None  # of shared memory
    ideal_wavefronts: float | None = None
    stored_bytes: float | None = None  # written to global memory


@record
class Span:
    """A kernel, copy or memset on the device. Times are relative to the start of the first one."""

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
    """Activity of the device during some calls (CUPTI, through torch's profiler).

    Times are measured and include the profiler's overhead on the host.
    """

    calls: int
    spans: tuple[Span, ...]
    total_s: float  # from the first start to the last end
    busy_s: float  # time in which at least one of them ran
    launch_gaps: tuple[float, ...] = ()  # idle seconds between consecutive spans, longest first


@record
class Energy:
    """Energy of one call in a steady loop, from NVML's total-energy counter (corrections: profilers/energy.py)."""

    joules_per_call: float  # idle power is subtracted for the time in which nothing ran
    low_joules: float  # smallest and largest of the windows
    high_joules: float
    uncorrected_joules: float  # energy of the whole loop, start and gaps included, per call
    average_w: float  # while the loop ran
    idle_w: float  # with an open context and nothing running
    duty: float  # fraction of the windows in which calls ran, by events
    calls: int
    window_s: float  # of all windows
    seconds_per_call: float
    samples: tuple[tuple[float, float], ...] = ()  # (seconds, joules) since the start
    marks: tuple[tuple[str, float], ...] = ()  # (name of a phase, its start in seconds)
    device: str = ""  # the GPU that was measured

    @property
    def idle_joules(self) -> float:
        """Joules that the device would draw in the time of a call if nothing ran."""
        return min(self.idle_w * self.seconds_per_call, self.joules_per_call)

    @property
    def active_joules(self) -> float:
        """Joules of a call above the idle power."""
        return self.joules_per_call - self.idle_joules


@record
class EnergyEstimate:
    """Modelled joules of one call, from counts of the emulator at full size (analysis/energy_model)."""

    joules: float
    low_joules: float  # interval of 90 %
    high_joules: float
    static_joules: float  # static power for the modelled time; the rest is of what the call executes
    parts: tuple[tuple[str, float], ...] = ()  # (what draws them, joules), largest first, without the static part
    device: str = ""
    fitted_on: str = ""  # the GPU whose measured kernels the coefficients come from
    ratio_error: float = 0.0  # half the interval of 90 % of the logarithm of a ratio of two estimates of one problem
    provenance: Provenance = "modelled"


@record
class Profile:
    """The profile of one version. Tuples have one entry per kernel unless stated otherwise."""

    launches: tuple[Launch, ...]
    builds: tuple[KernelBuild, ...]
    occupancy: tuple[tuple[str, float, str], ...]  # (kernel, fraction of the device's threads, limiter)
    limits: tuple[tuple[str, float], ...]  # (resource, modelled seconds at the full case), largest first
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
    notes: tuple[str, ...] = ()  # missing values, with reasons
    protections: tuple[str, ...] = ()  # sandbox layers that were active during profiling
    versions: tuple[tuple[str, str], ...] = ()


@record
class StoredProfile:
    """A profile as a session keeps it: one profiler's, with the options that it got and the source that it ran."""

    version: int
    source_hash: str
    options: tuple[tuple[str, str], ...]  # by name
    profile: Profile
    at: str  # ISO time, UTC
