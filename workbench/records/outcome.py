"""Jobs for executors and their outcomes: comparisons and times."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from workbench.records.base import LATER, Provenance, TorchCompile, record
from workbench.records.launch import Failure, Finding, KernelBuild, Launch
from workbench.records.problem import Facts, Problem
from workbench.records.proposal import Candidate


@record
class WrongValues:
    """The wrong elements of an output, seen as a matrix whose columns are its last axis."""

    cells: tuple[tuple[float, ...], ...]  # a map: the share of wrong elements in each of its cells
    rows: int
    columns: int
    where: str = ""  # "the last 37 columns (from 8064 on)"
    pattern: str = ""  # "they are the expected values shifted by one along the last axis"; "" if none was found

    @property
    def sentence(self) -> str:
        """Where and what in one line."""
        parts = [f"wrong are: {self.where}" if self.where else "", self.pattern]
        return "; ".join(part for part in parts if part)


@record
class Check:
    """One comparison with the float64 reference.

    Errors are |candidate - reference| / tolerance, so above 1 is wrong. The `eager` fields are torch eager's errors at
    the same precision; None if they are unknown.
    """

    case: str
    trial: int
    timed: bool  # whether this is the output of a timed call
    passed: bool
    output: int = 0
    elements: int = 0
    bad_elements: int = 0
    max_error: float = 0.0  # in tolerances
    p50_error: float = 0.0
    p99_error: float = 0.0
    max_absolute: float = 0.0
    max_relative: float = 0.0
    worst_index: tuple[int, ...] = ()
    worst_got: float | None = None
    worst_expected: float | None = None
    message: str = ""
    trivial: str = ""  # "zero" or "constant" if the candidate's output is that and the reference's is not
    eager_error: float | None = None  # in tolerances, as `max_error`
    eager_absolute: float | None = None  # as `max_absolute`
    of: str = ""  # "buffer norm.running_mean", "input x": what was compared, if it is no output
    values: str = ""  # "large", "zeros and one sign": special values of the inputs; "" for drawn ones
    wrong: WrongValues | None = None  # of a failed comparison
    unasked: bool = False  # the candidate changed it, and the reference does not
    untouched: bool = False  # the reference changes it, and the candidate left it as it was
    # of a passed comparison of NaN and infinity, or of inputs of another layout: "drops NaN: 3 elements are NaN"
    doubt: str = ""


@record
class Refusal:
    """An exception with which the candidate refused the sizes of a case, or inputs of a layout."""

    case: str
    message: str
    trial: int = 0
    layout: str = field(default="", metadata=LATER)  # of the inputs, if it is not the problem's own


@record
class DeviceState:
    """The device's state at one moment of a run, from NVML; None = unknown."""

    at_s: float  # since the run began
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    utilisation: float | None = None  # fraction of the driver's last sampling period in which a kernel ran
    throttled: tuple[str, ...] = ()  # reasons for reduced clocks: power_cap, thermal, ...
    others: int | None = None  # processes of others on the device


@record
class Timing:
    """Seconds per call at one case. `measured` on a GPU with events to a device-wide sync; never from the emulator."""

    case: str
    device: str
    samples_s: tuple[float, ...]  # round after round
    median_s: float
    low_s: float  # 95 % interval of the median: bootstrap over rounds, widened by the difference between runs
    high_s: float
    wall_ratio: float | None = None  # host clock over events; far above 1 means work hidden from the events
    cold_l2: bool = True
    provenance: Provenance = "measured"
    per_round: int = 0  # samples of each round; 0 = not taken in rounds
    method: str = "events"  # or "graph": one replay of a CUDA graph per sample, divided by `calls_per_sample`
    calls_per_sample: int = 1
    launch_overhead_s: float | None = None  # host seconds to enqueue one call on a busy device; not in the samples
    # times of a fixed kernel in the trusted process, before each round and after the last: they show drift
    probes_s: tuple[float, ...] = ()
    surroundings: tuple[DeviceState, ...] = ()
    notes: tuple[str, ...] = ()  # deviations from the requested protocol, with reasons
    doubts: tuple[str, ...] = ()  # why the times may be unreliable: other work on the device, drift, throttling
    # seconds of a call as a model sees it, from an idle GPU to the end of its kernels, host time included
    call_samples_s: tuple[float, ...] = field(default=(), metadata=LATER)  # round after round
    call_s: float | None = field(default=None, metadata=LATER)  # their median
    call_low_s: float | None = field(default=None, metadata=LATER)  # 95 % interval, as that of `median_s`
    call_high_s: float | None = field(default=None, metadata=LATER)

    @property
    def waits_for_host(self) -> bool:
        """Whether the host takes longer to enqueue a call than its kernels take: in a stream of calls the GPU waits."""
        return self.launch_overhead_s is not None and self.launch_overhead_s > self.median_s


