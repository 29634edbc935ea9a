"""Logic, shifts, and instructions that select or count bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.emulator.arrays import Lanes, Value
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.operands import UNSIGNED, Fn, Unsigned, bits, getter, predicate, setter, size_of
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import immediate_value


def logic(ins: Instruction) -> Fn:
    """and, or, xor, not, shl, shr, lop3, shf, prmt, bfe, bfi, popc, clz, brev, selp, slct."""
    kind, op = ins.mods[-1], ins.opcode
    if kind == "pred":
        put = setter(ins.operands[0], 0)
        gets = [predicate(operand) for operand in ins.operands[1:]]
        function = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not}[op]
        return lambda b, i: put(b, i, function(*[get(b, i) for get in gets]))
    size = size_of(kind)
    width = 8 * size
    if op in ("shl", "shr"):
        return _shift(ins, kind, size, width)
    result = 4 if op in ("popc", "clz", "bfind") else size
    put = setter(ins.operands[0], result)
    gets = [getter(operand, kind) for operand in ins.operands[1:]]
    if op == "lop3":
        table_number = immediate_value(ins.operands[4])
        gets = gets[:3]
        first, second, third = gets
        return lambda b, i: put(b, i, _lop3(first(b, i), second(b, i), third(b, i), table_number))
    table: dict[str, Callable[..., Value]] = {
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "not": lambda a: ~a,
        "popc": lambda a: np.bitwise_count(a).astype(np.uint32),
        "clz": lambda a: _clz(a, width),
        "brev": lambda a: _brev(a, width),
        "prmt": _prmt,
        "cnot": lambda a: (a == 0).astype(a.dtype),
        "bfe": lambda a, p, n: _bfe(a, p, n, width),
        "bfi": _bfi,
        "bfind": lambda a: _bfind(a, width, "shiftamt" in ins.mods),
    }
    function2 = table[op]
    if op == "bfe":
        gets = [gets[0], getter(ins.operands[2], "u32"), getter(ins.operands[3], "u32")]
    if op == "bfi":
        gets = [gets[0], gets[1], getter(ins.operands[3], "u32"), getter(ins.operands[4], "u32")]
    return lambda b, i: put(b, i, function2(*[get(b, i) for get in gets]))


def _lop3(a: Value, b: Value, c: Value, table: int) -> Value:
    result = (a & 0) | (b & 0) | (c & 0)
    for n in range(8):
        if table >> n & 1:
            result = result | ((a if n & 4 else ~a) & (b if n & 2 else ~b) & (c if n & 1 else ~c))
    return result


def _shift(ins: Instruction, kind: str, size: int, width: int) -> Fn:
    put, a, n = setter(ins.operands[0], size), getter(ins.operands[1], kind), getter(ins.operands[2], "u32")
    left = ins.opcode == "shl"

    def run(b: Batch, i: Lanes) -> None:
        value, amount = a(b, i), n(b, i)
        over = amount >= width
        count = np.minimum(amount, np.uint32(width - 1)).astype(value.dtype)
        shifted = value << count if left else value >> count
        if kind[0] != "s" or left:
            shifted = np.where(over, value.dtype.type(0), shifted) if np.any(over) else shifted
        put(b, i, shifted)

    return run


def _bfind(a: Value, width: int, shift: bool) -> Value:
    """The position of the highest bit that differs from the sign, or the shift that moves it to the top; all ones if
    there is none.
    """
    if a.dtype.kind == "i":
        a = bits(a ^ (a >> a.dtype.type(width - 1)), width // 8)
    zeros = _clz(a, width)
    return np.where(zeros == width, np.uint32(0xFFFFFFFF), zeros if shift else np.uint32(width - 1) - zeros).astype(
        np.uint32
    )


def _clz(a: Value, width: int) -> Value:
    value = bits(a, width // 8).astype(np.uint64)
    for shift in (1, 2, 4, 8, 16, 32):
        value = value | (value >> np.uint64(shift))
    return (np.uint64(width) - np.bitwise_count(value)).astype(np.uint32)


def _brev(a: Value, width: int) -> Value:
    result = a & 0
    for n in range(width):
        result = result | (((a >> a.dtype.type(n)) & a.dtype.type(1)) << a.dtype.type(width - 1 - n))
    return result


def _prmt(a: Value, b: Value, selector: Value) -> Value:
    both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    result: Value = np.uint32(0)
    for n in range(4):
        nibble = (selector >> np.uint32(4 * n)) & np.uint32(15)
        byte = ((both >> ((nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8))) & np.uint64(255)).astype(np.uint32)
        sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
        result = result | (np.where(nibble & np.uint32(8), sign, byte) << np.uint32(8 * n))
    return result


def _low_bits(count: Value, dtype: np.dtype[Unsigned]) -> Value:
    """A mask with `count` low bits set; all bits if `count` is the width or more."""
    width = 8 * dtype.itemsize
    some = (dtype.type(1) << np.minimum(count, np.uint32(width - 1)).astype(dtype)) - dtype.type(1)
    return np.where(count >= width, ~dtype.type(0), some)


def _bfe(a: Value, position: Value, length: Value, width: int) -> Value:
    """The field, extended with its sign; positions and lengths of any size (PTX ISA, bfe: the pseudo-code)."""
    raw = np.asarray(a).view(UNSIGNED[width // 8])
    kind, top = raw.dtype, np.uint32(width - 1)
    position, length = position & np.uint32(255), length & np.uint32(255)
    moved = np.where(position > top, kind.type(0), raw >> np.minimum(position, top).astype(kind))
    mask = _low_bits(np.minimum(length, np.where(position > top, np.uint32(0), np.uint32(width) - position)), kind)
    sign = (raw >> np.minimum(position + length - np.uint32(1), top).astype(kind)) & kind.type(1)
    negative = (sign == 1) & (length > 0) & (np.asarray(a).dtype.kind == "i")
    return np.where(negative, moved & mask | ~mask, moved & mask).view(a.dtype)


def _bfi(a: Value, b: Value, position: Value, length: Value) -> Value:
    """Inserts `a` into `b` as far as it fits (PTX ISA, bfi: the pseudo-code)."""
    kind, top = a.dtype, np.uint32(8 * a.dtype.itemsize - 1)
    position, length = position & np.uint32(255), length & np.uint32(255)
    by = np.minimum(position, top).astype(kind)
    mask = np.where(position > top, kind.type(0), _low_bits(length, kind) << by)
    return (b & ~mask) | ((a << by) & mask)


def funnel(ins: Instruction) -> Fn:
    """shf.{l,r}.{clamp,wrap}.b32 d, low, high, amount."""
    put = setter(ins.operands[0], 4)
    low, high, amount = (getter(operand, "u32") for operand in ins.operands[1:])
    left, wrap = "l" in ins.mods, "wrap" in ins.mods

    def run(b: Batch, i: Lanes) -> None:
        both = low(b, i).astype(np.uint64) | (high(b, i).astype(np.uint64) << np.uint64(32))
        n = amount(b, i).astype(np.uint64)
        n = n & np.uint64(31) if wrap else np.minimum(n, np.uint64(32))
        shifted = (both << n) >> np.uint64(32) if left else both >> n
        put(b, i, (shifted & np.uint64(0xFFFFFFFF)).astype(np.uint32))

    return run
