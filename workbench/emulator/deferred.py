"""Asynchronous copies complete as late as the program allows: at the wait that covers them, or when nothing else can run.

Bytes of shared memory that a copy in flight will write are marked, so that whoever reads them without waiting is found; what a copy in flight
still has to read may be overwritten before it does, as on the device. Marks of shared memory, one byte each in `Batch.shared_written`: bit 0 = holds a
value, bit 1 = a copy in flight will write it, bit 2 = written by ordinary stores and not yet fenced for the asynchronous proxy, bit 7 = what was stored is a register
that nothing wrote (garbage.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.emulator.ptx import Instruction

if TYPE_CHECKING:
    from workbench.emulator.launch import EmulationFault
    from workbench.emulator.state import Batch

WRITTEN, IN_FLIGHT, UNFENCED, GARBAGE = 1, 2, 4, 0x80


@dataclass(slots=True)
class Copy:
    """A copy by some lanes, each in its own group of the issuing thread; `finish` takes the selection of those lanes that are due."""

    ins: Instruction
    lanes: Any
    groups: Any
    finish: Callable[[Any], None]


class Queue:
    """Copies in flight that a group of the issuing thread stands for: cp.async, or bulk stores."""

    def __init__(self, lanes: int) -> None:
        self.copies: list[Copy] = []
        self.group = np.zeros(lanes, dtype=np.int64)  # of each lane: the group that is being filled

    def add(self, ins: Instruction, lanes: Any, finish: Callable[[Any], None]) -> None:
        """A copy that these lanes issue now."""
        self.copies.append(Copy(ins, lanes, self.group[lanes], finish))

    def commit(self, lanes: Any) -> None:
        """These lanes close their group."""
        self.group[lanes] += 1

    def wait(self, lanes: Any, newest: int | None) -> None:
        """Finish what these lanes issued, but for their `newest` closed groups (and what is in no closed one); None finishes all of it."""
        if not self.copies:
            return
        due = np.full(len(self.group), np.iinfo(np.int64).min)
        due[lanes] = np.iinfo(np.int64).max if newest is None else self.group[lanes] - newest
        left = []
        for copy in self.copies:
            now = copy.groups < due[copy.lanes]
            if now.all():
                copy.finish(slice(None))
                continue
            if now.any():
                copy.finish(np.nonzero(now)[0])
                copy.lanes, copy.groups, copy.finish = copy.lanes[~now], copy.groups[~now], _rest(copy.finish, np.nonzero(~now)[0])
            left.append(copy)
        self.copies = left


def _rest(finish: Callable[[Any], None], kept: Any) -> Callable[[Any], None]:
    """The same copy for the lanes that are left."""
    return lambda pick: finish(kept[pick])


def leaked(b: Batch) -> None:
    """Say which copies the kernel never waited for; bulk stores are finished (the device would, if the CTA's shared memory lived long enough)."""
    for queue, what in ((b.copies, "cp.async"), (b.stores, "a bulk store")):
        for copy in queue.copies:
            b.notice("leaked_copy", f"{what} that nothing waits for before the kernel ends", copy.ins.line, int(copy.lanes[0]))
        if queue is b.stores:
            for copy in queue.copies:
                copy.finish(slice(None))
        queue.copies = []
    for arrival in b.arrivals:
        b.notice("leaked_copy", "a bulk load that nothing waits for before the kernel ends", arrival.ins.line, int(arrival.lanes[0]))
    b.arrivals = []
    b.products.leaked(b)


def finish_arrivals(b: Batch) -> bool:
    """Finish every bulk load in flight; whether there was one."""
    due, b.arrivals = b.arrivals, []
    for arrival in due:
        arrival.finish(slice(None))
    return bool(due)


def fence(ins: Instruction) -> Callable[[Batch, Any], None]:
    """fence.proxy.async: what was written by ordinary stores may be read by TMA and wgmma from here on (the whole CTA's, which is lenient)."""

    def run(b: Batch, i: Any) -> None:
        if b.async_proxy:
            marks = b.shared_written.reshape(b.count, -1)
            for cta in np.unique(b.cta[b.all_lanes(i)]):
                marks[cta] &= 0xFF ^ UNFENCED

    return run


def unreadable(b: Batch, ins: Instruction, lane: int, marks: Any, places: Any, what: str) -> EmulationFault | None:
    """The fault of reading shared memory through the asynchronous proxy where nothing is yet, where garbage is, or what was not fenced; None for values. `places`: of the marks, in the batch's shared memory."""
    for wrong, kind, why, hint in (
        (marks & IN_FLIGHT, "copy_in_flight", "that an asynchronous copy in flight is writing", "wait for the copy first: the mbarrier of the TMA load with its parity, or cp_async_wait_group and a barrier"),
        (~marks & WRITTEN, "uninitialised", "that nothing wrote", "a missing store, wait or barrier before it, or a layout that is not that of the copy"),
        (marks & GARBAGE, "uninitialised_register", "that a register was stored to which nothing wrote", "fill a fragment before it is stored"),
        (marks & UNFENCED, "proxy_fence_missing", "that ordinary stores wrote, with no proxy fence between",
         "after the stores, every thread that wrote: cute.arch.fence_proxy('async.shared', space='cta'), then a barrier, then the TMA store or wgmma"),
    ):  # fmt: skip
        bad = wrong != 0
        if bad.any():
            at = int(np.broadcast_to(places, bad.shape)[bad][0]) % b.shared_bytes
            return b.fault(kind, f"{what} reads shared memory {why}, at offset {at}", ins.line, lane, at, hint=hint)
    return None
