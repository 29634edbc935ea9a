"""Orders the accesses of warps by vector clocks over the warps of a cluster, which are joined where threads
synchronise.

Every access of a launch has a tick, a number that only grows. `Clocks.seen[warp, column]` is the newest tick of a
column that is ordered before the warp's next access. The columns of a cluster are: its warps; the bulk copies that each
warp issued, as far as it waited for their reads; the wgmma that each warpgroup issued, as far as it waited for them;
and last the newest release in global memory that the warp acquired. A barrier, or a phase of an mbarrier, holds the
join of the clocks of the arrived warps; waiting warps take it over. Threads of a warp count as ordered.
"""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.execution.batch import Batch
from workbench.emulator.ptx.instruction import Instruction

WARP, NAMED, LARGEST = 32, 16, np.iinfo(np.int32).max


class Ticks:
    """The accesses of a launch: `instructions[n]` made tick n; `lanes` has the lane if it was a single one."""

    def __init__(self) -> None:
        self.instructions: list[Instruction | None] = [None]
        self.lanes: dict[int, int] = {}

    @property
    def now(self) -> int:
        """The newest tick."""
        return len(self.instructions) - 1

    def add(self, ins: Instruction) -> int:
        """A new tick for an access of this instruction."""
        self.instructions.append(ins)
        return len(self.instructions) - 1

    def add_turns(self, ins: Instruction, count: int) -> int:
        """The first of `count` new ticks, for accesses that one instruction makes one after the other."""
        self.instructions += [ins] * count
        return len(self.instructions) - count

    def is_atomic(self, tick: int) -> bool:
        """Whether the access is atomic."""
        ins = self.instructions[tick]
        return ins is not None and ins.form.atomic

    def line_phrase(self, tick: int, word: str) -> str:
        """ " of line 12" (or another word) for the source line of an access, "" if it has none."""
        return line_phrase(self.instructions[tick], word)


def line_phrase(ins: Instruction | None, word: str) -> str:
    """ " of line 12" (or another word) for an instruction's source line, "" if it has none."""
    return f" {word} line {ins.line}" if ins is not None and ins.line else ""


def unique_warps(lanes: Array) -> Array:
    """The warps of lanes that are in ascending order."""
    warps = lanes >> 5
    return warps[np.concatenate([[True], warps[1:] != warps[:-1]])] if len(warps) else warps


def join(target: Array, index: Array, rows: Array) -> None:
    """Set target[index[n]] to its maximum with rows[n]; an index may occur several times."""
    if len(index) > 1:
        if (index[1:] < index[:-1]).any():
            order = np.argsort(index, kind="stable")
            index, rows = index[order], rows[order]
        first = np.nonzero(np.concatenate([[True], index[1:] != index[:-1]]))[0]
        if len(first) < len(index):
            index, rows = index[first], np.maximum.reduceat(rows, first, axis=0)
    target[index] = np.maximum(target[index], rows)


