"""cvt between integers and floats of 16 bits and more, with bfloat16 and TF32; fp8.py has the 8-bit floats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.emulator.arrays import Lanes, Value
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.operands import TYPES, UNSIGNED, Fn, getter, setter, size_of
from workbench.emulator.isa.floats import join_halves, to_bf16
from workbench.emulator.ptx.instruction import Instruction

ROUND: dict[str, Callable[[Value], Value]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
    "rn": np.rint,
    "rz": np.trunc,
    "rm": np.floor,
    "rp": np.ceil,
}


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
            put(b, i, join_halves(values[0], values[1], to))

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
            value = ROUND[rounding](value)
        if relu:
            value = np.fmax(value, value.dtype.type(0))
        if sat:
            value = np.fmin(np.fmax(value, value.dtype.type(0)), value.dtype.type(1))
        if to == "bf16":
            return to_bf16(value.astype(np.float32))
        result = value.astype(TYPES[to])
        return _round_directed(result, value, rounding) if rounding in ("rz", "rm", "rp") else result
    dtype = np.dtype(TYPES[to])
    if from_float:
        whole = ROUND[rounding or "rzi"](value.astype(np.float64))
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


def _round_directed(result: Value, value: Value, rounding: str) -> Value:
    exact, got = value.astype(np.float64), result.astype(np.float64)
    down = (got > exact) & ((rounding == "rm") | ((rounding == "rz") & (exact > 0)))
    up = (got < exact) & ((rounding == "rp") | ((rounding == "rz") & (exact < 0)))
    infinity = result.dtype.type(np.inf)
    return np.where(down, np.nextafter(result, -infinity), np.where(up, np.nextafter(result, infinity), result))
