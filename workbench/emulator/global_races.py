"""Races in global memory: two warps, of one CTA or of two, touch the same bytes, one of them writes, and nothing orders the two.

The CTAs of a launch run in any order and at the same time. What orders them is a release that follows the first access (an atomic, a store with release, relaxed
or volatile semantics, by a thread that knows of the access) and an acquire of it, or of a later one, before the second: an atomic or such a load on the same address. That is lenient: fences are taken
as given. Kept per launch for every unit of each allocation: who wrote it last, who read it last, and the last reader of another CTA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.emulator.clocks import Ticks, warps_of
from workbench.emulator.launch import Allocation, GridRequest
from workbench.emulator.ptx import Instruction

if TYPE_CHECKING:
    from workbench.emulator.races import Races
    from workbench.emulator.state import Batch

STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))
FLOATS = ("f16", "f32", "f64", "bf16", "f16x2", "bf16x2")
MOST_RELEASED = 1 << 22  # numbers kept of releases; past it everything that was released counts as known to all
HINT = "CTAs run in any order: let one CTA own each element, add with atomics, or hand over with a fence and an atomic flag or counter that the reader checks; within a CTA, a barrier"


def is_atomic(ins: Instruction | None) -> bool:
    """Whether an instruction reads and writes at once."""
    return ins is not None and (ins.opcode in ("atom", "red") or (ins.opcode == "cp" and "reduce" in ins.mods))


def is_strong(ins: Instruction) -> bool:
    """Whether a load, store or atomic is made to be seen by other threads (PTX ISA, memory consistency model: strong operations)."""
    return not STRONG.isdisjoint(ins.mods)


class Table:
    """What is remembered of one allocation, for each unit: lanes of the launch (CTA by CTA) and ticks, 0 where there was none."""

    def __init__(self, units: int, lanes: int) -> None:
        self.writer, self.reader, self.other = (np.zeros(units, dtype=np.int32 if lanes < 1 << 31 else np.int64) for _ in range(3))
        self.written, self.read, self.before = (np.zeros(units, dtype=np.int32) for _ in range(3))
        self.released: Any = None  # newest release at this address
        self.any_written = False


class Record:
    """The global memory of one launch, and its ticks."""

    def __init__(self, request: GridRequest, unit: int) -> None:
        self.request, self.unit, self.ticks = request, unit, Ticks()
        self.padded = -(-request.block[0] * request.block[1] * request.block[2] // 32) * 32
        self.lanes = self.padded * request.grid[0] * request.grid[1] * request.grid[2]
        self.tables: dict[int, Table] = {}
        self.releases: list[tuple[Any, Any, Any]] = []  # of warps that release together: ticks, clusters, clocks
        self.kept = 0

    def cluster_of(self, cta: Any) -> tuple[Any, Any]:
        """(number of the cluster, rank in it) of CTAs by their linear numbers."""
        (gx, gy, _), (cx, cy, cz) = self.request.grid, self.request.cluster
        x, y, z = cta % gx, cta // gx % gy, cta // (gx * gy)
        return ((z // cz) * (gy // cy) + y // cy) * (gx // cx) + x // cx, x % cx + (y % cy) * cx + (z % cz) * cx * cy

    def was_written(self, found: Allocation) -> bool:
        """Whether this launch wrote into an allocation."""
        table = self.tables.get(found.start)
        return table is not None and table.any_written

    def _table(self, found: Allocation) -> Table:
        table = self.tables.get(found.start)
        if table is None:
            table = self.tables[found.start] = Table(found.size // self.unit + 1, self.lanes)
        return table

    def _units(self, offset: Any, size: int) -> Any:
        first = offset // self.unit
        return first[:, None] + np.arange(size // self.unit) if size > self.unit else first[:, None]

    def load(self, b: Batch, races: Races, lanes: Any, found: Allocation, offset: Any, size: int, ins: Instruction) -> None:
        """Lanes read; an atomic's read is part of its write."""
        if is_atomic(ins) or not found.writable:
            return
        table, units = self._table(found), self._units(offset, size)
        if is_strong(ins):
            self._acquire(races, table, lanes, units)
            return
        mine = races.global_lane[lanes][:, None]
        if table.any_written:
            self._check(b, races, ins, lanes, units, table.writer, table.written, "read", found)
        tick = self.ticks.next(ins)
        seen, ever = table.reader[units], table.read[units] > 0
        moved = ever & (seen // self.padded != mine // self.padded)
        if moved.any():
            table.other[units[moved]], table.before[units[moved]] = seen[moved], table.read[units[moved]]
        table.reader[units], table.read[units] = mine, tick
        if b.count > 1:
            lost = table.reader[units] // self.padded != mine // self.padded  # another CTA reads it in the same access
            if lost.any():
                table.other[units[lost]], table.before[units[lost]] = np.broadcast_to(mine, units.shape)[lost], tick

    def store(self, b: Batch, races: Races, lanes: Any, found: Allocation, offset: Any, size: int, ins: Instruction, values: Any) -> None:
        """Lanes write `values`, (lanes, bytes), None where they are not known."""
        if ins.opcode in ("atom", "red"):
            return
        table, units, tick = self._table(found), self._units(offset, size), np.full(len(lanes), self.ticks.next(ins))
        if is_strong(ins):
            self._release(races, table, lanes, units, tick)
            return
        same = None
        if values is not None and table.any_written:
            there = found.data[np.minimum(offset[:, None] + np.arange(size), found.size - 1)]
            same = (there == values).reshape(len(lanes), units.shape[1], -1).all(axis=2)
        mine = self._write(b, races, ins, lanes, table, units, tick, found, same)
        twice = table.writer[units] >> 5 != mine >> 5
        if twice.any() and not is_atomic(ins) and values is not None:
            self._same_access(b, races, ins, lanes, units, twice, values, table, found)

    def atomic(self, b: Batch, races: Races, lanes: Any, found: Allocation, offset: Any, size: int, rank: Any, ins: Instruction) -> None:
        """Lanes read and write at once, each in its turn (`rank`) at its address."""
        table, units = self._table(found), self._units(offset, size)
        counts = not any(m in FLOATS for m in ins.mods)  # flags and counters are integers
        turns = int(rank.max()) + 1 if counts and len(rank) else 1
        tick = self.ticks.turns(ins, turns) + (rank if turns > 1 else np.zeros(len(lanes), dtype=np.int64))
        if counts:
            if ins.opcode == "atom":
                self._acquire(races, table, lanes, units, np.where(rank > 0, tick - 1, 0))
            self._release(races, table, lanes, units, tick)
        self._write(b, races, ins, lanes, table, units, tick, found, None)

    def _write(self, b: Batch, races: Races, ins: Instruction, lanes: Any, table: Table, units: Any, tick: Any, found: Allocation, same: Any) -> Any:
        self._check(b, races, ins, lanes, units, table.reader, table.read, "overwritten", found)
        self._check(b, races, ins, lanes, units, table.other, table.before, "overwritten", found)
        self._check(b, races, ins, lanes, units, table.writer, table.written, "overwritten", found, same)
        mine = np.broadcast_to(races.global_lane[lanes][:, None], units.shape)
        table.writer[units], table.written[units] = mine, tick[:, None]
        table.read[units] = table.before[units] = 0
        table.any_written = True
        return mine

    def _acquire(self, races: Races, table: Table, lanes: Any, units: Any, turn: Any = 0) -> None:
        """Lanes get to know what was released at their addresses, until the tick `turn` at least."""
        if table.released is not None or np.any(turn):
            released = 0 if table.released is None else table.released[units].max(axis=1)
            np.maximum.at(races.clocks.seen[:, races.clocks.acquired], lanes >> 5, np.maximum(released, turn))

    def _release(self, races: Races, table: Table, lanes: Any, units: Any, tick: Any) -> None:
        warps = warps_of(lanes)
        if self.kept < MOST_RELEASED:
            first = np.nonzero(np.concatenate([[True], lanes[1:] >> 5 != lanes[:-1] >> 5]))[0]
            rows = races.clocks.rows(warps)
            self.kept += rows.size
            self.releases.append((np.minimum.reduceat(tick, first), races.cluster[warps // races.clocks.warps], rows))
        if table.released is None:
            table.released = np.zeros(len(table.written), dtype=np.int32)
        table.released[units] = tick[:, None]

    def _check(self, b: Batch, races: Races, ins: Instruction, lanes: Any, units: Any, who: Any, when: Any, does: str, found: Allocation, same: Any = None) -> None:
        """Fault if the other access to one of the units (lanes, n) is of another warp and not ordered before this one."""
        stamp = when[units]
        if not stamp.any():
            return
        other = who[units]
        late = (stamp > 0) & (other >> 5 != races.global_lane[lanes][:, None] >> 5)
        if same is not None:
            late &= ~same
        if not late.any():
            return
        n, k = np.nonzero(late)
        bad = ~self._ordered(races, lanes[n] >> 5, b.blocks[b.cta[lanes[n]]], other[n, k], stamp[n, k])
        if bad.any():
            lenient = [self._may(ins, int(tick)) for tick in stamp[n, k][bad].tolist()]
            bad[np.nonzero(bad)[0][lenient]] = False
        if bad.any():
            first = int(np.argmax(bad))
            self._report(b, ins, int(lanes[n[first]]), int(units[n[first], k[first]]), int(other[n[first], k[first]]), int(stamp[n[first], k[first]]), does, found)

    def _may(self, ins: Instruction, tick: int) -> bool:
        return is_atomic(ins) and is_atomic(self.ticks.instructions[tick])

    def _ordered(self, races: Races, warps: Any, blocks: Any, other: Any, stamp: Any) -> Any:
        """Whether the accesses of lanes `other` at `stamp` are known to these warps: by the clocks of their cluster, or by a release that they acquired."""
        clocks = races.clocks
        theirs, rank = self.cluster_of(other // self.padded)
        column = rank * clocks.per + other % self.padded // 32
        known = (theirs == self.cluster_of(blocks)[0]) & (clocks.seen[warps, column] >= stamp)
        acquired = clocks.seen[warps, clocks.acquired]
        left = np.nonzero(~known & (acquired >= stamp))[0]
        if len(left):
            if self.kept >= MOST_RELEASED:
                known[left] = True
                return known
            cases, inverse = np.unique(np.stack([theirs[left], column[left], stamp[left]]), axis=1, return_inverse=True)
            first = np.array([self._first_release(*(int(v) for v in case)) for case in cases.T])
            known[left] = first[inverse.reshape(-1)] <= acquired[left]
        return known

    def _first_release(self, cluster: int, column: int, stamp: int) -> int:
        """The tick of the first release by a warp that knows of that access."""
        for ticks, clusters, rows in self.releases:
            found = ticks[(ticks >= stamp) & (clusters == cluster) & (rows[:, column] >= stamp)]
            if len(found):
                return int(found.min())
        return 1 << 62

    def _same_access(self, b: Batch, races: Races, ins: Instruction, lanes: Any, units: Any, twice: Any, values: Any, table: Table, found: Allocation) -> None:
        parts = np.ascontiguousarray(values).reshape(*units.shape, -1)
        last = {int(unit): part.tobytes() for unit, part in zip(units.reshape(-1), parts.reshape(-1, parts.shape[-1]), strict=True)}
        for n, k in zip(*np.nonzero(twice), strict=True):
            unit = int(units[n, k])
            if last[unit] != parts[n, k].tobytes():
                self._report(b, ins, int(lanes[n]), unit, int(table.writer[unit]), int(table.written[unit]), "written", found)

    def _report(self, b: Batch, ins: Instruction, lane: int, unit: int, other: int, tick: int, does: str, found: Allocation) -> None:
        gx, gy, _ = self.request.grid
        bx, by, _ = self.request.block
        cta, thread = other // self.padded, other % self.padded
        who = f"thread {(thread % bx, thread // bx % by, thread // (bx * by))} of block {(cta % gx, cta // gx % gy, cta // (gx * gy))}"
        wrote = does != "overwritten" or tick == int(self._table(found).written[unit])
        verb = "writes at the same time" if does == "written" else f"{'wrote' if wrote else 'read'}{self.ticks.line(tick, 'at')}"
        address = found.start + unit * self.unit
        raise b.fault("global_race", f"a race in global memory: {b.memory.nearest(address)}, which {who} {verb}, with nothing to order the two, is {does}", ins.line, lane, address, hint=HINT)


