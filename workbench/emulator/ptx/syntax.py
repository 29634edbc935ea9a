"""The operands of PTX instructions as records, and facts about single operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, Union

SIZES = {
    "b8": 1,
    "u8": 1,
    "s8": 1,
    "b16": 2,
    "u16": 2,
    "s16": 2,
    "f16": 2,
    "bf16": 2,
    "b32": 4,
    "u32": 4,
    "s32": 4,
    "f32": 4,
    "b64": 8,
    "u64": 8,
    "s64": 8,
    "f64": 8,
    "b128": 16,
    "pred": 1,
    "f16x2": 4,
    "bf16x2": 4,
    "tf32": 4,
}  # bytes of a PTX type


@dataclass(frozen=True, slots=True)
class Reg:
    """A virtual register."""

    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """An integer literal."""

    value: int


@dataclass(frozen=True, slots=True)
class FloatBits:
    """A float literal by its bit pattern, as PTX writes it (0f..., 0d...); `size` in bytes."""

    bits: int
    size: int


@dataclass(frozen=True, slots=True)
class Name:
    """A label, a symbol or a special register such as %tid.x."""

    name: str


@dataclass(frozen=True, slots=True)
class Mem:
    """[base + offset]: the base is a register, a symbol or None for an absolute address.

    `coordinates` are a tensor's, as in [base, {c0, c1}].
    """

    base: Reg | str | None
    offset: int
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vec:
    """{a, b, ...}, or the pair a|b."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """A negated predicate, !p."""

    operand: Operand


Operand: TypeAlias = Union[Reg, Imm, FloatBits, Name, Mem, Vec, Not]  # noqa: UP007 (a forward reference)


def value_registers(operand: Operand) -> tuple[str, ...]:
    """Names of the registers whose values an operand uses, without those of an address."""
    if isinstance(operand, Reg):
        return (operand.name,)
    if isinstance(operand, Vec):
        return tuple(name for item in operand.items for name in value_registers(item))
    return value_registers(operand.operand) if isinstance(operand, Not) else ()


def address_registers(operand: Operand) -> tuple[str, ...]:
    """Names of the registers in an address: its base and its coordinates."""
    if not isinstance(operand, Mem):
        return ()
    base = (operand.base.name,) if isinstance(operand.base, Reg) else ()
    return base + tuple(name for item in operand.coordinates for name in value_registers(item))


def immediate_value(operand: Operand) -> int:
    """The value of an integer literal; TypeError for any other operand."""
    if not isinstance(operand, Imm):
        raise TypeError(f"an integer literal is needed, not {operand}")
    return operand.value


def strip_negation(operand: Operand) -> Operand:
    """The operand without a negation."""
    return operand.operand if isinstance(operand, Not) else operand
