"""Expressions of the language: their checks, and their leaves, some of which are broadcast (`spread(b)`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from workbench.language.expressions.scalars import FUNCTIONS, KNOWN, arity
from workbench.language.ir import Call, Rejection
from workbench.language.operation import close

VALUE = Call(name="value")  # in the expression of an epilogue: what the epilogue is applied to


def replace_value(expression: object, by: object) -> object:
    """The expression of an epilogue, applied to another value."""
    if expression == VALUE:
        return by
    if not isinstance(expression, Call):
        return expression
    return dataclasses.replace(expression, positional=tuple(replace_value(part, by) for part in expression.positional))


def rename_tensors(value: object, names: Mapping[str, str]) -> object:
    """The expression with other names for its tensors; those without one keep theirs."""
    if isinstance(value, Call):
        return dataclasses.replace(value, positional=tuple(rename_tensors(part, names) for part in value.positional))
    return names.get(value, value) if isinstance(value, str) else value


def functions_used(value: object) -> tuple[str, ...]:
    """Names of the scalar functions in an expression, in order of first use."""
    if not isinstance(value, Call):
        return ()
    names = [value.name] if value.name in FUNCTIONS else []
    for part in value.positional:
        names += functions_used(part)
    return tuple(dict.fromkeys(names))


def leaves(value: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(tensors of the full shape, broadcast tensors), each in order of first use."""
    plain: dict[str, None] = {}
    spread: dict[str, None] = {}

    def walk(node: object) -> None:
        if isinstance(node, Call):
            for part in node.positional:
                if node.name == "spread" and isinstance(part, str):
                    spread.setdefault(part)
                else:
                    walk(part)
        elif isinstance(node, str):
            plain.setdefault(node)

    walk(value)
    return tuple(plain), tuple(spread)


def check_expression(value: object, reductions: tuple[str, ...] = ()) -> list[Rejection]:
    """Rejections of unknown functions, wrong numbers of arguments, and broadcasts of anything but a tensor.

    `reductions` are further functions of one argument that may occur.
    """
    if isinstance(value, tuple):
        return [
            Rejection(
                field="expression",
                value=str(value),
                reason="several values where one is wanted",
                legal="a tensor, a number or a function of them",
            )
        ]
    if not isinstance(value, Call):
        return []
    if value.named:
        name, given = value.named[0]
        return [
            Rejection(
                field=f"{value.name} {name}",
                value=str(given),
                reason="functions take their arguments without names",
                legal=f"{value.name}({', '.join(('x', *(str(item) for _, item in value.named)))})",
            )
        ]
    if value.name == "spread":
        good = len(value.positional) == 1 and isinstance(value.positional[0], str)
        return (
            []
            if good
            else [
                Rejection(
                    field="spread", value="", reason="a tensor is broadcast, not an expression", legal="spread(b)"
                )
            ]
        )
    if value.name not in KNOWN and value.name not in reductions:
        return [
            Rejection(
                field="function",
                value=value.name,
                reason="no such function",
                legal=close(value.name, KNOWN + reductions),
            )
        ]
    given = len(value.positional)
    least, most = (1, 1) if value.name in reductions and (given == 1 or value.name not in KNOWN) else arity(value.name)
    if not least <= given <= most:
        legal = str(least) if least == most else f"{least} to {most}"
        return [
            Rejection(
                field=value.name,
                value=str(given),
                reason=f"takes {legal} argument{'s' if most > 1 else ''}",
                legal=legal,
            )
        ]
    return [item for part in value.positional for item in check_expression(part, reductions)]
