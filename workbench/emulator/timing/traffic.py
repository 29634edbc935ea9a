"""A batch's loads and stores of global memory in the caches: look-ups and misses of L1 and L2.

Input: the addresses of each access. Output: the counts of `Memory`, and the warps whose loads go beyond L1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.timing.cache_model import LINE, OWNER, SECTOR, AddressMap, Cache, sector_keys

COUNTS = ("requests", "looked_up", "lines", "missed", "l2_missed", "written")  # of `Memory`
Sectors = list[tuple[Array, bool]]
MOST_KEYS = 1 << 22  # of the skipped periods of a loop; those of longer loops are not looked up


@dataclass(frozen=True, slots=True)
class TrafficMark:
    """A moment of the traffic: COUNTS, and the number of entries of `Memory.beyond`."""

    counts: tuple[int, ...]
    beyond: int


@dataclass(slots=True)
class Memory:
    """A batch's loads and stores in the caches: look-ups and misses of L1 and L2."""

    l1: Cache
    l2: Cache
    address_map: AddressMap
    requests: int = 0
    looked_up: int = 0
    lines: int = 0
    missed: int = 0
    l2_missed: int = 0
    written: int = 0
    # keys of sectors that came from beyond L1, and whether L1 was asked for them
    beyond: Sectors = field(default_factory=list)
    untouched: int = 0  # sectors from beyond L1 in skipped repeats of a loop

    @property
    def touched(self) -> int:
        """Different sectors that came from beyond L1."""
        return self.count_touched(len(self.beyond)) + self.untouched

    def count_touched(self, entries: int) -> int:
        """Different sectors among the first entries of `beyond`."""
        return len(np.unique(np.concatenate([keys for keys, _ in self.beyond[:entries]]))) if entries else 0

    def take_mark(self) -> TrafficMark:
        """This moment, for `extrapolate`."""
        return TrafficMark(tuple(getattr(self, name) for name in COUNTS), len(self.beyond))

    def extrapolate(self, marks: list[TrafficMark], count: int) -> None:
        """Let `count` more periods of a loop pass, each with the mean of the last ones, which began at these marks.

        If each access of the last period is that of the one before moved on, the caches see the sectors of the skipped
        periods.
        """
        first, middle = marks[-2:]
        one, two = self.beyond[first.beyond : middle.beyond], self.beyond[middle.beyond :]
        known = self.l2_missed
        for name, old in zip(COUNTS, marks[0].counts, strict=True):
            now = getattr(self, name)
            setattr(self, name, now + (now - old) * count // len(marks))
        if _go_on_alike(one, two, count) and sum(len(keys) for keys, _ in two) * count <= MOST_KEYS:
            self.l2_missed = known
            self._look_up_periods(one, two, count)
        else:
            self.untouched += (self.count_touched(len(self.beyond)) - self.count_touched(middle.beyond)) * count

    def _look_up_periods(self, one: Sectors, two: Sectors, count: int) -> None:
        """The caches see `count` periods after the last two. Those of a block are looked up together."""
        block = max(self.l2.lines // max(sum(len(keys) for keys, _ in two), 1), 1)
        for start in range(1, count + 1, block):
            turns = np.arange(start, min(start + block, count + 1))[:, None]
            moved = [(keys + (keys - old) * turns, by_l1) for (old, _), (keys, by_l1) in zip(one, two, strict=True)]
            for by_l1 in (True, False):
                parts = [keys.reshape(-1) for keys, asked in moved if asked == by_l1]
                if parts:
                    keys = np.unique(np.concatenate(parts))
                    if by_l1:
                        self.l1.load(keys)
                    self._load_from_l2(keys, by_l1)

    def access(self, cta: Array, warps: Array, where: Array, size: int, *, write: bool, by_l1: bool) -> Array | None:
        """Lanes of `warps` access global memory. A load by L1 returns the warps that wait for more than L1."""
        keys, parts = sector_keys(cta, self.address_map.map(where), size)
        unique, inverse = np.unique(keys, return_inverse=True)
        if not by_l1:
            self._load_from_l2(unique, False)
            return None
        warp = np.repeat(warps, parts)
        asked = np.unique((warp << OWNER) + (keys & ((1 << OWNER) - 1)))
        self.requests += int(np.unique(warps).size)
        self.lines += len(np.unique(asked // (LINE // SECTOR)))
        if write:
            self.written += len(unique)
            return None
        self.looked_up += len(asked)
        missed = self.l1.load(unique)
        self.missed += int(missed.sum())
        self._load_from_l2(unique[missed], True)
        late: Array = warp[missed[inverse.reshape(-1)]]
        return late

    def _load_from_l2(self, keys: Array, by_l1: bool) -> None:
        if len(keys):
            self.beyond.append((keys, by_l1))
            self.l2_missed += int(self.l2.load(keys).sum())


def _go_on_alike(one: Sectors, two: Sectors, count: int) -> bool:
    """Whether `count` more periods can load the sectors of the last one moved on, each in its own CTA.

    Rows that are not aligned may load as many sectors of other CTAs: then those of two periods are no pairs.
    """
    if [(len(keys), by_l1) for keys, by_l1 in one] != [(len(keys), by_l1) for keys, by_l1 in two]:
        return False
    pairs = [(old, keys) for (old, _), (keys, _) in zip(one, two, strict=True)]
    return all(
        bool((old >> OWNER == keys >> OWNER).all() and ((keys + (keys - old) * count) >> OWNER == keys >> OWNER).all())
        for old, keys in pairs
    )
