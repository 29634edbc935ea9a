"""Finds races in global memory: two warps, of one CTA or of two, access the same bytes, one writes, nothing orders
them.

The CTAs of a launch run in any order and at the same time. An access is ordered before another if a release follows the
first (an atomic, or a store with release, relaxed or volatile semantics, by a thread that knows of the access), and an
acquire of this release or of a later one precedes the second (an atomic or such a load on the same address). This is
lenient: fences are assumed to be present. Each unit of each allocation stores its last writer, its last reader, and the
last reader of another CTA.
"""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.launch import Allocation, GridRequest
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.sanitizer.global_accesses import Access, Accesses, BatchKnowledge, Table
from workbench.emulator.sanitizer.launch_order import OrderChecks, OrderedLaunch
from workbench.emulator.sanitizer.vector_clocks import Clocks, unique_warps

MOST_RELEASED = 1 << 22  # numbers stored for releases; beyond it, every release counts as known to all
HINT = (
    "CTAs run in any order: let one CTA own each element, add with atomics, or hand over with a fence and an atomic"
    " flag"
    " or counter that the reader checks; within a CTA, a barrier"
)


class Record(Accesses):
    """The accesses of one launch to global memory, and the checks of each further one."""

    def __init__(self, request: GridRequest, unit: int, launch: OrderedLaunch | None = None) -> None:
        super().__init__(unit)
        self.request = request
        self.order = OrderChecks(launch) if launch is not None else None
        if launch is not None:
            launch.accesses = self
        self.padded = -(-request.block[0] * request.block[1] * request.block[2] // 32) * 32
        self.lanes = self.padded * request.grid[0] * request.grid[1] * request.grid[2]
        self.releases: list[tuple[Array, Array, Array]] = []  # for warps that release together: ticks, clusters, clocks
        self.kept = 0

    def cluster_and_rank(self, cta: Array) -> tuple[Array, Array]:
        """(number of the cluster, rank in it) of CTAs by their linear numbers."""
        (gx, gy, _), (cx, cy, cz) = self.request.grid, self.request.cluster
        x, y, z = cta % gx, cta // gx % gy, cta // (gx * gy)
        return ((z // cz) * (gy // cy) + y // cy) * (gx // cx) + x // cx, x % cx + (y % cy) * cx + (z % cz) * cx * cy

    def checks_reads(self, found: Allocation) -> bool:
        """Whether reads of an allocation matter: this launch wrote into it, or other launches may overlap."""
        table = self.tables.get(found.start)
        return self.order is not None or (table is not None and table.any_written)

    def wait_for_launches(self, known: BatchKnowledge, lanes: Array, blocks: Array, ins: Instruction) -> None:
        """Lanes of the CTAs `blocks` execute griddepcontrol.wait."""
        if self.order is not None:
            warps = unique_warps(lanes)
            known.waits[warps] = np.where(known.waits[warps] > 0, known.waits[warps], self.ticks.add(ins))
            self.order.wait(blocks)

    def launch_dependents(self, known: BatchKnowledge, lanes: Array, ins: Instruction) -> None:
        """Lanes execute griddepcontrol.launch_dependents."""
        if self.order is not None:
            self.order.trigger(self.ticks.add(ins), early=not bool(known.has_waited(lanes).all()))

    def make_access(
        self,
        b: Batch,
        known: BatchKnowledge,
        ins: Instruction,
        *,
        lanes: Array,
        found: Allocation,
        offset: Array,
        size: int,
    ) -> Access:
        """The access of lanes to `size` bytes each, at byte offsets in an allocation."""
        table = self.tables.get(found.start)
        if table is None:
            table = self.tables[found.start] = Table(found.size // self.unit + 1, self.lanes, found.identity)
        first = offset // self.unit
        units = first[:, None] + np.arange(size // self.unit) if size > self.unit else first[:, None]
        return Access(b, known, ins, lanes, found, table, units)

    def load(self, a: Access) -> None:
        """Check a read; an atomic's read is part of its write."""
        if self.order is not None:
            self.order.check(a, self.unit, writes=False)
        table, units = a.table, a.units
        if a.ins.form.strong:
            self._acquire(a)
            return
        mine = a.global_lanes
        if table.any_written:
            self._check(a, table.writer, table.written, "read")
        tick = self.ticks.add(a.ins)
        seen, ever = table.reader[units], table.read[units] > 0
        moved = ever & (seen // self.padded != mine // self.padded)
        if moved.any():
            table.other[units[moved]], table.before[units[moved]] = seen[moved], table.read[units[moved]]
        table.reader[units], table.read[units] = mine, tick
        if a.b.count > 1:
            lost = table.reader[units] // self.padded != mine // self.padded  # another CTA reads it in the same access
            if lost.any():
                table.other[units[lost]], table.before[units[lost]] = np.broadcast_to(mine, units.shape)[lost], tick

    def store(self, a: Access, offset: Array, size: int, values: Array | None) -> None:
        """Check a write of `values`, (lanes, bytes), None if they are unknown."""
        table, units, lanes = a.table, a.units, a.lanes
        if self.order is not None:
            self.order.check(a, self.unit, writes=True)
        tick = np.full(len(lanes), self.ticks.add(a.ins))
        if a.ins.form.strong:
            self._release(a, tick)
            return
        same = None
        if values is not None and table.any_written:
            there = a.found.data[np.minimum(offset[:, None] + np.arange(size), a.found.size - 1)]
            same = (there == values).reshape(len(lanes), units.shape[1], -1).all(axis=2)
        mine: Array = self._write(a, tick, same)
        twice: Array = table.writer[units] >> 5 != mine >> 5
        if twice.any() and not a.ins.form.atomic and values is not None:
            self._check_same_access(a, twice, values)

    def atomic(self, a: Access, rank: Array) -> None:
        """Check an atomic of lanes, each in its turn (`rank`) at its address."""
        if self.order is not None:
            self.order.check(a, self.unit, writes=True)
        counts = not a.ins.form.float_type  # flags and counters are integers
        turns = int(rank.max()) + 1 if counts and len(rank) else 1
        tick = self.ticks.add_turns(a.ins, turns) + (rank if turns > 1 else np.zeros(len(a.lanes), dtype=np.int64))
        if counts:
            if a.ins.form.role == "atomic":
                self._acquire(a, np.where(rank > 0, tick - 1, 0))
            self._release(a, tick)
        self._write(a, tick, None)

    def _write(self, a: Access, tick: Array, same: Array | None) -> Array:
        table, units = a.table, a.units
        self._check(a, table.reader, table.read, "overwritten")
        self._check(a, table.other, table.before, "overwritten")
        self._check(a, table.writer, table.written, "overwritten", same)
        mine: Array = np.broadcast_to(a.global_lanes, units.shape)
        table.writer[units], table.written[units] = mine, tick[:, None]
        table.read[units] = table.before[units] = 0
        table.any_written = True
        return mine

    def _acquire(self, a: Access, turn: Array | None = None) -> None:
        """Lanes acquire the releases at their addresses, at least until the tick `turn`."""
        released = a.table.released
        if released is None and (turn is None or not np.any(turn)):
            return
        clocks = a.known.clocks
        newest = 0 if released is None else released[a.units].max(axis=1)
        np.maximum.at(clocks.seen[:, clocks.acquired], a.lanes >> 5, np.maximum(newest, 0 if turn is None else turn))

    def _release(self, a: Access, tick: Array) -> None:
        table, lanes, clocks = a.table, a.lanes, a.known.clocks
        warps = unique_warps(lanes)
        if self.kept < MOST_RELEASED:
            first = np.nonzero(np.concatenate([[True], lanes[1:] >> 5 != lanes[:-1] >> 5]))[0]
            rows = clocks.clock_rows(warps)
            self.kept += rows.size
            self.releases.append((np.minimum.reduceat(tick, first), a.known.cluster[warps // clocks.warps], rows))
        if table.released is None:
            table.released = np.zeros(len(table.written), dtype=np.int32)
        table.released[a.units] = tick[:, None]

    def _check(self, a: Access, who: Array, when: Array, does: str, same: Array | None = None) -> None:
        """Fault if another warp's access to one of the units is not ordered before this one."""
        units, lanes = a.units, a.lanes
        stamp = when[units]
        if not stamp.any():
            return
        other = who[units]
        late = (stamp > 0) & (other >> 5 != a.global_lanes >> 5)
        if same is not None:
            late &= ~same
        if not late.any():
            return
        n, k = np.nonzero(late)
        bad = ~self._is_ordered(a.known.clocks, lanes[n] >> 5, a.b.blocks[a.b.cta[lanes[n]]], other[n, k], stamp[n, k])
        if bad.any() and a.ins.form.atomic:
            lenient = [self.ticks.is_atomic(int(tick)) for tick in stamp[n, k][bad].tolist()]
            bad[np.nonzero(bad)[0][lenient]] = False
        if bad.any():
            at = int(np.argmax(bad))
            row, column = int(n[at]), int(k[at])
            other_lane, tick = int(other[row, column]), int(stamp[row, column])
            self._report(a, int(lanes[row]), int(units[row, column]), (other_lane, tick), does)

    def _is_ordered(self, clocks: Clocks, warps: Array, blocks: Array, other: Array, stamp: Array) -> Array:
        """Whether these warps know the accesses of lanes `other` at `stamp`.

        They know them through the clocks of their cluster, or through a release that they acquired.
        """
        theirs, rank = self.cluster_and_rank(other // self.padded)
        column = rank * clocks.cta_warps + other % self.padded // 32
        known: Array = (theirs == self.cluster_and_rank(blocks)[0]) & (clocks.seen[warps, column] >= stamp)
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

    def _check_same_access(self, a: Access, twice: Array, values: Array) -> None:
        """Fault if lanes of several warps write different values to a unit in one access."""
        table, units = a.table, a.units
        parts = np.ascontiguousarray(values).reshape(*units.shape, -1)
        last = {
            int(unit): part.tobytes()
            for unit, part in zip(units.reshape(-1), parts.reshape(-1, parts.shape[-1]), strict=True)
        }
        for n, k in zip(*np.nonzero(twice), strict=True):
            unit = int(units[n, k])
            if last[unit] != parts[n, k].tobytes():
                self._report(a, int(a.lanes[n]), unit, (int(table.writer[unit]), int(table.written[unit])), "written")

    def _report(self, a: Access, lane: int, unit: int, other: tuple[int, int], does: str) -> None:
        """Raise the fault of a lane that races with `other`, (lane of the launch, tick)."""
        other_lane, tick = other
        gx, gy, _ = self.request.grid
        bx, by, _ = self.request.block
        cta, thread = other_lane // self.padded, other_lane % self.padded
        who = (
            f"thread {(thread % bx, thread // bx % by, thread // (bx * by))}"
            f" of block {(cta % gx, cta // gx % gy, cta // (gx * gy))}"
        )
        wrote = does != "overwritten" or tick == int(a.table.written[unit])
        verb = "wrote" if wrote else "read"
        did = "writes at the same time" if does == "written" else f"{verb}{self.ticks.line_phrase(tick, 'at')}"
        address = a.found.start + unit * self.unit
        where = a.b.memory.describe_nearest(address)
        raise a.b.fault(
            "global_race",
            f"a race in global memory: {where}, which {who} {did}, with nothing to order the two, is {does}",
            a.ins.line,
            lane,
            address,
            hint=HINT,
        )