@record
class Ratio:
    """Speed-up of a candidate over another program, timed in alternating rounds; above 1 is faster."""

    against: Literal["eager", "parent", "compiled"]
    ratio: float  # of the medians
    low: float  # 95 % interval: bootstrap over pairs of rounds, widened by the difference between processes
    high: float
    # the times that are compared: those of the kernels, or of whole calls, host time included
    of: Literal["kernels", "calls"] = field(default="kernels", metadata=LATER)


@record
class TorchWork:
    """What torch itself computed in calls of a candidate, for one call on average."""

    case: str
    flops: int
    bytes: int  # read and written by operations that compute
    copied: int  # read and written by copies: casts, cat, padding
    operations: tuple[str, ...] = ()  # ATen names, most work first
    unseen: float = 0.0  # bytes that were written out of sight and that kernels read or forward returned, over results


@record
class Job:
    """A job for an executor: run a candidate on some cases of a problem."""

    problem: Problem
    facts: Facts
    candidate: Candidate
    arch: str = "sm_80"
    device: str = "H200"  # whose limits and rates are used
    cases: tuple[str, ...] = ("shrunk", "odd")
    trials: int = 2
    timed_calls: int = 0  # 0 = do not time
    want_sass: bool = False
    wall_limit_s: float = 60.0
    memory_limit_bytes: int = 4 << 30
    cold_l2: bool = field(default=True, metadata=LATER)  # whether L2 holds no data of a timed call before it
    # whether torch may do most of the work in forward: a doubt then, not a refusal
    allow_torch: bool = field(default=False, metadata=LATER)
    # on the emulator: run a few CTAs at full size too, which the time model needs
    full_sample: bool = field(default=True, metadata=LATER)
    # the parent version, timed again in alternation with the candidate
    rival: Candidate | None = field(default=None, metadata=LATER)
    # when torch.compile of the reference is timed too: from the problem's second job in this process on, because
    # it takes seconds to compile; at once; or never
    compiled: TorchCompile = field(default="later", metadata=LATER)
    # a trial of a search on a GPU: each case is checked once, and the candidate is timed alone in fewer rounds
    quick: bool = field(default=False, metadata=LATER)


@record
class Outcome:
    """The result of a job. `failure` None means that it ran to the end, not that its output is correct."""

    executor: str
    arch: str
    device: str
    failure: Failure | None = None
    builds: tuple[KernelBuild, ...] = ()
    launches: tuple[Launch, ...] = ()  # of the first trial of the first case
    # on the emulator: the call at full size, a few CTAs of each launch followed in time (executors/full_size.py)
    full_launches: tuple[Launch, ...] = ()
    full_builds: tuple[KernelBuild, ...] = ()
    full_note: str = ""  # why there are none
    checks: tuple[Check, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    # values and layouts of inputs that do not suit the reference: "NaN and infinity (why)"
    left_out: tuple[str, ...] = field(default=(), metadata=LATER)
    # whether a result lies in the memory of an earlier one, which a caller may still hold; on the emulator
    reused: bool = field(default=False, metadata=LATER)
    torch_work: tuple[TorchWork, ...] = field(default=(), metadata=LATER)  # on the emulator, of trials with any
    findings: tuple[Finding, ...] = ()
    timing: Timing | None = None
    reference_timing: Timing | None = None  # torch eager, by the same protocol, in alternating rounds
    rival_timing: Timing | None = None  # the parent version, likewise
    compiled_timing: Timing | None = field(default=None, metadata=LATER)  # torch.compile of the reference, likewise
    ratios: tuple[Ratio, ...] = ()
    unmapped_parameters: tuple[str, ...] = ()
    output_text: str = ""  # what the candidate printed, cut to a limit
    protections: tuple[str, ...] = ()  # sandbox layers that were active
    unprotected: tuple[str, ...] = field(default=(), metadata=LATER)  # layers that this machine does not have
    quick: bool = field(default=False, metadata=LATER)  # of a quick job, so that it is no ground for a decision
    phases: tuple[tuple[str, float], ...] = ()  # seconds by phase: import, compile, emulate, check, ...
    versions: tuple[tuple[str, str], ...] = ()  # torch, cutlass dsl, driver, ...
