"""A kernel decoded once, and executed for a batch of CTAs, block by block, over divergent groups of lanes.

Scheduling: program counters per lane; the basic block with the smallest program counter that has runnable lanes is executed for all of
them (so groups that diverged meet again at the next common block). Lanes that wait at a barrier are parked until their CTA's barrier is
complete. When nothing can run and lanes still wait, that is a deadlock, and the fault says who waits where.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.emulator import barriers, deferred, mbarrier, pace, races
from workbench.emulator.divergence import threads_ended
from workbench.emulator.families import ENDS, MISFITS, decode, parks
from workbench.emulator.global_races import is_strong
from workbench.emulator.launch import EmulationFault
from workbench.emulator.operands import Fn
from workbench.emulator.ptx import Instruction, Kernel
from workbench.emulator.standstill import waits_outside
from workbench.emulator.state import Batch, Lanes
from workbench.emulator.turns import Turns
from workbench.emulator.unwritten import Unwritten
from workbench.emulator.waits import Watch


def endless(b: Batch, line: int | None, lane: int) -> EmulationFault:
    """The fault of a kernel that went past the limit of instructions."""
    return b.fault("infinite_loop", f"the kernel did not end within {b.request.step_limit} instructions", line, lane, stage="limits",
                   hint="a loop whose condition never becomes false, or far too much work for one launch")  # fmt: skip


class Program:
    """A kernel decoded once: instructions as closures, grouped in basic blocks."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.instructions = kernel.instructions
        count = len(self.instructions)
        leaders = {0, count, *kernel.labels.values()}
        for n, ins in enumerate(self.instructions):
            if ins.opcode in ENDS or parks(ins):
                leaders.add(n + 1)
            if parks(ins):
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
        self.polls = {n: mbarrier.Poll(ins) for n, ins in enumerate(self.instructions) if parks(ins)}
        self.steps: list[pace.Step] | None = None  # for following, made when it is asked for

    def _decode(self, ins: Instruction) -> Fn:
        if ins.opcode in ENDS or parks(ins):
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
                barriers.release(b)
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
                active = _guarded(b, ins, idx)
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
            taken = _guarded(b, last, idx) if last.guard is not None else idx
            _jump(b, idx, stop)
            barriers.try_wait(b, self.polls[stop - 1], stop - 1, taken)
        else:
            _jump(b, idx, stop)
        return stop - start

    @staticmethod
    def _misfit(b: Batch, ins: Instruction, error: Exception) -> EmulationFault:
        """The fault of an instruction whose operands are not what its form takes; a kernel that a compiler made has none."""
        text = re.sub(r"\s+", " ", ins.text)
        return b.fault("unknown_instruction", f"the emulator cannot execute `{text}` ({type(error).__name__}: {error})", ins.line, stage="launch", hint="if a compiler wrote it, it is a fault of the emulator: report it")

    def _end(self, b: Batch, ins: Instruction, after: int, idx: Lanes) -> None:
        taken = _guarded(b, ins, idx) if ins.guard is not None else idx
        _jump(b, idx, after)
        if taken is not None and len(taken) == 0:
            return
        if ins.opcode == "bra":
            _jump(b, taken, ins.target)
        elif ins.opcode in ("ret", "exit"):
            _jump(b, taken, len(self.instructions))
            b.alive[b.all_lanes(taken)] = False
            threads_ended(b, b.all_lanes(taken), self.instructions)
        elif ins.opcode == "trap":
            raise b.fault("trap", "the kernel executed a trap (a failed assertion)", ins.line, int(b.all_lanes(taken)[0]))
        elif ins.opcode in ("bar", "barrier"):
            barriers.arrive(b, ins, taken)
        else:
            raise b.fault("unknown_instruction", f"the emulator does not know `{ins.text}`", ins.line, stage="launch")


def _jump(b: Batch, idx: Lanes, pc: int) -> None:
    if idx is None:
        b.pc[:] = pc
    else:
        b.pc[idx] = pc


def _guarded(b: Batch, ins: Instruction, idx: Lanes) -> Any:
    value = b.read(str(ins.guard), idx)
    if not (isinstance(value, np.ndarray) and value.ndim):
        return idx if bool(value) != ins.negated else np.empty(0, dtype=np.int64)
    flag = value.astype(bool) != ins.negated
    if flag.all():
        return idx
    return np.nonzero(flag)[0] if idx is None else idx[flag]
