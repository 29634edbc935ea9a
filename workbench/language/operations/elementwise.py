"""elementwise(expression): its settings and checks."""

from __future__ import annotations

from workbench.language.expressions.expressions import check_expression
from workbench.language.expressions.scalars import KNOWN
from workbench.language.ir import Rejection, Stage, names_in
from workbench.language.operation import ARCH, THREADS, UNROLL, VECTOR, Operation
from workbench.language.operations import epilogue


def check(stage: Stage) -> list[Rejection]:
    """Rejections of the expression."""
    if not stage.operation.positional:
        return [Rejection(field="elementwise", value="", reason="needs an expression", legal="for example relu(x)")]
    value = stage.operation.positional[0]
    if not names_in(value):
        return [Rejection(field="elementwise", value=str(value), reason="names no tensor", legal="for example relu(x)")]
    return check_expression(value) or epilogue.check(stage)


OPERATIONS = (
    Operation(
        name="elementwise",
        about="elementwise(expression) of tensors of one shape; spread(b): b is broadcast to that shape; functions: "
        + ", ".join(KNOWN),
        settings=(ARCH, THREADS, VECTOR, UNROLL),
        epilogues=("cast",),
        check=check,
    ),
)
