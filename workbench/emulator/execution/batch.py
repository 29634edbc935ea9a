"""The state of a batch of CTAs: registers over lanes (structure of arrays), shared and local memory, program counters.

The checks and the timeline that follow a batch are known here by what instructions tell them: the Protocols below.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from workbench.emulator.arrays import Array, Lanes, Value
from workbench.emulator.execution.copies import Copy, Queue
from workbench.emulator.execution.counters import Counting
from workbench.emulator.execution.launch import Allocation, DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.execution.special_registers import WARP as WARP
from workbench.emulator.execution.special_registers import special_registers
from workbench.emulator.execution.tensor_maps import TensorMaps
from workbench.emulator.ptx.instruction import Instruction, Kernel
from workbench.records import CtaTimeline, Failure, Finding, Stage

RANK_SHIFT = 24  # in an address of shared memory: the rank of the CTA in its cluster, plus one; 0 = the CTA's own
# in `waiting`: parked at an mbarrier, at the cluster barrier (smaller numbers are named barriers)
BARRIER_WAIT, CLUSTER_WAIT = 64, 65
# generic addresses of shared memory: window + offset (ours; any unused range would do)
SHARED_WINDOW = 0x7F00_0000_0000_0000
LOCAL_WINDOW = 0x7E00_0000_0000_0000
CONST_WINDOW = 0x7D00_0000_0000_0000


class Synchronisation(Protocol):
    """Who learns of whose work at barriers and mbarriers; see `sanitizer.vector_clocks.Clocks`."""

    def arrive(self, lanes: Array, cta: Array, number: int) -> None: ...
    def complete(self, lanes: Array, cta: Array, number: int, done: Array) -> None: ...
    def arrive_cluster(self, lanes: Array) -> None: ...
    def complete_cluster(self, done: Array) -> None: ...
    def leave_cluster(self, lanes: Array) -> None: ...
    def give(self, words: Array, lanes: Array, rows: Array | None = None) -> None: ...
    def publish(self, words: Array) -> None: ...
    def leave(self, words: Array, lanes: Array) -> None: ...


class RaceChecks(Protocol):
    """What instructions tell the search for races; see `sanitizer.shared_races.Races`."""

    @property
    def clocks(self) -> Synchronisation: ...
    @property
    def now(self) -> int: ...
    def tick(self, ins: Instruction) -> int: ...
    def load(self, b: Batch, lanes: Array, at: Array, size: int, ins: Instruction) -> None: ...
    def store(self, b: Batch, lanes: Array, at: Array, size: int, ins: Instruction, values: Array) -> None: ...
    def atomic(self, b: Batch, lanes: Array, at: Array, size: int, ins: Instruction) -> None: ...
    def issue(self, b: Batch, lanes: Array, at: Array, size: int, ins: Instruction) -> None: ...
    def bulk_write(self, b: Batch, lane: int, places: list[Array], ins: Instruction) -> Array: ...
    def bulk_read(self, b: Batch, lane: int, at: Array, ins: Instruction) -> int: ...
    def bulk_done(self, lane: int, tick: int) -> None: ...
    def matrix(self, b: Batch, lanes: Array, at: Array, ins: Instruction, tick: int, *, own_rows: bool) -> None: ...
    def multiplied(self, warps: Array, tick: Array) -> None: ...
    def barrier_used(self, b: Batch, lanes: Array, words: Array, ins: Instruction) -> None: ...
    def barrier_made(self, lanes: Array, words: Array, ins: Instruction) -> None: ...
    def was_written(self, found: Allocation) -> bool: ...
    def load_global(
        self, b: Batch, lanes: Array, found: Allocation, offset: Array, size: int, ins: Instruction
    ) -> None: ...
    def store_global(
        self,
        b: Batch,
        lanes: Array,
        found: Allocation,
        offset: Array,
        size: int,
        ins: Instruction,
        values: Array | None,
    ) -> None: ...
    def atomic_global(
        self, b: Batch, lanes: Array, found: Allocation, offset: Array, size: int, rank: Array, ins: Instruction
    ) -> None: ...


class WgmmaChecks(Protocol):
    """What wgmma does to registers until it is waited for; see `sanitizer.wgmma_hazards.WgmmaRegisters`."""

    busy: bool

    def fence(self, b: Batch, i: Lanes) -> None: ...
    def commit(self, b: Batch, i: Lanes) -> None: ...
    def wait(self, b: Batch, i: Lanes, newest: int) -> None: ...
    def issue(
        self, b: Batch, i: Lanes, ins: Instruction, sums: tuple[str, ...], inputs: tuple[str, ...], shape: str
    ) -> None: ...
    def check(self, b: Batch, i: Lanes, sources: list[str], targets: list[str], ins: Instruction) -> None: ...
    def change(self, b: Batch, i: Lanes, names: list[str], sources: list[str] | None) -> None: ...
    def copy(self, b: Batch, i: Lanes, sources: tuple[str, ...], targets: list[str], changes: list[str]) -> None: ...
    def notice_leaks(self, b: Batch) -> None: ...


class Timeline(Protocol):
    """A batch's warps followed in time; see `timing.cta_timeline.WarpTimeline`."""

    def enter(self, start: int, idx: Lanes) -> None: ...
    def executed(self, n: int, active: Lanes) -> None: ...
    def end_block(self) -> None: ...
    def accessed(self, ins: Instruction, lanes: Array, where: Array, size: int, write: bool) -> None: ...
    def arrived(self, lanes: Array, index: Array, ins: Instruction) -> None: ...
    def waited(self, lanes: Array, index: Array) -> None: ...
    def released(self, free: Array) -> None: ...
    def result(self) -> CtaTimeline: ...


