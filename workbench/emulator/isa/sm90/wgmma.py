"""wgmma.mma_async of Hopper: A from shared memory or registers, B from shared memory, f16, bf16, tf32, e4m3, e5m2, s8,
u8.

Accumulation: products and their sum over one instruction's k, then the accumulator, in float32 in BLAS order (integers
exactly), not in the tensor core's own undocumented order. A multiplication is computed when it is issued. Its registers
are in flight until the wait that covers it (sanitizer/wgmma_hazards.py), and it reads its shared memory until then
(sanitizer/shared_races.py).

Layouts: PTX ISA, asynchronous warpgroup-level matrix shared-memory layout; the canonical layouts are those of CUTLASS's
mma_sm90_desc.hpp, in units of 16 bytes (T elements): K-major ((8,m),(T,2k)):((swizzle span, SBO),(1,T or LBO));
MN-major ((T,span,m),(8,k)):((1,T,LBO),(span,SBO)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import WARP, Batch
from workbench.emulator.execution.copies import WRITTEN
from workbench.emulator.execution.operands import Fn, Get, Unknown, getter, setter
from workbench.emulator.isa import fp8
from workbench.emulator.isa.access import broadcast
from workbench.emulator.isa.sm90.async_copies import unreadable_fault
from workbench.emulator.isa.sm90.descriptor import SWIZZLE_BITS
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Imm, Operand, Vec, immediate_value, value_registers

GROUP = 4 * WARP  # threads of a warpgroup
ROWS = 64
CHUNK = 16
SIZES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
SPAN = {0: 16, 3: 32, 2: 64, 1: 128}  # swizzle mode of a matrix descriptor -> bytes
TMA_MODE = {0: 0, 3: 1, 2: 2, 1: 3}  # swizzle mode of a matrix descriptor -> TMA's number


@dataclass(frozen=True, slots=True)
class Tile:
    """The layout of a matrix in shared memory, from its descriptor: byte offsets between core matrices,
    swizzle mode.
    """

    leading: int
    stride: int
    mode: int


@lru_cache(maxsize=512)
def element_offsets(tile: Tile, extent: int, depth: int, size: int, transposed: bool) -> Array:
    """Byte offset of each element (extent, depth) before the swizzle; if `transposed`, the extent is contiguous, not
    the depth.
    """
    span, unit = SPAN[tile.mode], CHUNK // size
    rows, k = np.arange(extent)[:, None], np.arange(depth)[None, :]
    if not transposed:
        step = tile.leading if tile.mode == 0 else CHUNK
        return (rows % 8) * span + (rows // 8) * tile.stride + (k // unit) * step + (k % unit) * size
    per = span // size
    if tile.mode == 0:
        return (rows % unit) * size + (rows // unit) * tile.stride + (k % 8) * CHUNK + (k // 8) * tile.leading
    return (rows % per) * size + (rows // per) * tile.leading + (k % 8) * span + (k // 8) * tile.stride


def _decode(raw: Array, kind: str) -> Array:
    """Bits -> float32, or int32 for integers."""
    if kind == "f16":
        return raw.view(np.float16).astype(np.float32)
    if kind == "bf16":
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind == "tf32":
        return (raw & np.uint32(0xFFFFE000)).view(np.float32)
    if kind in fp8.DECODE:
        return fp8.DECODE[kind][raw]
    return raw.view(np.int8 if kind == "s8" else np.uint8).astype(np.float64)


def _matrix(
    b: Batch,
    ins: Instruction,
    lanes: Array,
    word: Array,
    extent: int,
    depth: int,
    kind: str,
    transposed: bool,
    tick: int,
    *,
    own_rows: bool,
) -> Array:
    """(warpgroups, extent, depth) of the matrices that descriptors name, one for each warpgroup (`lanes`: its first
    thread); `tick`, `own_rows`: for the races.
    """
    size = SIZES[kind]
    out = np.empty((len(word), extent, depth), dtype=np.float64 if kind in ("s8", "u8") else np.float32)
    cta = b.cta[lanes]
    layout = word & np.int64(~0x3FFF)
    for one in np.unique(layout):
        pick = np.nonzero(layout == one)[0]
        tile = Tile(int(one >> 16 & 0x3FFF) << 4, int(one >> 32 & 0x3FFF) << 4, int(one >> 62 & 3))
        where = ((word[pick] & 0x3FFF) << 4)[:, None, None] + element_offsets(tile, extent, depth, size, transposed)
        where = where ^ (where >> 3 & SWIZZLE_BITS[TMA_MODE[tile.mode]])
        if (where + size > b.shared_limit).any():
            bad = int(np.argmax((where + size > b.shared_limit).any(axis=(1, 2))))
            raise b.fault(
                "shared_out_of_bounds",
                f"wgmma reads shared memory at offset {int(where[bad].max())}, but the CTA has {b.shared_limit} bytes",
                ins.line,
                int(lanes[pick[bad]]),
                int(where[bad].max()),
            )
        index = (cta[pick][:, None, None] * b.shared_bytes + where) // size
        marks = b.shared_written[index * size]
        if (marks != WRITTEN).any():
            lane = int(lanes[pick][int(np.argmax((marks != WRITTEN).any(axis=(1, 2))))])
            fault = unreadable_fault(b, ins, lane, marks, index * size, "wgmma")
            if fault is not None:
                raise fault
        out[pick] = _decode(b.shared.view(f"u{size}")[index], kind)
        if b.races is not None:
            step = CHUNK // size  # one byte stands for each 16 bytes
            b.races.read_wgmma_operand(
                b,
                lanes[pick],
                (index[:, ::step] if transposed else index[:, :, ::step]) * size,
                ins,
                tick,
                own_rows=own_rows,
            )
    return out


def _warpgroups(b: Batch, i: Lanes, ins: Instruction) -> Array:
    lanes = b.all_lanes(i)
    if (
        len(lanes) % GROUP
        or (lanes.reshape(-1, GROUP) - lanes.reshape(-1, GROUP)[:, :1] != np.arange(GROUP)).any()
        or (b.thread[lanes[::GROUP]] % GROUP).any()
    ):
        raise b.fault(
            "divergent_warpgroup",
            "wgmma needs all 128 threads of the warpgroup",
            ins.line,
            int(lanes[0]),
            hint="no wgmma inside a branch that only some threads of a warpgroup take",
        )
    return lanes


def _accumulator_map(n: int) -> tuple[Array, Array]:
    """(row, column) of element e of thread t (PTX ISA, wgmma .m64nNk16 accumulator): arrays (128, n / 2)."""
    thread, e = np.arange(GROUP)[:, None], np.arange(n // 2)[None, :]
    return thread // WARP * 16 + thread % WARP // 4 + e // 2 % 2 * 8, e // 4 * 8 + thread % 4 * 2 + e % 2


def _register_map(depth: int, size: int) -> tuple[Array, Array]:
    """(row, column) of element e of thread t of A in registers: arrays (128, depth / 2)."""
    per = 4 // size
    thread, e = np.arange(GROUP)[:, None], np.arange(ROWS * depth // GROUP)[None, :]
    register = e // per
    return (
        thread // WARP * 16 + thread % WARP // 4 + register % 2 * 8,
        thread % 4 * per + e % per + register // 2 * 4 * per,
    )


def operation(ins: Instruction) -> Fn:
    """wgmma.mma_async, and its fence and groups."""
    if ins.mods[0] == "fence":
        return lambda b, i: b.wgmma.fence(b, i)
    if ins.mods[0] == "commit_group":
        return lambda b, i: b.wgmma.commit(b, i)
    if ins.mods[0] == "wait_group":
        newest = immediate_value(ins.operands[0])
        return lambda b, i: b.wgmma.wait(b, i, newest)
    return _Multiplication(ins).run


def count_product(ins: Instruction) -> Fn:
    """wgmma.mma_async of which only the FLOPs are counted."""
    n, depth = _extents(ins)[1:]
    return lambda b, i: b.count_flops(ins, 2 * ROWS * n * depth * ((b.lanes if i is None else len(i)) // GROUP))


def _extents(ins: Instruction) -> tuple[str, int, int]:
    """The shape, its n and its k."""
    shape = next(m for m in ins.mods if m.startswith("m64n"))
    n, depth = (int(part) for part in shape[4:].split("k"))
    return shape, n, depth


class _Multiplication:
    """wgmma.mma_async.sync.aligned.m64nNkK.out.a.b d, a or its descriptor, b's descriptor, scale-d{, scale-a, scale-b{,
    trans-a, trans-b}}.
    """

    def __init__(self, ins: Instruction) -> None:
        self.ins = ins
        self.shape, self.n, self.depth = _extents(ins)
        self.out, self.kind_a, self.kind_b = [m for m in ins.mods if m in ("f32", "f16", "s32", *SIZES)][:3]
        if self.kind_a not in SIZES or self.kind_b not in SIZES or "sp" in ins.mods:
            raise Unknown(ins.text)
        d, a, b_operand, scale_d, *rest = ins.operands
        assert isinstance(d, Vec)
        self.from_registers = isinstance(a, Vec)
        self.negative, transposes = _signs_and_transposes(rest)
        self.turn_a, self.turn_b = (False, transposes[0]) if self.from_registers else (transposes[0], transposes[1])
        self.gets_d, self.puts_d = [getter(item, "b32") for item in d.items], [setter(item, 4) for item in d.items]
        self.gets_a = [getter(item, "b32") for item in a.items] if isinstance(a, Vec) else [getter(a, "u64")]
        self.get_b = getter(b_operand, "u64")
        self.keep = getter(scale_d, "pred") if not isinstance(scale_d, Imm) else None
        self.always = isinstance(scale_d, Imm) and bool(scale_d.value)
        self.row_d, self.col_d = _accumulator_map(self.n)
        self.row_a, self.col_a = _register_map(self.depth, SIZES[self.kind_a])
        self.sums, self.inputs = value_registers(d), value_registers(a) if self.from_registers else ()

    def run(self, b: Batch, i: Lanes) -> None:
        """Multiply and accumulate for every warpgroup among the lanes."""
        lanes = _warpgroups(b, i, self.ins)
        b.wgmma.issue(b, i, self.ins, self.sums, self.inputs, self.shape)
        tick = b.races.next_tick(self.ins) if b.races is not None else 0
        left = self._read_a(b, i, lanes, tick)
        word = broadcast(b, i, self.get_b(b, i)).view(np.int64)[::GROUP]
        right = _matrix(
            b, self.ins, lanes[::GROUP], word, self.n, self.depth, self.kind_b, self.turn_b, tick, own_rows=False
        )
        product = np.matmul(left, right.transpose(0, 2, 1))[:, self.row_d, self.col_d]
        words = self._round(self._add_accumulator(b, i, lanes, -product if self.negative else product))
        for position, put in enumerate(self.puts_d):
            put(b, i, np.ascontiguousarray(words[:, :, position]).reshape(-1))
        b.count_flops(self.ins, 2 * ROWS * self.n * self.depth * len(left))

    def _read_a(self, b: Batch, i: Lanes, lanes: Array, tick: int) -> Array:
        """(warpgroups, 64, depth) of A, from shared memory or registers."""
        if not self.from_registers:
            word = broadcast(b, i, self.gets_a[0](b, i)).view(np.int64)[::GROUP]
            return _matrix(
                b, self.ins, lanes[::GROUP], word, ROWS, self.depth, self.kind_a, self.turn_a, tick, own_rows=True
            )
        raw = _stack_registers(b, i, self.gets_a).view(f"u{SIZES[self.kind_a]}")
        full = np.empty((len(raw), ROWS, self.depth), dtype=np.float64 if self.out == "s32" else np.float32)
        full[:, self.row_a, self.col_a] = _decode(raw, self.kind_a)
        return full

    def _add_accumulator(self, b: Batch, i: Lanes, lanes: Array, product: Array) -> Array:
        """The products plus the accumulators, where scale-d is true; (warpgroups, threads, registers)."""
        keep = np.asarray(self.keep(b, i)).astype(bool) if self.keep else np.bool_(self.always)
        kept = np.broadcast_to(keep, lanes.shape).reshape(-1, GROUP)
        if not kept.any():
            return product
        raw = _stack_registers(b, i, self.gets_d)
        if self.out == "f32":
            old = raw.view(np.float32)
        else:
            old = (
                raw.view(np.float16).astype(np.float32) if self.out == "f16" else raw.view(np.int32).astype(np.float64)
            )
        total: Array = product + np.where(kept[..., None], old, 0)
        return total

    def _round(self, product: Array) -> Array:
        """The sums as 32-bit words of the accumulator's registers."""
        if self.out == "s32":
            if "satfinite" in self.ins.mods:
                product = np.clip(product, -(2**31), 2**31 - 1)
            return np.ascontiguousarray(product.astype(np.int64).astype(np.int32)).view(np.uint32)
        kind = np.float16 if self.out == "f16" else np.float32
        return np.ascontiguousarray(product.astype(kind)).view(np.uint32)


def _signs_and_transposes(operands: list[Operand]) -> tuple[bool, list[bool]]:
    """(whether the product is negated, which operands are transposed) from the immediates scale-a, scale-b, trans-a,
    trans-b.
    """
    flags = [item.value for item in operands if isinstance(item, Imm)]
    return len(flags) >= 2 and flags[0] * flags[1] < 0, [bool(flag) for flag in flags[2:]] + [False, False]


def _stack_registers(b: Batch, i: Lanes, gets: list[Get]) -> Array:
    """(warpgroups, threads, registers) of some registers' bits."""
    return np.ascontiguousarray(np.stack([broadcast(b, i, get(b, i)).reshape(-1, GROUP) for get in gets], axis=-1))
