"""Expression IR -> Python text on float32 values for hooks; it calls functions of `workbench.kernels.scalars`."""

from __future__ import annotations

import math
from collections.abc import Mapping

from workbench.language.expressions.scalars import INFIX, emitted_name
from workbench.language.ir import Call


def expression(value: object, operands: Mapping[str, str], known: Mapping[Call, str] | None = None) -> str:
    """Return the Python text of an expression.

    `operands` maps tensors to the names of their elements, `known` maps calls to names that already hold their value.
    """
    if isinstance(value, Call):
        if known and value in known:
            return known[value]
        if value.name == "spread":
            return operands[str(value.positional[0])]
        return call_text(value.name, [expression(part, operands, known) for part in value.positional])
    if isinstance(value, str):
        return operands[value]
    return number_text(value)


def call_text(name: str, parts: list[str]) -> str:
    """Return the text of a function call on arguments with the texts `parts`."""
    if name in INFIX:
        return f"({parts[0]} {INFIX[name]} {parts[1]})"
    if name in ("max", "min"):
        return f"cute.arch.f{name}({parts[0]}, {parts[1]}, nan=True)"
    return f"{emitted_name(name)}({', '.join(parts)})"


def number_text(value: object) -> str:
    """Return the text of a number as float32."""
    number = float(str(value))
    if math.isinf(number):
        return "cutlass.Float32.inf" if number > 0 else "(-cutlass.Float32.inf)"
    return f"cutlass.Float32({number!r})"


def function_text(name: str, parameters: tuple[str, ...], body: list[str], about: str = "") -> str:
    """Return the text of one function; `body` holds its lines."""
    lines = [f'"""{about}"""', *body] if about else body
    return "\n".join((f"def {name}({', '.join(parameters)}):", *(f"    {line}" for line in lines))) + "\n"
