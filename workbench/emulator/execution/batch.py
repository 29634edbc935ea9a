"""The state of a batch of CTAs: registers over lanes (structure of arrays), shared and local memory, program counters.

Checks and timelines observe a batch through the Protocols below.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
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

# From this bit on, an address of shared memory has the rank of the CTA in its cluster plus one; 0 = the CTA's own.
RANK_SHIFT = 24
# values of `waiting` for lanes parked at an mbarrier and at the cluster barrier; smaller ones are named barriers
BARRIER_WAIT, CLUSTER_WAIT = 64, 65
# generic addresses of shared memory: window + offset (ours; any unused range would do)
SHARED_WINDOW = 0x7F00_0000_0000_0000
LOCAL_WINDOW = 0x7E00_0000_0000_0000
CONST_WINDOW = 0x7D00_0000_0000_0000


class Synchronisation(Protocol):
    """Barriers and mbarriers call this to order accesses; see `sanitizer.vector_clocks.Clocks`."""

    def arrive(self, lanes: Array, cta: Array, number: int) -> None: ...
    def complete(self, lanes: Array, cta: Array, number: int, done: Array) -> None: ...
    def arrive_cluster(self, lanes: Array) -> None: ...
    def complete_cluster(self, done: Array) -> None: ...
    def leave_cluster(self, lanes: Array) -> None: ...
    def arrive_mbarrier(self, words: Array, lanes: Array, rows: Array | None = None) -> None: ...
    def complete_mbarrier(self, words: Array) -> None: ...
    def leave_mbarrier(self, words: Array, lanes: Array) -> None: ...


class RaceChecks(Protocol):
    """Instructions report their accesses here; see `sanitizer.shared_races.Races`."""

    @property
    def clocks(self) -> Synchronisation: ...
    @property
    def now(self) -> int: ...
    def next_tick(self, ins: Instruction) -> int: ...
    def load(self, b: Batch, lanes: Array, at: Array, size: int, ins: Instruction) -> None: ...
    def store(self, b: Batch, lanes: Array, at: Array, size: int, ins: Instruction, values: Array) -> None: ...
    def atomic(self, b: Batch, lanes: Array, at: Array, size: int, ins: Instruction) -> None: ...
    def issue_copy(self, b: Batch, lanes: Array, at: Array, size: int, ins: Instruction) -> None: ...
    def bulk_write(self, b: Batch, lane: int, places: list[Array], ins: Instruction) -> Array: ...
    def bulk_read(self, b: Batch, lane: int, at: Array, ins: Instruction) -> int: ...
    def finish_bulk_read(self, lane: int, tick: int) -> None: ...
    def read_wgmma_operand(
        self, b: Batch, lanes: Array, at: Array, ins: Instruction, tick: int, *, own_rows: bool
    ) -> None: ...
    def finish_wgmma(self, warps: Array, tick: Array) -> None: ...
    def use_barrier(self, b: Batch, lanes: Array, words: Array, ins: Instruction) -> None: ...
    def init_barrier(self, lanes: Array, words: Array, ins: Instruction) -> None: ...
    def checks_reads(self, found: Allocation) -> bool: ...
    def wait_for_launches(self, b: Batch, lanes: Array, ins: Instruction) -> None: ...
    def launch_dependents(self, lanes: Array, ins: Instruction) -> None: ...
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
    """Follows registers of wgmma until they are waited for; see `sanitizer.wgmma_registers.WgmmaRegisters`."""

    busy: bool

    def fence(self, b: Batch, i: Lanes) -> None: ...
    def commit(self, b: Batch, i: Lanes) -> None: ...
    def wait(self, b: Batch, i: Lanes, newest: int) -> None: ...
    def issue(
        self, b: Batch, i: Lanes, ins: Instruction, sums: tuple[str, ...], inputs: tuple[str, ...], shape: str
    ) -> None: ...
    def check(self, b: Batch, i: Lanes, sources: list[str], targets: list[str], ins: Instruction) -> None: ...
    def note_change(self, b: Batch, i: Lanes, names: list[str], sources: list[str] | None) -> None: ...
    def note_copy(
        self, b: Batch, i: Lanes, sources: tuple[str, ...], targets: list[str], changes: list[str]
    ) -> None: ...
    def notice_leaks(self, b: Batch) -> None: ...


class Timeline(Protocol):
    """Follows a batch's warps in time; see `timing.cta_timeline.WarpTimeline`."""

    def enter(self, start: int, idx: Lanes) -> None: ...
    def execute(self, n: int, active: Lanes) -> None: ...
    def end_block(self) -> None: ...
    def access_memory(self, ins: Instruction, lanes: Array, where: Array, size: int, write: bool) -> None: ...
    def arrive(self, lanes: Array, index: Array, ins: Instruction) -> None: ...
    def finish_wait(self, lanes: Array, index: Array) -> None: ...
    def release(self, free: Array) -> None: ...
    def result(self) -> CtaTimeline: ...


class CacheWatch(Protocol):
    """Notes the accesses of global memory; see `timing.l2_trace.L2Watch`."""

    def access(self, ins: Instruction, lanes: Array, where: Array, size: int, write: bool) -> None: ...