class ProgressCheck(Protocol):
    """Whether a batch that loops has stopped making progress; see `sanitizer.livelock.LivelockDetector`."""

    def reached(self, b: Batch) -> bool: ...


class Batch:
    """Some CTAs of one launch executed together: lane = CTA-in-batch * padded threads + thread."""

    def __init__(
        self,
        kernel: Kernel,
        request: GridRequest,
        limits: DeviceLimits,
        memory: GlobalMemory,
        first: int,
        count: int,
        order: Array | None = None,
    ) -> None:
        self.kernel, self.request, self.limits, self.memory = kernel, request, limits, memory
        self.first, self.count = first, count
        self.blocks = (
            np.arange(first, first + count) if order is None else order[first : first + count]
        )  # linear CTA numbers; CTAs of a cluster are neighbours
        self.cluster_size = request.cluster[0] * request.cluster[1] * request.cluster[2]
        bx, by, bz = request.block
        self.threads = bx * by * bz
        self.padded = -(-self.threads // WARP) * WARP
        self.lanes = self.padded * count
        lane = np.arange(self.lanes, dtype=np.int64)
        self.cta = lane // self.padded
        self.thread = lane % self.padded
        self.registers: dict[str, Value] = {}
        self.pc = np.zeros(self.lanes, dtype=np.int32)
        self.alive = self.thread < self.threads
        self.waiting = np.full(self.lanes, -1, dtype=np.int32)  # barrier number, -1 = running
        self.shared_bytes = -(-(kernel.shared_bytes + request.dynamic_shared_bytes + 16) // 1024) * 1024
        self.shared_limit = kernel.shared_bytes + request.dynamic_shared_bytes
        self.shared = np.zeros(count * self.shared_bytes, dtype=np.uint8)
        self.shared_written = np.zeros(count * self.shared_bytes, dtype=np.uint8)
        self.copies, self.stores = Queue(self.lanes), Queue(self.lanes)  # cp.async and bulk stores in flight
        self.tensor_maps = TensorMaps()  # descriptors that the kernel edits
        self.arrivals: list[Copy] = []  # bulk loads in flight, which an mbarrier stands for
        self.barriers = np.zeros(count * self.shared_bytes // 8, dtype=np.uint8)  # 1 where an mbarrier was initialised
        self.waiting_for = np.zeros(self.lanes, dtype=np.int64)  # index of the mbarrier's word
        self.timed_out = np.zeros(self.lanes, dtype=bool)  # the next try_wait gives up
        self.stalls = 0  # times that all were woken so since a phase was completed
        clusters = -(-count // self.cluster_size)
        self.cluster_arrived, self.cluster_phase = (
            np.zeros(clusters, dtype=np.int64),
            np.zeros(clusters, dtype=np.int64),
        )
        self.cluster_phase_of = np.zeros(self.lanes, dtype=np.int64)
        self.local_stride = max(-(-kernel.local_bytes // 16) * 16, 16)  # of one thread; keeps 16-byte accesses aligned
        self.local = np.zeros(self.lanes * self.local_stride, dtype=np.uint8)
        self.special = special_registers(
            request,
            thread=self.thread,
            cta=self.cta,
            block=self.blocks[self.cta],
            sms=limits.sms,
            shared_bytes=self.shared_limit,
        )
        self.timeline: Timeline | None = None  # follows the warps in time
        self.livelock: ProgressCheck | None = None  # of a part of the grid: whether it waits for the rest
        self.changes = 0  # of global memory, counted where a livelock is looked for
        # registers that nothing wrote, or that were computed from such (sanitizer/uninitialized.py)
        self.undefined: dict[str, Array] = {}
        # how often some came into being: as long as it stays the same, what is defined stays so
        self.undefined_made = 0
        # whether some was stored to shared or local memory, and the line that used it first
        self.undefined_stored, self.undefined_line = False, 0
        self.undefined_local: Array | None = None  # marks of local memory
        self.printed: list[str] = []
        # what does not end the launch, once for each kind and line
        self.notices: dict[tuple[str, int | None], Finding] = {}

    def read(self, name: str, idx: Lanes) -> Value:
        """A register's bits over the active lanes."""
        value = self.registers.get(name)
        if value is None:
            return np.uint64(0) if name.startswith("%rd") else np.uint32(0)
        if idx is None or not isinstance(value, np.ndarray):
            return value
        return value[idx]

    def write(self, name: str, idx: Lanes, value: Value) -> None:
        """Set a register for the active lanes; never in place, so that values may be shared between registers."""
        if isinstance(value, np.ndarray) and not value.ndim:
            value = value[
                ()
            ]  # numpy's `where` of scalars is an array of no dimensions; registers hold scalars or one value per lane
        if idx is None:
            self.registers[name] = value
            return
        old = self.registers.get(name)
        kind = value.dtype
        if old is None:
            new = np.zeros(self.lanes, dtype=kind)
        elif isinstance(old, np.ndarray) and old.ndim:
            new = old.astype(kind) if old.dtype != kind else old.copy()
        else:
            new = np.full(self.lanes, old, dtype=kind)
        new[idx] = value
        self.registers[name] = new

    def all_lanes(self, idx: Lanes) -> Array:
        """The active lane numbers as an array."""
        return np.arange(self.lanes) if idx is None else idx

    def where(self, lane: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Block and thread coordinates of a lane."""
        gx, gy, _ = self.request.grid
        bx, by, _ = self.request.block
        block, thread = int(self.blocks[lane // self.padded]), int(lane % self.padded)
        return (block % gx, block // gx % gy, block // (gx * gy)), (thread % bx, thread // bx % by, thread // (bx * by))

    def fault(
        self,
        kind: str,
        message: str,
        line: int | None,
        lane: int | None = None,
        address: int | None = None,
        stage: Stage = "run",
        hint: str = "",
    ) -> EmulationFault:
        """A fault with the place in the person's file and the thread that did it."""
        block, thread = self.where(lane) if lane is not None else (None, None)
        by = f" by thread {thread} of block {block}" if block is not None else ""
        text = f"{message}{by}"
        finding = Finding(
            kind=kind,
            severity="error",
            message=text,
            line=line,
            kernel=self.kernel.name,
            block=block,
            thread=thread,
            address=address,
        )
        return EmulationFault(Failure(stage=stage, kind=kind, message=text, line=line, hint=hint), finding)

    def notice(self, kind: str, message: str, line: int | None, lane: int, address: int | None = None) -> None:
        """Something doubtful that the kernel may survive."""
        block, thread = self.where(lane)
        if (kind, line) not in self.notices:
            self.notices[kind, line] = Finding(
                kind=kind,
                severity="advice",
                message=f"{message} by thread {thread} of block {block}",
                line=line,
                kernel=self.kernel.name,
                block=block,
                thread=thread,
                address=address,
            )

    def attach(
        self,
        counting: Counting,
        wgmma: WgmmaChecks,
        *,
        params: dict[str, bytes],
        symbols: dict[str, int],
        print_room: int,
        async_proxy: bool = False,
        races: RaceChecks | None = None,
    ) -> None:
        """Give the batch what belongs to its launch.

        `params` are the parameters' bytes by name, `symbols` the addresses of the module's data, `print_room` how many
        characters it may still print. `async_proxy` says whether the kernel uses TMA stores or wgmma, `races` who looks
        for races, None for nobody.
        """
        self.async_proxy = async_proxy
        self.races = races
        self.wgmma = wgmma
        self.counting = counting
        self.params = params
        self.symbols = symbols
        self.print_room = print_room
        self.call_params: dict[str, Array] = {}
        self.waiting_line = np.zeros(self.lanes, dtype=np.int32)
        self.arrived = np.zeros((self.count, 16), dtype=np.int64)
        self.barrier_count = np.zeros((self.count, 16), dtype=np.int64)

    def count_memory(self, ins: Instruction, space: str, idx: Lanes, where: Array, size: int, write: bool) -> None:
        """Count one access of the active lanes."""
        if self.counting.enabled and space in ("global", "shared", "generic"):
            self.counting.memory_access(ins, space, self.all_lanes(idx) // WARP, where, size, write)
            if self.timeline is not None and space == "global":
                self.timeline.accessed(ins, self.all_lanes(idx), where, size, write)

    def count_matrix_rows(self, ins: Instruction, lanes: Array, where: Array) -> None:
        """Count ldmatrix or stmatrix: each group of eight rows of 16 bytes is one request."""
        if self.counting.enabled:
            rows = lanes.reshape(-1, 8)
            group = np.repeat(np.arange(len(rows)), 8)
            self.counting.memory_access(ins, "shared", group, where.reshape(-1), 16, ins.form.role == "matrix_store")

    def count_flops(self, ins: Instruction, flops: int) -> None:
        """FLOPs that are not one or two per thread (matrix instructions)."""
        self.counting.extra_flops[self.counting.position[id(ins)]] += flops
