"""Every noun that flows through the workbench: frozen, keyword-only, JSON-able records (see wire.py).

Units are in the names: `_s` seconds, `_bytes` bytes, `_flops` floating-point operations. Shapes and strides are in
elements. A number is `counted` (exact, by the emulator or from tensor sizes), `modelled` (computed from counted ones
and a device's rates) or `measured` (by a clock on a GPU); the three never share a field.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, dataclass_transform

Provenance = Literal["counted", "modelled", "measured"]
Precision = Literal["fp32", "tf32", "fp16", "bf16"]
Mode = Literal["train", "eval"]
Stage = Literal["source", "import", "compile", "launch", "run", "check", "time", "integrity", "limits"]
Scalar = bool | int | float | str | None
Settings = tuple[tuple[str, Scalar], ...]

T = TypeVar("T")
LATER: Any = {"hashed": "when set"}  # metadata of a field that came later: left out of a content hash while it has its default, so that older hashes hold


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """A frozen, keyword-only dataclass with slots."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


# ---- what to compute ------------------------------------------------------------------------------------------------


@record
class Problem:
    """A PyTorch computation in KernelBench's form: `Model`, `get_inputs()`, `get_init_inputs()` in `source`."""

    name: str
    source: str
    origin: str = "cell"  # a path, "cell", "expression" or "shipped"
    settings: Settings = ()  # module-level names that the person overrides (`--set name=value`)
    precision: Precision = "fp32"  # what floating inputs and parameters are cast to; tf32 = fp32 storage, TF32 maths
    mode: Mode = "train"  # KernelBench never calls .eval()


