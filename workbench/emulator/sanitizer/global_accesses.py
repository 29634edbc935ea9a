"""The accesses of one launch to global memory: who read or wrote each unit of each allocation last, and when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.launch import Allocation
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.sanitizer.vector_clocks import Clocks, Ticks


@dataclass(frozen=True, slots=True)
class BatchKnowledge:
    """The clocks of a batch's warps, the number in the grid of each lane, and of each cluster.

    `waits` has the tick of each warp's first griddepcontrol.wait, 0 for none.
    """

    clocks: Clocks
    global_lane: Array
    cluster: Array
    waits: Array

    def has_waited(self, lanes: Array) -> Array:
        """Whether the warp of each lane waited for earlier launches, or knows of a warp of its cluster that did."""
        warps, clocks = lanes >> 5, self.clocks
        first = warps // clocks.warps * clocks.warps
        waits = self.waits[first[:, None] + np.arange(clocks.warps)]
        knows = (waits > 0) & (clocks.seen[warps, : clocks.warps] >= waits)
        known: Array = knows.any(axis=1) | (self.waits[warps] > 0)
        return known


class Table:
    """The access history of one allocation, for each unit: lanes of the launch (CTA by CTA) and ticks, 0 for none."""

    def __init__(self, units: int, lanes: int, identity: int) -> None:
        self.identity = identity  # of the allocation
        kind = np.int32 if lanes < 1 << 31 else np.int64
        self.writer: Array = np.zeros(units, dtype=kind)
        self.reader: Array = np.zeros(units, dtype=kind)
        self.other: Array = np.zeros(units, dtype=kind)
        self.written, self.read, self.before = (np.zeros(units, dtype=np.int32) for _ in range(3))
        self.released: Array | None = None  # newest release at this address
        self.any_written = False


@dataclass(frozen=True, slots=True)
class Access:
    """One access of some lanes to one allocation: `units` are (lanes, n)."""

    b: Batch
    known: BatchKnowledge
    ins: Instruction
    lanes: Array
    found: Allocation
    table: Table
    units: Array

    @property
    def global_lanes(self) -> Array:
        """The lanes' numbers in the grid, (lanes, 1)."""
        numbers: Array = self.known.global_lane[self.lanes][:, None]
        return numbers


class Accesses:
    """The tables of one launch by the start of their allocation, its ticks, and the bytes of a unit."""

    def __init__(self, unit: int) -> None:
        self.unit, self.ticks = unit, Ticks()
        self.tables: dict[int, Table] = {}
