"""Operands as functions from (batch, lanes) to numpy values, and functions that write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from workbench.emulator.arrays import Lanes, Value
from workbench.emulator.execution.batch import Batch
from workbench.emulator.ptx.syntax import SIZES, FloatBits, Imm, Name, Not, Operand, Reg

Fn: TypeAlias = Callable[[Batch, Lanes], None]
Get: TypeAlias = Callable[[Batch, Lanes], Value]
Put: TypeAlias = Callable[[Batch, Lanes, Value], None]
Unsigned: TypeAlias = np.unsignedinteger[Any]
UNSIGNED: dict[int, type[Unsigned]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
TYPES: dict[str, type[np.number[Any]]] = {
    "b8": np.uint8,
    "u8": np.uint8,
    "s8": np.int8,
    "b16": np.uint16,
    "u16": np.uint16,
    "s16": np.int16,
    "f16": np.float16,
    "b32": np.uint32,
    "u32": np.uint32,
    "s32": np.int32,
    "f32": np.float32,
    "b64": np.uint64,
    "u64": np.uint64,
    "s64": np.int64,
    "f64": np.float64,
}


class Unknown(Exception):
    """An instruction, or a form of one, that the machine does not know."""


def bits(value: Value, size: int) -> Value:
    """A value as unsigned bits of `size` bytes."""
    kind = UNSIGNED[size]
    if value.dtype == kind:
        return value
    if value.dtype.itemsize == size and value.dtype != np.bool_:
        return value.view(kind)
    return value.astype(kind)


def getter(operand: Operand, kind: str) -> Get:
    """A function that reads an operand as the numpy type of PTX type `kind`."""
    if kind == "pred":
        return predicate(operand)
    if kind == "bf16":
        raw = getter(operand, "b16")
        return lambda b, i: (raw(b, i).astype(np.uint32) << np.uint32(16)).view(np.float32)
    dtype = np.dtype(TYPES["b32" if kind in ("f16x2", "bf16x2") else kind])
    if isinstance(operand, Imm):
        size = dtype.itemsize
        return _constant(UNSIGNED[size](operand.value & ((1 << 8 * size) - 1)).view(dtype))
    if isinstance(operand, FloatBits):
        return _constant(_literal(operand, dtype))
    if isinstance(operand, Reg):
        return _register(operand.name, dtype)
    if isinstance(operand, Name):
        return _special(operand.name, dtype) if operand.name.startswith("%") else _symbol(operand.name, dtype)
    raise Unknown(f"operand {operand}")


def _constant(value: Value) -> Get:
    return lambda b, i: value


def _literal(operand: FloatBits, dtype: np.dtype[np.generic]) -> Value:
    raw: Value = UNSIGNED[operand.size](operand.bits)
    if operand.size == dtype.itemsize:
        return raw.view(dtype)
    return raw.view(np.float32 if operand.size == 4 else np.float64).astype(dtype)


def _register(name: str, dtype: np.dtype[np.generic]) -> Get:
    size, unsigned = dtype.itemsize, UNSIGNED[dtype.itemsize]

    def read(b: Batch, i: Lanes) -> Value:
        value = b.read(name, i)
        if value.dtype.itemsize != size:
            value = value.astype(unsigned)
        return value.view(dtype)

    return read


def _special(name: str, dtype: np.dtype[np.generic]) -> Get:
    def read(b: Batch, i: Lanes) -> Value:
        value = b.special.get(name)
        if value is None:
            message = f"the emulator does not know the special register {name}"
            raise b.fault("unknown_instruction", message, None, stage="launch")
        value = value if i is None or not isinstance(value, np.ndarray) else value[i]
        return bits(value, dtype.itemsize).view(dtype)

    return read


def _symbol(name: str, dtype: np.dtype[np.generic]) -> Get:
    def read(b: Batch, i: Lanes) -> Value:
        if name in b.symbols:
            return dtype.type(b.symbols[name])
        return dtype.type(
            b.kernel.shared.get(
                name, b.kernel.local.get(name, b.kernel.shared_bytes if name not in b.kernel.shared else 0)
            )
        )

    return read


def predicate(operand: Operand) -> Get:
    """A function that reads a predicate as bools."""
    if isinstance(operand, Not):
        inner = predicate(operand.operand)
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


def setter(operand: Operand, size: int) -> Put:
    """A function that writes a value's bits to a register; `_` discards."""
    if isinstance(operand, Name) and operand.name == "_":
        return lambda b, i, v: None
    assert isinstance(operand, Reg), operand
    name = operand.name
    if size == 0:
        return lambda b, i, v: b.write(name, i, v)
    return lambda b, i, v: b.write(name, i, bits(v, size))


def size_of(kind: str) -> int:
    """Bytes of a PTX type as registers hold it: 0 for a predicate; packed pairs count both."""
    return (
        0
        if kind == "pred"
        else SIZES[kind]
        if kind in ("bf16", "f16x2", "bf16x2", "tf32")
        else np.dtype(TYPES[kind]).itemsize
    )
