"""What passes between the launch hook and the machine: a grid request, device limits, registered global memory,
faults.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from workbench.emulator.execution.tensor_views import Arguments, View, merged
from workbench.records import Failure, Finding

NEAR = 1 << 20  # bytes from a tensor argument within which an address is told as an index of it


# bytes of shared memory that the system takes of every CTA (CUDA C++ programming guide, compute capability 8.x and 9.0)
SYSTEM_SHARED = 1024
# bytes that an SM's unified L1 and shared memory has beyond the most shared memory: 256 - 228 KiB, 192 - 164 KiB
BEYOND_SHARED = 28_672


class EmulationFault(Exception):
    """A launch that cannot go on; `failure` says what, where in the candidate's file, and by which thread."""

    def __init__(self, failure: Failure, finding: Finding | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.finding = finding


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimits:
    """What a launch may ask for; defaults are compute capability 9.0 (CUDA programming guide, technical
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

    def shares(self, threads: int, shared: int) -> tuple[int, int]:
        """Bytes of L1 and of L2 that one CTA has, with as many CTAs resident as threads and shared memory allow
        (registers are not known here).
        """
        per_block = shared + SYSTEM_SHARED
        resident = max(
            min(self.threads_per_sm // threads, self.blocks_per_sm, self.shared_bytes_per_sm // per_block), 1
        )
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
    sample: int | None = (
        None  # execute only so many CTAs (whole clusters), spread over the grid, and scale what is counted
    )
    follow: bool = False  # follow the first CTAs, or those of the sample, in time and their loads through the caches
    limit_s: float | None = None  # of the clock on the wall, for a sample
    sanitize: bool = False  # every CTA on the interpreter, which finds more
    strict_shared: bool = True  # whether reading shared memory that nothing wrote ends the launch, or is only noted


@dataclass(slots=True)
class Allocation:
    """One registered byte range of global memory, as a flat view of the bytes that it stands for."""

    start: int
    size: int
    name: str
    writable: bool
    data: np.ndarray
    written: np.ndarray | None = None  # per byte, only where the allocation began uninitialised
    views: tuple[View, ...] = ()  # the launch's tensors that lie in it
    narrow: bool = False  # whether only what they reach may be touched

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.start + self.size


@dataclass(slots=True)
class GlobalMemory:
    """The global memory that a launch may touch; every access is checked against it."""

    allocations: list[Allocation] = field(default_factory=list)
    arguments: Arguments = field(default_factory=Arguments)
    _starts: list[int] = field(default_factory=list)

    def register(
        self, address: int, size: int, name: str, *, writable: bool = True, written: np.ndarray | None = None
    ) -> None:
        """Add `size` bytes at `address`; ranges that touch an older one replace it when they contain it."""
        if size <= 0:
            return
        at = bisect_right(self._starts, address)
        if at and self.allocations[at - 1].end >= address + size and self.allocations[at - 1].start <= address:
            return
        data = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        kept = [a for a in self.allocations if not (address <= a.start and a.end <= address + size)]
        kept.append(Allocation(address, size, name, writable, data, written, *self.arguments.of_range(address, size)))
        self.allocations = sorted(kept, key=lambda a: a.start)
        self._starts = [a.start for a in self.allocations]

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds `address`."""
        at = bisect_right(self._starts, address) - 1
        if at >= 0 and address < self.allocations[at].end:
            return self.allocations[at]
        return None

    def ranges(self) -> list[tuple[int, int, Allocation]]:
        """(start, end, allocation) of all that may be touched, gaps between the rows of a slice included."""
        return [
            (max(low, a.start), min(high, a.end), a)
            for a in self.allocations
            for low, high in (merged(a.views) if a.narrow else [(a.start, a.end)])
        ]

    @property
    def gaps(self) -> bool:
        """Whether `ranges` includes what no tensor reaches."""
        return any(a.narrow and not all(view.dense for view in a.views) for a in self.allocations)

    def nearest(self, address: int) -> str:
        """A phrase that says where `address` lies with respect to the closest allocation, and as an index of the
        closest tensor of the launch.
        """
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
        return place + self._index(address, best)

    @staticmethod
    def _index(address: int, best: Allocation) -> str:
        if not best.views:
            return ""
        view = min(
            best.views,
            key=lambda v: 0 if v.low <= address < v.high else min(abs(address - v.low), abs(address - v.high + 1)),
        )
        return f", {view.place(address)}" if view.low - NEAR < address < view.high + NEAR else ""
