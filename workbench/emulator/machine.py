"""The machine: one kernel's grid, batch by batch of CTAs, on the interpreter (interpreter.py) or on compiled code (compiled/)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from workbench.emulator import pace, printing, races
from workbench.emulator.compiled.choice import Native, Turn
from workbench.emulator.compiled.stop import Stop
from workbench.emulator.counters import Counting
from workbench.emulator.families import MISFITS
from workbench.emulator.global_races import Record
from workbench.emulator.interpreter import Program, endless
from workbench.emulator.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.ptx import Kernel, parse
from workbench.emulator.standstill import Standstill
from workbench.emulator.state import Batch
from workbench.records import Failure, Finding, Launch

BATCH_LANES = 16_384
FOLLOWED_CTAS = 4  # of a launch that is followed in time
CHECKED_CTAS = 4  # of a counted launch, which the interpreter runs and looks for races in, before compiled code takes over
PATIENCE_S = 1.0  # that the interpreter takes to look for races in a kernel with atomics, whose CTAs cannot be split
DESCRIPTOR_BYTES = 128


def _patient() -> bool:
    return False


class _Patience:
    """Whether to leave a batch that could run on compiled code: not within the first seconds, in which the interpreter looks for races."""

    def __init__(self, impatient: Callable[[], bool]) -> None:
        self.impatient, self.until = impatient, time.perf_counter() + PATIENCE_S

    def __call__(self) -> bool:
        return time.perf_counter() > self.until and self.impatient()


class Machine:
    """Runs the kernels of one PTX module. `run` raises `EmulationFault` at the first error of the program."""

    def __init__(self, ptx: str, limits: DeviceLimits, source_file: str | None = None, *, engine: str | None = None, threads: int | None = None) -> None:
        try:
            self.module = parse(ptx, source_file)
        except MISFITS as error:
            raise EmulationFault(Failure(stage="launch", kind="bad_ptx", message=f"PTX that cannot be read ({type(error).__name__}: {error})")) from error
        self.native = Native(ptx, engine, threads)
        self.limits = limits
        self._compiled: dict[str, Program] = {}
        self._constants = {name: aligned_copy(data) for name, data in self.module.constants.items()}

    def run(self, request: GridRequest, memory: GlobalMemory) -> Launch:
        """Execute every CTA of the grid and return what was counted."""
        kernel = self.module.kernels[request.entry]
        self._check(kernel, request)
        program = self._compiled.get(request.entry)
        if program is None:
            program = self._compiled[request.entry] = Program(kernel)
        counting = Counting(program.instructions, enabled=request.counters)
        total = request.grid[0] * request.grid[1] * request.grid[2]
        padded = -(-request.block[0] * request.block[1] * request.block[2] // 32) * 32
        together = request.cluster[0] * request.cluster[1] * request.cluster[2]
        lanes = BATCH_LANES
        if counting.enabled and program.race_plan.asynchronous:
            lanes = min(lanes, races.most_ctas(program.race_plan, kernel.shared_bytes + request.dynamic_shared_bytes, padded) * padded)
        step = max(1, lanes // (padded * together)) * together  # whole clusters
        order = _by_cluster(request) if together > 1 else None
        printed: list[str] = []
        notices: dict[tuple[str, int | None], Finding] = {}
        room = printing.PRINT_LIMIT
        for name, data in self._constants.items():
            memory.register(data.ctypes.data, data.nbytes, name, writable=False)
        symbols = {name: data.ctypes.data for name, data in self._constants.items()}
        parameters = {name: aligned_copy(request.params[n]) for n, (name, size, _) in enumerate(kernel.params) if size >= DESCRIPTOR_BYTES}
        for name, data in parameters.items():  # what a kernel may take the address of: TMA descriptors
            memory.register(data.ctypes.data, data.nbytes, "a kernel parameter", writable=False)
            symbols[name] = data.ctypes.data
        if request.sample is not None:
            return self._sampled(kernel, program, request, memory, counting, order, symbols)
        turn = Turn(self.native, kernel, request, self.limits, memory, symbols, counting, step)
        if request.sanitize:  # what only the interpreter looks for, in every CTA
            turn.code, turn.open = None, False
        checked = turn.open and counting.enabled and (not program.ordered or total <= step)  # races are looked for in the first CTAs at least, or in all
        few = step if program.ordered else min(step, CHECKED_CTAS)
        looking = (program.race_plan, Record(request, program.race_plan.everywhere)) if counting.enabled else None
        patience = _Patience(turn.impatient) if program.ordered else _patient
        followed = None
        if request.follow:  # the first CTAs, on the interpreter
            checked, few, patience = True, max(FOLLOWED_CTAS, together), _patient
        first = 0
        with np.errstate(all="ignore"):
            while first < total:
                ended = turn.rest(first) if first or not checked else False
                if isinstance(ended, Stop):
                    raise endless(Batch(kernel, request, self.limits, memory, ended.cta, 1), program.instructions[ended.instruction].line, ended.thread)
                if ended:
                    break
                if not first:
                    turn.keep()
                count = min(step if first or not checked else few, total - first)
                batch = Batch(kernel, request, self.limits, memory, first, count, order)
                batch.attach(counting, {name: request.params[n] for n, (name, _, _) in enumerate(kernel.params)}, symbols, room, async_proxy=program.async_proxy, races=looking)
                if request.follow and not first:
                    self._follow(batch, program)
                    followed = batch.pace
                if not program.execute(batch, turn.impatient if first or not checked else patience):
                    turn.undo()
                    continue
                turn.settled()
                printed += batch.printed
                notices = {**batch.notices, **notices}
                room = batch.print_room
                first += count
        launch = counting.launch(kernel.name, request, "".join(printed))
        launch = replace(launch, paced=followed.result()) if followed else launch
        return replace(launch, findings=(*notices.values(), *launch.findings)) if notices else launch

    def _follow(self, batch: Batch, program: Program) -> None:
        """Follow the batch's warps in time and its loads through the caches."""
        program.steps = program.steps or [pace.step(ins) for ins in program.instructions]
        batch.pace = pace.Pace(batch, program.steps, program.instructions, *self.limits.shares(batch.threads, batch.shared_limit))

    def _sampled(self, kernel: Kernel, program: Program, request: GridRequest, memory: GlobalMemory, counting: Counting, order: Any, symbols: dict[str, int]) -> Launch:
        """Execute some CTAs, followed in time if that is asked for; what they count stands for the grid."""
        total = request.grid[0] * request.grid[1] * request.grid[2]
        together = request.cluster[0] * request.cluster[1] * request.cluster[2]
        chosen = spread(total // together, -(-(request.sample or total) // together))
        numbers = (np.arange(total) if order is None else order).reshape(-1, together)[chosen].reshape(-1)
        batch = Batch(kernel, request, self.limits, memory, 0, len(numbers), numbers)
        batch.attach(counting, {name: request.params[n] for n, (name, _, _) in enumerate(kernel.params)}, symbols, printing.PRINT_LIMIT, async_proxy=program.async_proxy)
        if request.follow:
            self._follow(batch, program)
        if len(numbers) < total:
            batch.standstill = Standstill()
        end = time.perf_counter() + (request.limit_s or float("inf"))
        with np.errstate(all="ignore"):
            if not program.execute(batch, lambda: time.perf_counter() > end):
                raise batch.fault("too_long", f"{len(numbers)} CTAs did not end within {request.limit_s:g} s", None, stage="limits")
        counting.scale(total, len(numbers))
        launch = counting.launch(kernel.name, request, "".join(batch.printed))
        return replace(launch, sampled=len(numbers) if len(numbers) < total else None, paced=batch.pace.result() if batch.pace else None)

    def _check(self, kernel: Kernel, request: GridRequest) -> None:
        threads = request.block[0] * request.block[1] * request.block[2]
        shared = kernel.shared_bytes + request.dynamic_shared_bytes
        line = kernel.instructions[0].line if kernel.instructions else None
        problem = None
        if threads > self.limits.threads_per_block or threads < 1:
            problem = f"{threads} threads in a CTA, but the device allows 1 to {self.limits.threads_per_block}"
        elif request.block[2] > self.limits.block_z:
            problem = f"{request.block[2]} threads along z in a CTA, but the device allows {self.limits.block_z}"
        elif (together := request.cluster[0] * request.cluster[1] * request.cluster[2]) > self.limits.cluster_blocks:
            problem = f"{together} CTAs in a cluster, but the device allows {self.limits.cluster_blocks}"
        elif shared > self.limits.shared_bytes_per_block:
            problem = f"{shared} bytes of shared memory in a CTA, but {self.limits.name} allows {self.limits.shared_bytes_per_block}"
        elif min(request.grid) < 1 or request.grid[0] > self.limits.grid_x or max(request.grid[1:]) > self.limits.grid_yz:
            problem = f"grid {request.grid} is not launchable: 1 to {self.limits.grid_x} in x, 1 to {self.limits.grid_yz} in y and z"
        elif any(extent % part for extent, part in zip(request.grid, request.cluster, strict=True)):
            problem = f"grid {request.grid} is no multiple of the cluster {request.cluster}"
        if problem:
            finding = Finding(kind="bad_launch", severity="error", message=problem, line=line, kernel=kernel.name)
            raise EmulationFault(Failure(stage="launch", kind="bad_launch", message=problem, line=line), finding)


def _by_cluster(request: GridRequest) -> np.ndarray:
    """Linear CTA numbers, the CTAs of a cluster one after the other in the order of their rank."""
    (gx, gy, gz), (cx, cy, cz) = request.grid, request.cluster
    numbers = np.arange(gx * gy * gz).reshape(gz // cz, cz, gy // cy, cy, gx // cx, cx)
    return numbers.transpose(0, 2, 4, 1, 3, 5).reshape(-1)


def spread(count: int, some: int) -> np.ndarray:
    """At most `some` of the numbers below `count`, spread by the golden ratio, so that no regular pattern of the grid is met again and again."""
    if some >= count:
        return np.arange(count)
    return np.unique((np.arange(1, some + 1) * 0.6180339887 % 1 * count).astype(np.int64))


def aligned_copy(data: bytes) -> np.ndarray:
    """The bytes at an address that is a multiple of 256, as device data is."""
    raw = np.zeros(len(data) + 256, dtype=np.uint8)
    start = -raw.ctypes.data % 256
    raw[start : start + len(data)] = np.frombuffer(data, dtype=np.uint8)
    return raw[start : start + len(data)]
