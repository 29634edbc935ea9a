"""Barriers between threads: named barriers, mbarriers, the cluster barrier."""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import BARRIER_WAIT, Batch
from workbench.emulator.execution.divergence import check_barrier_completed
from workbench.emulator.isa.sm90 import async_copies, cluster, mbarrier
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Imm, Reg
from workbench.emulator.sanitizer.deadlock import deadlock_fault

# A deadlock is reported after all waiting try_waits timed out so often with no completed phase in between.
MOST_STALLS = 64
BARRIERS = 16  # named barriers of a CTA (PTX ISA, barrier)


def _read_operand(b: Batch, ins: Instruction, at: int, idx: Lanes) -> Array:
    """An operand of a barrier for all lanes or one each; 0 if it is missing."""
    operand = ins.operands[at] if len(ins.operands) > at else None
    value = b.read(operand.name, idx) if isinstance(operand, Reg) else operand.value if isinstance(operand, Imm) else 0
    return np.asarray(value).astype(np.int64)


def try_wait(b: Batch, poll: mbarrier.Poll, n: int, taken: Lanes) -> None:
    """mbarrier.try_wait, instruction `n`: lanes whose phase is complete, or that timed out, go on. The others are
    parked and will run it again.
    """
    lanes = b.all_lanes(taken)
    if not len(lanes):
        return
    ready, index = poll.test(b, taken)
    on = ready | b.timed_out[lanes]
    if on.any():
        poll.put(b, lanes[on], ready[on])
        if b.timeline is not None:
            b.timeline.finish_wait(lanes[ready], index[ready])
    if b.races is not None and ready.any():
        b.races.clocks.leave_mbarrier(index[ready], lanes[ready])
    b.timed_out[lanes] = False
    parked = lanes[~on]
    b.pc[parked], b.waiting[parked], b.waiting_line[parked], b.waiting_for[parked] = (
        n,
        BARRIER_WAIT,
        poll.ins.line or 0,
        index[~on],
    )


def arrive(b: Batch, ins: Instruction, idx: Lanes) -> None:
    """bar and barrier: lanes arrive, and wait unless the instruction only arrives."""
    if "cluster" in ins.mods:
        cluster.arrive(b, idx) if "arrive" in ins.mods else cluster.wait(b, idx, ins.line)
        return
    if "warp" in ins.mods or "red" in ins.mods:
        if "red" in ins.mods:
            raise b.fault("unknown_instruction", f"the emulator does not know `{ins.text}`", ins.line, stage="launch")
        return
    lanes = b.all_lanes(idx)
    numbers, counts = (_read_operand(b, ins, at, idx) for at in (0, 1))
    for number in np.unique(numbers):  # warps may come to one instruction for barriers of their own
        mine = lanes if not numbers.ndim else lanes[numbers == number]
        _arrive_at(
            b,
            ins,
            mine,
            int(number),
            counts if not counts.ndim else counts[numbers == number] if numbers.ndim else counts,
        )
    complete(b)


def _arrive_at(b: Batch, ins: Instruction, lanes: Array, number: int, count: Array) -> None:
    if not 0 <= number < BARRIERS:
        raise b.fault(
            "bad_barrier", f"barrier {number}: a CTA has {BARRIERS}, numbered from 0", ins.line, int(lanes[0])
        )
    if b.races is not None:
        b.races.clocks.arrive(lanes, b.cta, number)
    if "arrive" in ins.mods:
        np.add.at(b.arrived[:, number], b.cta[lanes], 1)
    else:
        b.waiting[lanes] = number
        b.waiting_line[lanes] = ins.line or 0
    b.barrier_count[b.cta[lanes], number] = count


def complete(b: Batch) -> bool:
    """Release every barrier that all threads of its CTA have reached (exited threads do not count)."""
    progressed = cluster.complete(b) if b.cluster_size > 1 else False
    parked = (b.waiting >= 0) & (b.waiting < BARRIER_WAIT)
    if not parked.any():
        return progressed
    for number in np.unique(b.waiting[parked]):
        at = b.waiting == number
        here = np.bincount(b.cta[at], minlength=b.count) + b.arrived[:, number]
        expected = np.where(
            b.barrier_count[:, number] > 0, b.barrier_count[:, number], np.bincount(b.cta[b.alive], minlength=b.count)
        )
        done = (here >= expected) & (here > 0)
        if done.any():
            free = at & done[b.cta]
            check_barrier_completed(b, free, b.kernel.instructions)
            b.waiting[free] = -1
            b.arrived[done, number] = 0
            if b.races is not None:
                b.races.clocks.complete(np.nonzero(free)[0], b.cta, int(number), done)
            if b.timeline is not None:
                b.timeline.release(free)
            progressed = True
    return progressed


def release(b: Batch) -> None:
    """Resume something when no lane can run: complete barriers, then copies in flight, then the time limits of
    try_wait. Raises the deadlock's fault if none of them helps.
    """
    if complete(b) or async_copies.finish_arrivals(b):
        return
    stuck = b.waiting == BARRIER_WAIT
    if stuck.any() and b.stalls < MOST_STALLS:
        b.stalls += 1
        b.timed_out |= stuck
        b.waiting[stuck] = -1
        return
    raise deadlock_fault(b)
