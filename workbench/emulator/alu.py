"""Arithmetic, logic, comparison, conversion: each builder turns one parsed instruction into fn(batch, idx) -> None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.emulator import rounding
from workbench.emulator.ptx import FloatBits, Imm, Instruction, Name, Reg, Vec
from workbench.emulator.state import Batch, Lanes, Value

Fn = Callable[[Batch, Lanes], None]
Get = Callable[[Batch, Lanes], Value]
UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
TYPES: dict[str, Any] = {
    "b8": np.uint8, "u8": np.uint8, "s8": np.int8, "b16": np.uint16, "u16": np.uint16, "s16": np.int16, "f16": np.float16,
    "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "f32": np.float32, "b64": np.uint64, "u64": np.uint64, "s64": np.int64, "f64": np.float64,
}  # fmt: skip


class Unknown(Exception):
    """An instruction, or a form of one, that the machine does not know."""


def bits(value: Value, size: int) -> Value:
    """Any value as unsigned bits of `size` bytes."""
    kind = UNSIGNED[size]
    if value.dtype == kind:
        return value
    if value.dtype.itemsize == size and value.dtype != np.bool_:
        return value.view(kind)
    return value.astype(kind)


def getter(operand: object, kind: str) -> Get:
    """A function that reads an operand as the numpy type of PTX type `kind`."""
    if kind == "pred":
        return _predicate(operand)
    if kind == "bf16":
        raw = getter(operand, "b16")
        return lambda b, i: (raw(b, i).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind in ("f16x2", "bf16x2"):
        kind = "b32"
    dtype = np.dtype(TYPES[kind])
    size = dtype.itemsize
    if isinstance(operand, Imm):
        constant = UNSIGNED[size](int(operand.value) & ((1 << 8 * size) - 1)).view(dtype)
        return lambda b, i: constant
    if isinstance(operand, FloatBits):
        raw_bits = UNSIGNED[operand.size](operand.bits)
        constant = raw_bits.view(dtype) if operand.size == size else (raw_bits.view(np.float32) if operand.size == 4 else raw_bits.view(np.float64)).astype(dtype)
        return lambda b, i: constant
    if isinstance(operand, Reg):
        name = operand.name
        unsigned = UNSIGNED[size]

        def read(b: Batch, i: Lanes) -> Value:
            value = b.read(name, i)
            if value.dtype.itemsize != size:
                value = value.astype(unsigned)
            return value.view(dtype)

        return read
    if isinstance(operand, Name) and operand.name.startswith("%"):
        special = operand.name

        def read_special(b: Batch, i: Lanes) -> Value:
            value = b.special.get(special)
            if value is None:
                raise b.fault("unknown_instruction", f"the emulator does not know the special register {special}", None, stage="launch")
            value = value if i is None or not isinstance(value, np.ndarray) else value[i]
            return bits(value, size).view(dtype)

        return read_special
    if isinstance(operand, Name):
        return _symbol(operand.name, dtype)
    raise Unknown(f"operand {operand}")


def _symbol(name: str, dtype: Any) -> Get:
    def read(b: Batch, i: Lanes) -> Value:
        if name in b.symbols:
            return dtype.type(b.symbols[name])
        return dtype.type(b.kernel.shared.get(name, b.kernel.local.get(name, b.kernel.shared_bytes if name not in b.kernel.shared else 0)))

    return read


def _predicate(operand: object) -> Get:
    if isinstance(operand, tuple) and operand[0] == "not":
        inner = _predicate(operand[1])
        return lambda b, i: np.logical_not(inner(b, i))
    if isinstance(operand, Imm):
        constant = np.bool_(operand.value)
        return lambda b, i: constant
    if isinstance(operand, Name):
        return lambda b, i: np.bool_(b.special[operand.name])
    assert isinstance(operand, Reg)
    name = operand.name

    def read(b: Batch, i: Lanes) -> Value:
        value = b.read(name, i)
        return value if value.dtype == np.bool_ else value.astype(np.bool_)

    return read


def setter(operand: object, size: int) -> Callable[[Batch, Lanes, Value], None]:
    """A function that writes a value's bits to a register; `_` discards."""
    if isinstance(operand, Name) and operand.name == "_":
        return lambda b, i, v: None
    assert isinstance(operand, Reg), operand
    name = operand.name
    if size == 0:
        return lambda b, i, v: b.write(name, i, v)
    return lambda b, i, v: b.write(name, i, bits(v, size))


