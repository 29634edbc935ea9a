"""rowwise(expression with reductions): its settings, their defaults and their checks."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.language.expressions import axes
from workbench.language.expressions.expressions import check_expression
from workbench.language.expressions.reduction_passes import Plan, plan
from workbench.language.expressions.reductions import REDUCTIONS
from workbench.language.ir import Rejection, Stage, number, setting
from workbench.language.operation import (
    ARCH,
    AXIS,
    KEEPDIM,
    KEPT,
    THREADS,
    THREADS_PER_ROW,
    UNROLL,
    VECTOR,
    Operation,
    Setting,
)
from workbench.language.operations import bulk_copy, epilogue
from workbench.language.parser import format_value
from workbench.records import record


@record
class How:
    """The settings of a stage."""

    threads: int
    vector: int
    unroll: int
    kept: bool
    cluster: int
    split: int
    parts: int


def how(stage: Stage, strided: bool) -> How:
    """Settings with their defaults."""
    split = number(stage, "split", 1)
    threads = (
        (number(stage, "threads", 128) if split == 1 else 32 * split)
        if strided
        else number(stage, "threads_per_row", 32)
    )
    return How(
        threads=threads,
        vector=number(stage, "vector", 1),
        unroll=number(stage, "unroll", 1),
        kept=setting(stage, "kept") is not None,
        cluster=number(stage, "cluster", 1),
        split=split,
        parts=number(stage, "parts", 1),
    )


SPLIT = Setting(name="split", values=(1, 2, 4, 8, 16, 32), reason="a CTA has at most 32 warps")
CLUSTER = Setting(
    name="cluster",
    values=(1, 2, 4, 8),
    reason="a cluster has at most 8 CTAs",
    meaning="the {values} CTAs of a cluster share a row",
)
PARTS = Setting(name="parts", values=(1, 8, 32, 128, 512, 1024), closed=False)
THROUGH = Setting(
    name="through",
    values=("shared",),
    closed=False,
    meaning="rows come to shared memory by bulk copies, ahead of the threads that reduce them, wherever they begin",
)
SHARED_BYTES = 48 * 1024  # of a CTA, without asking for more
SETTINGS = (ARCH, THREADS_PER_ROW, VECTOR, UNROLL, KEPT, CLUSTER, THREADS, SPLIT, PARTS, THROUGH)


def check(stage: Stage) -> list[Rejection]:
    """Rejections of the expression, the axis, and of settings that do not go together."""
    if not stage.operation.positional:
        return [Rejection(field="rowwise", value="", reason="needs an expression", legal="for example div(x, sum(x))")]
    value = stage.operation.positional[0]
    return (
        epilogue.check(stage)
        or check_expression(value, REDUCTIONS)
        or check_axis(dict(stage.operation.named).get("axis", "last"))
        or check_settings(stage, value, dict(stage.operation.named).get("axis", "last"))
    )


def check_axis(axis: object) -> list[Rejection]:
    """An axis that is none."""
    return (
        []
        if axes.is_axis(axis)
        else [
            Rejection(
                field="axis",
                value=format_value(axis),
                reason="no such axis",
                legal="last, last(n), first, middle, all, a number from 0, over(i, j), but(i)",
            )
        ]
    )


def check_settings(stage: Stage, value: object, axis: object) -> list[Rejection]:
    """Settings that do not go together with each other, the axis or the expression."""
    found, view = plan(value), axes.view(axis)
    chosen = how(stage, view.strided)
    said: list[Rejection] = bulk_copy.check(stage, found, view)
    if not found.levels or not found.plain:
        said.append(
            Rejection(
                field="rowwise",
                value="",
                reason="nothing is reduced" if found.plain else "no tensor has the full shape",
                legal="elementwise(expression), or a reduction such as sum(x)",
            )
        )
        return said
    return [*said, *_check_parts(chosen, view), *_check_shared(stage, chosen, view), *_check_axis(chosen, found, view)]


def _check_parts(chosen: How, view: axes.View) -> Iterator[Rejection]:
    """A row in parts: how many, and what does not go with it."""
    parts = str(chosen.parts)
    if chosen.parts < 1:
        yield Rejection(field="parts", value=parts, reason="a row has at least one part", legal="1 to 1024")
    if chosen.parts > 1 and not view.strided and chosen.threads < 32:
        yield Rejection(
            field="parts",
            value=parts,
            reason=f"whole warps put a part together, and threads_per_row({chosen.threads}) gives a row less than one",
            legal="with threads_per_row from 32",
        )
    if chosen.kept and chosen.parts > 1:
        yield Rejection(
            field="kept",
            value="",
            reason="a row in parts is read by several kernels, so it is not kept",
            legal="kept without parts",
        )


def _check_shared(stage: Stage, chosen: How, view: axes.View) -> Iterator[Rejection]:
    """CTAs of a cluster that share a row."""
    is_possible = not view.strided and chosen.threads >= 64 and chosen.parts <= 1
    if chosen.cluster > 1 and not (is_possible and setting(stage, "arch") == "sm_90a"):
        yield Rejection(
            field="cluster",
            value=str(chosen.cluster),
            reason="CTAs of a cluster share a contiguous row, whole, on sm_90a",
            legal="with arch(sm_90a), threads_per_row from 64, axis=last, without parts",
        )


def _check_axis(chosen: How, found: Plan, view: axes.View) -> Iterator[Rejection]:
    """Parts and groups of threads along axes that are not the last."""
    parts = str(chosen.parts)
    if view.segments and chosen.parts == 1:
        yield Rejection(field="parts", value="1", reason="all but one axis is reduced in parts", legal="from 2")
    values = sum(len(item.state) for item in found.reductions)
    if view.strided and chosen.split > 1 and chosen.vector * chosen.split * 32 * 4 * values > SHARED_BYTES:
        yield Rejection(
            field="split",
            value=str(chosen.split),
            reason="the groups do not fit into 48 KB of shared memory",
            legal="a smaller split or vector",
        )
    if found.places and chosen.parts > 1 and view.segments:
        yield Rejection(
            field="parts",
            value=parts,
            reason="a place over all but one axis is not numbered",
            legal="argmax over one axis, or all",
        )


OPERATIONS = (
    Operation(
        name="rowwise",
        about="rowwise(expression, axis=last|last(n)|first|middle|all|i|over(i, j)|but(i), keepdim=0|1): "
        "an expression in which "
        + ", ".join(REDUCTIONS)
        + " of one argument reduce over the axis, such as div(x, sqrt(sum(mul(x, x)))); spread(b): b is broadcast; "
        "parts(n): n CTAs share a row, cluster(n): n CTAs through each other's shared memory",
        settings=SETTINGS,
        epilogues=("cast",),
        check=check,
        arguments=(AXIS, KEEPDIM),
    ),
)
