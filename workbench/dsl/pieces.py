"""Shared pieces of emitted text: scalar functions in float32, and what an emitter returns."""

from __future__ import annotations

from workbench.dsl.ir import Call
from workbench.dsl.scalars import ARITY, BINARY, FUNCTIONS, INFIX, KNOWN, UNARY, definitions, spelt
from workbench.records import record

__all__ = ["ARITY", "BINARY", "FUNCTIONS", "INFIX", "KNOWN", "UNARY", "Parts", "definitions", "expression", "functions_used"]


@record
class Parts:
    """The kernels' text, the body of forward, and what the kernels import beyond torch and CuTe DSL."""

    kernels: str
    forward: str
    imports: str = ""


def functions_used(value: object) -> tuple[str, ...]:
    """Names of the scalar functions in an expression, in order of first use."""
    if not isinstance(value, Call):
        return ()
    names = [value.name] if value.name in FUNCTIONS else []
    for part in value.positional:
        names += functions_used(part)
    return tuple(dict.fromkeys(names))


def expression(value: object, operands: dict[str, str], known: dict[Call, str] | None = None) -> str:
    """Python text of an expression over float32 values; `known` are calls that have a name already."""
    if isinstance(value, Call):
        if known and value in known:
            return known[value]
        if value.name == "spread":
            return operands[str(value.positional[0])]
        parts = [expression(part, operands, known) for part in value.positional]
        if value.name in INFIX:
            return f"({parts[0]} {INFIX[value.name]} {parts[1]})"
        if value.name in ("max", "min"):
            return f"cute.arch.f{value.name}({parts[0]}, {parts[1]}, nan=True)"
        return f"{spelt(value.name)}({', '.join(parts)})"
    if isinstance(value, str):
        return operands[value]
    return f"cutlass.Float32({float(value)!r})"  # type: ignore[arg-type]
