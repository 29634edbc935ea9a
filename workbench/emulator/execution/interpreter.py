"""A kernel decoded once, and executed for a batch of CTAs, block by block, over divergent groups of lanes.

Scheduling: each lane has a program counter. The basic block with the smallest program counter that has runnable lanes
is executed for all of them, so groups that diverged meet again at the next common block. Lanes that wait at a barrier
are parked until their CTA's barrier is complete. When no lane can run and some still wait, the kernel is deadlocked,
and the fault names the waiting threads and lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution import barriers
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.dispatch import MISFITS, decode
from workbench.emulator.execution.divergence import check_threads_ended
from workbench.emulator.execution.launch import EmulationFault
from workbench.emulator.execution.operands import Fn
from workbench.emulator.execution.warp_scheduler import WarpScheduler
from workbench.emulator.isa.sm90 import async_copies, bulk, mbarrier
from workbench.emulator.ptx.instruction import Instruction, Kernel
from workbench.emulator.sampling.sample_code import SampleCode
from workbench.emulator.sanitizer import access_history
from workbench.emulator.sanitizer.livelock import sample_waits_fault
from workbench.emulator.sanitizer.uninitialized import Step, UninitializedRegisters
from workbench.emulator.sanitizer.wgmma_hazards import WgmmaWatch
from workbench.emulator.timing import cta_timeline


def endless_fault(b: Batch, line: int | None, lane: int) -> EmulationFault:
    """The fault of a kernel that exceeded the limit of instructions."""
    return b.fault(
        "infinite_loop",
        f"the kernel did not end within {b.request.step_limit} instructions",
        line,
        lane,
        stage="limits",
        hint="a loop whose condition never becomes false, or far too much work for one launch",
    )


class Program:
    """A kernel decoded once: instructions as closures, grouped in basic blocks."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.instructions = kernel.instructions
        count = len(self.instructions)
        leaders = {0, count, *kernel.labels.values()}
        for n, ins in enumerate(self.instructions):
            if ins.form.ends_block or ins.form.parks:
                leaders.add(n + 1)
            if ins.form.parks:
                leaders.add(n)  # waiting lanes run it again
        self.starts = sorted(leader for leader in leaders if leader <= count)
        self.end_of = {start: self.starts[n + 1] for n, start in enumerate(self.starts[:-1])}
        watch = WgmmaWatch(self.instructions)
        self.plain = [self._decode(ins) for ins in self.instructions]
        self.code = [watch.wrap(ins, run) for ins, run in zip(self.instructions, self.plain, strict=True)]
        forms = [ins.form for ins in self.instructions]
        self.async_proxy = any(
            form.role in ("wgmma", "wgmma_group") or (form.async_proxy and form.space == "shared>global")
            for form in forms
        )
        self.race_plan = access_history.make_plan(self.instructions)
        # the result may depend on which CTAs run together
        self.ordered = any(form.role in ("atomic", "reduction") for form in forms)
        # whether a loop may wait for a store of another CTA
        self.spins = any(form.role in ("load", "atomic") and form.strong for form in forms)
        self.uninitialized = UninitializedRegisters(kernel, self.starts)
        self.polls = {n: mbarrier.Poll(ins) for n, ins in enumerate(self.instructions) if ins.form.parks}
        self.steps: list[cta_timeline.Step] | None = None  # for the timeline, made on first use
        self.sample_code: SampleCode | None = None  # for samples that only count, made on first use

    def _decode(self, ins: Instruction) -> Fn:
        if ins.form.ends_block or ins.form.parks:
            return lambda b, i: None
        known = decode(ins)
        if known is not None:
            return known
        text = re.sub(r"\s+", " ", ins.text)

        def raise_unknown(b: Batch, i: Lanes) -> None:
            raise b.fault(
                "unknown_instruction",
                f"the emulator does not know `{text}`",
                ins.line,
                stage="launch",
                hint="run it on a GPU, or use a form that the emulator knows",
            )

        return raise_unknown

    def count_only(self, b: Batch) -> SampleCode:
        """Let a batch compute only what decides which instructions run and where they access memory; the others are
        counted. Checks of registers and of shared memory are off.
        """
        if self.sample_code is None:
            self.sample_code = SampleCode(self.instructions, self.plain)
        b.code, b.moves_data, b.async_proxy = self.sample_code.code, self.sample_code.moves_data, False
        return self.sample_code

    def execute(self, b: Batch, should_leave: Callable[[], bool]) -> bool:
        """Run one batch of CTAs to the end; False if `should_leave` stopped it."""
        end = len(self.instructions)
        b.pc[~b.alive] = end
        if b.code is None:
            b.code = self.code
            self.uninitialized.begin(b)
        steps, scheduler = 0, WarpScheduler()
        while True:
            runnable = b.alive & (b.waiting < 0)
            if not runnable.any():
                if not b.alive.any():
                    async_copies.notice_leaks(b)
                    return True
                barriers.release(b)
                continue
            low, chosen = scheduler.choose(b, runnable)
            if scheduler.idle:
                self._wait_for_others(b, low, chosen)
            if low >= end:
                b.alive &= b.pc < end
                continue
            if should_leave():
                return False
            idx = None if chosen.all() else np.nonzero(chosen)[0]
            steps += self._run_block(b, low, idx)
            if steps > b.request.step_limit // 32:
                lane = 0 if idx is None else int(idx[0])
                raise endless_fault(b, self.instructions[low].line, lane)

    def _wait_for_others(self, b: Batch, low: int, chosen: Array) -> None:
        """All runnable lanes loop: let copies arrive, and fault if the sample waits for CTAs outside it."""
        if self.spins:
            async_copies.finish_arrivals(b)
        if b.livelock is not None and b.livelock.has_stalled(b):
            raise sample_waits_fault(b, self.instructions, low, chosen)

    def _run_block(self, b: Batch, start: int, idx: Lanes) -> int:
        """Run the basic block at `start` for some lanes; returns its number of instructions."""
        stop, timeline = self.end_of[start], b.timeline
        if b.repeats is not None:
            b.repeats.enter_block(start, idx)
        if timeline is not None:
            timeline.enter(start, idx)
        for n in range(start, stop):
            ins = self.instructions[n]
            active = idx
            step = self.uninitialized.steps[n] if b.undefined or b.undefined_stored else None
            if step is not None:
                step.check_guard(b, idx)
            if ins.guard is not None and not ins.form.ends_block and n not in self.polls:
                active = _guarded_lanes(b, ins, idx)
                if active is not None and len(active) == 0:
                    continue
            b.counting.count_executed(n, b.lanes if active is None else len(active))
            if b.repeats is not None and n in b.repeats.compared:
                b.repeats.compare(n, active)
            try:
                self._run_one(b, n, active, step)
            except MISFITS as error:
                raise self._misfit_fault(b, ins, error) from error
            if timeline is not None:
                timeline.execute(n, active)
        if timeline is not None:
            timeline.end_block()
        if b.landed:
            bulk.finish_landed(b)
        self._advance(b, stop, idx)
        return stop - start

    def _run_one(self, b: Batch, n: int, active: Lanes, step: Step | None) -> None:
        """Run one instruction, and carry undefined values through it."""
        assert b.code is not None
        if step is None:
            b.code[n](b, active)
            return
        if not step.late:
            step.follow(b, active)
        b.code[n](b, active)
        if step.late:
            step.follow(b, active)

    def _advance(self, b: Batch, stop: int, idx: Lanes) -> None:
        """Set the program counters after a block, according to its last instruction."""
        last = self.instructions[stop - 1]
        if last.form.ends_block and stop - 1 not in b.ended_waits:
            self._end_block(b, last, stop, idx)
        elif stop - 1 in self.polls:
            taken = _guarded_lanes(b, last, idx) if last.guard is not None else idx
            _jump(b, idx, stop)
            barriers.try_wait(b, self.polls[stop - 1], stop - 1, taken)
        else:
            _jump(b, idx, stop)

    @staticmethod
    def _misfit_fault(b: Batch, ins: Instruction, error: Exception) -> EmulationFault:
        """The fault of an instruction whose operands do not fit its form; compilers do not write such."""
        text = re.sub(r"\s+", " ", ins.text)
        return b.fault(
            "unknown_instruction",
            f"the emulator cannot execute `{text}` ({type(error).__name__}: {error})",
            ins.line,
            stage="launch",
            hint="if a compiler wrote it, it is a fault of the emulator: report it",
        )

    def _end_block(self, b: Batch, ins: Instruction, after: int, idx: Lanes) -> None:
        taken = _guarded_lanes(b, ins, idx) if ins.guard is not None else idx
        _jump(b, idx, after)
        if taken is not None and len(taken) == 0:
            return
        role = ins.form.role
        if role == "branch":
            _jump(b, taken, ins.target)
        elif role == "exit":
            _jump(b, taken, len(self.instructions))
            b.alive[b.all_lanes(taken)] = False
            check_threads_ended(b, b.all_lanes(taken), self.instructions)
        elif role == "trap":
            raise b.fault(
                "trap", "the kernel executed a trap (a failed assertion)", ins.line, int(b.all_lanes(taken)[0])
            )
        elif role == "barrier":
            barriers.arrive(b, ins, taken)
        else:
            raise b.fault("unknown_instruction", f"the emulator does not know `{ins.text}`", ins.line, stage="launch")


def _jump(b: Batch, idx: Lanes, pc: int) -> None:
    if idx is None:
        b.pc[:] = pc
    else:
        b.pc[idx] = pc


def _guarded_lanes(b: Batch, ins: Instruction, idx: Lanes) -> Lanes:
    value = b.read(str(ins.guard), idx)
    if not (isinstance(value, np.ndarray) and value.ndim):
        return idx if bool(value) != ins.negated else np.empty(0, dtype=np.int64)
    flag = value.astype(bool) != ins.negated
    if flag.all():
        return idx
    return np.nonzero(flag)[0] if idx is None else idx[flag]
