"""Lowering of rowwise, softmax, norms and reductions to the row kernels."""

from __future__ import annotations

import dataclasses

from workbench.codegen.guards import called, reads_integers
from workbench.codegen.launch import Launch
from workbench.codegen.rows.hooks import make_levels, make_online_level, make_prologue, make_result
from workbench.kernels.rows.config import BulkConfig, Level, LossConfig, RowConfig, Slot
from workbench.language.expressions import axes
from workbench.language.expressions.lowering import expansion, needs_rowwise
from workbench.language.expressions.reduction_passes import (
    Plan,
    compensate_variances,
    find_prologue,
    plan,
    replace_part,
)
from workbench.language.ir import Binding, Call, Stage, number, setting
from workbench.language.operations import bulk_copy
from workbench.language.operations.epilogue import chain_of
from workbench.language.operations.rowwise import How, how

HOST = "workbench.kernels.rows"
MATRIX_OPERATIONS = ("softmax", "layernorm", "rmsnorm", "reduce", "matvec", "crossentropy")
UNDEFINED = ("max", "min", "argmax", "argmin")  # reductions that have no value without elements


def lower_rowwise(stage: Stage, binding: Binding) -> Launch:
    """Lower rowwise(expression, axis=last, keepdim=0)."""
    return lower_expression(stage.operation.positional[0], stage, binding)


def lower_reduction(stage: Stage, binding: Binding) -> Launch:
    """Lower softmax, log_softmax, layernorm, rmsnorm, reduce and matvec by their expression."""
    return lower_expression(expansion(stage), stage, binding)


def lower_matrix_vector(stage: Stage, binding: Binding) -> Launch:
    """Lower matvec(x, vector) without rows: one sum of products per row."""
    launch = lower_expression(expansion(stage), stage, binding)
    return Launch(entry=f"{HOST}.reductions:matrix_vector", static=launch.static, operands=("x", "vector"))


def lower_plane_pool(stage: Stage, binding: Binding) -> Launch:
    """Lower pool(x, window=all): a reduction of each plane."""
    op = "mean" if dict(stage.operation.named).get("op", "max") == "avg" else "max"
    call = Call(name="reduce", positional=("x",), named=(("op", op), ("axis", "last")))
    kept = tuple(item for item in stage.settings if item.name in ("arch", "threads_per_row", "vector"))
    launch = lower_reduction(Stage(operation=call, settings=kept), binding)
    return Launch(entry=f"{HOST}.reductions:plane_pool", static=launch.static, operands=("x",))


def lower_expression(value: object, stage: Stage, binding: Binding) -> Launch:
    """Return the launch of an expression with reductions over the stage's axis."""
    named = dict(stage.operation.named)
    found = plan(value)
    bound = dict(binding.operands)
    operands = (*found.plain, *found.spread)
    part = _find_kept(found, stage)
    passes = found if part is None else plan(replace_part(found.value, part, _free_name("element", operands)))
    cfg = dataclasses.replace(
        make_config(passes, stage, axis=named.get("axis", "last"), keepdim=bool(named.get("keepdim", 0))),
        prologue=None if part is None else make_prologue(found, part),
        reads_integers=reads_integers((*found.plain, *found.spread), binding),
    )
    if setting(stage, "through") is not None:
        return _lower_bulk(cfg, found, stage, bound)
    many = (("inputs", found.plain), ("repeated", found.spread))
    return Launch(
        entry=f"{HOST}.{host_function(cfg)}",
        static=(("cfg", cfg), ("names", tuple(called(name, bound) for name in operands))),
        operands=operands,
        many=many[1:] if cfg.is_matrix else many,
    )


def _find_kept(found: Plan, stage: Stage) -> Call | None:
    """The part of an expression of which rows in registers are kept, in place of its tensors."""
    axis = axes.view(dict(stage.operation.named).get("axis", "last"))
    is_kept = setting(stage, "kept") is not None and not axis.strided and not axis.segments
    return find_prologue(found.value) if is_kept and not is_matrix(stage) else None


def _free_name(name: str, taken: tuple[str, ...]) -> str:
    """The name, or one made of it that is not taken."""
    return name if name not in taken else _free_name(f"{name}_", taken)


def _lower_bulk(rows: RowConfig, found: Plan, stage: Stage, bound: dict[str, str]) -> Launch:
    threads = number(stage, "threads", bulk_copy.THREADS)
    strip = threads * number(stage, "unroll", bulk_copy.UNROLL)
    cfg = BulkConfig(rows=rows, threads=threads, strip=strip, pieces=bulk_copy.PIECES, room=bulk_copy.ROOM)
    return Launch(
        entry=f"{HOST}.bulk_copy:bulk_reduction",
        static=(("cfg", cfg), ("names", tuple(called(name, bound) for name in found.plain))),
        operands=found.plain,
        many=(("inputs", found.plain),),
    )


