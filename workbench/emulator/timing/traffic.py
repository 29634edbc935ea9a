"""A batch's loads and stores of global memory in the caches: look-ups and misses of L1 and L2.

Input: the addresses of each access. Output: the counts of `Memory`, and the warps whose loads go beyond L1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.timing.cache_model import LINE, OWNER, SECTOR, AddressMap, Cache, sector_keys

TRAFFIC = ("requests", "looked_up", "lines", "missed", "l2_missed", "written")  # counts of `Memory`


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
    beyond: list[Array] = field(default_factory=list)  # keys of sectors that came from beyond L1
    untouched: int = 0  # sectors from beyond L1 in skipped repeats of a loop

    @property
    def touched(self) -> int:
        """Different sectors that came from beyond L1."""
        return self.count_touched(len(self.beyond)) + self.untouched

    def count_touched(self, entries: int) -> int:
        """Different sectors among the first entries of `beyond`."""
        return len(np.unique(np.concatenate(self.beyond[:entries]))) if entries else 0

    def access(self, cta: Array, warps: Array, where: Array, size: int, *, write: bool, by_l1: bool) -> Array | None:
        """Lanes of `warps` access global memory. A load by L1 returns the warps that wait for more than L1."""
        keys, parts = sector_keys(cta, self.address_map.map(where), size)
        unique, inverse = np.unique(keys, return_inverse=True)
        if not by_l1:
            self._load_from_l2(unique)
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
        self._load_from_l2(unique[missed])
        late: Array = warp[missed[inverse.reshape(-1)]]
        return late

    def _load_from_l2(self, keys: Array) -> None:
        if len(keys):
            self.beyond.append(keys)
            self.l2_missed += int(self.l2.load(keys).sum())