def size_of(kind: str) -> int:
    """Bytes of a PTX type; packed pairs count both."""
    return {"bf16": 2, "f16x2": 4, "bf16x2": 4, "pred": 0, "tf32": 4}.get(kind) or np.dtype(TYPES[kind]).itemsize if kind != "pred" else 0


def to_bf16(value: Value) -> Value:
    """float32 -> bfloat16 bits, round to nearest even, NaN kept."""
    raw = value.view(np.uint32)
    rounded = ((raw + np.uint32(0x7FFF) + ((raw >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(value), np.uint16(0x7FFF), rounded)


def fma32(a: Value, b: Value, c: Value) -> Value:
    """float32 fused multiply-add, rounded once: exact product in float64, sum rounded to odd, then to float32."""
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    odd = (error != 0) & np.isfinite(total)
    if np.any(odd):
        raw = np.atleast_1d(np.asarray(total)).view(np.int64)
        step = np.where((np.asarray(error) > 0) == (np.asarray(total) > 0), 1, -1)
        fixed = np.where(np.asarray(odd) & ((raw & 1) == 0), raw + step, raw).view(np.float64)
        total = fixed if getattr(total, "ndim", 0) else fixed[0]
    return total.astype(np.float32)


def flush(value: Value) -> Value:
    """Subnormal float32 -> zero of the same sign (.ftz)."""
    tiny = np.abs(value) < np.float32(1.1754944e-38)
    return np.where(tiny, np.copysign(np.float32(0), value), value) if np.any(tiny) else value


def _halves(value: Value, kind: str) -> tuple[Value, Value]:
    low, high = (value & np.uint32(0xFFFF)).astype(np.uint16), (value >> np.uint32(16)).astype(np.uint16)
    if kind == "f16x2":
        return low.view(np.float16), high.view(np.float16)
    widened = [(part.astype(np.uint32) << np.uint32(16)).view(np.float32) for part in (low, high)]
    return widened[0], widened[1]


def _join(low: Value, high: Value, kind: str) -> Value:
    if kind == "f16x2":
        low, high = low.astype(np.float16).view(np.uint16), high.astype(np.float16).view(np.uint16)
    else:
        low, high = to_bf16(low.astype(np.float32)), to_bf16(high.astype(np.float32))
    return low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))


def _float_op(opcode: str) -> Callable[..., Value]:
    def minimum(a: Value, b: Value) -> Value:
        return np.where(a == b, np.where(np.signbit(a), a, b), np.fmin(a, b))

    def maximum(a: Value, b: Value) -> Value:
        return np.where(a == b, np.where(np.signbit(a), b, a), np.fmax(a, b))

    table: dict[str, Callable[..., Value]] = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
        "min": minimum, "max": maximum, "neg": lambda a: -a, "abs": np.abs, "sqrt": np.sqrt, "copysign": lambda a, b: np.copysign(b, a),
        "rcp": lambda a: a.dtype.type(1) / a,
    }  # fmt: skip
    return table[opcode]


APPROX: dict[str, Callable[[Value], Value]] = {
    "ex2": np.exp2, "lg2": np.log2, "rcp": lambda a: 1 / a, "rsqrt": lambda a: 1 / np.sqrt(a), "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
}  # fmt: skip


def float_arithmetic(ins: Instruction) -> Fn:
    """add, sub, mul, div, fma, min, max, neg, abs, sqrt, rcp, ex2, lg2, rsqrt, sin, cos, tanh on f16, bf16, f32, f64 and pairs."""
    kind = next(m for m in reversed(ins.mods) if m in TYPES or m in ("bf16", "f16x2", "bf16x2"))
    op, ftz, sat, sign = ins.opcode, "ftz" in ins.mods, "sat" in ins.mods, "xorsign" in ins.mods
    op = "fma" if op == "mad" else op
    if "abs" in ins.mods and not sign:
        raise Unknown(ins.text)
    put = setter(ins.operands[0], size_of(kind))
    gets = [getter(operand, kind) for operand in ins.operands[1:]]
    nan = ".NaN" in ins.text
    if kind in ("f16x2", "bf16x2"):
        scalar = _scalar_float(op, "f16" if kind == "f16x2" else "bf16", ftz, ins)

        def pair(b: Batch, i: Lanes) -> None:
            parts = [_halves(get(b, i), kind) for get in gets]
            results = [scalar(*[part[half] for part in parts]) for half in (0, 1)]
            if nan:
                results = [_with_nan(result, [part[half] for part in parts]) for half, result in enumerate(results)]
            if sat:
                results = [np.fmin(np.fmax(result, result.dtype.type(0)), result.dtype.type(1)) for result in results]
            put(b, i, _join(results[0], results[1], kind))

        return pair
    function = _scalar_float(op, kind, ftz, ins)

    def run(b: Batch, i: Lanes) -> None:
        values = [get(b, i) for get in gets]
        result = function(*map(np.abs, values) if sign else values)
        if sign:
            result = np.where(np.signbit(values[0]) ^ np.signbit(values[1]), -result, result)
        if nan:
            result = _with_nan(result, values)
        if sat:
            result = np.fmin(np.fmax(result, result.dtype.type(0)), result.dtype.type(1))
        put(b, i, to_bf16(result) if kind == "bf16" else result)

    return run


