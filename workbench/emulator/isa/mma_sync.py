"""Matrix instructions of Ampere: ldmatrix, stmatrix, and mma.sync for f16, bf16, tf32, and for the 8-bit floats of
sm_89 and later.

Accumulation: products are exact in float32 (f16, bf16, e4m3, e5m2) or float64 (tf32). The sum over k and the
accumulator is formed in float32 in BLAS order, not in the tensor core's own (undocumented) order, so the last bits of a
float32 accumulator may differ from hardware's.
"""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array, Lanes, Value
from workbench.emulator.execution.batch import WARP, Batch
from workbench.emulator.execution.operands import Fn, Unknown, getter, setter
from workbench.emulator.isa import fp8
from workbench.emulator.isa.access import address, broadcast, read_shared, write_shared
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Mem, Reg, Vec

LANE = np.arange(WARP)
GROUP, IN_GROUP = LANE >> 2, LANE & 3


def _warps(b: Batch, i: Lanes, ins: Instruction) -> Array:
    lanes = b.all_lanes(i)
    if len(lanes) % WARP or (lanes.reshape(-1, WARP) % WARP != LANE).any():
        raise b.fault("divergent_warp", f"{ins.opcode} needs all 32 threads of the warp", ins.line, int(lanes[0]))
    return lanes


def _matrices(ins: Instruction) -> int:
    """The number of 8x8 matrices of ldmatrix and stmatrix."""
    return next(int(m[1:]) for m in ins.mods if m in ("x1", "x2", "x4"))


def count_rows(ins: Instruction) -> Fn:
    """ldmatrix or stmatrix that is only counted."""
    count = _matrices(ins)
    operand = ins.operands[0 if ins.form.role == "matrix_store" else 1]
    assert isinstance(operand, Mem)
    where = address(operand, "shared")

    def run(b: Batch, i: Lanes) -> None:
        lanes = _warps(b, i, ins)
        at = broadcast(b, i, where(b, i)).reshape(-1, WARP)[:, : 8 * count]
        b.count_matrix_rows(ins, lanes.reshape(-1, WARP)[:, : 8 * count], at)

    return run


def load_matrix(ins: Instruction) -> Fn:
    """ldmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans}.shared.b16: rows of 16 bytes from addresses in lanes 0-7,
    8-15, ...
    """
    count = _matrices(ins)
    trans = "trans" in ins.mods
    target = ins.operands[0]
    puts = [setter(item, 4) for item in (target.items if isinstance(target, Vec) else (target,))]
    assert isinstance(ins.operands[1], Mem)
    where = address(ins.operands[1], "shared")

    def run(b: Batch, i: Lanes) -> None:
        lanes = _warps(b, i, ins)
        at = broadcast(b, i, where(b, i)).reshape(-1, WARP)[:, : 8 * count]
        used = lanes.reshape(-1, WARP)[:, : 8 * count]
        b.count_matrix_rows(ins, used, at)
        rows = read_shared(b, used.reshape(-1), at.reshape(-1), 4, 4, ins)
        tiles = np.ascontiguousarray(rows).view(np.uint16).reshape(-1, count, 8, 8)
        for n, put in enumerate(puts):
            tile = tiles[:, n].transpose(0, 2, 1) if trans else tiles[:, n]
            pairs = np.ascontiguousarray(tile).view(np.uint32).reshape(len(tile), WARP)
            put(b, i, pairs.reshape(-1))

    return run


def store_matrix(ins: Instruction) -> Fn:
    """stmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans}.shared.b16."""
    count = _matrices(ins)
    trans = "trans" in ins.mods
    source = ins.operands[1]
    gets = [getter(item, "b32") for item in (source.items if isinstance(source, Vec) else (source,))]
    assert isinstance(ins.operands[0], Mem)
    where = address(ins.operands[0], "shared")

    def run(b: Batch, i: Lanes) -> None:
        lanes = _warps(b, i, ins)
        at = broadcast(b, i, where(b, i)).reshape(-1, WARP)[:, : 8 * count]
        used = lanes.reshape(-1, WARP)[:, : 8 * count]
        values = [
            np.ascontiguousarray(broadcast(b, i, get(b, i)).reshape(-1, WARP)).view(np.uint16).reshape(-1, 8, 8)
            for get in gets
        ]
        tiles = np.stack([value.transpose(0, 2, 1) if trans else value for value in values], axis=1)
        rows = np.ascontiguousarray(tiles).view(np.uint32).reshape(-1, 4)
        b.count_matrix_rows(ins, used, at)
        write_shared(b, used.reshape(-1), at.reshape(-1), [rows[:, n] for n in range(4)], 4, ins)

    return run


