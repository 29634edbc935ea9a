"""The 8-bit floats e4m3 and e5m2 (PTX ISA, alternate floating-point formats): tables, and cvt to and from
wider types.
"""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Lanes, Value
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.operands import Fn, Unknown, getter, setter
from workbench.emulator.ptx.instruction import Instruction


def _e4m3() -> np.ndarray:
    code = np.arange(256)
    exponent, fraction = (code >> 3) & 15, code & 7
    value = np.where(exponent == 0, fraction / 8 * 2.0**-6, (1 + fraction / 8) * 2.0 ** (exponent - 7.0))
    value[(code & 127) == 127] = np.nan
    return np.where(code & 128, -value, value).astype(np.float32)


DECODE: dict[str, np.ndarray] = {
    "e4m3": _e4m3(),
    "e5m2": (np.arange(256, dtype=np.uint16) << np.uint16(8)).view(np.float16).astype(np.float32),
}


def encode(value: Value, kind: str) -> Value:
    """float32 to 8 bits: nearest, ties to even. Too large values become the largest finite number (.satfinite), NaN
    stays.
    """
    table = DECODE[kind][:128]
    table = table[np.isfinite(table)].astype(np.float64)
    middles = (table[1:] + table[:-1]) / 2
    size = np.abs(value.astype(np.float64))
    at = np.searchsorted(middles, size, side="left")
    tie = (at < len(middles)) & (size == middles[np.minimum(at, len(middles) - 1)])
    code = np.where(tie & (at % 2 == 1), at + 1, at)
    code = np.where(np.isnan(size), 127, code)
    return np.where(np.signbit(value) & ~np.isnan(size), code | 128, code).astype(np.uint8)


def convert(ins: Instruction) -> Fn:
    """cvt.rn.satfinite{.relu}.{e4m3,e5m2}x2.{f32 d, high, low | f16x2 d, pair}; cvt.rn{.relu}.f16x2.{e4m3,e5m2}x2 d,
    pair.
    """
    to, source = ins.mods[-2], ins.mods[-1]
    floor = np.float32(0) if "relu" in ins.mods else np.float32(-np.inf)
    if to == "f16x2":
        table = DECODE[source.removesuffix("x2")]
        put, get = setter(ins.operands[0], 4), getter(ins.operands[1], "b16")

        def widen(b: Batch, i: Lanes) -> None:
            pair = get(b, i)
            low, high = (
                np.where(table[part] < floor, floor, table[part]).astype(np.float16).view(np.uint16).astype(np.uint32)
                for part in (pair & np.uint16(0xFF), pair >> np.uint16(8))
            )
            put(b, i, low | (high << np.uint32(16)))

        return widen
    kind = to.removesuffix("x2")
    if kind not in DECODE or "satfinite" not in ins.mods or source not in ("f32", "f16x2"):
        raise Unknown(ins.text)
    put = setter(ins.operands[0], 2)
    gets = [getter(operand, "f32" if source == "f32" else "b32") for operand in ins.operands[1:]]

    def narrow(b: Batch, i: Lanes) -> None:
        if source == "f32":
            high, low = (get(b, i) for get in gets)
        else:
            pair = gets[0](b, i)
            low, high = (
                (pair >> np.uint32(shift)).astype(np.uint16).view(np.float16).astype(np.float32) for shift in (0, 16)
            )
        parts = [encode(np.where(part < floor, floor, part), kind).astype(np.uint16) for part in (low, high)]
        put(b, i, parts[0] | (parts[1] << np.uint16(8)))

    return narrow
