"""Asynchronous copies complete as late as the program allows: at the wait that covers them, or when nothing else can
run.

Bytes of shared memory that a copy in flight will write are marked, so that a read without a wait is found. The source
of a copy in flight may be overwritten before the copy reads it, as on the device. The marks are in execution/copies.py.
"""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.copies import IN_FLIGHT, UNDEFINED, UNFENCED, WRITTEN
from workbench.emulator.execution.launch import EmulationFault
from workbench.emulator.execution.operands import Fn
from workbench.emulator.ptx.instruction import Instruction


def notice_leaks(b: Batch) -> None:
    """Note copies that the kernel never waited for. Bulk stores are finished, as the device would if the CTA's shared
    memory lived long enough.
    """
    for queue, what in ((b.copies, "cp.async"), (b.stores, "a bulk store")):
        for copy in queue.copies:
            b.notice(
                "leaked_copy",
                f"{what} that nothing waits for before the kernel ends",
                copy.ins.line,
                int(copy.lanes[0]),
            )
        if queue is b.stores:
            for copy in queue.copies:
                copy.finish(slice(None))
        queue.copies = []
    for arrival in b.arrivals:
        b.notice(
            "leaked_copy",
            "a bulk load that nothing waits for before the kernel ends",
            arrival.ins.line,
            int(arrival.lanes[0]),
        )
    b.arrivals = []
    b.wgmma.notice_leaks(b)


def finish_arrivals(b: Batch) -> bool:
    """Finish every bulk load in flight; False if there was none."""
    due, b.arrivals = b.arrivals, []
    for arrival in due:
        arrival.finish(slice(None))
    return bool(due)


def fence(ins: Instruction) -> Fn:
    """fence.proxy.async: TMA and wgmma may read ordinary stores of before. All stores of the CTA count, which is
    lenient.
    """

    def run(b: Batch, i: Lanes) -> None:
        if b.async_proxy:
            marks = b.shared_written.reshape(b.count, -1)
            for cta in np.unique(b.cta[b.all_lanes(i)]):
                marks[cta] &= 0xFF ^ UNFENCED

    return run


def unreadable_fault(
    b: Batch, ins: Instruction, lane: int, marks: Array, places: Array, what: str
) -> EmulationFault | None:
    """The fault of a read of shared memory through the asynchronous proxy: no value yet, an undefined one, or one not
    fenced; None for values. `places` are the positions of the marks in the batch's shared memory.
    """
    for wrong, kind, why, hint in (
        (
            marks & IN_FLIGHT,
            "copy_in_flight",
            "that an asynchronous copy in flight is writing",
            "wait for the copy first: the mbarrier of the TMA load with its parity, or cp_async_wait_group and a"
            " barrier",
        ),
        (
            ~marks & WRITTEN,
            "uninitialised",
            "that nothing wrote",
            "a missing store, wait or barrier before it, or a layout that is not that of the copy",
        ),
        (
            marks & UNDEFINED,
            "uninitialised_register",
            "that a register was stored to which nothing wrote",
            "fill a fragment before it is stored",
        ),
        (
            marks & UNFENCED,
            "proxy_fence_missing",
            "that ordinary stores wrote, with no proxy fence between",
            "after the stores, every thread that wrote: cute.arch.fence_proxy('async.shared', space='cta'), then a"
            " barrier, then the TMA store or wgmma",
        ),
    ):
        bad = wrong != 0
        if bad.any():
            at = int(np.broadcast_to(places, bad.shape)[bad][0]) % b.shared_bytes
            return b.fault(kind, f"{what} reads shared memory {why}, at offset {at}", ins.line, lane, at, hint=hint)
    return None
