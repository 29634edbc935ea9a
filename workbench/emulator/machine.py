"""The machine: one kernel's grid executed in batches of CTAs, block by block, over divergent groups of lanes.

Scheduling: program counters per lane; the basic block with the smallest program counter that has runnable lanes is executed for all of
them (so groups that diverged meet again at the next common block). Lanes that wait at a barrier are parked until their CTA's barrier is
complete. When nothing can run and lanes still wait, that is a deadlock, and the fault says who waits where.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from workbench.emulator import (  # fmt: skip
    bitwise,
    cluster,
    convert,
    deferred,
    floats,
    fp8,
    integers,
    loads,
    matrix,
    mbarrier,
    moves,
    pace,
    printing,
    races,
    tensormap,
    tma,
    warp,
    wgmma,
)
from workbench.emulator.compiled.choice import Native, Turn
from workbench.emulator.compiled.stop import Stop
from workbench.emulator.counters import Counting
from workbench.emulator.deadlock import deadlock
from workbench.emulator.divergence import barrier_completed, threads_ended
from workbench.emulator.global_races import Record, is_strong
from workbench.emulator.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.operands import Fn, Unknown
from workbench.emulator.ptx import Imm, Instruction, Kernel, Reg, parse
from workbench.emulator.standstill import Standstill, waits_outside
from workbench.emulator.state import BARRIER_WAIT, Batch, Lanes
from workbench.emulator.turns import Turns
from workbench.emulator.unwritten import Unwritten
from workbench.emulator.waits import Watch
from workbench.records import Failure, Finding, Launch

BATCH_LANES = 16_384
FOLLOWED_CTAS = 4  # of a launch that is followed in time
CHECKED_CTAS = 4  # of a counted launch, which the interpreter runs and looks for races in, before compiled code takes over
PATIENCE_S = 1.0  # that the interpreter takes to look for races in a kernel with atomics, whose CTAs cannot be split
DESCRIPTOR_BYTES = 128
MOST_STALLS = 64  # times that every waiting try_wait gives up with no phase completed in between, before that is a deadlock
BARRIERS = 16  # named barriers of a CTA (PTX ISA, barrier)
FLOATS = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")
MISFITS = (TypeError, ValueError, KeyError, IndexError, AttributeError, AssertionError, OverflowError, ZeroDivisionError)
ENDS = ("bra", "ret", "exit", "bar", "barrier", "trap", "brx")


def _by_type(ins: Instruction) -> Fn:
    if "cc" in ins.mods:
        return integers.carry(ins)
    return floats.float_arithmetic(ins) if any(m in FLOATS for m in ins.mods) else integers.int_arithmetic(ins)


def _convert(ins: Instruction) -> Fn:
    return fp8.convert(ins) if any(m in ("e4m3x2", "e5m2x2") for m in ins.mods) else convert.convert(ins)


def _copy(ins: Instruction) -> Fn:
    if "bulk" in ins.mods:
        return tma.copy(ins)
    return mbarrier.arrive_after_copies(ins) if "mbarrier" in ins.mods[:2] else loads.copy_async(ins)


def _fence(ins: Instruction) -> Fn:
    if ins.mods[1:2] == ("tensormap",):
        return tensormap.fence(ins)
    return deferred.fence(ins) if ins.mods[:2] == ("proxy", "async") else _nothing(ins)


def _patient() -> bool:
    return False


class _Patience:
    """Whether to leave a batch that could run on compiled code: not within the first seconds, in which the interpreter looks for races."""

    def __init__(self, impatient: Callable[[], bool]) -> None:
        self.impatient, self.until = impatient, time.perf_counter() + PATIENCE_S

    def __call__(self) -> bool:
        return time.perf_counter() > self.until and self.impatient()


def _nothing(ins: Instruction) -> Fn:
    return lambda b, i: None


FAMILIES: dict[str, Callable[[Instruction], Fn]] = {
    **dict.fromkeys(("add", "sub", "mul", "mad", "div", "min", "max", "neg", "abs"), _by_type),
    **dict.fromkeys(("fma", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "copysign"), floats.float_arithmetic),
    "rem": integers.int_arithmetic,
    **dict.fromkeys(("addc", "subc", "madc"), integers.carry), **dict.fromkeys(("mul24", "mad24"), integers.product24), "dp4a": integers.dot4, "dp2a": integers.dot2,
    **dict.fromkeys(("and", "or", "xor", "not", "shl", "shr", "lop3", "popc", "clz", "brev", "prmt", "bfe", "bfi", "bfind", "cnot"), bitwise.logic),
    "shf": bitwise.funnel, "setp": moves.compare, "set": moves.compare, "selp": moves.select, "mov": moves.move, "cvt": _convert,
    "ld": loads.load, "ldu": loads.load, "st": loads.store, "cvta": loads.convert_address, "atom": loads.atomic, "red": loads.atomic, "isspacep": loads.space_test,
    "cp": _copy, "shfl": warp.shuffle, "vote": warp.vote, "activemask": warp.vote, "redux": warp.reduce_sync, "match": warp.match, "elect": warp.elect,
    "call": printing.call, "ldmatrix": matrix.load_matrix, "stmatrix": matrix.store_matrix, "mma": matrix.multiply,
    "mbarrier": mbarrier.operation, "wgmma": wgmma.multiply, "mapa": cluster.map_address, "getctarank": cluster.cta_rank,
    "fence": _fence, "tensormap": tensormap.operation,
    **dict.fromkeys(("setmaxnreg", "membar", "nanosleep", "griddepcontrol", "prefetch", "prefetchu", "discard", "pragma"), _nothing),
}  # fmt: skip


def _operand(b: Batch, ins: Instruction, at: int, idx: Lanes) -> Any:
    """A number that a barrier is given, one for all lanes or one each; 0 where it is not."""
    operand = ins.operands[at] if len(ins.operands) > at else None
    value = b.read(operand.name, idx) if isinstance(operand, Reg) else operand.value if isinstance(operand, Imm) else 0
    return np.asarray(value).astype(np.int64)


class Machine:
    """Runs the kernels of one PTX module. `run` raises `EmulationFault` at the first error of the program."""

    def __init__(self, ptx: str, limits: DeviceLimits, source_file: str | None = None, *, engine: str | None = None, threads: int | None = None) -> None:
        try:
            self.module = parse(ptx, source_file)
        except MISFITS as error:
            raise EmulationFault(Failure(stage="launch", kind="bad_ptx", message=f"PTX that cannot be read ({type(error).__name__}: {error})")) from error
        self.native = Native(ptx, engine, threads)
        self.limits = limits
        self._compiled: dict[str, _Program] = {}
        self._constants = {name: aligned_copy(data) for name, data in self.module.constants.items()}

    def run(self, request: GridRequest, memory: GlobalMemory) -> Launch:
        """Execute every CTA of the grid and return what was counted."""
        kernel = self.module.kernels[request.entry]
        self._check(kernel, request)
        program = self._compiled.get(request.entry)
        if program is None:
            program = self._compiled[request.entry] = _Program(kernel)
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

    def _follow(self, batch: Batch, program: _Program) -> None:
        """Follow the batch's warps in time and its loads through the caches."""
        program.steps = program.steps or [pace.step(ins) for ins in program.instructions]
        batch.pace = pace.Pace(batch, program.steps, program.instructions, *self.limits.shares(batch.threads, batch.shared_limit))

    def _sampled(self, kernel: Kernel, program: _Program, request: GridRequest, memory: GlobalMemory, counting: Counting, order: Any, symbols: dict[str, int]) -> Launch:
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