def _with_nan(result: Value, values: list[Value]) -> Value:
    """What .NaN makes of a minimum or maximum: NaN if any operand is one."""
    return np.where(np.isnan(values[0]) | np.isnan(values[1]), result.dtype.type(np.nan), result)


def _scalar_float(op: str, kind: str, ftz: bool, ins: Instruction) -> Callable[..., Value]:
    mode = next((mod for mod in ins.mods if mod in ("rz", "rm", "rp")), None)
    if mode is not None:
        rounded = rounding.directed(op, kind, mode)
        if rounded is None:
            raise Unknown(ins.text)
        return (lambda *values: flush(rounded(*map(flush, values)))) if ftz else rounded
    if op == "fma":
        if kind == "f32":
            return (lambda a, b, c: flush(fma32(flush(a), flush(b), flush(c)))) if ftz else fma32
        if kind == "f64":
            return _fma64
        relu = "relu" in ins.mods
        half = np.float16 if kind == "f16" else np.float32
        return lambda a, b, c: (lambda r: np.fmax(r, half(0)) if relu else r)((a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(half))
    if op in APPROX and ("approx" in ins.mods or op not in ("sqrt", "rcp")):
        function = APPROX[op]
        out = np.float16 if kind == "f16" else np.float32 if kind != "f64" else np.float64

        def approximate(a: Value) -> Value:
            value = flush(a) if ftz and kind == "f32" else a
            result = function(value.astype(np.float64)).astype(out)
            return flush(result) if ftz and kind == "f32" else result

        return approximate
    plain = _float_op(op)
    if ftz and kind == "f32":
        return lambda *values: flush(plain(*[flush(value) for value in values]))
    return plain


def _fma64(a: Value, b: Value, c: Value) -> Value:
    """float64 fused multiply-add through longdouble (64-bit significand): a last-bit double rounding remains possible."""
    return (a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)).astype(np.float64)


