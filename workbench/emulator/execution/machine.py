"""Runs one kernel's grid, batch by batch of CTAs, on the interpreter (interpreter.py) or on compiled code
(compiled/).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.compiled.stop import Stop
from workbench.emulator.compiled.tiering import NativeKernels, TierSwitch
from workbench.emulator.execution.batch import WARP, Batch, Timeline
from workbench.emulator.execution.counters import Counting
from workbench.emulator.execution.dispatch import MISFITS
from workbench.emulator.execution.interpreter import Program, endless_fault
from workbench.emulator.execution.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.isa import vprintf
from workbench.emulator.ptx.instruction import Kernel
from workbench.emulator.ptx.parser import parse
from workbench.emulator.sampling.steady_state import SteadyState
from workbench.emulator.sanitizer import access_history
from workbench.emulator.sanitizer.global_races import Record
from workbench.emulator.sanitizer.launch_order import OrderedLaunch
from workbench.emulator.sanitizer.livelock import LivelockDetector
from workbench.emulator.sanitizer.shared_races import Races
from workbench.emulator.sanitizer.wgmma_registers import WgmmaRegisters
from workbench.emulator.timing import cta_timeline
from workbench.emulator.timing.l2_trace import L2Watch
from workbench.records import Failure, Finding, L2Traffic, Launch

BATCH_LANES = 16_384
FOLLOWED_CTAS = 4  # CTAs that are followed in time
CHECKED_CTAS = 4  # CTAs that the interpreter checks for races before compiled code runs the rest
PATIENCE_S = 1.0  # seconds for races in a kernel with atomics, whose CTAs cannot be split between the engines
DESCRIPTOR_BYTES = 128


@dataclass(frozen=True, slots=True)
class _Launch:
    """The data of one launch that every batch needs."""

    kernel: Kernel
    program: Program
    request: GridRequest
    memory: GlobalMemory
    counting: Counting
    symbols: dict[str, int]  # addresses of the module's data, and of parameters that a kernel may take the address of
    order: Array | None  # CTA numbers where CTAs of a cluster are not neighbours
    parameters: list[Array]  # kept alive while the launch runs

    @property
    def total(self) -> int:
        """The number of CTAs in the grid."""
        return math.prod(self.request.grid)

    @property
    def cluster_ctas(self) -> int:
        """The number of CTAs in a cluster."""
        return math.prod(self.request.cluster)

    def batch_ctas(self) -> int:
        """The number of CTAs in a batch: whole clusters."""
        padded = -(-math.prod(self.request.block) // WARP) * WARP
        lanes = BATCH_LANES
        plan = self.program.race_plan
        if self.counting.enabled and plan.asynchronous:
            shared = self.kernel.shared_bytes + self.request.dynamic_shared_bytes
            lanes = min(lanes, access_history.max_ctas(plan, shared, padded) * padded)
        return max(1, lanes // (padded * self.cluster_ctas)) * self.cluster_ctas

    def batch(
        self, limits: DeviceLimits, first: int, count: int, *, print_room: int, record: Record | None = None
    ) -> Batch:
        """A batch of the CTAs [first, first + count) in the launch's order; `record` holds the races, None to skip
        them.
        """
        return self.attach(
            Batch(self.kernel, self.request, limits, self.memory, first, count, self.order), print_room, record
        )

    def attach(self, batch: Batch, print_room: int, record: Record | None) -> Batch:
        """Attach counters, parameters and checks to a batch."""
        batch.attach(
            self.counting,
            WgmmaRegisters(batch.lanes // WARP),
            params={name: self.request.params[n] for n, (name, _, _) in enumerate(self.kernel.params)},
            symbols=self.symbols,
            print_room=print_room,
            async_proxy=self.program.async_proxy,
            races=Races(batch, self.program.race_plan, record) if record is not None and batch.count else None,
        )
        return batch


def _never_leave() -> bool:
    return False


class _Patience:
    """Whether to leave a batch that could run on compiled code: not in the first second, while the interpreter looks
    for races.
    """

    def __init__(self, should_leave: Callable[[], bool]) -> None:
        self.should_leave, self.until = should_leave, time.perf_counter() + PATIENCE_S

    def __call__(self) -> bool:
        return time.perf_counter() > self.until and self.should_leave()


@dataclass(slots=True)
class _Output:
    """Collects the output of a launch's batches."""

    printed: list[str] = field(default_factory=list)
    notices: dict[tuple[str, int | None], Finding] = field(default_factory=dict)
    print_room: int = vprintf.PRINT_LIMIT
    timeline: Timeline | None = None
    l2: L2Traffic | None = None

    def add(self, batch: Batch) -> None:
        """Add the printed text and the notices of a batch."""
        self.printed += batch.printed
        self.notices = {**batch.notices, **self.notices}
        self.print_room = batch.print_room


