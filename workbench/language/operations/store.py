"""store(into, x=h), store(into, add=1): what a module keeps for its next call, written by torch beside the kernels."""

from __future__ import annotations

from workbench.language.ir import Rejection, Stage
from workbench.language.operation import ARCH, Argument, Operation, checked_argument

NAME = "store"


def check(stage: Stage) -> list[Rejection]:
    """Rejections of anything but a tensor to copy, or a whole number to add."""
    if len(stage.operation.named) == 1:
        return []
    return [Rejection(field=NAME, value="", reason="it copies a tensor or adds a number", legal=LEGAL)]


def _copied(stage: Stage) -> tuple[str, ...]:
    return ("x",) if "x" in dict(stage.operation.named) else ()


LEGAL = "store(into, x=h) or store(into, add=1)"
OPERATIONS = (
    Operation(
        name=NAME,
        about=f"{LEGAL}: h is copied into a buffer of the module, or a whole number is added to a buffer of integers, "
        "for the module's next call; no kernel",
        settings=(ARCH,),
        check=check,
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
