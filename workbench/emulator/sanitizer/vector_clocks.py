"""Who has seen whose work: vector clocks over the warps of a cluster, joined wherever threads meet.

Every access of a launch has a tick, a number that only grows. `Clocks.seen[warp, column]` is the newest tick of a
column that is ordered before what the warp does next. Columns of a cluster: its warps; the bulk copies that each warp
issued, as far as it waited for them to be read; the wgmma that each warpgroup issued, as far as they were waited for;
and last the newest release in global memory that the warp acquired. A barrier, or a phase of an mbarrier, holds the
join of the clocks of those who arrived; those who wait take it over. Threads of a warp are taken as ordered.
"""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.execution.batch import Batch
from workbench.emulator.ptx.instruction import Instruction

WARP, NAMED, LARGEST = 32, 16, np.iinfo(np.int32).max


class Ticks:
    """The accesses of a launch: tick n was made by `instructions[n]`; `lanes` says which lane made it, where that was
    one.
    """

    def __init__(self) -> None:
        self.instructions: list[Instruction | None] = [None]
        self.lanes: dict[int, int] = {}

    @property
    def now(self) -> int:
        """The newest tick."""
        return len(self.instructions) - 1

    def next(self, ins: Instruction) -> int:
        """The tick of an access that is made now."""
        self.instructions.append(ins)
        return len(self.instructions) - 1

    def turns(self, ins: Instruction, count: int) -> int:
        """The first of `count` ticks of accesses that one instruction makes one after the other."""
        self.instructions += [ins] * count
        return len(self.instructions) - count

    def is_atomic(self, tick: int) -> bool:
        """Whether an access reads and writes at once."""
        ins = self.instructions[tick]
        return ins is not None and ins.form.atomic

    def line(self, tick: int, word: str) -> str:
        """ " of line 12" (or another word) for the source line of an access, "" where there is none."""
        return at_line(self.instructions[tick], word)


def at_line(ins: Instruction | None, word: str) -> str:
    """ " of line 12" (or another word) for an instruction's source line, "" where it has none."""
    return f" {word} line {ins.line}" if ins is not None and ins.line else ""


def warps_of(lanes: Array) -> Array:
    """The warps of lanes that are in ascending order."""
    warps = lanes >> 5
    return warps[np.concatenate([[True], warps[1:] != warps[:-1]])] if len(warps) else warps


def join(target: Array, index: Array, rows: Array) -> None:
    """target[index[n]] becomes its maximum with rows[n]; an index may come several times."""
    if len(index) > 1:
        if (index[1:] < index[:-1]).any():
            order = np.argsort(index, kind="stable")
            index, rows = index[order], rows[order]
        first = np.nonzero(np.concatenate([[True], index[1:] != index[:-1]]))[0]
        if len(first) < len(index):
            index, rows = index[first], np.maximum.reduceat(rows, first, axis=0)
    target[index] = np.maximum(target[index], rows)


