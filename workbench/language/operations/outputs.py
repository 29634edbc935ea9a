"""outputs(a, b, ...): the tensors that forward returns, in order; the last stage of a module with several results, or
with state that it stores.
"""

from __future__ import annotations

from workbench.language.ir import Program, Rejection, Stage
from workbench.language.operation import ARCH, Operation

NAME = "outputs"


def check(stage: Stage) -> list[Rejection]:
    """Rejections of no tensors, or of anything but their names."""
    given = stage.operation.positional
    if given and all(isinstance(value, str) for value in given):
        return []
    return [Rejection(field="operands", value="", reason="it names tensors", legal="outputs(h1, h2)")]


def check_place(program: Program) -> list[Rejection]:
    """Rejections of an `outputs` that is not the last stage."""
    if all(stage.operation.name != NAME for stage in program.stages[:-1]):
        return []
    return [Rejection(field="operation", value=NAME, reason="it ends a program", legal="as the last stage")]


OPERATIONS = (
    Operation(
        name=NAME,
        about="outputs(a, b, ...): what forward returns if that is several tensors, as the last stage; no kernel",
        settings=(ARCH,),
        check=check,
        several=True,
    ),
)
