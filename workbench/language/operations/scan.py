"""scan(expression): prefix sums, products, maxima, minima and logarithms of sums of exponentials along an axis.

Every element is read once and written once.

schedule(rows): a CTA has a row, tile by tile. schedule(lookback): a CTA per tile, which learns what came before from
the tiles before (decoupled look-back, Merrill and Garland, 2016), for few long rows; in float32 the last bits may then
differ from run to run. Input: a stage; output: its Rejections.
"""

from __future__ import annotations

from workbench.language.expressions.expressions import check_expression
from workbench.language.ir import Rejection, Stage, names_in
from workbench.language.operation import (
    ARCH,
    THREADS,
    Operation,
    Setting,
    checked_argument,
    choice_argument,
    flag,
    reject_settings,
)

OPS = ("sum", "prod", "max", "min", "logsumexp")


def check(stage: Stage) -> list[Rejection]:
    """Rejections of a scan."""
    if len(stage.operation.positional) != 1:
        return [
            Rejection(
                field="scan",
                value=str(len(stage.operation.positional)),
                reason="takes one expression",
                legal="for example x, or mul(x, mask)",
            )
        ]
    value = stage.operation.positional[0]
    found = check_expression(value)
    if not names_in(value):
        found.append(Rejection(field="scan", value=str(value), reason="names no tensor", legal="for example x"))
    return found + check_axis(stage)


def check_axis(stage: Stage) -> list[Rejection]:
    """Rejections of the axis, and of what only the last axis has."""
    found = []
    named = dict(stage.operation.named)
    axis = named.get("axis", "last")
    if axis != "last" and (not isinstance(axis, int) or axis < 0):
        legal = "last, or its number from 0"
        found.append(Rejection(field="axis", value=str(axis), reason="along which axis to scan", legal=legal))
    if named.get("exclusive", 0) == 2 and (axis != "last" or named.get("reverse", 0)):
        reason = "a total after the last element is for the last axis, from its start"
        found.append(Rejection(field="exclusive", value="2", reason=reason, legal="0, 1"))
    if axis != "last":
        found += reject_settings(stage, ("schedule", "per_thread"), "is for the last axis")
    return found


SETTINGS = (
    ARCH,
    THREADS,
    Setting(name="per_thread", values=(8, 16, 32), reason="elements that a thread keeps in registers"),
    Setting(
        name="schedule",
        values=("rows", "lookback"),
        reason="a CTA for each row, or one for each tile of a row",
        meaning="{values}: a CTA walks over a row (rows), or has one tile of it and looks back at the tiles before "
        "(lookback)",
    ),
)
ARGUMENTS = (
    choice_argument("op", OPS, "what is combined"),
    checked_argument("axis", "last, or its number from 0"),
    choice_argument("exclusive", (0, 1, 2), "1: without the element itself; 2: and the total after the last one"),
    flag("reverse", "whether it starts at the end"),
)
ABOUT = (
    "scan(expression, op=sum|prod|max|min|logsumexp, axis=last|number, exclusive=0|1|2, reverse=0|1) "
    "of tensors of one shape; exclusive=2 appends the total"
)
OPERATIONS = (Operation(name="scan", about=ABOUT, settings=SETTINGS, check=check, arguments=ARGUMENTS),)
