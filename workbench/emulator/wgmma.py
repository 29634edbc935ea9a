"""wgmma.mma_async of Hopper: A from shared memory or registers, B from shared memory, f16, bf16, tf32, e4m3, e5m2, s8, u8.

Accumulation: products and their sum over one instruction's k, then the accumulator, in float32 by BLAS order (integers exactly), not in the
tensor core's own undocumented order. A multiplication is computed when it is issued, but its registers are in flight until the wait that covers it (waits.py),
and the shared memory that it reads is being read until then (races.py).

Layouts: PTX ISA, asynchronous warpgroup-level matrix shared-memory layout; the canonical layouts are those of CUTLASS's mma_sm90_desc.hpp, in
units of 16 bytes (T elements): K-major ((8,m),(T,2k)):((swizzle span, SBO),(1,T or LBO)); MN-major ((T,span,m),(8,k)):((1,T,LBO),(span,SBO)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from workbench.emulator import fp8
from workbench.emulator.access import spread
from workbench.emulator.deferred import WRITTEN, unreadable
from workbench.emulator.operands import Fn, Unknown, getter, setter
from workbench.emulator.ptx import Imm, Instruction, Vec
from workbench.emulator.state import WARP, Batch, Lanes
from workbench.emulator.tma import SWIZZLE_BITS
from workbench.emulator.waits import registers

GROUP = 4 * WARP  # threads of a warpgroup
ROWS = 64
CHUNK = 16
SIZES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
SPAN = {0: 16, 3: 32, 2: 64, 1: 128}  # swizzle mode of a matrix descriptor -> bytes
TMA_MODE = {0: 0, 3: 1, 2: 2, 1: 3}  # the same as TMA numbers it


@dataclass(frozen=True, slots=True)
class Tile:
    """How a matrix lies in shared memory, from its descriptor: byte offsets between cores, swizzle mode."""

    leading: int
    stride: int
    mode: int


@lru_cache(maxsize=512)
def offsets(tile: Tile, extent: int, depth: int, size: int, turned: bool) -> Any:
    """Byte offset of each element (extent, depth) before the swizzle; `turned`: the extent, not the depth, is contiguous."""
    span, unit = SPAN[tile.mode], CHUNK // size
    rows, k = np.arange(extent)[:, None], np.arange(depth)[None, :]
    if not turned:
        step = tile.leading if tile.mode == 0 else CHUNK
        return (rows % 8) * span + (rows // 8) * tile.stride + (k // unit) * step + (k % unit) * size
    per = span // size
    if tile.mode == 0:
        return (rows % unit) * size + (rows // unit) * tile.stride + (k % 8) * CHUNK + (k // 8) * tile.leading
    return (rows % per) * size + (rows // per) * tile.leading + (k % 8) * span + (k // 8) * tile.stride


def _decode(raw: Any, kind: str) -> Any:
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


def _matrix(b: Batch, ins: Instruction, lanes: Any, word: Any, extent: int, depth: int, kind: str, turned: bool, tick: int, *, own_rows: bool) -> Any:
    """(warpgroups, extent, depth) of the matrices that descriptors name, one for each warpgroup (`lanes`: its first thread); `tick`, `own_rows`: for the races."""
    size = SIZES[kind]
    out = np.empty((len(word), extent, depth), dtype=np.float64 if kind in ("s8", "u8") else np.float32)
    cta = b.cta[lanes]
    layout = word & np.int64(~0x3FFF)
    for one in np.unique(layout):
        pick = np.nonzero(layout == one)[0]
        tile = Tile(int(one >> 16 & 0x3FFF) << 4, int(one >> 32 & 0x3FFF) << 4, int(one >> 62 & 3))
        where = ((word[pick] & 0x3FFF) << 4)[:, None, None] + offsets(tile, extent, depth, size, turned)
        where = where ^ (where >> 3 & SWIZZLE_BITS[TMA_MODE[tile.mode]])
        if (where + size > b.shared_limit).any():
            bad = int(np.argmax((where + size > b.shared_limit).any(axis=(1, 2))))
            raise b.fault("shared_out_of_bounds", f"wgmma reads shared memory at offset {int(where[bad].max())}, but the CTA has {b.shared_limit} bytes", ins.line, int(lanes[pick[bad]]), int(where[bad].max()))
        index = (cta[pick][:, None, None] * b.shared_bytes + where) // size
        marks = b.shared_written[index * size]
        if (marks != WRITTEN).any():
            lane = int(lanes[pick][int(np.argmax((marks != WRITTEN).any(axis=(1, 2))))])
            fault = unreadable(b, ins, lane, marks, index * size, "wgmma")
            if fault is not None:
                raise fault
        out[pick] = _decode(b.shared.view(f"u{size}")[index], kind)
        if b.races is not None:
            step = CHUNK // size  # one place in each 16 bytes stands for them
            b.races.matrix(b, lanes[pick], (index[:, ::step] if turned else index[:, :, ::step]) * size, ins, tick, own_rows=own_rows)
    return out


def _groups(b: Batch, i: Lanes, ins: Instruction) -> Any:
    lanes = b.all_lanes(i)
    if len(lanes) % GROUP or (lanes.reshape(-1, GROUP) - lanes.reshape(-1, GROUP)[:, :1] != np.arange(GROUP)).any() or (b.thread[lanes[::GROUP]] % GROUP).any():
        raise b.fault("divergent_warpgroup", "wgmma needs all 128 threads of the warpgroup", ins.line, int(lanes[0]), hint="no wgmma inside a branch that only some threads of a warpgroup take")
    return lanes


def _accumulator_map(n: int) -> tuple[Any, Any]:
    """(row, column) of element e of thread t (PTX ISA, wgmma .m64nNk16 accumulator): arrays (128, n / 2)."""
    thread, e = np.arange(GROUP)[:, None], np.arange(n // 2)[None, :]
    return thread // WARP * 16 + thread % WARP // 4 + e // 2 % 2 * 8, e // 4 * 8 + thread % 4 * 2 + e % 2


def _register_map(depth: int, size: int) -> tuple[Any, Any]:
    """(row, column) of element e of thread t of A in registers: arrays (128, depth / 2)."""
    per = 4 // size
    thread, e = np.arange(GROUP)[:, None], np.arange(ROWS * depth // GROUP)[None, :]
    register = e // per
    return thread // WARP * 16 + thread % WARP // 4 + register % 2 * 8, thread % 4 * per + e % per + register // 2 * 4 * per


def multiply(ins: Instruction) -> Fn:
    """wgmma.mma_async.sync.aligned.m64nNkK.out.a.b d, a or its descriptor, b's descriptor, scale-d{, scale-a, scale-b{, turn-a, turn-b}}."""
    if ins.mods[0] == "fence":
        return lambda b, i: b.products.fence(b, i)
    if ins.mods[0] == "commit_group":
        return lambda b, i: b.products.commit(b, i)
    if ins.mods[0] == "wait_group":
        newest = int(ins.operands[0].value)  # type: ignore[attr-defined]
        return lambda b, i: b.products.wait(b, i, newest)
    shape = next(m for m in ins.mods if m.startswith("m64n"))
    n, depth = (int(part) for part in shape[4:].split("k"))
    out, kind_a, kind_b = [m for m in ins.mods if m in ("f32", "f16", "s32", *SIZES)][:3]
    if kind_a not in SIZES or kind_b not in SIZES or "sp" in ins.mods:
        raise Unknown(ins.text)
    d, a, b_operand, scale_d, *rest = ins.operands
    assert isinstance(d, Vec)
    from_registers = isinstance(a, Vec)
    flags = [int(item.value) for item in rest if isinstance(item, Imm)]
    signs = (flags[0], flags[1]) if len(flags) >= 2 else (1, 1)
    turns = flags[2:]
    turn_a, turn_b = (False, bool(turns[0]) if turns else False) if from_registers else (bool(turns[0]) if turns else False, bool(turns[1]) if len(turns) > 1 else False)
    gets_d, puts_d = [getter(item, "b32") for item in d.items], [setter(item, 4) for item in d.items]
    gets_a = [getter(item, "b32") for item in a.items] if isinstance(a, Vec) else [getter(a, "u64")]
    get_b = getter(b_operand, "u64")
    keep = getter(scale_d, "pred") if not isinstance(scale_d, Imm) else None
    always = isinstance(scale_d, Imm) and bool(scale_d.value)
    row_d, col_d = _accumulator_map(n)
    row_a, col_a = _register_map(depth, SIZES[kind_a])
    kind_of_sum = np.float64 if out == "s32" else np.float32
    sums, inputs = registers(d), registers(a) if from_registers else []

    def read_a(b: Batch, i: Lanes, lanes: Any, tick: int) -> Any:
        if not from_registers:
            word = spread(b, i, gets_a[0](b, i)).view(np.int64)[::GROUP]
            return _matrix(b, ins, lanes[::GROUP], word, ROWS, depth, kind_a, turn_a, tick, own_rows=True)
        raw = np.ascontiguousarray(np.stack([spread(b, i, get(b, i)).reshape(-1, GROUP) for get in gets_a], axis=-1)).view(f"u{SIZES[kind_a]}")
        full = np.empty((len(raw), ROWS, depth), dtype=kind_of_sum)
        full[:, row_a, col_a] = _decode(raw, kind_a)
        return full

    def run(b: Batch, i: Lanes) -> None:
        lanes = _groups(b, i, ins)
        b.products.issue(b, i, ins, sums, inputs, shape)
        tick = b.races.ticks.next(ins) if b.races is not None else 0
        left = read_a(b, i, lanes, tick)
        right = _matrix(b, ins, lanes[::GROUP], spread(b, i, get_b(b, i)).view(np.int64)[::GROUP], n, depth, kind_b, turn_b, tick, own_rows=False)
        product = np.matmul(left, right.transpose(0, 2, 1))[:, row_d, col_d]
        if signs[0] * signs[1] < 0:
            product = -product
        kept = np.broadcast_to(np.asarray(keep(b, i)).astype(bool) if keep else np.bool_(always), lanes.shape).reshape(-1, GROUP)
        if kept.any():
            raw = np.ascontiguousarray(np.stack([spread(b, i, get(b, i)).reshape(-1, GROUP) for get in gets_d], axis=-1))
            old = raw.view(np.float32) if out == "f32" else raw.view(np.float16).astype(np.float32) if out == "f16" else raw.view(np.int32).astype(np.float64)
            product = product + np.where(kept[..., None], old, 0)
        if out == "s32":
            product = (np.clip(product, -(2**31), 2**31 - 1) if "satfinite" in ins.mods else product.astype(np.int64)).astype(np.int64).astype(np.int32)
        elif out == "f16":
            product = product.astype(np.float16)
        words = np.ascontiguousarray(product.astype({"s32": np.int32, "f16": np.float16, "f32": np.float32}[out])).view(np.uint32)
        for position, put in enumerate(puts_d):
            put(b, i, np.ascontiguousarray(words[:, :, position]).reshape(-1))
        b.count_flops(ins, 2 * ROWS * n * depth * len(left))

    return run

