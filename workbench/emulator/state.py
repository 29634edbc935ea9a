"""The state of a batch of CTAs: registers over lanes (structure of arrays), shared and local memory, program counters."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.emulator.deferred import Copy, Queue
from workbench.emulator.global_races import Record
from workbench.emulator.launch import DeviceLimits, EmulationFault, GlobalMemory, GridRequest
from workbench.emulator.proxies import TensorMaps
from workbench.emulator.ptx import Kernel
from workbench.emulator.races import Plan, Races
from workbench.emulator.waits import Products
from workbench.records import Failure, Finding, Stage

WARP = 32
RANK_SHIFT = 24  # in an address of shared memory: the rank of the CTA in its cluster, plus one; 0 = the CTA's own
BARRIER_WAIT, CLUSTER_WAIT = 64, 65  # in `waiting`: parked at an mbarrier, at the cluster barrier (smaller numbers are named barriers)
SHARED_WINDOW = 0x7F00_0000_0000_0000  # generic addresses of shared memory: window + offset (ours; any unused range would do)
LOCAL_WINDOW = 0x7E00_0000_0000_0000
CONST_WINDOW = 0x7D00_0000_0000_0000
Lanes = Any  # None for all lanes, else an int array of lane numbers
Value = Any  # a numpy array over the active lanes, or a numpy scalar that all of them share


class Batch:
    """Some CTAs of one launch executed together: lane = CTA-in-batch * padded threads + thread."""

    def __init__(self, kernel: Kernel, request: GridRequest, limits: DeviceLimits, memory: GlobalMemory, first: int, count: int, order: Any = None) -> None:
        self.kernel, self.request, self.limits, self.memory = kernel, request, limits, memory
        self.first, self.count = first, count
        self.blocks = np.arange(first, first + count) if order is None else order[first : first + count]  # linear CTA numbers; CTAs of a cluster are neighbours
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
        self.cluster_arrived, self.cluster_phase = np.zeros(clusters, dtype=np.int64), np.zeros(clusters, dtype=np.int64)
        self.cluster_phase_of = np.zeros(self.lanes, dtype=np.int64)
        self.local_stride = max(-(-kernel.local_bytes // 16) * 16, 16)  # of one thread; keeps 16-byte accesses aligned
        self.local = np.zeros(self.lanes * self.local_stride, dtype=np.uint8)
        self.special = self._special(bx, by)
        self.pace: Any = None  # follows the warps in time (pace.py)
        self.standstill: Any = None  # of a part of the grid: whether it waits for the rest (standstill.py)
        self.changes = 0  # of global memory, counted where there is a standstill to look for
        self.garbage: dict[str, Any] = {}  # registers that nothing wrote, or that were computed from such (unwritten.py)
        self.garbage_made = 0  # how often some came into being: as long as it stays the same, what is defined stays so
        self.garbage_stored, self.garbage_line = False, 0  # whether some was stored to shared or local memory, and the line that used it first
        self.local_garbage: Any = None
        self.printed: list[str] = []
        self.notices: dict[tuple[str, int | None], Finding] = {}  # what does not end the launch, once for each kind and line

    def _special(self, bx: int, by: int) -> dict[str, Value]:
        block = self.blocks[self.cta]
        gx, gy, gz = self.request.grid
        cx, cy, cz = self.request.cluster
        rank = self.cta % self.cluster_size
        u = np.uint32
        return {
            "%tid.x": (self.thread % bx).astype(u), "%tid.y": (self.thread // bx % by).astype(u), "%tid.z": (self.thread // (bx * by)).astype(u),
            "%ctaid.x": (block % gx).astype(u), "%ctaid.y": (block // gx % gy).astype(u), "%ctaid.z": (block // (gx * gy)).astype(u),
            "%ntid.x": u(bx), "%ntid.y": u(by), "%ntid.z": u(self.request.block[2]),
            "%nctaid.x": u(gx), "%nctaid.y": u(gy), "%nctaid.z": u(gz),
            "%laneid": (self.thread % WARP).astype(u), "%warpid": (self.thread // WARP).astype(u), "%nwarpid": u(self.padded // WARP),
            "%smid": (block % self.limits.sms).astype(u), "%nsmid": u(self.limits.sms), "%gridid": np.uint64(1),
            "%clock": u(0), "%clock64": np.uint64(0), "%globaltimer": np.uint64(0), "%globaltimer_lo": u(0), "%globaltimer_hi": u(0), "%dynamic_smem_size": u(self.request.dynamic_shared_bytes),
            "%total_smem_size": u(self.shared_limit), "%cluster_ctarank": rank.astype(u), "%cluster_nctarank": u(self.cluster_size), "%is_explicit_cluster": self.cluster_size > 1,
            "%lanemask_lt": ((np.uint64(1) << (self.thread % WARP).astype(np.uint64)) - np.uint64(1)).astype(u),
            "%lanemask_eq": (np.uint64(1) << (self.thread % WARP).astype(np.uint64)).astype(u),
            "%lanemask_le": ((np.uint64(2) << (self.thread % WARP).astype(np.uint64)) - np.uint64(1)).astype(u),
            "%lanemask_gt": (~((np.uint64(2) << (self.thread % WARP).astype(np.uint64)) - np.uint64(1))).astype(u),
            "%lanemask_ge": (~((np.uint64(1) << (self.thread % WARP).astype(np.uint64)) - np.uint64(1))).astype(u),
            **{f"%cluster_ctaid.{axis}": value.astype(u) for axis, value in zip("xyz", (rank % cx, rank // cx % cy, rank // (cx * cy)), strict=True)},
            **{f"%cluster_nctaid.{axis}": u(value) for axis, value in zip("xyz", (cx, cy, cz), strict=True)},
            **{f"%clusterid.{axis}": value.astype(u) for axis, value in zip("xyz", (block % gx // cx, block // gx % gy // cy, block // (gx * gy) // cz), strict=True)},
            **{f"%nclusterid.{axis}": u(value) for axis, value in zip("xyz", (gx // cx, gy // cy, gz // cz), strict=True)},
        }  # fmt: skip

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
            value = value[()]  # numpy's `where` of scalars is an array of no dimensions; registers hold scalars or one value per lane
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

    def all_lanes(self, idx: Lanes) -> Any:
        """The active lane numbers as an array."""
        return np.arange(self.lanes) if idx is None else idx

    def where(self, lane: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Block and thread coordinates of a lane."""
        gx, gy, _ = self.request.grid
        bx, by, _ = self.request.block
        block, thread = int(self.blocks[lane // self.padded]), int(lane % self.padded)
        return (block % gx, block // gx % gy, block // (gx * gy)), (thread % bx, thread // bx % by, thread // (bx * by))

    def fault(self, kind: str, message: str, line: int | None, lane: int | None = None, address: int | None = None, stage: Stage = "run", hint: str = "") -> EmulationFault:
        """A fault with the place in the person's file and the thread that did it."""
        block, thread = self.where(lane) if lane is not None else (None, None)
        by = f" by thread {thread} of block {block}" if block is not None else ""
        text = f"{message}{by}"
        finding = Finding(kind=kind, severity="error", message=text, line=line, kernel=self.kernel.name, block=block, thread=thread, address=address)
        return EmulationFault(Failure(stage=stage, kind=kind, message=text, line=line, hint=hint), finding)

    def notice(self, kind: str, message: str, line: int | None, lane: int, address: int | None = None) -> None:
        """Something doubtful that the kernel may survive."""
        block, thread = self.where(lane)
        if (kind, line) not in self.notices:
            self.notices[kind, line] = Finding(kind=kind, severity="advice", message=f"{message} by thread {thread} of block {block}", line=line, kernel=self.kernel.name, block=block, thread=thread, address=address)

    def attach(self, counting: Any, params: dict[str, bytes], symbols: dict[str, int], print_room: int, *, async_proxy: bool = False, races: tuple[Plan, Record] | None = None) -> None:
        """Give the batch its counters, the launch's parameters, the addresses of the module's data, how much it may still print, whether the kernel uses TMA stores or wgmma, and how to look for races (None: not)."""
        self.async_proxy = async_proxy
        self.races = Races(self, *races) if races and self.count else None
        self.products = Products(self)
        self.counting = counting
        self.params = params
        self.symbols = symbols
        self.print_room = print_room
        self.call_params: dict[str, Any] = {}
        self.waiting_line = np.zeros(self.lanes, dtype=np.int32)
        self.arrived = np.zeros((self.count, 16), dtype=np.int64)
        self.barrier_count = np.zeros((self.count, 16), dtype=np.int64)

    def count_memory(self, ins: Any, space: str, idx: Lanes, where: Any, size: int, write: bool) -> None:
        """Count one access of the active lanes."""
        if self.counting.enabled and space in ("global", "shared", "generic"):
            self.counting.memory_access(ins, space, self.all_lanes(idx) // WARP, where, size, write)
            if self.pace is not None and space == "global":
                self.pace.accessed(ins, self.all_lanes(idx), where, size, write)

    def count_matrix_rows(self, ins: Any, lanes: Any, where: Any) -> None:
        """Count ldmatrix or stmatrix: each group of eight rows of 16 bytes is one request."""
        if self.counting.enabled:
            rows = lanes.reshape(-1, 8)
            group = np.repeat(np.arange(len(rows)), 8)
            self.counting.memory_access(ins, "shared", group, where.reshape(-1), 16, ins.opcode == "stmatrix")

    def count_flops(self, ins: Any, flops: int) -> None:
        """FLOPs that are not one or two per thread (matrix instructions)."""
        self.counting.extra_flops[self.counting.position[id(ins)]] += flops
