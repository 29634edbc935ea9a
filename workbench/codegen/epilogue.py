"""Elementwise epilogues -> hooks that kernels call on each accumulator.

The kernel calls `cfg.epilogue(total, operands, batch, row, column)` and stores the returned value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from workbench.codegen.expression_writer import expression, function_text, number_text
from workbench.codegen.launch import Hook
from workbench.kernels.operands import Read
from workbench.language.expressions.expressions import VALUE
from workbench.language.expressions.scalars import INFIX, emitted_name
from workbench.language.ir import Call, names_in
from workbench.language.operation import COMBINERS, MAP
from workbench.language.operations.epilogue import Step

PLACE = ("batch", "row", "column")


def plain(read: Read) -> str:
    """Return the text of a tensor's element in a hook that takes batch, row and column."""
    return {"n": f"{read.role}[column]", "m": f"{read.role}[row]"}.get(read.along, f"{read.role}[batch, row, column]")


def epilogue_hook(
    steps: Iterable[Step],
    *,
    name: str = "epilogue",
    place: tuple[str, ...] = PLACE,
    element: Callable[[Read], str] = plain,
    about: str = "",
) -> Hook | None:
    """Return the hook of a chain of calls, or None for an empty chain.

    Its parameters are `total`, one per tensor that is read, then `place`. `element` returns the text of a tensor's
    element at that place.
    """
    steps = tuple(steps)
    if not steps:
        return None
    roles = tuple(read.role for _, reads in steps for read in reads)
    body = [*statements(steps, element), "return total"]
    if len(body) == 2:
        body = [body[0].replace("total = ", "return ", 1)]
    return Hook(name=name, source=function_text(name, ("total", *roles, *place), body, about))


def statements(steps: Iterable[Step], element: Callable[[Read], str] = plain) -> list[str]:
    """Return the statements that apply the calls to `total` (float32)."""
    return [_statement(call, [f"{element(read)}.to(cutlass.Float32)" for read in reads]) for call, reads in steps]


def _statement(call: Call, elements: list[str]) -> str:
    """The statement of an epilogue; `elements` are the texts of the elements that it reads."""
    if call.name == MAP:
        operands = dict(zip(names_in(call), elements, strict=True))
        return f"total = {expression(call.positional[0], operands, {VALUE: 'total'})}"
    element = elements[0] if elements else None
    numbers = [float(str(value)) for value in call.positional] if element is None else []
    if call.name in ("bias", "residual"):
        return f"total = total + {element}"
    if call.name == "scale":
        return f"total = total * {numbers[0]!r}"
    if call.name == "clamp":
        low, high = map(number_text, numbers)
        return f"total = cute.arch.fmin(cute.arch.fmax(total, {low}, nan=True), {high}, nan=True)"
    if call.name in COMBINERS:
        other = element or number_text(numbers[0])
        if call.name in INFIX:
            return f"total = total {INFIX[call.name]} {other}"
        return f"total = cute.arch.f{call.name}(total, {other}, nan=True)"
    return f"total = {emitted_name(call.name)}({', '.join(['total', *map(repr, numbers)])})"
