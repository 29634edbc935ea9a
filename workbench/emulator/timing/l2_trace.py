"""The L2 cache of the device, fed by what every CTA of a launch asked of it.

A CTA's loads go through the L1 of its SM first (cache_model). What is left, its stores and atomics, are line requests
of that CTA. CTAs go to the SMs in turn, `IN_TURN` to each, and start in order, as many at once as the device holds;
each makes one request a turn, and the next CTA starts when one has ended. Half of the SMs are beside each partition of
L2. All this order is inferred; IN_TURN was fitted to two settings of a gather on an H200 (tests/bench/l2_on_gpu.py) and
checked on four others. Where the case is a shrunk one, the cache, the SMs and the number of CTAs in flight are the same
share of the device's, so that data that does not fit at full size does not fit here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.launch import DeviceLimits, GlobalMemory, GridRequest
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.timing.cache_model import OWNER, AddressMap, Cache, sector_keys
from workbench.emulator.timing.device_cache import BITS, find_missing, find_missing_by_half
from workbench.records import L2Traffic, L2Use

MOST_REQUESTS = 1 << 23  # of a launch; one with more is not followed
LEAST_BYTES = 4096  # of a scaled cache
IN_TURN = 4  # consecutive CTAs that an SM gets
SECTORS = 4  # of a line
SECTOR_OF_KEY = (1 << OWNER) - 1


@dataclass(slots=True)
class Requests:
    """The line requests of a launch in the order of execution: those of one CTA are in its own order."""

    ctas: list[Array] = field(default_factory=list)
    lines: list[Array] = field(default_factory=list)
    masks: list[Array] = field(default_factory=list)
    places: list[tuple[int, int, bool]] = field(default_factory=list)  # of each call: requests, instruction, write
    count: int = 0

    def add(self, ctas: Array, sectors: Array, instruction: int, write: bool) -> None:
        """Add an access: ascending pairs of CTA and sector, without repeats."""
        line = sectors // SECTORS
        begins = np.flatnonzero((np.diff(line, prepend=-1) != 0) | (np.diff(ctas, prepend=-1) != 0))
        masks = np.bitwise_or.reduceat((1 << (sectors % SECTORS)).astype(np.uint8), begins)
        self.ctas.append(ctas[begins].astype(np.int32))
        self.lines.append(line[begins])
        self.masks.append(masks)
        self.places.append((len(begins), instruction, write))
        self.count += len(begins)


class L2Watch:
    """Notes what the CTAs of one launch ask of L2."""

    def __init__(self, request: GridRequest, limits: DeviceLimits, memory: GlobalMemory, shared: int) -> None:
        self.limits, self.memory, self.share = limits, memory, request.l2_share or 1.0
        threads = request.block[0] * request.block[1] * request.block[2]
        self.sms = max(round(limits.sms * self.share), 1)
        self.in_turn = min(IN_TURN, limits.resident_ctas(threads, shared))
        scaled = limits.l1_bytes_of_sm(threads, shared) * limits.sms * self.share / self.sms
        self.l1 = Cache(self.sms, int(scaled))
        self.resident = limits.resident_ctas(threads, shared) * limits.sms
        self.requests = Requests()
        self.positions: dict[int, int] = {}

    def attach(self, batch: Batch, positions: dict[int, int]) -> None:
        """Follow the accesses of a batch. `positions` has the number of each instruction by its identity."""
        allocations = self.memory.allocations
        address_map = AddressMap([one.start for one in allocations], [one.size for one in allocations])
        batch.l2 = _BatchWatch(self.requests, batch, self.l1, self.find_sms, address_map, positions)

    def find_sms(self, ctas: Array) -> Array:
        """The SM of each CTA."""
        return ctas // self.in_turn % self.sms

    def result(self, instructions: list[Instruction]) -> L2Traffic | None:
        """Hits and misses by source line and by tensor; None if there were no requests, or too many."""
        found = self.requests
        if not 0 < found.count <= MOST_REQUESTS:
            return None
        ctas, lines, masks = (np.concatenate(part) for part in (found.ctas, found.lines, found.masks))
        sizes, number, write = (np.array(part) for part in zip(*found.places, strict=True))
        number, write = np.repeat(number, sizes), np.repeat(write.astype(bool), sizes)
        capacity = max(int(self.limits.l2_bytes * self.share), LEAST_BYTES)
        in_flight = max(round(self.resident * self.share), 1)
        order = order_requests(ctas, in_flight)
        asked = BITS[masks]
        missing = find_missing(lines[order], masks[order], capacity)
        fetched = int(BITS[missing][~write[order]].sum())
        if self.limits.l2_partitions == 2 and self.sms > 1:
            missing = find_missing_by_half(lines[order], masks[order], self.find_sms(ctas[order]) % 2, capacity)
        missed = np.zeros(len(lines), dtype=np.int64)
        missed[order] = np.where(write[order], 0, BITS[missing])  # what is stored whole is not loaded
        names = [one.name for one in self.memory.allocations]
        owner = self._find_owners(lines)
        source = np.array([ins.line or 0 for ins in instructions])[number]
        return L2Traffic(
            capacity=capacity,
            share=self.share,
            in_flight=in_flight,
            loaded=int(asked[~write].sum()),
            missed=int(missed.sum()),
            stored=int(asked[write].sum()),
            touched=_count_touched(lines[~write], masks[~write]),
            fetched=fetched,
            lines=tuple(_sum_uses(source, {n: str(n) for n in np.unique(source).tolist()}, asked, missed, write)),
            tensors=tuple(_sum_uses(owner, dict(enumerate(names)), asked, missed, write)),
        )

    def _find_owners(self, lines: Array) -> Array:
        """The number of the allocation that holds each line."""
        allocations = self.memory.allocations
        bases = AddressMap([one.start for one in allocations], [one.size for one in allocations]).bases
        return np.maximum(np.searchsorted(bases, lines * SECTORS * 32, side="right") - 1, 0)


@dataclass(frozen=True, slots=True)
class _BatchWatch:
    """Follows one batch. The CTAs of an SM share its L1, also with those of earlier batches."""

    requests: Requests
    batch: Batch
    l1: Cache
    find_sms: Callable[[Array], Array]
    address_map: AddressMap
    positions: dict[int, int]

    def access(self, ins: Instruction, lanes: Array, where: Array, size: int, write: bool) -> None:
        """Lanes access global memory; what L1 does not have goes to L2."""
        if self.requests.count > MOST_REQUESTS:
            return
        keys, _ = sector_keys(self.batch.cta[lanes], self.address_map.map(where), size)
        keys = np.unique(keys)
        is_atomic = ins.form.role == "atomic"
        if not write and not is_atomic and (ins.form.role != "copy" or "ca" in ins.mods):
            keys = self._load(keys)
        if len(keys):
            ctas = self.batch.blocks[keys >> OWNER]
            self.requests.add(ctas, keys & SECTOR_OF_KEY, self.positions[id(ins)], write and not is_atomic)

    def _load(self, keys: Array) -> Array:
        """The keys that the L1 of their SM has to load; of several CTAs of an SM the first one asks."""
        of_sm = (self.find_sms(self.batch.blocks[keys >> OWNER]) << OWNER) | (keys & SECTOR_OF_KEY)
        once, first = np.unique(of_sm, return_index=True)
        return np.sort(keys[first[self.l1.load(once)]])


def order_requests(ctas: Array, in_flight: int) -> Array:
    """The order in which requests arrive: `in_flight` CTAs at once, each with one request a turn.

    `ctas` has the CTA of each request, those of a CTA in its own order.
    """
    counts = np.bincount(ctas)
    ends = [0] * min(in_flight, len(counts))  # when each place for a CTA is free
    starts = np.zeros(len(counts), dtype=np.int64)
    for cta, count in enumerate(counts.tolist()):
        starts[cta] = begin = heapq.heappop(ends)
        heapq.heappush(ends, begin + count)
    grouped = np.argsort(ctas, kind="stable")
    begins = np.cumsum(counts) - counts
    turn = np.empty(len(ctas), dtype=np.int64)
    turn[grouped] = np.arange(len(ctas)) - np.repeat(begins, counts)
    return np.lexsort((ctas, starts[ctas] + turn))


def _count_touched(lines: Array, masks: Array) -> int:
    """Different sectors."""
    each = [np.unique(lines[(masks >> sector) & 1 > 0]) for sector in range(SECTORS)]
    return sum(len(found) for found in each)


def _sum_uses(key: Array, names: dict[int, str], asked: Array, missed: Array, write: Array) -> list[L2Use]:
    """The sums of each key, most loaded sectors first."""
    found = []
    for number, name in names.items():
        own = key == number
        loads = own & ~write
        if own.any():
            found.append(
                L2Use(
                    name=name,
                    loaded=int(asked[loads].sum()),
                    missed=int(missed[loads].sum()),
                    stored=int(asked[own & write].sum()),
                )
            )
    return sorted(found, key=lambda use: -use.loaded)


__all__ = ["L2Watch", "order_requests"]
