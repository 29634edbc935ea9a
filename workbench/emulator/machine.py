"""The machine: one kernel's grid executed in batches of CTAs, block by block, over divergent groups of lanes.

Scheduling: program counters per lane; the basic block with the smallest program counter that has runnable lanes is executed for all of
them (so groups that diverged meet again at the next common block). Lanes that wait at a barrier are parked until their CTA's barrier is
complete. When nothing can run and lanes still wait, that is a deadlock, and the fault says who waits where.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.emulator import alu, loads, matrix, printing, warp
from workbench.emulator.alu import Fn, Unknown
from workbench.emulator.compiled.choice import Native, Turn
from workbench.emulator.compiled.stop import Stop
from workbench.emulator.counters import Counting
from workbench.emulator.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.ptx import Imm, Instruction, Kernel, Reg, parse
from workbench.emulator.state import Batch, Lanes
from workbench.records import Failure, Launch

BATCH_LANES = 16_384
FLOATS = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")
ENDS = ("bra", "ret", "exit", "bar", "barrier", "trap", "brx")


def _by_type(ins: Instruction) -> Fn:
    return alu.float_arithmetic(ins) if any(m in FLOATS for m in ins.mods) else alu.int_arithmetic(ins)


def _nothing(ins: Instruction) -> Fn:
    return lambda b, i: None


FAMILIES: dict[str, Callable[[Instruction], Fn]] = {
    **dict.fromkeys(("add", "sub", "mul", "mad", "div", "min", "max", "neg", "abs"), _by_type),
    **dict.fromkeys(("fma", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "copysign"), alu.float_arithmetic),
    "rem": alu.int_arithmetic,
    **dict.fromkeys(("and", "or", "xor", "not", "shl", "shr", "lop3", "popc", "clz", "brev", "prmt", "bfe", "bfi", "bfind", "cnot"), alu.logic),
    "shf": alu.funnel, "setp": alu.compare, "set": alu.compare, "selp": alu.select, "mov": alu.move, "cvt": alu.convert,
    "ld": loads.load, "ldu": loads.load, "st": loads.store, "cvta": loads.convert_address, "atom": loads.atomic, "red": loads.atomic, "isspacep": loads.space_test,
    "cp": loads.copy_async, "shfl": warp.shuffle, "vote": warp.vote, "activemask": warp.vote, "redux": warp.reduce_sync, "match": warp.match, "elect": warp.elect,
    "call": printing.call, "ldmatrix": matrix.load_matrix, "stmatrix": matrix.store_matrix, "mma": matrix.multiply,
    **dict.fromkeys(("membar", "fence", "nanosleep", "griddepcontrol", "prefetch", "prefetchu", "discard", "pragma"), _nothing),
}  # fmt: skip


class Machine:
    """Runs the kernels of one PTX module. `run` raises `EmulationFault` at the first error of the program."""

    def __init__(self, ptx: str, limits: DeviceLimits, source_file: str | None = None, *, engine: str | None = None, threads: int | None = None) -> None:
        self.module = parse(ptx, source_file)
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
        step = max(1, BATCH_LANES // padded)
        printed: list[str] = []
        room = printing.PRINT_LIMIT
        for name, data in self._constants.items():
            memory.register(data.ctypes.data, data.nbytes, name, writable=False)
        symbols = {name: data.ctypes.data for name, data in self._constants.items()}
        turn = Turn(self.native, kernel, request, self.limits, memory, symbols, counting, step)
        first = 0
        with np.errstate(all="ignore"):
            while first < total:
                ended = turn.rest(first)
                if isinstance(ended, Stop):
                    raise endless(Batch(kernel, request, self.limits, memory, ended.cta, 1), program.instructions[ended.instruction].line, ended.thread)
                if ended:
                    break
                if not first:
                    turn.keep()
                batch = Batch(kernel, request, self.limits, memory, first, min(step, total - first))
                batch.attach(counting, {name: request.params[n] for n, (name, _, _) in enumerate(kernel.params)}, symbols, room)
                if not program.execute(batch, turn.impatient):
                    turn.undo()
                    continue
                turn.settled()
                printed += batch.printed
                room = batch.print_room
                first += step
        return counting.launch(kernel.name, request, "".join(printed))

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
        if problem:
            raise EmulationFault(Failure(stage="launch", kind="bad_launch", message=problem, line=line))


def aligned_copy(data: bytes) -> np.ndarray:
    """The bytes at an address that is a multiple of 256, as device data is."""
    raw = np.zeros(len(data) + 256, dtype=np.uint8)
    start = -raw.ctypes.data % 256
    raw[start : start + len(data)] = np.frombuffer(data, dtype=np.uint8)
    return raw[start : start + len(data)]


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
            if ins.opcode in ENDS:
                leaders.add(n + 1)
        self.starts = sorted(leader for leader in leaders if leader <= count)
        self.end_of = {start: self.starts[n + 1] for n, start in enumerate(self.starts[:-1])}
        self.code = [self._decode(ins) for ins in self.instructions]

    def _decode(self, ins: Instruction) -> Fn:
        if ins.opcode in ENDS:
            return lambda b, i: None
        family = FAMILIES.get(ins.opcode)
        try:
            if family is None:
                raise Unknown(ins.text)
            return family(ins)
        except (Unknown, AssertionError, KeyError, StopIteration, IndexError, ValueError):
            text = re.sub(r"\s+", " ", ins.text)

            def unknown(b: Batch, i: Lanes) -> None:
                raise b.fault("unknown_instruction", f"the emulator does not know `{text}`", ins.line, stage="launch", hint="run it on a GPU, or use a form that the emulator knows")

            return unknown

    def execute(self, b: Batch, impatient: Callable[[], bool]) -> bool:
        """Run one batch of CTAs to the end; False when `impatient` says to leave it."""
        end = len(self.instructions)
        b.pc[~b.alive] = end
        steps = 0
        while True:
            runnable = b.alive & (b.waiting < 0)
            if not runnable.any():
                if not b.alive.any():
                    return True
                self._release(b)
                continue
            low = int(b.pc[runnable].min())
            if low >= end:
                b.alive &= b.pc < end
                continue
            if impatient():
                return False
            chosen = runnable & (b.pc == low)
            idx = None if chosen.all() else np.nonzero(chosen)[0]
            steps += self._block(b, low, idx)
            if steps > b.request.step_limit // 32:
                lane = 0 if idx is None else int(idx[0])
                raise endless(b, self.instructions[low].line, lane)

    def _block(self, b: Batch, start: int, idx: Lanes) -> int:
        stop = self.end_of[start]
        for n in range(start, stop):
            ins = self.instructions[n]
            active = idx
            if ins.guard is not None and ins.opcode not in ENDS:
                active = self._guarded(b, ins, idx)
                if active is not None and len(active) == 0:
                    continue
            b.counting.executed(n, b.lanes if active is None else len(active))
            self.code[n](b, active)
        last = self.instructions[stop - 1]
        if last.opcode in ENDS:
            self._end(b, last, stop, idx)
        else:
            self._jump(b, idx, stop)
        return stop - start

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
        elif ins.opcode == "trap":
            raise b.fault("trap", "the kernel executed a trap (a failed assertion)", ins.line, int(b.all_lanes(taken)[0]))
        elif ins.opcode in ("bar", "barrier"):
            self._arrive(b, ins, taken)
        else:
            raise b.fault("unknown_instruction", f"the emulator does not know `{ins.text}`", ins.line, stage="launch")

    def _arrive(self, b: Batch, ins: Instruction, idx: Lanes) -> None:
        if "cluster" in ins.mods:
            return
        if "warp" in ins.mods or "red" in ins.mods:
            if "red" in ins.mods:
                raise b.fault("unknown_instruction", f"the emulator does not know `{ins.text}`", ins.line, stage="launch")
            return
        number = int(ins.operands[0].value) if ins.operands and isinstance(ins.operands[0], Imm) else 0
        if ins.operands and isinstance(ins.operands[0], Reg):
            number = int(np.max(b.read(ins.operands[0].name, idx)))
        count = int(ins.operands[1].value) if len(ins.operands) > 1 and isinstance(ins.operands[1], Imm) else 0
        lanes = b.all_lanes(idx)
        if "arrive" in ins.mods:
            np.add.at(b.arrived, (b.cta[lanes], number), 1)
        else:
            b.waiting[lanes] = number
            b.waiting_line[lanes] = ins.line or 0
        b.barrier_count[np.unique(b.cta[lanes]), number] = count
        self._complete(b)

    def _complete(self, b: Batch) -> bool:
        """Release every barrier whose CTA has all its threads there (exited threads no longer count)."""
        progressed = False
        parked = b.waiting >= 0
        if not parked.any():
            return False
        for number in np.unique(b.waiting[parked]):
            at = b.waiting == number
            here = np.bincount(b.cta[at], minlength=b.count) + b.arrived[:, number]
            expected = np.where(b.barrier_count[:, number] > 0, b.barrier_count[:, number], np.bincount(b.cta[b.alive], minlength=b.count))
            done = (here >= expected) & (here > 0)
            if done.any():
                free = at & done[b.cta]
                b.waiting[free] = -1
                b.arrived[done, number] = 0
                progressed = True
        return progressed

    def _release(self, b: Batch) -> None:
        if self._complete(b):
            return
        lane = int(np.argmax(b.waiting >= 0))
        cta = b.cta[lane]
        mine = (b.cta == cta) & (b.waiting >= 0)
        places = sorted({int(line) for line in b.waiting_line[mine]})
        exited = int(((b.cta == cta) & ~b.alive & (b.thread < b.threads)).sum())
        message = f"barrier deadlock: {int(mine.sum())} threads wait at line{'s' if len(places) > 1 else ''} {', '.join(map(str, places))} and {exited} have exited; the barrier can never complete"
        raise b.fault("barrier_deadlock", message, places[0] or None, lane, hint="every thread of the CTA must reach the same barrier: no barrier inside a branch that only some threads take")