def lower_cross_entropy(stage: Stage, binding: Binding) -> Launch:
    """Lower crossentropy(x, target): softmax's two passes, then the loss of each row."""
    named, bound = dict(stage.operation.named), dict(binding.operands)
    below = Call(name="sub", positional=("x", Call(name="max", positional=("x",))))
    total = Call(name="sum", positional=(Call(name="exp", positional=(below,)),))
    smoothing = float(str(named.get("smoothing", 0)))
    if smoothing:
        total = Call(name="add", positional=(total, Call(name="mean", positional=("x",))))
    rows = make_config(plan(total), stage, axis="last", keepdim=False)
    if not named.get("logits", 1):
        rows = dataclasses.replace(rows, levels=(), memory=())
    cfg = LossConfig(rows=rows, reduction=str(named.get("reduction", "mean")), smoothing=smoothing)
    return Launch(
        entry=f"{HOST}.cross_entropy:cross_entropy",
        static=(("cfg", cfg), ("names", (called("x", bound), called("target", bound)))),
        operands=("x", "target"),
    )


def host_function(cfg: RowConfig) -> str:
    """Return the entry (module and function) that reduces a tensor with this configuration."""
    if cfg.is_matrix:
        return "host:matrix_reduction"
    if cfg.parts > 1 and cfg.layout == "columns":
        return "two_pass_host:two_pass_columns"
    if cfg.parts > 1:
        return "two_pass_host:one_value" if cfg.is_one_value else "two_pass_host:two_pass_reduction"
    return "host:column_reduction" if cfg.layout == "columns" else "host:row_reduction"


def make_config(found: Plan, stage: Stage, *, axis: object, keepdim: bool) -> RowConfig:
    """Return the configuration of a plan over an axis."""
    kind, first, last, least = axis_of(axis)
    by_columns = kind == "strided"
    chosen = settings_of(stage, by_columns)
    is_combined = chosen.split > 1 if by_columns else chosen.threads > 32 or chosen.cluster > 1 or chosen.parts >= 2048
    if not by_columns and chosen.threads == chosen.parts == chosen.cluster == 1:
        found = compensate_variances(found)
    if setting(stage, "passes") == 2:
        levels: tuple[Level, ...] = (make_online_level(found, is_combined=is_combined),)
        memory: tuple[Slot, ...] = (Slot(name="value"),)
    else:
        levels, memory = make_levels(found, by_columns=by_columns, is_combined=is_combined)
    undefined = [item.op for item in found.reductions if item.base in UNDEFINED]
    return RowConfig(
        levels=levels,
        memory=memory,
        result=make_result(found, len(found.levels)),
        is_matrix=not by_columns and is_matrix(stage),
        axis=kind,
        first_axis=first,
        last_axis=last,
        least_axes=least,
        keepdim=keepdim,
        is_place=found.places,
        undefined=undefined[0] if undefined else "",
        threads=chosen.threads,
        vector=chosen.vector,
        unroll=1 if chosen.kept and chosen.parts == 1 else chosen.unroll,  # what is kept is loaded at once
        is_kept=chosen.kept,
        cluster=chosen.cluster,
        split=chosen.split if by_columns else 1,  # of a row nothing is split among groups
        parts=chosen.parts,
        out=chain_of(stage).cast or "",
    )


def is_matrix(stage: Stage) -> bool:
    """Whether x is read as a matrix of rows: the plain forms of these operations over the last axis."""
    return stage.operation.name in MATRIX_OPERATIONS and not needs_rowwise(stage)


def settings_of(stage: Stage, by_columns: bool) -> How:
    """Return the settings with their defaults; operations on the rows of a matrix default to one thread per row."""
    chosen = how(stage, by_columns)
    if is_matrix(stage) and not by_columns and setting(stage, "threads_per_row") is None:
        return dataclasses.replace(chosen, threads=1)
    return chosen


def axis_of(axis: object) -> tuple[str, int, int, int]:
    """Return (kind, first, last, minimum rank) of a known axis, as in `RowConfig`."""
    least = axes.view(axis).least
    if axis == "last":
        return "last", 0, 1, least
    if axis == "all":
        return "all", 0, 0, least
    if isinstance(axis, Call) and axis.name in ("last", "but"):
        (count,) = (int(str(item)) for item in axis.positional)
        return (axis.name, 0, count, least) if axis.name == "last" else (axis.name, count, count, least)
    first, last = axes.axis_range(axis)
    return "strided", first, last, least