def _decode(registers: list[Array], kind: str) -> Array:
    """(warps, 32, elements) float32 from the fragment's 32-bit registers."""
    raw = np.stack([register.reshape(-1, WARP) for register in registers], axis=-1)
    raw = np.ascontiguousarray(raw)
    if kind == "f16":
        return raw.view(np.float16).astype(np.float32)
    if kind == "bf16":
        return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind in fp8.DECODE:
        return fp8.DECODE[kind][raw.view(np.uint8)]
    return (raw & np.uint32(0xFFFFE000)).view(np.float32)


def _fragment_maps(m: int, n: int, k: int, kind: str) -> tuple[Array, ...]:
    """Row and column of element e of lane l, for A (m x k), B (k x n) and C (m x n) (PTX ISA, matrix fragments for
    mma).
    """
    per = 1 if kind == "tf32" else 4 if kind in fp8.DECODE else 2  # elements in a 32-bit register
    elements_a, elements_b = m * k // WARP, n * k // WARP
    e = np.arange(elements_a)
    register = e // per
    row_a = GROUP[:, None] + 8 * (register % 2)[None, :] if m == 16 else GROUP[:, None] + 0 * e[None, :]
    col_a = IN_GROUP[:, None] * per + (e % per)[None, :] + 4 * per * (register // 2)[None, :]
    f = np.arange(elements_b)
    row_b = IN_GROUP[:, None] * per + (f % per)[None, :] + 4 * per * (f // per)[None, :]
    col_b = GROUP[:, None] + 0 * f[None, :]
    g = np.arange(4)
    row_c = GROUP[:, None] + 8 * (g // 2)[None, :]
    col_c = IN_GROUP[:, None] * 2 + (g % 2)[None, :]
    return row_a, col_a, row_b, col_b, row_c, col_c


def _addend(raw: list[Value], kind: str) -> Array:
    """(warps, lanes, elements) of the accumulator's registers."""
    if kind == "f32":
        return np.stack([value.view(np.float32).reshape(-1, WARP) for value in raw], axis=-1)
    return _decode(raw, "f16")


def _operand_types(ins: Instruction, m: int, n: int) -> tuple[str, str, str]:
    """PTX types of d, a and b; raises `Unknown` for an unknown form."""
    kinds = [mod for mod in ins.mods if mod in ("f16", "bf16", "tf32", "f32", *fp8.DECODE)]
    out, kind, kind_b = kinds[0], kinds[1], kinds[2]
    if m != 16 or n != 8 or kind == "f32" or len(kinds) != 4:
        raise Unknown(ins.text)
    return out, kind, kind_b


def _extents(ins: Instruction) -> tuple[int, int, int]:
    """(m, n, k) of mma.sync."""
    shape = next(m for m in ins.mods if m[0] == "m" and m[1].isdigit())
    m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
    return m, n, k


def count_product(ins: Instruction) -> Fn:
    """mma.sync of which only the FLOPs are counted."""
    m, n, k = _extents(ins)
    return lambda b, i: b.count_flops(ins, 2 * m * n * k * ((b.lanes if i is None else len(i)) // WARP))


def multiply(ins: Instruction) -> Fn:
    """mma.sync.aligned.m16n8k{4,8,16,32}.row.col.{f32,f16}.{f16,bf16,tf32,e4m3,e5m2}.{b's type}.{f32,f16} d, a,
    b, c.
    """
    m, n, k = _extents(ins)
    out, kind, kind_b = _operand_types(ins, m, n)
    d, a, b_operand, c = (operand.items if isinstance(operand, Vec) else (operand,) for operand in ins.operands[:4])
    gets_a, gets_b, gets_c = ([getter(item, "b32") for item in items] for items in (a, b_operand, c))
    puts = [setter(item, 4) for item in d]
    row_a, col_a, row_b, col_b, row_c, col_c = _fragment_maps(m, n, k, kind)

    def run(b: Batch, i: Lanes) -> None:
        lanes = _warps(b, i, ins)
        count = len(lanes) // WARP
        full_a, full_b = np.empty((count, m, k), dtype=np.float32), np.empty((count, k, n), dtype=np.float32)
        full_a[:, row_a, col_a] = _decode([broadcast(b, i, get(b, i)) for get in gets_a], kind)
        full_b[:, row_b, col_b] = _decode([broadcast(b, i, get(b, i)) for get in gets_b], kind_b)
        raw_c = [broadcast(b, i, get(b, i)) for get in gets_c]
        # a variable: numpy would swap the operands of a sum of two temporaries, and with them which NaN comes out
        addend = _addend(raw_c, out)
        product = np.matmul(full_a, full_b)[:, row_c, col_c] + addend
        words = np.ascontiguousarray(product if out == "f32" else product.astype(np.float16)).view(np.uint32)
        for position, put in enumerate(puts):
            put(b, i, np.ascontiguousarray(words[:, :, position]).reshape(-1))
        b.count_flops(ins, 2 * m * n * k * count)

    return run


__all__ = ["Reg", "count_product", "count_rows", "load_matrix", "multiply", "store_matrix"]
