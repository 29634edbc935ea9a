"""softmax, layernorm, rmsnorm, reduce, crossentropy: their settings, arguments and checks."""

from __future__ import annotations

from workbench.language.expressions.expressions import check_expression
from workbench.language.expressions.lowering import expansion, needs_rowwise
from workbench.language.expressions.reductions import REDUCTIONS
from workbench.language.ir import Rejection, Stage, setting
from workbench.language.operation import (
    AFFINE,
    ARCH,
    AXIS,
    EPS,
    KEEPDIM,
    KEPT,
    THREADS,
    THREADS_PER_ROW,
    UNROLL,
    VECTOR,
    Argument,
    Operation,
    Setting,
    choice_argument,
    flag,
    reject_settings,
)
from workbench.language.operations import epilogue, matvec, rowwise

GENERAL = (
    "softmax",
    "log_softmax",
    "layernorm",
    "rmsnorm",
    "reduce",
    "matvec",
)  # what rowwise writes too, as an expression
PASSES = Setting(name="passes", values=(2, 3), reason="softmax reads its row two times (online) or three times")
ROW = (ARCH, THREADS_PER_ROW, VECTOR)
MORE = (UNROLL, rowwise.CLUSTER, rowwise.PARTS, rowwise.SPLIT)


def _affine(stage: Stage, *names: str) -> tuple[str, ...]:
    return names if dict(stage.operation.named).get("affine", 1) else ()


def check(stage: Stage) -> list[Rejection]:
    """Rejections of combinations, and of unknown reductions."""
    found: list[Rejection] = []
    operator = dict(stage.operation.named).get("op", "sum")
    if stage.operation.name == "reduce" and operator not in REDUCTIONS:
        return [Rejection(field="op", value=str(operator), reason="no such reduction", legal=", ".join(REDUCTIONS))]
    if not stage.operation.positional:
        return [
            Rejection(
                field=stage.operation.name, value="", reason="needs an operand", legal=f"{stage.operation.name}(x)"
            )
        ]
    if found := epilogue.check(stage):
        return found
    named = dict(stage.operation.named)
    if named.get("smoothing") and not named.get("logits", 1):
        reason = "the labels are smoothed with logits only"
        return [Rejection(field="smoothing", value=str(named["smoothing"]), reason=reason, legal="with logits=1")]
    if stage.operation.name == "matvec" and setting(stage, "rows") is not None:
        return matvec.check(stage)
    if stage.operation.name in GENERAL and needs_rowwise(stage):
        axis = dict(stage.operation.named).get("axis", "last")
        return (
            reject_settings(stage, ("passes",), "only without axis, unroll, cluster and parts", "nothing")
            or check_expression(stage.operation.positional[0], REDUCTIONS)
            or rowwise.check_axis(axis)
            or rowwise.check_settings(stage, expansion(stage), axis)
        )
    if setting(stage, "kept") is not None and setting(stage, "vector", 1) == 1:
        found.append(
            Rejection(
                field="kept",
                value="",
                reason="a row is kept in registers as vectors; set vector too",
                legal="with vector 2, 4 or 8",
            )
        )
    return found


AXES = "axis=last|last(n)|first|middle|all|i|over(i, j)|but(i)"
OPERATIONS = (
    Operation(
        name="softmax",
        about=f"softmax(x, {AXES})",
        settings=(*ROW, PASSES, KEPT, *MORE, THREADS),
        epilogues=("cast",),
        check=check,
        arguments=(AXIS,),
        expressions=True,
        roles=("x",),
    ),
    Operation(
        name="log_softmax",
        about="log_softmax(x, axis as softmax)",
        settings=(*ROW, KEPT, *MORE, THREADS),
        epilogues=("cast",),
        check=check,
        arguments=(AXIS,),
        expressions=True,
        roles=("x",),
    ),
    Operation(
        name="layernorm",
        about="layernorm(x, eps=1e-05, axis=last|last(n), affine=0|1); operands weight, bias of the axis' shape",
        settings=(*ROW, KEPT, *MORE, THREADS),
        epilogues=("cast",),
        check=check,
        arguments=(EPS, AXIS, AFFINE),
        expressions=True,
        roles=("x",),
        implied=lambda stage: _affine(stage, "weight", "bias"),
    ),
    Operation(
        name="rmsnorm",
        about="rmsnorm(x, eps=1e-05, axis, affine=0|1); operand weight",
        settings=(*ROW, KEPT, *MORE, THREADS),
        epilogues=("cast",),
        check=check,
        arguments=(EPS, AXIS, AFFINE),
        expressions=True,
        roles=("x",),
        implied=lambda stage: _affine(stage, "weight"),
    ),
    Operation(
        name="reduce",
        about=f"reduce(x or an expression, op={'|'.join(REDUCTIONS)}, axis as softmax, keepdim=0|1)",
        settings=(*ROW, THREADS, KEPT, *MORE, rowwise.THROUGH),
        epilogues=("cast",),
        check=check,
        arguments=(choice_argument("op", REDUCTIONS, "no such reduction"), AXIS, KEEPDIM),
        expressions=True,
        roles=("x",),
    ),
    Operation(
        name="crossentropy",
        about="crossentropy(x, target, reduction=mean|sum|none, logits=1|0, smoothing=0.1): loss of logits x "
        "(rows, classes), or with logits=0 of logarithms of shares, and class numbers; smoothing: the share of each "
        "label that all classes get",
        settings=(*ROW, KEPT),
        epilogues=("cast",),
        check=check,
        arguments=(
            choice_argument("reduction", ("mean", "sum", "none"), "how the rows' losses become one"),
            flag("logits", "whether x are logits"),
            Argument(
                name="smoothing",
                legal="a number from 0 to 1",
                reason="a share of each label",
                holds=lambda value: isinstance(value, int | float) and 0 <= value <= 1,
            ),
        ),
        roles=("x", "target"),
    ),
    Operation(
        name="matvec",
        about="matvec(x, vector, keepdim=0|1): x (rows, columns) times vector (columns)",
        settings=(*ROW, *MORE[:-1], matvec.ROWS),
        check=check,
        arguments=(KEEPDIM,),
        roles=("x", "vector"),
    ),
)