@record
class TensorSpec:
    """Shape and strides in elements; dtype as torch spells it without the prefix ("float32", "bfloat16", "int64")."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]


@record
class Operation:
    """One ATen call of the traced reference: `aten.addmm.default`.

    An operand is spelt: an input by forward's argument name, a parameter `param:<name>`, a buffer `buffer:<name>`, an intermediate by the
    name of the operation that makes it, a list as `[a, b]` of such, anything else by its repr. The last operation of a graph is called
    `output`, with target `output`; its operands are what forward returns.
    """

    name: str  # of the value it produces
    target: str
    operands: tuple[str, ...]
    keywords: tuple[tuple[str, str], ...] = ()
    result: tuple[TensorSpec, ...] = ()


@record
class Case:
    """One set of shapes to check at: `full` (the file's own), `shrunk` (fits the emulator's budget) or `odd`."""

    name: str
    settings: Settings
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()


@record
class Work:
    """What the reference must at least do at one case: FLOPs, and bytes with each input read once, each output written once."""

    case: str
    flops: int
    least_bytes: int
    dtype: str  # the dtype whose peak rate bounds the FLOPs ("float32", "tfloat32", "float16", "bfloat16")
    tensor_cores: bool  # whether the FLOPs are matrix products, so that tensor-core rates apply
    provenance: Provenance = "counted"
    parts: tuple[tuple[str, int], ...] = ()  # FLOPs by ATen operation, largest first


@record
class Degeneracy:
    """A task that a trivial output passes: kind is "zero", "constant", "replay", "random" (fails against itself), "not_finite" or "input_modified" (forward writes to an input)."""

    kind: str
    message: str


@record
class Facts:
    """What a trusted worker found out about a problem without any candidate."""

    problem_hash: str
    kind: str  # elementwise, reduction, softmax, norm, matmul, loss, other
    init_source: str  # body of Model.__init__, dedented, so that ModelNew can own the same parameters
    forward_arguments: tuple[str, ...]
    graph: tuple[Operation, ...]  # traced at the shrunk case
    parameters: tuple[TensorSpec, ...]
    cases: tuple[Case, ...]
    work: tuple[Work, ...]
    degeneracies: tuple[Degeneracy, ...] = ()
    notes: tuple[str, ...] = ()
    full: tuple[TensorSpec, ...] = ()  # every value of the graph at the full case, named as in it; () where the graph is another one there
    full_graph: tuple[Operation, ...] = ()  # traced at the full case, where it may do something else than `graph`: 1 / sqrt(64) for 1 / sqrt(8), a part of a tensor that is all of a shrunk one


# ---- what was proposed ----------------------------------------------------------------------------------------------


@record
class Candidate:
    """A Python file that defines `ModelNew`; `program` is the muCUTLASS text that it came from, if any."""

    source: str
    program: str | None = None


@record
class Proposal:
    """A candidate with its reason; gain is the predicted speed-up over the parent (1.0 = none), always modelled."""

    candidate: Candidate
    title: str
    reason: str
    by: str
    parent: int | None = None  # version number
    instruction: str = ""
    predicted_gain: float | None = None
    depth: int = 0  # optimisation steps after the first version; a repair keeps the depth of what it repairs
    repairs: int | None = None  # the version whose failure this one repairs
    exchanges: tuple[int, ...] = ()  # the calls of a language model behind it, by their numbers in the session's log
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None  # None with tokens = unknown


@record
class Exchange:
    """One call of a language model, verbatim: what was sent, what came back, what it took."""

    purpose: Literal["synthesis", "optimise", "diagnosis", "patch", "ask"]
    model: str
    messages: tuple[tuple[str, str], ...]  # (role, text) as sent, without tool traffic
    reply: str
    finish: str = "stop"  # why it ended: stop, length, ...
    tools: tuple[tuple[str, str, str], ...] = ()  # (name, arguments, result) of the tool calls in between
    tokens_in: int = 0
    tokens_out: int = 0
    estimated: bool = False  # tokens are upper bounds, because the server stated none
    cost_usd: float | None = None  # None = unknown
    seconds: float = 0.0
    unusable: str = ""  # why the reply could not be used


# ---- what happened --------------------------------------------------------------------------------------------------


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
class Paced:
    """Some CTAs of a launch followed in time, each as if alone on its SM (emulator/pace.py), and through the L1 cache (emulator/cached.py)."""

    ctas: int
    cycles: float  # of the SM clock, until a CTA's last warp is done; mean over the CTAs
    issue: float  # warp-instructions of a CTA, as the device issues them (moves are folded, 64-bit integers take two)
    l1_requests: int = 0  # of warps, for global memory through L1, stores and atomics included; this and the rest summed over the CTAs
    l1_lines: int = 0  # 128 bytes, counted once for each request: the tags that are compared
    l1_sectors: int = 0  # 32 bytes, likewise, of loads
    l1_missed: int = 0  # sectors of loads that L2 was asked for
    written: int = 0  # sectors of stores and atomics
    wgmma: bool = False  # whether tensor cores are used by warpgroups
    l2_missed: int = 0  # sectors that the CTA's share of L2 did not hold, of all that L2 was asked for
    touched: int = 0  # different sectors that L2 was asked for
    stalls: tuple[tuple[int, float], ...] = ()  # (source line, cycles that a warp waits there on average), longest first


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
    paced: Paced | None = None


@record
class Check:
    """One comparison with the reference: errors are |candidate - reference| / tolerance, so above 1 is wrong."""

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
    trivial: str = ""  # "zero" or "constant" when that is all the candidate's output is, and the reference's is not exactly that


@record
class Surroundings:
    """What NVML said about the device at one moment of a run; None = not known there."""

    at_s: float  # since the run began
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    utilisation: float | None = None  # fraction of the driver's last sampling period in which a kernel ran
    throttled: tuple[str, ...] = ()  # why clocks are below what was asked for: power_cap, thermal, ...
    others: int | None = None  # processes on the device that are not ours


@record
class Timing:
    """Seconds per call at one case. `measured` on a GPU with events to a device-wide sync; never from the emulator."""

    case: str
    device: str
    samples_s: tuple[float, ...]  # round after round
    median_s: float
    low_s: float  # 95 % interval of the median: bootstrap over rounds, widened by what differs between runs (analysis/statistics.py)
    high_s: float
    wall_ratio: float | None = None  # host clock over events; far above 1 means work hidden from the events
    cold_l2: bool = True
    provenance: Provenance = "measured"
    per_round: int = 0  # samples of each round; 0 = not taken in rounds
    method: str = "events"  # or "graph": each sample is one replay of a CUDA graph with `calls_per_sample` calls, divided by them
    calls_per_sample: int = 1
    launch_overhead_s: float | None = None  # host seconds to enqueue one call while the device is busy; no part of the samples
    probes_s: tuple[float, ...] = ()  # a fixed kernel of ours, timed in the trusted process before each round and after the last
    surroundings: tuple[Surroundings, ...] = ()
    notes: tuple[str, ...] = ()  # what was done otherwise than asked for, and why
    doubts: tuple[str, ...] = ()  # why these times may not hold: other work on the device, drift, throttling


@record
class Ratio:
    """How many times faster a candidate was than what it was timed against in the same run, in alternating rounds: above 1 is faster."""

    against: Literal["eager", "parent"]
    ratio: float  # of the medians
    low: float  # 95 % interval: bootstrap over pairs of rounds, widened by what differs between processes
    high: float


@record
class Job:
    """What an executor runs: a candidate against a problem at some cases."""

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
    cold_l2: bool = field(default=True, metadata=LATER)  # whether timed calls find nothing of theirs in L2
    rival: Candidate | None = field(default=None, metadata=LATER)  # the parent version, timed anew in alternation with the candidate


@record
class Outcome:
    """What came back from an executor. `failure` None means that it ran to the end, not that it is right."""

    executor: str
    arch: str
    device: str
    failure: Failure | None = None
    builds: tuple[KernelBuild, ...] = ()
    launches: tuple[Launch, ...] = ()  # of the first trial of the first case
    checks: tuple[Check, ...] = ()
    findings: tuple[Finding, ...] = ()
    timing: Timing | None = None
    reference_timing: Timing | None = None  # torch eager, by the same protocol, in alternating rounds
    rival_timing: Timing | None = None  # the parent version, likewise
    ratios: tuple[Ratio, ...] = ()
    unmapped_parameters: tuple[str, ...] = ()
    output_text: str = ""  # what the candidate printed, cut to a limit
    protections: tuple[str, ...] = ()  # sandbox layers that were active
    phases: tuple[tuple[str, float], ...] = ()  # seconds by phase: import, compile, emulate, check, ...
    versions: tuple[tuple[str, str], ...] = ()  # torch, cutlass dsl, driver, ...


@record
class KernelMetrics:
    """Counters of one kernel launch: by Nsight Compute ("measured"), or by the emulator with a modelled time ("counted": bytes, sectors and wavefronts are, the rest says so in its name).

    None is unknown, not zero. Rates and hit rates are fractions from 0 to 1.
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

    `stalls` are samples by reason (measured, by ncu), or cycles that a warp waits there (modelled, by the emulator): `stall_unit` says which.
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
    """What ran on the device during some calls (CUPTI, by torch's profiler); measured, with the profiler's own overhead on the host."""

    calls: int
    spans: tuple[Span, ...]
    total_s: float  # from the first start to the last end
    busy_s: float  # in which at least one of them ran
    launch_gaps: tuple[float, ...] = ()  # seconds of idleness between one and the next, longest first


