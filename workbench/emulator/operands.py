"""What instructions read and write: operands as functions from (batch, lanes) to numpy values, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.emulator.ptx import FloatBits, Imm, Name, Reg
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
        return predicate(operand)
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


def predicate(operand: object) -> Get:
    if isinstance(operand, tuple) and operand[0] == "not":
        inner = predicate(operand[1])
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