class ProgressCheck(Protocol):
    """Finds that a looping batch has stopped making progress; see `sanitizer.livelock.LivelockDetector`."""

    def has_stalled(self, b: Batch) -> bool: ...


class RepeatWatch(Protocol):
    """Watches for loops that repeat themselves; see `sampling.steady_state.SteadyState`."""

    @property
    def compared(self) -> Container[int]: ...
    def compare(self, n: int, active: Lanes) -> None: ...
    def enter_block(self, start: int, idx: Lanes) -> None: ...


class Batch:
    """Some CTAs of one launch, executed together: lane = CTA-in-batch * padded threads + thread."""

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
        # linear CTA numbers; CTAs of a cluster are neighbours
        self.blocks = np.arange(first, first + count) if order is None else order[first : first + count]
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
        self.arrivals: list[Copy] = []  # bulk loads in flight that complete at an mbarrier
        # bulk loads of a sample that only counts: the issuing lanes, the mbarriers' addresses, bytes
        self.landed: list[tuple[Instruction, list[tuple[int, int]], int]] = []
        self.barriers = np.zeros(count * self.shared_bytes // 8, dtype=np.uint8)  # 1 where an mbarrier was initialised
        self.waiting_for = np.zeros(self.lanes, dtype=np.int64)  # index of the mbarrier's word
        self.timed_out = np.zeros(self.lanes, dtype=bool)  # the next try_wait gives up
        self.stalls = 0  # how often all waiting try_waits timed out since the last completed phase
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
        self.l2: CacheWatch | None = None  # notes what goes to L2
        self.repeats: RepeatWatch | None = None  # skips the middle of long loops in a sample
        self.livelock: ProgressCheck | None = None  # set for a sample of the grid, which may wait for the rest
        self.code: Sequence[Callable[[Batch, Lanes], None]] | None = None  # of each instruction; None: the program's
        self.moves_data = True  # whether bulk copies move their bytes; if not, they are only counted
        self.ended_waits: frozenset[int] = frozenset()  # branches that a sample never takes (sampling/flag_waits.py)
        self.changes = 0  # changes of global memory, counted if `livelock` is set
        # state of registers that nothing wrote or that depend on such registers (sanitizer/uninitialized.py)
        self.undefined: dict[str, Array] = {}
        # how often a register became undefined; while it is constant, defined registers stay defined
        self.undefined_made = 0
        # whether undefined bytes were stored to shared or local memory, and the line that used them first
        self.undefined_stored, self.undefined_line = False, 0
        self.undefined_local: Array | None = None  # marks of local memory
        self.printed: list[str] = []
        # findings that do not end the launch, once for each kind and line
        self.notices: dict[tuple[str, int | None], Finding] = {}

    def read(self, name: str, idx: Lanes) -> Value:
        """A register's bits over the active lanes; 0 if nothing wrote it."""
        value = self.registers.get(name)
        if value is None:
            return np.uint64(0) if name.startswith("%rd") else np.uint32(0)
        if idx is None or not isinstance(value, np.ndarray):
            return value
        return value[idx]

    def write(self, name: str, idx: Lanes, value: Value) -> None:
        """Set a register for the active lanes, never in place, so that registers may share values."""
        if isinstance(value, np.ndarray) and not value.ndim:
            value = value[
                ()
            ]  # numpy's `where` of scalars gives a 0-d array; registers hold scalars or a value per lane
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

    def coordinates(self, lane: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
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
        """Builds a fault with the line in the user's file and the thread that caused it."""
        block, thread = self.coordinates(lane) if lane is not None else (None, None)
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
        """Note an advice finding: something doubtful that need not be wrong."""
        block, thread = self.coordinates(lane)
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
        """Set the state that belongs to the launch.

        `params` are the parameters' bytes by name, `symbols` the addresses of the module's data, `print_room` the
        number of characters that the batch may still print. `async_proxy` says whether the kernel uses TMA stores or
        wgmma. `races` is None if races are not looked for.
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
            self.counting.count_memory_access(ins, space, self.all_lanes(idx) // WARP, where, size, write)
            if space != "global":
                return
            if self.timeline is not None:
                self.timeline.access_memory(ins, self.all_lanes(idx), where, size, write)
            if self.l2 is not None:
                self.l2.access(ins, self.all_lanes(idx), where, size, write)

    def count_matrix_rows(self, ins: Instruction, lanes: Array, where: Array) -> None:
        """Count ldmatrix or stmatrix: each group of eight rows of 16 bytes is one request."""
        if self.counting.enabled:
            rows = lanes.reshape(-1, 8)
            group = np.repeat(np.arange(len(rows)), 8)
            self.counting.count_memory_access(
                ins, "shared", group, where.reshape(-1), 16, ins.form.role == "matrix_store"
            )

    def count_flops(self, ins: Instruction, flops: int) -> None:
        """Count FLOPs of instructions that do not have one or two per thread (matrix instructions)."""
        self.counting.extra_flops[self.counting.position[id(ins)]] += flops