class Clocks:
    """The clocks of a batch's warps, and of the barriers, mbarriers and addresses that they meet at."""

    def __init__(self, b: Batch, ticks: Ticks) -> None:
        self.ticks = ticks
        self.per, self.ranks = b.padded // WARP, b.cluster_size
        self.groups = -(-self.per // 4)
        self.warps = self.per * self.ranks  # of a cluster: the first columns
        self.bulk, self.wgmma = self.warps, 2 * self.warps
        self.acquired = self.wgmma + self.groups * self.ranks
        self.columns = self.acquired + 1
        count = b.lanes // WARP
        self.seen = np.zeros((count, self.columns), dtype=np.int32)
        self.own = np.arange(count) % self.warps
        # everything that any other warp of the cluster did until then is seen
        self.floor = np.zeros(count, dtype=np.int32)
        self._refloor(np.arange(count))
        self.barriers = np.zeros((b.count * NAMED, self.columns), dtype=np.int32)
        clusters = -(-b.count // self.ranks)
        self.gathering, self.gathered = (
            np.zeros((clusters, self.columns), dtype=np.int32),
            np.zeros((clusters, self.columns), dtype=np.int32),
        )
        # of mbarriers by the index of their word, of addresses by the negative of their unit
        self.slots: dict[int, int] = {}
        self.pending, self.published = (
            np.zeros((64, self.columns), dtype=np.int32),
            np.zeros((64, self.columns), dtype=np.int32),
        )

    def _refloor(self, warps: Array) -> None:
        others = self.seen[warps, : self.warps]
        others[np.arange(len(warps)), self.own[warps]] = LARGEST
        self.floor[warps] = others.min(axis=1)

    def rows(self, warps: Array) -> Array:
        """What whoever meets these warps now gets to know: their clocks, with what they did themselves."""
        rows = self.seen[warps]
        rows[np.arange(len(warps)), self.own[warps]] = self.ticks.now
        return rows

    def take(self, warps: Array, rows: Array) -> None:
        """These warps get to know `rows`."""
        if len(warps):
            join(self.seen, warps, rows)
            self._refloor(warps)

    def arrive(self, lanes: Array, cta: Array, number: int) -> None:
        """Lanes arrive at a named barrier of their CTAs (`cta`: of each lane)."""
        warps = warps_of(lanes)
        join(self.barriers, cta[warps << 5] * NAMED + number, self.rows(warps))

    def complete(self, lanes: Array, cta: Array, number: int, done: Array) -> None:
        """A named barrier is complete in the CTAs `done`; `lanes` waited there."""
        warps = warps_of(lanes)
        self.take(warps, self.barriers[cta[warps << 5] * NAMED + number])
        self.barriers[np.nonzero(done)[0] * NAMED + number] = 0

    def arrive_cluster(self, lanes: Array) -> None:
        """Lanes arrive at their cluster's barrier."""
        warps = warps_of(lanes)
        join(self.gathering, warps // self.warps, self.rows(warps))

    def complete_cluster(self, done: Array) -> None:
        """The barrier's phase is complete in the clusters `done`."""
        self.gathered[done] = np.maximum(self.gathered[done], self.gathering[done])
        self.gathering[done] = 0

    def leave_cluster(self, lanes: Array) -> None:
        """Lanes waited for the completed phase of their cluster's barrier."""
        warps = warps_of(lanes)
        self.take(warps, self.gathered[warps // self.warps])

    def _slots(self, keys: Array) -> Array:
        """Rows of `pending` and `published`, which grow for new keys."""
        found = [self.slots.setdefault(key, len(self.slots)) for key in keys.tolist()]
        while len(self.slots) > len(self.pending):
            self.pending, self.published = (
                np.concatenate([rows, np.zeros_like(rows)]) for rows in (self.pending, self.published)
            )
        return np.array(found, dtype=np.int64)

    def give(self, words: Array, lanes: Array, rows: Array | None = None) -> None:
        """Lanes arrive at mbarriers, or a copy with the clock `rows` does."""
        warps = lanes >> 5
        if rows is None:
            words, warps = _distinct(words, warps)
            rows = self.rows(warps)
        slots = self._slots(words)
        join(self.pending, slots, np.broadcast_to(rows, (len(words), self.columns)))

    def publish(self, words: Array) -> None:
        """The phases of these mbarriers are complete."""
        slots = self._slots(words)
        self.published[slots] = np.maximum(self.published[slots], self.pending[slots])
        self.pending[slots] = 0

    def leave(self, words: Array, lanes: Array) -> None:
        """Lanes found that the phases of their mbarriers that they wait for are complete."""
        words, warps = _distinct(words, lanes >> 5)
        slots = self._slots(words)
        self.take(warps, self.published[slots])

    def meet(self, units: Array, lanes: Array, *, acquire: bool, release: bool) -> None:
        """Lanes synchronise through addresses of shared memory, all that come together with each other."""
        units, warps = _distinct(units, lanes >> 5)
        slots = self._slots(-1 - units)
        if release:
            join(self.published, slots, self.rows(warps))
        if acquire:
            self.take(warps, self.published[slots])

    def finished(self, columns: Array, warps: Array, tick: Array | int) -> None:
        """These warps waited for what they issued until `tick` of an asynchronous column."""
        self.seen[warps, columns] = np.maximum(self.seen[warps, columns], tick)


def _distinct(keys: Array, warps: Array) -> tuple[Array, Array]:
    """Without neighbours that say the same twice."""
    new = (
        np.concatenate([[True], (keys[1:] != keys[:-1]) | (warps[1:] != warps[:-1])])
        if len(keys)
        else np.zeros(0, dtype=bool)
    )
    return keys[new], warps[new]