def knows(ins: Instruction) -> bool:
    """Whether the machine can execute an instruction; what it cannot is a fault that names the instruction."""
    if _parks(ins):
        return True
    if ins.opcode in ENDS:
        return ins.opcode != "brx" and not (ins.opcode in ("bar", "barrier") and "red" in ins.mods)
    return decode(ins) is not None


def decode(ins: Instruction) -> Fn | None:
    """What executes an instruction, None for a form that no family knows."""
    family = FAMILIES.get(ins.opcode)
    try:
        return family(ins) if family else None
    except (Unknown, StopIteration, *MISFITS):
        return None


def _parks(ins: Instruction) -> bool:
    """Whether an instruction waits at an mbarrier."""
    return ins.opcode == "mbarrier" and ins.mods[0] == "try_wait"


def endless(b: Batch, line: int | None, lane: int) -> EmulationFault:
    """The fault of a kernel that went past the limit of instructions."""
    return b.fault("infinite_loop", f"the kernel did not end within {b.request.step_limit} instructions", line, lane, stage="limits",
                   hint="a loop whose condition never becomes false, or far too much work for one launch")  # fmt: skip


class _Program:
    """A kernel decoded once: instructions as closures, grouped in basic blocks."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.instructions = kernel.instructions
        count = len(self.instructions)
        leaders = {0, count, *kernel.labels.values()}
        for n, ins in enumerate(self.instructions):
            if ins.opcode in ENDS or _parks(ins):
                leaders.add(n + 1)
            if _parks(ins):
                leaders.add(n)  # lanes that wait run it again
        self.starts = sorted(leader for leader in leaders if leader <= count)
        self.end_of = {start: self.starts[n + 1] for n, start in enumerate(self.starts[:-1])}
        watch = Watch(self.instructions)
        self.code = [watch.wrap(ins, self._decode(ins)) for ins in self.instructions]
        self.async_proxy = any(ins.opcode == "wgmma" or (ins.opcode == "cp" and "bulk" in ins.mods and ".global.shared" in ins.text) for ins in self.instructions)
        self.race_plan = races.plan_of(self.instructions)
        self.ordered = any(ins.opcode in ("atom", "red") for ins in self.instructions)  # what comes out may depend on which CTAs run together
        self.spins = any(ins.opcode in ("ld", "atom") and is_strong(ins) for ins in self.instructions)  # whether a loop may wait for what another CTA stores
        self.unwritten = Unwritten(kernel, self.starts)
        self.polls = {n: mbarrier.Poll(ins) for n, ins in enumerate(self.instructions) if _parks(ins)}
        self.steps: list[pace.Step] | None = None  # for following, made when it is asked for

    def _decode(self, ins: Instruction) -> Fn:
        if ins.opcode in ENDS or _parks(ins):
            return lambda b, i: None
        known = decode(ins)
        if known is not None:
            return known
        text = re.sub(r"\s+", " ", ins.text)

        def unknown(b: Batch, i: Lanes) -> None:
            raise b.fault("unknown_instruction", f"the emulator does not know `{text}`", ins.line, stage="launch", hint="run it on a GPU, or use a form that the emulator knows")

        return unknown

    def execute(self, b: Batch, impatient: Callable[[], bool]) -> bool:
        """Run one batch of CTAs to the end; False when `impatient` says to leave it."""
        end = len(self.instructions)
        b.pc[~b.alive] = end
        self.unwritten.begin(b)
        steps, turns = 0, Turns()
        while True:
            runnable = b.alive & (b.waiting < 0)
            if not runnable.any():
                if not b.alive.any():
                    deferred.leaked(b)
                    return True
                self._release(b)
                continue
            low, chosen = turns.choose(b, runnable)
            if turns.idle and self.spins:
                deferred.finish_arrivals(b)
            if turns.idle and b.standstill is not None and b.standstill.reached(b):
                raise waits_outside(b, self.instructions, low, chosen)
            if low >= end:
                b.alive &= b.pc < end
                continue
            if impatient():
                return False
            idx = None if chosen.all() else np.nonzero(chosen)[0]
            steps += self._block(b, low, idx)
            if steps > b.request.step_limit // 32:
                lane = 0 if idx is None else int(idx[0])
                raise endless(b, self.instructions[low].line, lane)

    def _block(self, b: Batch, start: int, idx: Lanes) -> int:
        stop = self.end_of[start]
        pace = b.pace
        if pace is not None:
            pace.enter(start, idx)
        for n in range(start, stop):
            ins = self.instructions[n]
            active = idx
            watch = self.unwritten.steps[n] if b.garbage or b.garbage_stored else None
            if watch is not None:
                watch.guard(b, idx)
            if ins.guard is not None and ins.opcode not in ENDS and n not in self.polls:
                active = self._guarded(b, ins, idx)
                if active is not None and len(active) == 0:
                    continue
            b.counting.executed(n, b.lanes if active is None else len(active))
            try:
                if watch is not None and not watch.late:
                    watch.follow(b, active)
                self.code[n](b, active)
                if watch is not None and watch.late:
                    watch.follow(b, active)
            except MISFITS as error:
                raise self._misfit(b, ins, error) from error
            if pace is not None:
                pace.executed(n, active)
        if pace is not None:
            pace.leave()
        last = self.instructions[stop - 1]
        if last.opcode in ENDS:
            self._end(b, last, stop, idx)
        elif stop - 1 in self.polls:
            self._poll(b, stop - 1, idx)
        else:
            self._jump(b, idx, stop)
        return stop - start

    @staticmethod
    def _misfit(b: Batch, ins: Instruction, error: Exception) -> EmulationFault:
        """The fault of an instruction whose operands are not what its form takes; a kernel that a compiler made has none."""
        text = re.sub(r"\s+", " ", ins.text)
        return b.fault("unknown_instruction", f"the emulator cannot execute `{text}` ({type(error).__name__}: {error})", ins.line, stage="launch", hint="if a compiler wrote it, it is a fault of the emulator: report it")

    @staticmethod
    def _jump(b: Batch, idx: Lanes, pc: int) -> None:
        if idx is None:
            b.pc[:] = pc
        else:
            b.pc[idx] = pc

    @staticmethod
    def _guarded(b: Batch, ins: Instruction, idx: Lanes) -> Any:
        value = b.read(str(ins.guard), idx)
        if not (isinstance(value, np.ndarray) and value.ndim):
            return idx if bool(value) != ins.negated else np.empty(0, dtype=np.int64)
        flag = value.astype(bool) != ins.negated
        if flag.all():
            return idx
        return np.nonzero(flag)[0] if idx is None else idx[flag]

    def _end(self, b: Batch, ins: Instruction, after: int, idx: Lanes) -> None:
        taken = self._guarded(b, ins, idx) if ins.guard is not None else idx
        self._jump(b, idx, after)
        if taken is not None and len(taken) == 0:
            return
        if ins.opcode == "bra":
            self._jump(b, taken, ins.target)
        elif ins.opcode in ("ret", "exit"):
            self._jump(b, taken, len(self.instructions))
            b.alive[b.all_lanes(taken)] = False
            threads_ended(b, b.all_lanes(taken), self.instructions)
        elif ins.opcode == "trap":
            raise b.fault("trap", "the kernel executed a trap (a failed assertion)", ins.line, int(b.all_lanes(taken)[0]))
        elif ins.opcode in ("bar", "barrier"):
            self._arrive(b, ins, taken)
        else:
            raise b.fault("unknown_instruction", f"the emulator does not know `{ins.text}`", ins.line, stage="launch")

    def _poll(self, b: Batch, n: int, idx: Lanes) -> None:
        """mbarrier.try_wait: lanes whose phase is complete, or that gave up, go on; the others are parked and will run it again."""
        ins, poll = self.instructions[n], self.polls[n]
        taken = self._guarded(b, ins, idx) if ins.guard is not None else idx
        self._jump(b, idx, n + 1)
        lanes = b.all_lanes(taken)
        if not len(lanes):
            return
        ready, index = poll.ready(b, taken)
        on = ready | b.timed_out[lanes]
        if on.any():
            poll.put(b, lanes[on], ready[on])
            if b.pace is not None:
                b.pace.waited(lanes[ready], index[ready])
        if b.races is not None and ready.any():
            b.races.clocks.leave(index[ready], lanes[ready])
        b.timed_out[lanes] = False
        parked = lanes[~on]
        b.pc[parked], b.waiting[parked], b.waiting_line[parked], b.waiting_for[parked] = n, BARRIER_WAIT, ins.line or 0, index[~on]

    def _arrive(self, b: Batch, ins: Instruction, idx: Lanes) -> None:
        if "cluster" in ins.mods:
            cluster.arrive(b, idx) if "arrive" in ins.mods else cluster.wait(b, idx, ins.line)
            return
        if "warp" in ins.mods or "red" in ins.mods:
            if "red" in ins.mods:
                raise b.fault("unknown_instruction", f"the emulator does not know `{ins.text}`", ins.line, stage="launch")
            return
        lanes = b.all_lanes(idx)
        numbers, counts = (_operand(b, ins, at, idx) for at in (0, 1))
        for number in np.unique(numbers):  # warps may come to one instruction for barriers of their own
            mine = lanes if not numbers.ndim else lanes[numbers == number]
            self._arrive_at(b, ins, mine, int(number), counts if not counts.ndim else counts[numbers == number] if numbers.ndim else counts)
        self._complete(b)

    @staticmethod
    def _arrive_at(b: Batch, ins: Instruction, lanes: Any, number: int, count: Any) -> None:
        if not 0 <= number < BARRIERS:
            raise b.fault("bad_barrier", f"barrier {number}: a CTA has {BARRIERS}, numbered from 0", ins.line, int(lanes[0]))
        if b.races is not None:
            b.races.clocks.arrive(lanes, b.cta, number)
        if "arrive" in ins.mods:
            np.add.at(b.arrived, (b.cta[lanes], number), 1)
        else:
            b.waiting[lanes] = number
            b.waiting_line[lanes] = ins.line or 0
        b.barrier_count[b.cta[lanes], number] = count

    def _complete(self, b: Batch) -> bool:
        """Release every barrier whose CTA has all its threads there (exited threads no longer count)."""
        progressed = cluster.complete(b) if b.cluster_size > 1 else False
        parked = (b.waiting >= 0) & (b.waiting < BARRIER_WAIT)
        if not parked.any():
            return progressed
        for number in np.unique(b.waiting[parked]):
            at = b.waiting == number
            here = np.bincount(b.cta[at], minlength=b.count) + b.arrived[:, number]
            expected = np.where(b.barrier_count[:, number] > 0, b.barrier_count[:, number], np.bincount(b.cta[b.alive], minlength=b.count))
            done = (here >= expected) & (here > 0)
            if done.any():
                free = at & done[b.cta]
                barrier_completed(b, free, self.instructions)
                b.waiting[free] = -1
                b.arrived[done, number] = 0
                if b.races is not None:
                    b.races.clocks.complete(np.nonzero(free)[0], b.cta, int(number), done)
                if b.pace is not None:
                    b.pace.met(free)
                progressed = True
        return progressed

    def _release(self, b: Batch) -> None:
        if self._complete(b) or deferred.finish_arrivals(b):
            return
        stuck = b.waiting == BARRIER_WAIT
        if stuck.any() and b.stalls < MOST_STALLS:
            b.stalls += 1
            b.timed_out |= stuck
            b.waiting[stuck] = -1
            return
        raise deadlock(b)