@record
class Energy:
    """Energy of one call in a steady loop, read from NVML's total-energy counter; see profilers/energy.py for the corrections."""

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


@record
class Bound:
    """Speed of light at one case (muCUTLASS, section 2.3 of its paper): max(FLOPs / peak, bytes / bandwidth)."""

    case: str
    device: str
    flops: int
    least_bytes: int
    peak_flops: float  # per second
    bandwidth: float  # bytes per second
    compute_s: float
    memory_s: float
    bound_s: float
    limited_by: Literal["compute", "memory"]
    intensity: float  # FLOPs per byte
    ridge: float  # FLOPs per byte
    rates: str  # where the peak rates come from
    provenance: Provenance = "modelled"
    floor_s: float | None = None  # with the most permissive rates: what no correct kernel can beat (the suspect test)
    attainable_s: float | None = None  # with measured ceilings of this device (a copy, a library matmul); None where none was measured
    dtype: str = ""  # whose rate it is: the policy on precision, as `Work.dtype`


@record
class Verdict:
    """The judgement of one outcome, in the words that a person is shown."""

    correct: bool
    failure: Failure | None = None
    worst_error: float | None = None  # in tolerances
    time_s: float | None = None
    time_provenance: Provenance | None = None  # "measured" on a GPU, "modelled" from the emulator's counters
    bound: Bound | None = None
    fraction_of_bound: float | None = None  # bound / time; 1 is the speed of light
    speedup: float | None = None  # over the parent version
    distinguishable: bool | None = None  # whether that speed-up is larger than the noise
    suspect: tuple[str, ...] = ()  # integrity doubts, each a sentence
    speedup_interval: tuple[float, float] | None = None  # of the speed-up, where both were timed in one run
    disturbed: tuple[str, ...] = ()  # why the time may not hold, each a sentence
    refused: str = ""  # the doubt that no policy accepts, and a person only with force: faster than the device can be


@record
class Trial:
    """One candidate evaluated once."""

    outcome: Outcome
    verdict: Verdict
    at: str  # ISO time, UTC


@record
class Decision:
    """What the person (or a policy) said about a version."""

    kind: Literal["accept", "reject", "undo"]
    version: int
    source_hash: str
    by: str = "person"
    reason: str = ""
    hunks: tuple[int, ...] | None = None  # None = all
    at: str = ""


@record
class Version:
    """One step of a session, as the store tells it: proposal, trials so far, the standing decision."""

    number: int
    parent: int | None
    proposal: Proposal
    source_hash: str
    path: str  # the immutable file
    trials: tuple[Trial, ...] = ()
    decision: Decision | None = None
    at: str = ""


# ---- what is asked and told -----------------------------------------------------------------------------------------


@record
class Ask:
    """What a proposer is given: the problem, everything tried so far, the version to improve and the person's words."""

    problem: Problem
    facts: Facts
    history: tuple[Version, ...] = ()
    baseline: Version | None = None  # the accepted version to start from; None = write the first
    instruction: str = ""
    constraints: tuple[str, ...] = ()
    arch: str = "sm_80"
    device: str = "H200"
    repair: Version | None = None  # the failed version to repair; None = improve the baseline
    question: str = ""  # answer this about the baseline instead of writing a version
    depth: int = 0  # of the version that is asked for
    profile: str = ""  # what counters say about the baseline, where the time has come to show it


@record
class Event:
    """Something to show while work goes on. `fraction` is 0..1 where progress is known."""

    kind: Literal["proposing", "token", "proposed", "running", "judged", "decided", "note", "stopped", "failed"]
    message: str = ""
    version: int | None = None
    fraction: float | None = None
    data: tuple[tuple[str, Scalar], ...] = field(default=())