class Clocks:
    """The clocks of a batch's warps, and of the barriers, mbarriers and addresses at which they synchronise."""

    def __init__(self, b: Batch, ticks: Ticks) -> None:
        self.ticks = ticks
        self.cta_warps, self.ranks = b.padded // WARP, b.cluster_size
        self.groups = -(-self.cta_warps // 4)
        self.warps = self.cta_warps * self.ranks  # warps of a cluster; they are the first columns
        self.bulk, self.wgmma = self.warps, 2 * self.warps
        self.acquired = self.wgmma + self.groups * self.ranks
        self.columns = self.acquired + 1
        count = b.lanes // WARP
        self.seen = np.zeros((count, self.columns), dtype=np.int32)
        self.own = np.arange(count) % self.warps
        # the newest tick until which a warp has seen all accesses of all other warps of its cluster
        self.floor = np.zeros(count, dtype=np.int32)
        self._update_floor(np.arange(count))
        self.barriers = np.zeros((b.count * NAMED, self.columns), dtype=np.int32)
        clusters = -(-b.count // self.ranks)
        self.gathering, self.gathered = (
            np.zeros((clusters, self.columns), dtype=np.int32),
            np.zeros((clusters, self.columns), dtype=np.int32),
        )
        # key: index of an mbarrier's word, or -1 - unit of an address
        self.slots: dict[int, int] = {}
        self.pending, self.published = (
            np.zeros((64, self.columns), dtype=np.int32),
            np.zeros((64, self.columns), dtype=np.int32),
        )

    def _update_floor(self, warps: Array) -> None:
        others = self.seen[warps, : self.warps]
        others[np.arange(len(warps)), self.own[warps]] = LARGEST
        self.floor[warps] = others.min(axis=1)

    def clock_rows(self, warps: Array) -> Array:
        """The clocks of these warps, including their own accesses; a warp that synchronises with them learns these."""
        rows = self.seen[warps]
        rows[np.arange(len(warps)), self.own[warps]] = self.ticks.now
        return rows

    def learn(self, warps: Array, rows: Array) -> None:
        """Join `rows` into the clocks of these warps."""
        if len(warps):
            join(self.seen, warps, rows)
            self._update_floor(warps)

    def arrive(self, lanes: Array, cta: Array, number: int) -> None:
        """Lanes arrive at a named barrier of their CTAs; `cta` is the CTA of each lane."""
        warps = unique_warps(lanes)
        join(self.barriers, cta[warps << 5] * NAMED + number, self.clock_rows(warps))

    def complete(self, lanes: Array, cta: Array, number: int, done: Array) -> None:
        """Complete a named barrier in the CTAs `done`; `lanes` waited there."""
        warps = unique_warps(lanes)
        self.learn(warps, self.barriers[cta[warps << 5] * NAMED + number])
        self.barriers[np.nonzero(done)[0] * NAMED + number] = 0

    def arrive_cluster(self, lanes: Array) -> None:
        """Lanes arrive at their cluster's barrier."""
        warps = unique_warps(lanes)
        join(self.gathering, warps // self.warps, self.clock_rows(warps))

    def complete_cluster(self, done: Array) -> None:
        """Complete the barrier's phase in the clusters `done`."""
        self.gathered[done] = np.maximum(self.gathered[done], self.gathering[done])
        self.gathering[done] = 0

    def leave_cluster(self, lanes: Array) -> None:
        """Lanes leave the completed phase of their cluster's barrier."""
        warps = unique_warps(lanes)
        self.learn(warps, self.gathered[warps // self.warps])

    def _slots(self, keys: Array) -> Array:
        """Rows of `pending` and `published` for these keys; new keys get new rows."""
        found = [self.slots.setdefault(key, len(self.slots)) for key in keys.tolist()]
        while len(self.slots) > len(self.pending):
            self.pending, self.published = (
                np.concatenate([rows, np.zeros_like(rows)]) for rows in (self.pending, self.published)
            )
        return np.array(found, dtype=np.int64)

    def arrive_mbarrier(self, words: Array, lanes: Array, rows: Array | None = None) -> None:
        """Lanes arrive at mbarriers, or a copy with the clock `rows` does."""
        warps = lanes >> 5
        if rows is None:
            words, warps = _drop_repeats(words, warps)
            rows = self.clock_rows(warps)
        slots = self._slots(words)
        join(self.pending, slots, np.broadcast_to(rows, (len(words), self.columns)))

    def complete_mbarrier(self, words: Array) -> None:
        """Complete the phases of these mbarriers."""
        slots = self._slots(words)
        self.published[slots] = np.maximum(self.published[slots], self.pending[slots])
        self.pending[slots] = 0

    def leave_mbarrier(self, words: Array, lanes: Array) -> None:
        """Lanes leave the completed phases of the mbarriers that they waited for."""
        words, warps = _drop_repeats(words, lanes >> 5)
        slots = self._slots(words)
        self.learn(warps, self.published[slots])

    def synchronize(self, units: Array, lanes: Array, *, acquire: bool, release: bool) -> None:
        """Lanes synchronise through addresses of shared memory, with all lanes that use the same address."""
        units, warps = _drop_repeats(units, lanes >> 5)
        slots = self._slots(-1 - units)
        if release:
            join(self.published, slots, self.clock_rows(warps))
        if acquire:
            self.learn(warps, self.published[slots])

    def finish_async(self, columns: Array, warps: Array, tick: Array | int) -> None:
        """These warps waited for their asynchronous accesses of a column until `tick`."""
        self.seen[warps, columns] = np.maximum(self.seen[warps, columns], tick)


def _drop_repeats(keys: Array, warps: Array) -> tuple[Array, Array]:
    """Drops pairs (key, warp) that are equal to the pair before."""
    new = (
        np.concatenate([[True], (keys[1:] != keys[:-1]) | (warps[1:] != warps[:-1])])
        if len(keys)
        else np.zeros(0, dtype=bool)
    )
    return keys[new], warps[new]