def int_arithmetic(ins: Instruction) -> Fn:
    """add, sub, mul (lo, hi, wide), mad, div, rem, min, max, neg, abs on integers."""
    kind = ins.mods[-1]
    wide, high = "wide" in ins.mods, "hi" in ins.mods
    size = size_of(kind)
    result_kind = {2: "b32", 4: "b64"}[size] if wide else kind
    result_size = size * 2 if wide else size
    put = setter(ins.operands[0], result_size)
    gets = [getter(operand, result_kind if wide and n == 2 else kind) for n, operand in enumerate(ins.operands[1:])]
    double = {2: np.int32, 4: np.int64}.get(size) if kind[0] == "s" else {2: np.uint32, 4: np.uint64}.get(size)

    def product(a: Value, b: Value) -> Value:
        if wide:
            return bits(a.astype(double) * b.astype(double), result_size)
        if not high:
            return a * b
        if size < 8:
            return ((a.astype(double) * b.astype(double)) >> np.dtype(double).type(8 * size)).astype(a.dtype)
        exact = np.asarray(a).astype(object) * np.asarray(b).astype(object)
        return np.asarray(np.vectorize(lambda v: (int(v) >> 64) & (2**64 - 1), otypes=[np.uint64])(exact)).view(np.uint64)

    def divide(a: Value, b: Value) -> Value:
        safe = np.where(b == 0, b.dtype.type(1), b)
        if kind[0] != "s":
            quotient = a // safe
        else:  # towards zero; in 64 bits, where the magnitude of the smallest 32-bit integer fits
            wide_a, wide_b = np.abs(a.astype(np.int64)), np.abs(safe.astype(np.int64))
            quotient = np.where((a < 0) != (safe < 0), -(wide_a // wide_b), wide_a // wide_b).astype(a.dtype)
        return np.where(b == 0, a.dtype.type(-1) if kind[0] == "s" else ~a.dtype.type(0), quotient)

    def remainder(a: Value, b: Value) -> Value:  # by zero PTX leaves it open; all ones is what an H200 gives
        return np.where(b == 0, a.dtype.type(-1) if kind[0] == "s" else ~a.dtype.type(0), a - divide(a, b) * b)

    table: dict[str, Callable[..., Value]] = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": product, "min": np.minimum, "max": np.maximum,
        "mad": lambda a, b, c: bits(product(a, b), result_size) + bits(c, result_size), "div": divide, "rem": remainder,
        "neg": lambda a: a.dtype.type(0) - a, "abs": np.abs,
    }  # fmt: skip
    function = table[ins.opcode]
    if "sat" in ins.mods and ins.opcode in ("add", "sub"):
        exact = table[ins.opcode]
        function = lambda a, b: np.clip(exact(a.astype(np.int64), b.astype(np.int64)), -(2**31), 2**31 - 1).astype(np.int32)  # noqa: E731
    return lambda b, i: put(b, i, function(*[get(b, i) for get in gets]))


def logic(ins: Instruction) -> Fn:
    """and, or, xor, not, shl, shr, lop3, shf, prmt, bfe, bfi, popc, clz, brev, selp, slct."""
    kind, op = ins.mods[-1], ins.opcode
    if kind == "pred":
        put = setter(ins.operands[0], 0)
        gets = [_predicate(operand) for operand in ins.operands[1:]]
        function = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not}[op]
        return lambda b, i: put(b, i, function(*[get(b, i) for get in gets]))
    size = size_of(kind)
    width = 8 * size
    if op in ("shl", "shr"):
        return _shift(ins, kind, size, width)
    result = 4 if op in ("popc", "clz") else size
    put = setter(ins.operands[0], result)
    gets = [getter(operand, kind) for operand in ins.operands[1:]]
    if op == "lop3":
        table_number = int(ins.operands[4].value)  # type: ignore[attr-defined]
        gets = gets[:3]
        first, second, third = gets
        return lambda b, i: put(b, i, _lop3(first(b, i), second(b, i), third(b, i), table_number))
    table: dict[str, Callable[..., Value]] = {
        "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "not": lambda a: ~a,
        "popc": lambda a: np.bitwise_count(a).astype(np.uint32), "clz": lambda a: _clz(a, width), "brev": lambda a: _brev(a, width),
        "prmt": _prmt, "cnot": lambda a: (a == 0).astype(a.dtype),
        "bfe": lambda a, p, n: _bfe(a, p, n, width), "bfi": _bfi, "bfind": lambda a: (np.uint32(width - 1) - _clz(a, width)),
    }  # fmt: skip
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


def _ones(count: Value, dtype: Any) -> Value:
    """That many low bits set; all of them where `count` is the width or more."""
    width = 8 * dtype.itemsize
    some = (dtype.type(1) << np.minimum(count, np.uint32(width - 1)).astype(dtype)) - dtype.type(1)
    return np.where(count >= width, ~dtype.type(0), some)


