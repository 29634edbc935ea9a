"""A model of a cache for one CTA: lines of 128 bytes, filled by sectors of 32, first in first out; each CTA has its
share.

A line stays until as many others were loaded as the share holds. First-in-first-out replacement and an even share are
inferred. NVIDIA documents sizes, lines and sectors (CUDA C++ programming guide, "Compute Capability 9.0"; Nsight
Compute documentation, "Memory Tables"), and that loads allocate and stores write through L1. Lines are in a table by a
hash of their number, four times as large as the share, so that few are lost early.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.emulator.arrays import Array

SECTOR, LINE = 32, 128
ALIGNED = 512  # alignment in bytes of the tensors of torch's CUDA allocator
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio (Knuth's multiplicative hash)
OWNER = 48  # bits of a sector's number below that of its CTA in a key


def sector_keys(cta: Array, where: Array, size: int) -> tuple[Array, int]:
    """Keys (CTA, sector) of accesses of `size` bytes each, and the number of keys per access."""
    first, last = where // SECTOR, (where + size - 1) // SECTOR
    parts = int((last - first).max()) + 1
    touched = np.minimum(first[:, None] + np.arange(parts), last[:, None])
    return ((cta[:, None] << OWNER) + touched).reshape(-1), parts


class AddressMap:
    """Maps addresses to those of a GPU's allocator: each tensor at a multiple of ALIGNED, one after the other.

    Host addresses differ from run to run.
    """

    def __init__(self, starts: Sequence[int], sizes: Sequence[int]) -> None:
        self.starts = np.asarray(starts, dtype=np.int64)
        room = -(-np.asarray(sizes, dtype=np.int64) // ALIGNED) * ALIGNED
        self.bases = ALIGNED + np.cumsum(room) - room

    def map(self, where: Array) -> Array:
        """The mapped addresses."""
        if not len(self.starts):
            return where
        owner = np.maximum(np.searchsorted(self.starts, where, side="right") - 1, 0)
        return where - self.starts[owner] + self.bases[owner]


class Cache:
    """The shares of some CTAs in a cache, `capacity` bytes each."""

    def __init__(self, ctas: int, capacity: int) -> None:
        self.lines = max(capacity // LINE, 1)
        self.bits = max(int(np.ceil(np.log2(4 * self.lines))), 2)
        self.tags = np.full((ctas, 1 << self.bits), -1, dtype=np.int64)
        self.stamps = np.zeros((ctas, 1 << self.bits), dtype=np.int64)
        self.filled = np.zeros((ctas, 1 << self.bits), dtype=np.uint8)  # mask of the line's loaded sectors
        self.fills = np.zeros(ctas, dtype=np.int64)

    def load(self, keys: Array) -> Array:
        """Whether each of these sectors (ascending keys without repeats) had to be loaded."""
        line, of_sector = np.unique(keys // (LINE // SECTOR), return_inverse=True)
        cta, number = line >> (OWNER - 2), line & ((1 << (OWNER - 2)) - 1)
        slot = ((number.astype(np.uint64) * SPREAD) >> np.uint64(64 - self.bits)).astype(np.int64)
        new = (self.tags[cta, slot] != number) | (self.fills[cta] - self.stamps[cta, slot] > self.lines)
        self._allocate(cta[new], slot[new], number[new])
        place = (cta[of_sector], slot[of_sector])
        bit = (np.uint8(1) << (keys & 3).astype(np.uint8)).astype(np.uint8)
        missed: Array = ((self.filled[place] & bit) == 0) | (self.tags[place] != number[of_sector])
        np.bitwise_or.at(self.filled, place, bit)
        return missed

    def _allocate(self, cta: Array, slot: Array, number: Array) -> None:
        begin = np.concatenate([[True], cta[1:] != cta[:-1]]) if len(cta) else np.zeros(0, dtype=bool)
        rank = np.arange(len(cta)) - np.maximum.accumulate(np.where(begin, np.arange(len(cta)), 0))
        self.tags[cta, slot] = number
        self.stamps[cta, slot] = self.fills[cta] + rank
        self.filled[cta, slot] = 0
        np.add.at(self.fills, cta, 1)
