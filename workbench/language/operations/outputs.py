"""outputs(a, b, ...) and store(into, x=h): what a module returns, and what it keeps for its next call; no kernels."""

from __future__ import annotations

from workbench.language.ir import Program, Rejection, Stage
from workbench.language.operation import ARCH, Argument, Operation, checked_argument

NAME, STORE = "outputs", "store"
STORES = "store(into, x=h) or store(into, add=1)"


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


def check_store(stage: Stage) -> list[Rejection]:
    """Rejections of anything but a tensor to copy, or a whole number to add."""
    if len(stage.operation.named) == 1:
        return []
    return [Rejection(field=STORE, value="", reason="it copies a tensor or adds a number", legal=STORES)]


def _copied(stage: Stage) -> tuple[str, ...]:
    return ("x",) if "x" in dict(stage.operation.named) else ()


OPERATIONS = (
    Operation(
        name=NAME,
        about="outputs(a, b, ...): what forward returns, as the last stage, if that is several tensors or if the "
        "module stores something; no kernel",
        settings=(ARCH,),
        check=check,
        several=True,
    ),
    Operation(
        name=STORE,
        about=f"{STORES}: h is copied into an input or a buffer of the module, or a whole number is added to one of "
        "integers, which the module leaves changed; no kernel",
        settings=(ARCH,),
        check=check_store,
        arguments=(
            checked_argument("x", "the name of a tensor"),
            Argument(
                name="add",
                legal="a whole number",
                reason="what a counter goes on by",
                holds=lambda value: isinstance(value, int),
            ),
        ),
        roles=("into",),
        implied=_copied,
    ),
)
