"""Values while a file is written: symbols that stand for run-time values, text that stands for itself; rendering."""

from __future__ import annotations

import math

import libcst as cst

from workbench.codegen.specialise.library import SpecialiseError
from workbench.records import record


@record
class Symbol:
    """One run-time value of a tuple that was expanded: the name that it has now, and the operand that it belongs to."""

    name: str
    base: str


@record
class Text:
    """A value whose spelling is known and whose object is not: cutlass.Float16."""

    text: str


def holds_symbols(value: object) -> bool:
    """Whether it is a tuple of symbols, at least one, or nothing but tuples of those."""
    return isinstance(value, tuple) and bool(value) and all(isinstance(item, Symbol) for item in value)


def render_literal(value: object) -> str | None:
    """Python text of the value, or None where it has none."""
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, Text):
        return value.text
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str):
        return '"' + repr(value)[1:-1].replace('"', '\\"') + '"' if "\\" not in repr(value) else repr(value)
    if isinstance(value, tuple | list):
        parts = [render_literal(item) for item in value]
        if any(part is None for part in parts):
            return None
        return "(" + ", ".join(str(part) for part in parts) + ("," if len(parts) == 1 else "") + ")"
    return None


def is_constant(value: object) -> bool:
    """Whether a module constant can have the value."""
    return value is not None and render_literal(value) is not None


def parse_literal(value: object, where: object) -> cst.BaseExpression:
    """The value as an expression; raises `SpecialiseError` for what cannot be written."""
    text = render_literal(value)
    if text is None:
        raise SpecialiseError(f"{where}: a {type(value).__name__} cannot be written into a file")
    return cst.parse_expression(text)


def singular(name: str) -> str:
    """parts -> part."""
    return name.removesuffix("s") if len(name) > 2 else name
