"""Launches on compiled code: fetch or build a kernel's code, run its CTAs on up to two threads, add the counters,
restore memory on a fault.

Compiled code only handles launches without errors. At anything else (a bad address, a deadlock, a divergent warp at an
aligned instruction) it stops; global memory is restored, and the interpreter runs the launch again and writes the
fault's message. An endless loop is reported from here, because the interpreter would need minutes to reach the limit;
the report names the line and thread of the first such CTA, in CTA order.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from workbench.emulator.compiled import cache, jit
from workbench.emulator.compiled.codegen import layout
from workbench.emulator.compiled.codegen.program import Program
from workbench.emulator.compiled.saved import MemorySnapshot
from workbench.emulator.compiled.stop import Stop
from workbench.emulator.execution.batch import WARP
from workbench.emulator.execution.counters import Counting
from workbench.emulator.execution.launch import DeviceLimits, GlobalMemory, GridRequest

ALIGN = 64
RUN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class CompiledKernel:
    """A kernel's machine code; see `load_cached` and `build`."""

    def __init__(self, program: Program, parts: list[bytes]) -> None:
        self.program, self.kernel = program, program.kernel
        tables = [jit.load_object(part, "blocks", "count") for part in parts]
        self.table = np.concatenate([_words(blocks, int(_words(count, 1)[0])) for blocks, count in tables])
        self.sizes = np.array([block.last - block.first for block in program.blocks], dtype=np.int64)
        self.ends = np.array(program.barriers, dtype=np.uint8)

    def run(
        self,
        request: GridRequest,
        limits: DeviceLimits,
        memory: GlobalMemory,
        symbols: dict[str, int],
        counting: Counting,
        *,
        first: int,
        batch: int,
        threads: int,
    ) -> Stop | bool:
        """Execute the CTAs from number `first` on. `batch` is the number of CTAs that the interpreter runs at a time.

        True: they ended, and their counts are in `counting`. False: the interpreter must run them; memory is unchanged.
        A `Stop`: they exceeded the limit of instructions.
        """
        snapshot = MemorySnapshot(memory)
        total = request.grid[0] * request.grid[1] * request.grid[2]
        alone = self.program.scope == "batch"
        group, workers = (min(batch, total), 1) if alone else (1, max(1, min(threads, total - first)))
        bounds = [first + (total - first) * n // workers for n in range(workers + 1)]
        contexts = [_Context(self, request, limits, memory, symbols, group, counting.enabled) for _ in range(workers)]
        run = RUN(jit.load_library()[-1])
        with ThreadPoolExecutor(workers) as pool:  # a pool even for one worker: the main thread can be interrupted
            try:
                list(pool.map(lambda n: run(contexts[n].address, bounds[n], bounds[n + 1]), range(workers)))
            except KeyboardInterrupt:
                for context in contexts:
                    context.data[layout.STEP_LIMIT // 8] = 0
                raise
        for context in contexts:
            stop = context.stop()
            if stop is not True:
                snapshot.restore()
                return stop
        for context in contexts:
            context.count(counting)
        return True


def _words(address: int, count: int) -> np.ndarray:
    """A copy of 64-bit words in memory."""
    return np.ctypeslib.as_array((ctypes.c_uint64 * count).from_address(address)).copy()


def load_cached(plan: Program, name: str) -> CompiledKernel | None:
    """A kernel's code from the disk, None if it is not there."""
    parts = cache.load(name)
    if parts is None:
        return None
    try:
        return CompiledKernel(plan, parts)
    except RuntimeError:
        return None


def build(plan: Program, texts: list[str], name: str) -> CompiledKernel:
    """Compile a kernel and store its code on disk."""
    parts = jit.compile_all(texts)
    cache.save(name, parts)
    return CompiledKernel(plan, parts)


class _Context:
    """The memory that one host thread works in; see layout.py."""

    def __init__(
        self,
        code: CompiledKernel,
        request: GridRequest,
        limits: DeviceLimits,
        memory: GlobalMemory,
        symbols: dict[str, int],
        group: int,
        counting: bool,
    ) -> None:
        self.code, kernel = code, code.kernel
        self.kept: list[np.ndarray] = []
        self.data = self._allocate(layout.CONTEXT_BYTES).view(np.int64)
        self.address = self.data.ctypes.data
        bx, by, bz = request.block
        threads = bx * by * bz
        warps = -(-threads // WARP)
        self.group, self.warps, self.stride = group, warps, code.program.warp_bytes
        shared = kernel.shared_bytes + request.dynamic_shared_bytes
        shared_room = -(-(shared + 16) // 1024) * 1024
        local = max(-(-kernel.local_bytes // 16) * 16, 16)
        count = len(kernel.instructions)
        self.counts, self.guarded = self._allocate_words(len(code.sizes)), self._allocate_words(count)
        self.rows = self._allocate_words(4 * count)
        self.records = self._allocate(group * warps * self.stride)
        params = self._allocate(16 * sum(-(-length // 16) for _, length, _ in kernel.params) + 16)
        for (name, _, _), value in zip(kernel.params, request.params, strict=True):
            at = code.program.params[name]
            params[at : at + len(value)] = np.frombuffer(value, dtype=np.uint8)
        table = np.array(
            [
                (low, high, e.written.ctypes.data + low - e.start if e.written is not None else 0, int(e.writable))
                for low, high, e in memory.accessible_ranges()
            ]
            or [(1, 0, 0, 0)],
            dtype=np.uint64,
        )
        names = np.array([symbols[name] for name in code.program.symbols] or [0], dtype=np.uint64)
        self.kept += [table, names]
        self.data[: len(jit.load_library()) - 1] = jit.load_library()[:-1]
        self.data[layout.LOOPS // 8 : layout.LOOPS // 8 + 10] = jit.numpy_loops()
        for slot, content in {
            layout.BLOCKS: code.table.ctypes.data,
            layout.KINDS: code.ends.ctypes.data,
            layout.SIZES: code.sizes.ctypes.data,
            layout.TABLE: table.ctypes.data,
            layout.TABLE_COUNT: len(memory.accessible_ranges()),
            layout.RECENT: table.ctypes.data,
            layout.COUNTING: int(counting),
            layout.COUNTS: self.counts.ctypes.data,
            layout.GUARDED: self.guarded.ctypes.data,
            layout.ROWS: self.rows.ctypes.data,
            layout.STEP_LIMIT: request.step_limit // 32,
            layout.SHARED_LIMIT: shared,
            layout.LOCAL_STRIDE: local,
            layout.PARAMS: params.ctypes.data,
            layout.SYMBOLS: names.ctypes.data,
            layout.BLOCK_X: bx,
            layout.BLOCK_Y: by,
            layout.BLOCK_Z: bz,
            layout.GRID_X: request.grid[0],
            layout.GRID_Y: request.grid[1],
            layout.GRID_Z: request.grid[2],
            layout.THREADS: threads,
            layout.CTA_WARPS: warps,
            layout.DYNAMIC_SHARED: request.dynamic_shared_bytes,
            layout.SMS: limits.sms,
            layout.GROUP: group,
            layout.LOCKSTEP: int(code.program.scope != "warp"),
            layout.WARPS: self.records.ctypes.data,
            layout.WARP_STRIDE: self.stride,
            layout.CTAS: self._allocate(group * layout.CTA_BYTES).ctypes.data,
            layout.SHARED_BYTES: shared_room,
            layout.SHARED: self._allocate(group * shared_room).ctypes.data,
            layout.WRITTEN: self._allocate(group * shared_room).ctypes.data,
            layout.LOCAL: self._allocate(group * warps * WARP * local).ctypes.data,
        }.items():
            self.data[slot // 8] = content

    def _allocate(self, size: int) -> np.ndarray:
        """Zeroed bytes, aligned for vectors."""
        raw = np.zeros(size + ALIGN, dtype=np.uint8)
        self.kept.append(raw)
        start = -raw.ctypes.data % ALIGN
        return raw[start : start + size]

    def _allocate_words(self, count: int) -> np.ndarray:
        return self._allocate(8 * count).view(np.int64)

    def stop(self) -> Stop | bool:
        """True if this thread ended well, False if it gave up, a `Stop` if it exceeded the limit of instructions."""
        if self.data[layout.FAULT // 8] != layout.TOO_LONG:
            return not self.data[layout.FAULT // 8]
        for n in range(self.group * self.warps):
            record = self.records[n * self.stride : (n + 1) * self.stride].view(np.int64)
            mask, low = int(record[layout.MASK // 8]), int(record[layout.LOW // 8])
            if mask and low != layout.NEVER:
                x, y, z = (int(record[at // 8]) for at in (layout.CTAID_X, layout.CTAID_Y, layout.CTAID_Z))
                gx, gy = (int(self.data[at // 8]) for at in (layout.GRID_X, layout.GRID_Y))
                lane = (mask & -mask).bit_length() - 1
                return Stop(
                    self.code.program.blocks[low].first,
                    x + gx * (y + gy * z),
                    int(record[layout.WARP_INDEX // 8]) * WARP + lane,
                )
        return False

    def count(self, counting: Counting) -> None:
        """Add the counts of this thread."""
        instructions = self.code.kernel.instructions
        lanes = np.zeros(len(instructions), dtype=np.int64)
        for block in self.code.program.blocks:
            lanes[block.first : block.last] = self.counts[block.number]
        for at, ins in enumerate(instructions):
            if ins.guard is not None and not ins.form.ends_block:
                lanes[at] = self.guarded[at]
        counting.lanes += lanes
        rows = self.rows.reshape(-1, 4)
        for at, ins in enumerate(instructions):
            if ins.form.role == "mma":
                counting.extra_flops[at] += mma_flops(ins.mods) * int(lanes[at]) // WARP
            elif rows[at, 1]:
                row = counting.memory.setdefault((at, ins.form.space == "shared"), np.zeros(5, dtype=np.int64))
                row[:4] += rows[at]
                row[4] = int(ins.form.role not in ("load", "matrix_load"))


def mma_flops(mods: tuple[str, ...]) -> int:
    """FLOPs of one warp's mma: 2 m n k."""
    shape = next(mod for mod in mods if mod[0] == "m" and mod[1].isdigit())
    m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
    return 2 * m * n * k
