"""Records between the launch hook and the machine: grid request, device limits, registered global memory, faults."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from workbench.emulator.execution.tensor_views import Arguments, View, merge_ranges
from workbench.records import Failure, Finding

NEAR = 1 << 20  # largest distance in bytes from a tensor argument at which messages give an address as its index


# bytes of shared memory that the system uses in every CTA (CUDA C++ programming guide, compute capability 8.x and 9.0)
SYSTEM_SHARED = 1024
# bytes of an SM's unified L1 that cannot be shared memory: 256 - 228 KiB, 192 - 164 KiB
BEYOND_SHARED = 28_672


class EmulationFault(Exception):
    """A launch that cannot go on; `failure` has the message, the line in the candidate's file and the thread."""

    def __init__(self, failure: Failure, finding: Finding | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.finding = finding


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimits:
    """Limits of a launch; the defaults are compute capability 9.0 (CUDA programming guide, technical
    specifications).
    """

    name: str = "H200"
    shared_bytes_per_block: int = 232_448
    threads_per_block: int = 1024
    block_z: int = 64
    cluster_blocks: int = 16  # 8, or with a kernel's consent 16
    grid_x: int = 2**31 - 1
    grid_yz: int = 65_535
    sms: int = 132
    shared_bytes_per_sm: int = 233_472
    threads_per_sm: int = 2048
    blocks_per_sm: int = 32

    l2_bytes: int = 60 << 20
    l2_partitions: int = 2

    def resident_ctas(self, threads: int, shared: int) -> int:
        """CTAs of an SM, as many as threads and shared memory allow (registers are unknown here)."""
        per_block = shared + SYSTEM_SHARED
        return max(min(self.threads_per_sm // threads, self.blocks_per_sm, self.shared_bytes_per_sm // per_block), 1)

    def l1_bytes_of_sm(self, threads: int, shared: int) -> int:
        """Bytes of L1 that the CTAs of an SM have together."""
        per_cta, _ = self.cache_bytes_per_cta(threads, shared)
        return per_cta * self.resident_ctas(threads, shared)

    def cache_bytes_per_cta(self, threads: int, shared: int) -> tuple[int, int]:
        """Bytes of L1 and of L2 for one CTA, with as many CTAs resident as threads and shared memory allow (registers
        are unknown here).
        """
        per_block, resident = shared + SYSTEM_SHARED, self.resident_ctas(threads, shared)
        return max((self.shared_bytes_per_sm + BEYOND_SHARED - resident * per_block) // resident, 0), self.l2_bytes // (
            self.sms * resident
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRequest:
    """One kernel launch: geometry in threads and CTAs, parameters as raw bytes in the entry's order."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    dynamic_shared_bytes: int = 0
    params: tuple[bytes, ...] = ()
    step_limit: int = 200_000_000  # warp-instructions, so that an endless loop ends
    counters: bool = True
    source_file: str | None = None
    sample: int | None = None  # execute only so many CTAs (whole clusters), spread over the grid, and scale the counts
    follow: bool = False  # follow the first CTAs, or those of the sample, in time and their loads through the caches
    limit_s: float | None = None  # wall-clock limit in seconds for a sample
    # follow what all CTAs ask of L2; the share of the device's capacity that this case has; None = do not
    l2_share: float | None = None
    skip_repeats: bool = False  # with `follow`: skip the middle of long loops of a sample (sampling/steady_state.py)
    sanitize: bool = False  # run every CTA on the interpreter, which finds more
    strict_shared: bool = True  # reading shared memory that nothing wrote ends the launch; otherwise it is advice


@dataclass(slots=True)
class Allocation:
    """One registered byte range of global memory; `data` is a flat view of its bytes."""

    start: int
    size: int
    name: str
    writable: bool
    data: np.ndarray
    written: np.ndarray | None = None  # per byte, only where the allocation began uninitialised
    views: tuple[View, ...] = ()  # the launch's tensors in this range
    narrow: bool = False  # whether only the bytes of `views` may be accessed
    identity: int = 0  # tells apart allocations that had the same address one after the other
    owner: object = None  # keeps the memory from being freed, by a garbage collection say, while `data` is in use

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.start + self.size


@dataclass(slots=True)
class GlobalMemory:
    """The global memory that a launch may access; every access is checked against it."""

    allocations: list[Allocation] = field(default_factory=list)
    arguments: Arguments = field(default_factory=Arguments)
    _starts: list[int] = field(default_factory=list)

    def register(
        self,
        address: int,
        size: int,
        name: str,
        *,
        writable: bool = True,
        written: np.ndarray | None = None,
        identity: int = 0,
        owner: object = None,
    ) -> None:
        """Add `size` bytes at `address`. The new range replaces older ranges that it contains; it is ignored if an
        older one contains it. `owner` is kept until `release`.
        """
        if size <= 0:
            return
        at = bisect_right(self._starts, address)
        if at and self.allocations[at - 1].end >= address + size and self.allocations[at - 1].start <= address:
            return
        data = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        kept = [a for a in self.allocations if not (address <= a.start and a.end <= address + size)]
        views, narrow = self.arguments.views_in_range(address, size)
        kept.append(Allocation(address, size, name, writable, data, written, views, narrow, identity, owner))
        self.allocations = sorted(kept, key=lambda a: a.start)
        self._starts = [a.start for a in self.allocations]

    def release(self) -> None:
        """Forget all ranges, and with them their owners: a fault's traceback may hold this object for long."""
        for allocation in self.allocations:
            allocation.owner = None
        self.allocations, self._starts = [], []

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds `address`."""
        at = bisect_right(self._starts, address) - 1
        if at >= 0 and address < self.allocations[at].end:
            return self.allocations[at]
        return None

    def accessible_ranges(self) -> list[tuple[int, int, Allocation]]:
        """(start, end, allocation) of all accessible memory, with the gaps between the rows of a slice."""
        return [
            (max(low, a.start), min(high, a.end), a)
            for a in self.allocations
            for low, high in (merge_ranges(a.views) if a.narrow else [(a.start, a.end)])
        ]

    def describe_nearest(self, address: int) -> str:
        """A phrase that locates `address` relative to the closest allocation, and as an index of the closest tensor."""
        if not self.allocations:
            return "no tensor is registered"
        best = min(
            self.allocations,
            key=lambda a: 0 if a.start <= address < a.end else min(abs(address - a.start), abs(address - a.end)),
        )
        if address >= best.end:
            place = f"{address - best.end} bytes past the end of {best.name} ({best.size} bytes)"
        elif address < best.start:
            place = f"{best.start - address} bytes before the start of {best.name} ({best.size} bytes)"
        else:
            place = f"byte {address - best.start} of {best.name} ({best.size} bytes)"
        return place + self._index_phrase(address, best)

    @staticmethod
    def _index_phrase(address: int, best: Allocation) -> str:
        if not best.views:
            return ""
        view = min(
            best.views,
            key=lambda v: 0 if v.low <= address < v.high else min(abs(address - v.low), abs(address - v.high + 1)),
        )
        return f", {view.describe_place(address)}" if view.low - NEAR < address < view.high + NEAR else ""
