"""Asynchronous copies in flight, and the marks of shared memory. cp.async, TMA and the checks share this state of a
batch.

A mark is one byte for each byte of shared memory, in `Batch.shared_written`: bit 0 = holds a value, bit 1 = a copy in
flight will write it, bit 2 = written by ordinary stores and not yet fenced for the asynchronous proxy, bit 7 = an
undefined register was stored there (sanitizer/undef_rules.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.ptx.instruction import Instruction

WRITTEN, IN_FLIGHT, UNFENCED, UNDEFINED = 1, 2, 4, 0x80
Selection: TypeAlias = Array | slice  # of the lanes of a copy
Finish: TypeAlias = Callable[[Selection], None]


@dataclass(slots=True)
class Copy:
    """A copy by some lanes, each in its own group of the issuing thread. `finish` completes it for a selection of the
    lanes.
    """

    ins: Instruction
    lanes: Array
    groups: Array
    finish: Finish


class Queue:
    """Copies in flight that complete in groups of the issuing thread: cp.async, or bulk stores."""

    def __init__(self, lanes: int) -> None:
        self.copies: list[Copy] = []
        self.group = np.zeros(lanes, dtype=np.int64)  # the open group of each lane

    def add(self, ins: Instruction, lanes: Array, finish: Finish) -> None:
        """Add a copy that these lanes issue."""
        self.copies.append(Copy(ins, lanes, self.group[lanes], finish))

    def commit(self, lanes: Array) -> None:
        """Close the current group of these lanes."""
        self.group[lanes] += 1

    def wait(self, lanes: Array, newest: int | None) -> None:
        """Finish the copies of these lanes, except their `newest` closed groups and the open group; None
        finishes all.
        """
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
                rest = np.nonzero(~now)[0]
                copy.lanes, copy.groups, copy.finish = (
                    copy.lanes[rest],
                    copy.groups[rest],
                    _restrict(copy.finish, rest),
                )
            left.append(copy)
        self.copies = left


def _restrict(finish: Finish, lanes: Array) -> Finish:
    """The same copy for the remaining lanes."""
    return lambda pick: finish(lanes[pick])