class Machine:
    """Runs the kernels of one PTX module. `run` raises `EmulationFault` at the first error of the program."""

    def __init__(
        self,
        ptx: str,
        limits: DeviceLimits,
        source_file: str | None = None,
        *,
        engine: str | None = None,
        threads: int | None = None,
    ) -> None:
        try:
            self.module = parse(ptx, source_file)
        except MISFITS as error:
            raise EmulationFault(
                Failure(
                    stage="launch", kind="bad_ptx", message=f"PTX that cannot be read ({type(error).__name__}: {error})"
                )
            ) from error
        self.native = NativeKernels(ptx, engine, threads)
        self.depends_on_launches = "griddepcontrol" in ptx  # whether a kernel may overlap with others (PDL)
        self.limits = limits
        self._compiled: dict[str, Program] = {}
        self._constants = {name: aligned_copy(data) for name, data in self.module.constants.items()}

    def run(self, request: GridRequest, memory: GlobalMemory, order: OrderedLaunch | None = None) -> Launch:
        """Execute every CTA of the grid and return the counters.

        `order` is its place among the launches that it may overlap with; then the interpreter runs and checks all CTAs.
        """
        launch = self._prepare(request, memory)
        if request.sample is not None:
            return self._run_sample(launch)
        output = _Output()
        with np.errstate(all="ignore"):
            self._run_grid(launch, output, order)
        result = launch.counting.build_launch(launch.kernel.name, request, "".join(output.printed))
        if output.timeline:
            result = replace(result, paced=output.timeline.result())
        if output.l2 is not None:
            result = replace(result, l2=replace(output.l2, unseen_bytes=launch.counting.bulk_bytes))
        notices = output.notices.values()
        return replace(result, findings=(*notices, *result.findings)) if notices else result

    def _prepare(self, request: GridRequest, memory: GlobalMemory) -> _Launch:
        """Check the request, decode the kernel once, and register constants and parameters in memory."""
        kernel = self.module.kernels[request.entry]
        self._check_request(kernel, request)
        program = self._compiled.get(request.entry)
        if program is None:
            program = self._compiled[request.entry] = Program(kernel)
        for name, data in self._constants.items():
            memory.register(data.ctypes.data, data.nbytes, name, writable=False)
        symbols = {name: data.ctypes.data for name, data in self._constants.items()}
        parameters = {
            name: aligned_copy(request.params[n])
            for n, (name, size, _) in enumerate(kernel.params)
            if size >= DESCRIPTOR_BYTES
        }
        for name, data in parameters.items():  # a kernel may take the address of a TMA descriptor
            memory.register(data.ctypes.data, data.nbytes, "a kernel parameter", writable=False)
            symbols[name] = data.ctypes.data
        counting = Counting(program.instructions, enabled=request.counters)
        order = _cluster_order(request) if math.prod(request.cluster) > 1 else None
        return _Launch(kernel, program, request, memory, counting, symbols, order, list(parameters.values()))

    def _run_grid(self, launch: _Launch, output: _Output, order: OrderedLaunch | None) -> None:
        """Execute batch after batch, on compiled code as soon as that is faster."""
        request, program, counting = launch.request, launch.program, launch.counting
        step, total = launch.batch_ctas(), launch.total
        switch = TierSwitch(
            self.native, launch.kernel, request, self.limits, launch.memory, launch.symbols, counting, step
        )
        watch = self._watch_l2(launch)
        if request.sanitize or order is not None or watch is not None:  # only the interpreter sees all
            switch.code, switch.open = None, False
        record = Record(request, program.race_plan.everywhere, order) if counting.enabled else None
        checked, few, leave_first = self._first_batch(launch, switch, step)
        first = 0
        while first < total:
            if (first or not checked) and self._run_compiled(switch, launch, first):
                return
            if not first:
                switch.save()
            count = min(step if first or not checked else few, total - first)
            batch = launch.batch(self.limits, first, count, print_room=output.print_room, record=record)
            if watch is not None:
                watch.attach(batch, counting.position)
            if request.follow and not first:
                output.timeline = self._follow(batch, program)
            if not program.execute(batch, switch.should_leave if first or not checked else leave_first):
                switch.undo()
                checked = False  # the compiled code takes over from here, also in the first batch
                continue
            switch.finish_first()
            output.add(batch)
            first += count
        output.l2 = watch.result(program.instructions) if watch is not None else None

    def _watch_l2(self, launch: _Launch) -> L2Watch | None:
        """What notes the accesses of all CTAs, if that is asked for."""
        request = launch.request
        if request.l2_share is None or not launch.counting.enabled:
            return None
        shared = launch.kernel.shared_bytes + request.dynamic_shared_bytes
        return L2Watch(request, self.limits, launch.memory, shared)

    @staticmethod
    def _first_batch(launch: _Launch, switch: TierSwitch, step: int) -> tuple[bool, int, Callable[[], bool]]:
        """(whether the interpreter runs the first CTAs in any case, how many, when it may leave them).

        Races are looked for in the first CTAs at least.
        """
        if launch.request.follow:
            return True, max(FOLLOWED_CTAS, launch.cluster_ctas), _never_leave
        ordered = launch.program.ordered
        checked = switch.open and launch.counting.enabled and (not ordered or launch.total <= step)
        if ordered:
            return checked, step, _Patience(switch.should_leave)
        return checked, min(step, CHECKED_CTAS), _never_leave

    def _run_compiled(self, switch: TierSwitch, launch: _Launch, first: int) -> bool:
        """Run the CTAs from `first` on if compiled code exists; raises the fault of an endless loop."""
        ended = switch.run_rest(first)
        if isinstance(ended, Stop):
            batch = Batch(launch.kernel, launch.request, self.limits, launch.memory, ended.cta, 1)
            raise endless_fault(batch, launch.program.instructions[ended.instruction].line, ended.thread)
        return ended

    def _follow(self, batch: Batch, program: Program) -> cta_timeline.WarpTimeline:
        """Follow the batch's warps in time and its loads through the caches."""
        program.steps = program.steps or [cta_timeline.make_step(ins) for ins in program.instructions]
        l1_bytes, l2_bytes = self.limits.cache_bytes_per_cta(batch.threads, batch.shared_limit)
        batch.timeline = timeline = cta_timeline.WarpTimeline(
            batch, program.steps, program.instructions, l1_bytes=l1_bytes, l2_bytes=l2_bytes
        )
        return timeline

    def _run_sample(self, launch: _Launch) -> Launch:
        """Execute some CTAs, with a timeline if requested, and scale their counts to the grid."""
        request, total, cluster_ctas = launch.request, launch.total, launch.cluster_ctas
        chosen = pick_spread(total // cluster_ctas, -(-(request.sample or total) // cluster_ctas))
        order = np.arange(total) if launch.order is None else launch.order
        numbers = order.reshape(-1, cluster_ctas)[chosen].reshape(-1)
        batch = Batch(launch.kernel, request, self.limits, launch.memory, 0, len(numbers), numbers)
        launch.attach(batch, vprintf.PRINT_LIMIT, None)
        timeline = self._follow(batch, launch.program) if request.follow else None
        if timeline is not None and request.skip_repeats:
            code = launch.program.count_only(batch)
            batch.repeats = SteadyState(batch, launch.program.instructions, code.registers, timeline)
            batch.ended_waits = code.ended_waits if len(numbers) < total else frozenset()
        if len(numbers) < total:
            batch.livelock = LivelockDetector()
        end = time.thread_time() + (request.limit_s or float("inf"))
        with np.errstate(all="ignore"):
            if not launch.program.execute(batch, lambda: time.thread_time() > end):
                raise batch.fault(
                    "too_long",
                    f"{len(numbers)} CTAs did not end within {request.limit_s:g} s of CPU time",
                    None,
                    stage="limits",
                )
        launch.counting.scale(total, len(numbers))
        return replace(
            launch.counting.build_launch(launch.kernel.name, request, "".join(batch.printed)),
            sampled=len(numbers) if len(numbers) < total else None,
            paced=timeline.result() if timeline else None,
        )

    def _check_request(self, kernel: Kernel, request: GridRequest) -> None:
        threads = request.block[0] * request.block[1] * request.block[2]
        shared = kernel.shared_bytes + request.dynamic_shared_bytes
        line = kernel.line
        problem = None
        if threads > self.limits.threads_per_block or threads < 1:
            problem = f"{threads} threads in a CTA, but the device allows 1 to {self.limits.threads_per_block}"
        elif request.block[2] > self.limits.block_z:
            problem = f"{request.block[2]} threads along z in a CTA, but the device allows {self.limits.block_z}"
        elif (
            cluster_ctas := request.cluster[0] * request.cluster[1] * request.cluster[2]
        ) > self.limits.cluster_blocks:
            problem = f"{cluster_ctas} CTAs in a cluster, but the device allows {self.limits.cluster_blocks}"
        elif shared > self.limits.shared_bytes_per_block:
            problem = (
                f"{shared} bytes of shared memory in a CTA, but {self.limits.name} allows"
                f" {self.limits.shared_bytes_per_block}"
            )
        elif (
            min(request.grid) < 1 or request.grid[0] > self.limits.grid_x or max(request.grid[1:]) > self.limits.grid_yz
        ):
            problem = (
                f"grid {request.grid} is not launchable: 1 to {self.limits.grid_x} in x, 1 to {self.limits.grid_yz}"
                " in y and z"
            )
        elif any(extent % part for extent, part in zip(request.grid, request.cluster, strict=True)):
            problem = f"grid {request.grid} is no multiple of the cluster {request.cluster}"
        if problem:
            finding = Finding(kind="bad_launch", severity="error", message=problem, line=line, kernel=kernel.name)
            raise EmulationFault(Failure(stage="launch", kind="bad_launch", message=problem, line=line), finding)


def _cluster_order(request: GridRequest) -> np.ndarray:
    """Linear CTA numbers, ordered so that the CTAs of a cluster are neighbours in the order of their rank."""
    (gx, gy, gz), (cx, cy, cz) = request.grid, request.cluster
    numbers = np.arange(gx * gy * gz).reshape(gz // cz, cz, gy // cy, cy, gx // cx, cx)
    return numbers.transpose(0, 2, 4, 1, 3, 5).reshape(-1)


def pick_spread(count: int, some: int) -> np.ndarray:
    """At most `some` of the numbers below `count`, spread by the golden ratio, so that they miss regular patterns of
    the grid.
    """
    if some >= count:
        return np.arange(count)
    return np.unique((np.arange(1, some + 1) * 0.6180339887 % 1 * count).astype(np.int64))


def aligned_copy(data: bytes) -> np.ndarray:
    """The bytes at an address that is a multiple of 256, as device data is."""
    raw = np.zeros(len(data) + 256, dtype=np.uint8)
    start = -raw.ctypes.data % 256
    raw[start : start + len(data)] = np.frombuffer(data, dtype=np.uint8)
    return raw[start : start + len(data)]