def _bfe(a: Value, position: Value, length: Value, width: int) -> Value:
    """The field, filled with its sign; positions and lengths of any size (PTX ISA, bfe: the pseudo-code)."""
    raw = np.asarray(a).view(UNSIGNED[width // 8])
    kind, top = raw.dtype, np.uint32(width - 1)
    position, length = position & np.uint32(255), length & np.uint32(255)
    moved = np.where(position > top, kind.type(0), raw >> np.minimum(position, top).astype(kind))
    mask = _ones(np.minimum(length, np.where(position > top, np.uint32(0), np.uint32(width) - position)), kind)
    sign = (raw >> np.minimum(position + length - np.uint32(1), top).astype(kind)) & kind.type(1)
    negative = (sign == 1) & (length > 0) & (np.asarray(a).dtype.kind == "i")
    return np.where(negative, moved & mask | ~mask, moved & mask).view(a.dtype)


def _bfi(a: Value, b: Value, position: Value, length: Value) -> Value:
    """`a` put into `b` as far as it fits (PTX ISA, bfi: the pseudo-code)."""
    kind, top = a.dtype, np.uint32(8 * a.dtype.itemsize - 1)
    position, length = position & np.uint32(255), length & np.uint32(255)
    by = np.minimum(position, top).astype(kind)
    mask = np.where(position > top, kind.type(0), _ones(length, kind) << by)
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


COMPARE: dict[str, Callable[[Value, Value], Value]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b, "hi": lambda a, b: a > b, "hs": lambda a, b: a >= b,
}  # fmt: skip


def _comparison(name: str, floating: bool) -> Callable[[Value, Value], Value]:
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if name[-1] == "u" and name[:-1] in COMPARE:
        ordered = COMPARE[name[:-1]]
        return lambda a, b: ordered(a, b) | np.isnan(a) | np.isnan(b)
    plain = COMPARE[name]
    if name == "ne" and floating:
        return lambda a, b: plain(a, b) & ~(np.isnan(a) | np.isnan(b))
    return plain


def compare(ins: Instruction) -> Fn:
    """setp.CmpOp{.BoolOp}{.ftz}.type p{|q}, a, b{, c} and set.CmpOp.dtype.stype."""
    kind = ins.mods[-1]
    floating = kind in ("f16", "bf16", "f32", "f64")
    test = _comparison(ins.mods[0], floating)
    combine = next((m for m in ins.mods[1:] if m in ("and", "or", "xor")), None)
    a, c = getter(ins.operands[1], kind), getter(ins.operands[2], kind)
    third = _predicate(ins.operands[3]) if combine else None
    logical = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}.get(combine or "")
    targets = ins.operands[0].items if isinstance(ins.operands[0], Vec) else (ins.operands[0],)
    if ins.opcode == "set":
        out = ins.mods[-2]
        put = setter(ins.operands[0], size_of(out))
        one = np.float32(1) if out == "f32" else np.uint32(0xFFFFFFFF)
        return lambda b, i: put(b, i, np.where(test(a(b, i), c(b, i)), one, one.dtype.type(0)))
    puts = [setter(target, 0) for target in targets]

    def run(b: Batch, i: Lanes) -> None:
        result = test(a(b, i), c(b, i))
        both = [result, np.logical_not(result)][: len(puts)]  # the second is (not t) BoolOp c, not the first one's opposite
        if logical is not None and third is not None:
            other = third(b, i)
            both = [logical(value, other) for value in both]
        for put, value in zip(puts, both, strict=True):
            put(b, i, np.asarray(value) if isinstance(value, np.ndarray) else np.bool_(value))

    return run


def select(ins: Instruction) -> Fn:
    """selp.type d, a, b, p."""
    kind = ins.mods[-1]
    put, a, c, p = setter(ins.operands[0], size_of(kind)), getter(ins.operands[1], _raw(kind)), getter(ins.operands[2], _raw(kind)), _predicate(ins.operands[3])
    return lambda b, i: put(b, i, np.where(p(b, i), a(b, i), c(b, i)))


def _raw(kind: str) -> str:
    return "b16" if kind == "bf16" else kind


def move(ins: Instruction) -> Fn:
    """mov.type d, a; mov.b32 d, {a, b}; mov.b64 {a, b}, d; cvta."""
    kind = ins.mods[-1]
    target, source = ins.operands[0], ins.operands[1]
    if kind == "pred":
        put, get = setter(target, 0), _predicate(source)
        return lambda b, i: put(b, i, get(b, i))
    size = 16 if kind == "b128" else size_of(kind)
    if isinstance(source, Vec):
        part = size // len(source.items)
        gets = [getter(item, f"b{8 * part}") for item in source.items]
        put = setter(target, size)
        whole = UNSIGNED[size]
        return lambda b, i: put(b, i, _pack([get(b, i) for get in gets], part, whole))
    if isinstance(target, Vec):
        part = size // len(target.items)
        puts = [setter(item, part) for item in target.items]
        get = getter(source, f"b{8 * size}")

        def unpack(b: Batch, i: Lanes) -> None:
            value = get(b, i)
            for n, put_one in enumerate(puts):
                put_one(b, i, (value >> value.dtype.type(8 * part * n)).astype(UNSIGNED[part]))

        return unpack
    put, get = setter(target, size), getter(source, _raw(kind))
    return lambda b, i: put(b, i, get(b, i))


def _pack(parts: list[Value], part: int, whole: Any) -> Value:
    result = parts[0].astype(whole)
    for n, value in enumerate(parts[1:], 1):
        result = result | (value.astype(whole) << whole(8 * part * n))
    return result


def convert(ins: Instruction) -> Fn:
    """cvt{.rnd}{.sat}.dtype.stype."""
    mods = ins.mods
    kinds = [m for m in mods if m in TYPES or m in ("bf16", "f16x2", "bf16x2", "tf32")]
    to, source = kinds[-2], kinds[-1]
    mode = next((m for m in mods if m in ("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "rna")), None)
    relu, sat = "relu" in mods, "sat" in mods
    if to in ("f16x2", "bf16x2"):
        put, high, low = setter(ins.operands[0], 4), getter(ins.operands[1], "f32"), getter(ins.operands[2], "f32")

        def pair(b: Batch, i: Lanes) -> None:
            values = [np.fmax(get(b, i), np.float32(0)) if relu else get(b, i) for get in (low, high)]
            put(b, i, _join(values[0], values[1], to))

        return pair
    if to == "tf32":
        put, get = setter(ins.operands[0], 4), getter(ins.operands[1], "f32")
        return lambda b, i: put(b, i, _tf32(get(b, i), mode or "rna"))
    get = getter(ins.operands[1], source)
    if to == "s8":  # the register is wider, and filled with the sign
        put = setter(ins.operands[0], 4)
        return lambda b, i: put(b, i, _convert(get(b, i), to, source, mode, sat, relu).astype(np.int32))
    put = setter(ins.operands[0], size_of(to))
    return lambda b, i: put(b, i, _convert(get(b, i), to, source, mode, sat, relu))


def _tf32(value: Value, rounding: str) -> Value:
    raw = value.view(np.uint32)
    if rounding == "rn":
        raw = raw + np.uint32(0xFFF) + ((raw >> np.uint32(13)) & np.uint32(1))
    elif rounding == "rna":
        raw = raw + np.uint32(0x1000)
    return np.where(np.isfinite(value), raw & np.uint32(0xFFFFE000), value.view(np.uint32))


def _convert(value: Value, to: str, source: str, rounding: str | None, sat: bool, relu: bool) -> Value:
    from_float = source in ("f16", "bf16", "f32", "f64")
    if to in ("f16", "bf16", "f32", "f64"):
        if rounding in ("rni", "rzi", "rmi", "rpi"):
            value = _ROUND[rounding](value)
        if relu:
            value = np.fmax(value, value.dtype.type(0))
        if sat:
            value = np.fmin(np.fmax(value, value.dtype.type(0)), value.dtype.type(1))
        if to == "bf16":
            return to_bf16(value.astype(np.float32))
        result = value.astype(TYPES[to])
        return _directed(result, value, rounding) if rounding in ("rz", "rm", "rp") else result
    dtype = np.dtype(TYPES[to])
    if from_float:
        whole = _ROUND[rounding or "rzi"](value.astype(np.float64))
        info = np.iinfo(dtype)
        clipped = np.clip(np.where(np.isnan(whole), 0.0, whole), float(info.min), float(info.max))
        high = clipped >= float(info.max)
        result = np.where(high, dtype.type(info.max), np.where(high, 0.0, clipped).astype(dtype))
        if dtype.itemsize == 8 or source == "f64":  # else NaN becomes 0 (PTX ISA, cvt)
            top = UNSIGNED[dtype.itemsize](1 << (8 * dtype.itemsize - 1))
            result = np.where(np.isnan(whole), top.view(dtype), result)
        return result
    if sat:
        info = np.iinfo(dtype)
        low, high_limit = max(info.min, np.iinfo(value.dtype).min), min(info.max, np.iinfo(value.dtype).max)
        return np.clip(value, low, high_limit).astype(dtype)
    return value.astype(dtype)


def _directed(result: Value, value: Value, rounding: str) -> Value:
    exact, got = value.astype(np.float64), result.astype(np.float64)
    down = (got > exact) & ((rounding == "rm") | ((rounding == "rz") & (exact > 0)))
    up = (got < exact) & ((rounding == "rp") | ((rounding == "rz") & (exact < 0)))
    infinity = result.dtype.type(np.inf)
    return np.where(down, np.nextafter(result, -infinity), np.where(up, np.nextafter(result, infinity), result))


_ROUND: dict[str, Callable[[Value], Value]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil, "rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}
