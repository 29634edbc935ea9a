"""A cache of the whole device: sets of lines of 128 bytes, filled by sectors of 32, least recently used first out.

Input: line requests in the order in which they arrive. Output: for each the sectors that it had to load. NVIDIA
documents the capacity, lines and sectors (Nsight Compute documentation, "Memory Tables"); the hash that spreads lines
over sets, 16 ways and least-recently-used replacement are inferred.

The L2 of an A100, H100 or H200 has two partitions, each beside half of the SMs. An SM asks its own partition, which
keeps a copy also of a line whose home is the other one (NVIDIA, "A100 Tensor Core GPU Architecture"; which line is at
home where is inferred). So a sector that both halves use is missed twice, as Nsight Compute counts it.
"""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.timing.cache_model import LINE, SPREAD

WAYS = 16
BITS = np.array([bin(mask).count("1") for mask in range(16)], dtype=np.int64)  # sectors of a mask


def spread_over_sets(lines: Array, sets: int) -> Array:
    """The set of each line."""
    hashed = (lines.astype(np.uint64) * SPREAD) >> np.uint64(32)
    return (hashed % np.uint64(sets)).astype(np.int64)


def find_missing(lines: Array, masks: Array, capacity: int) -> Array:
    """The sectors (a mask of 4 bits) that each request finds missing in a cache of `capacity` bytes that starts empty.

    `lines` are numbers of lines, `masks` the sectors that are asked for. Requests of one set are served in order, those
    of different sets side by side.
    """
    ways = min(WAYS, max(capacity // LINE, 1))
    sets = max(capacity // (LINE * ways), 1)
    where = spread_over_sets(lines, sets)
    order = np.argsort(where, kind="stable")
    missing = np.zeros(len(lines), dtype=np.uint8)
    again = np.zeros(len(lines), dtype=bool)  # the request of a set before it was for the same sectors: all are there
    again[1:] = (lines[order][1:] == lines[order][:-1]) & (masks[order][1:] == masks[order][:-1])
    order = order[~again]
    begins = np.flatnonzero(np.diff(where[order], prepend=-1))
    turn = np.arange(len(order)) - np.repeat(begins, np.diff(np.append(begins, len(order))))
    by_turn = order[np.argsort(turn, kind="stable")]
    ends = np.cumsum(np.bincount(turn)) if len(turn) else np.zeros(0, dtype=np.int64)
    tags = np.full((sets, ways), -1, dtype=np.int64)
    stamps = np.zeros((sets, ways), dtype=np.int64)
    filled = np.zeros((sets, ways), dtype=np.uint8)
    begin = 0
    for number, end in enumerate(ends.tolist(), 1):
        now = by_turn[begin:end]
        own = where[now]
        is_there = tags[own] == lines[now][:, None]
        found = is_there.any(axis=1)
        way = np.where(found, is_there.argmax(axis=1), stamps[own].argmin(axis=1))
        before = np.where(found, filled[own, way], 0).astype(np.uint8)
        missing[now] = masks[now] & ~before
        tags[own, way], stamps[own, way], filled[own, way] = lines[now], number, before | masks[now]
        begin = end
    return missing


def find_missing_by_half(lines: Array, masks: Array, halves: Array, capacity: int) -> Array:
    """As `find_missing`, of a cache of two partitions that have half of the capacity each.

    `halves` says which half of the SMs each request comes from (0 or 1). A partition serves the requests of its own
    half, and those of the other half to the lines at home in it: all of these, also what the other half has a copy of.
    """
    home = spread_over_sets(lines, 2)
    missing = np.zeros(len(lines), dtype=np.uint8)
    for half in (0, 1):
        served = np.flatnonzero((halves == half) | (home == half))
        found = find_missing(lines[served], masks[served], capacity // 2)
        own = halves[served] == half
        missing[served[own]] = found[own]
    return missing
