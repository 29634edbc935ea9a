"""Floating-point arithmetic: each builder turns one parsed instruction into fn(batch, idx) -> None."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.emulator.arrays import Lanes, Value
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.operands import TYPES, Fn, Unknown, getter, setter, size_of
from workbench.emulator.isa import rounding
from workbench.emulator.ptx.instruction import Instruction

APPROX: dict[str, Callable[[Value], Value]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": lambda a: 1 / a,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


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


def join_halves(low: Value, high: Value, kind: str) -> Value:
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
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b,
        "min": minimum,
        "max": maximum,
        "neg": lambda a: -a,
        "abs": np.abs,
        "sqrt": np.sqrt,
        "copysign": lambda a, b: np.copysign(b, a),
        "rcp": lambda a: a.dtype.type(1) / a,
    }
    return table[opcode]


def float_arithmetic(ins: Instruction) -> Fn:
    """add, sub, mul, div, fma, min, max, neg, abs, sqrt, rcp, ex2, lg2, rsqrt, sin, cos, tanh on f16, bf16, f32, f64
    and pairs.
    """
    kind = next(m for m in reversed(ins.mods) if m in TYPES or m in ("bf16", "f16x2", "bf16x2"))
    op, ftz = "fma" if ins.opcode == "mad" else ins.opcode, "ftz" in ins.mods
    if "abs" in ins.mods and "xorsign" not in ins.mods:
        raise Unknown(ins.text)
    if kind in ("f16x2", "bf16x2"):
        return _pair(ins, kind, _scalar_float(op, "f16" if kind == "f16x2" else "bf16", ftz, ins))
    return _single(ins, kind, _scalar_float(op, kind, ftz, ins))


def _pair(ins: Instruction, kind: str, scalar: Callable[..., Value]) -> Fn:
    """An operation on both halves of packed pairs."""
    put = setter(ins.operands[0], size_of(kind))
    gets = [getter(operand, kind) for operand in ins.operands[1:]]
    nan, sat = ".NaN" in ins.text, "sat" in ins.mods

    def run(b: Batch, i: Lanes) -> None:
        parts = [_halves(get(b, i), kind) for get in gets]
        results = [scalar(*[part[half] for part in parts]) for half in (0, 1)]
        if nan:
            results = [_propagate_nan(result, [part[half] for part in parts]) for half, result in enumerate(results)]
        if sat:
            results = [_saturate(result) for result in results]
        put(b, i, join_halves(results[0], results[1], kind))

    return run


def _single(ins: Instruction, kind: str, function: Callable[..., Value]) -> Fn:
    """An operation on one float per register."""
    put = setter(ins.operands[0], size_of(kind))
    gets = [getter(operand, kind) for operand in ins.operands[1:]]
    nan, sat, sign = ".NaN" in ins.text, "sat" in ins.mods, "xorsign" in ins.mods

    def run(b: Batch, i: Lanes) -> None:
        values = [get(b, i) for get in gets]
        result = function(*map(np.abs, values) if sign else values)
        if sign:
            result = np.where(np.signbit(values[0]) ^ np.signbit(values[1]), -result, result)
        if nan:
            result = _propagate_nan(result, values)
        if sat:
            result = _saturate(result)
        put(b, i, to_bf16(result) if kind == "bf16" else result)

    return run


def _saturate(value: Value) -> Value:
    """The value clamped to [0, 1]; NaN becomes 0."""
    return np.fmin(np.fmax(value, value.dtype.type(0)), value.dtype.type(1))


def _propagate_nan(result: Value, values: list[Value]) -> Value:
    """The result of a minimum or maximum with .NaN: NaN if any operand is NaN."""
    return np.where(np.isnan(values[0]) | np.isnan(values[1]), result.dtype.type(np.nan), result)


def _scalar_float(op: str, kind: str, ftz: bool, ins: Instruction) -> Callable[..., Value]:
    mode = next((mod for mod in ins.mods if mod in ("rz", "rm", "rp")), None)
    if mode is not None:
        rounded = rounding.directed_function(op, kind, mode)
        if rounded is None:
            raise Unknown(ins.text)
        return (lambda *values: flush(rounded(*map(flush, values)))) if ftz else rounded
    if op == "fma":
        return _fma(kind, ftz=ftz, relu="relu" in ins.mods)
    if op in APPROX and ("approx" in ins.mods or op not in ("sqrt", "rcp")):
        return _approximate(APPROX[op], kind, ftz=ftz)
    plain = _float_op(op)
    if ftz and kind == "f32":
        return lambda *values: flush(plain(*[flush(value) for value in values]))
    return plain


def _fma(kind: str, *, ftz: bool, relu: bool) -> Callable[..., Value]:
    if kind == "f32":
        return (lambda a, b, c: flush(fma32(flush(a), flush(b), flush(c)))) if ftz else fma32
    if kind == "f64":
        return _fma64
    half = np.float16 if kind == "f16" else np.float32

    def multiply_add(a: Value, b: Value, c: Value) -> Value:
        result = (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(half)
        return np.fmax(result, half(0)) if relu else result

    return multiply_add


def _approximate(function: Callable[..., Value], kind: str, *, ftz: bool) -> Callable[..., Value]:
    """A function that is computed in float64 and rounded once."""
    out = np.float16 if kind == "f16" else np.float32 if kind != "f64" else np.float64
    flushes = ftz and kind == "f32"

    def run(a: Value) -> Value:
        result = function((flush(a) if flushes else a).astype(np.float64)).astype(out)
        return flush(result) if flushes else result

    return run


def _fma64(a: Value, b: Value, c: Value) -> Value:
    """float64 fused multiply-add through longdouble (64-bit significand). A double rounding of the last bit remains
    possible.
    """
    return (a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)).astype(np.float64)
