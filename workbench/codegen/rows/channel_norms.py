"""Lowering of batchnorm, its statistics, groupnorm, its means, and instancenorm to the channel norm kernels."""

from __future__ import annotations

import dataclasses

from workbench.codegen.guards import called
from workbench.codegen.launch import Launch
from workbench.codegen.rows.lowering import HOST, make_config
from workbench.kernels.rows.config import RowConfig, StatisticsConfig
from workbench.language.expressions.lowering import moments, normalise, normalise_means
from workbench.language.expressions.reduction_passes import plan
from workbench.language.ir import Binding, Call, Stage
from workbench.language.operations.channel_norms import RUNNING, STATS, reduced_axis
from workbench.language.operations.epilogue import chain_of, write_expression


def lower_channel_norm(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of a channel norm."""
    name, named, bound = stage.operation.name, dict(stage.operation.named), dict(binding.operands)
    affine: tuple[str, ...] = ("weight", "bias") if named.get("affine", 1) and name != STATS else ()
    value = write_expression(chain_of(stage).calls, normalise("x", named.get("eps", 1e-5), bool(affine)))
    found = plan(value)
    affine = found.spread
    cfg = make_config(found, stage, axis=reduced_axis(stage.operation), keepdim=False)
    static: tuple[tuple[str, object], ...] = (
        ("cfg", cfg),
        ("names", tuple(called(item, bound) for item in ("x", *affine))),
    )
    if name == STATS or named.get("running", 0):
        return _lower_statistics(stage, bound, cfg, static[1:], affine)
    function = {"batchnorm": "batch_norm", "groupnorm": "group_norm", "instancenorm": "instance_norm"}[name]
    if name == "groupnorm":
        static = (*static, ("groups", int(str(named["groups"]))))
    return Launch(
        entry=f"{HOST}.channel_norms:{function}",
        static=static,
        operands=("x", *affine),
        many=(("affine", affine),),
    )


def lower_group_means(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of the means of a group norm: moments of the channels, then results of the groups."""
    named, bound = dict(stage.operation.named), dict(binding.operands)
    affine = ("weight", "bias") if named.get("affine", 1) else ()
    cfg = make_config(plan(moments("x")), stage, axis=reduced_axis(stage.operation), keepdim=False)
    by_warps = Stage(operation=Call(name="rowwise"), settings=(Call(name="threads_per_row", positional=(32,)),))
    ending = make_config(
        plan(normalise_means(named.get("eps", 1e-5), bool(affine))), by_warps, axis="last", keepdim=False
    )
    return Launch(
        entry=f"{HOST}.channel_norms:group_norm_means",
        static=(
            ("cfg", dataclasses.replace(cfg, returns_values=True)),
            ("ending", ending),
            ("keepdim", bool(named.get("keepdim", 0))),
            ("names", tuple(called(item, bound) for item in ("x", *affine))),
            ("groups", int(str(named["groups"]))),
        ),
        operands=("x", *affine),
        many=(("affine", affine),),
    )


def _lower_statistics(
    stage: Stage,
    bound: dict[str, str],
    cfg: RowConfig,
    names: tuple[tuple[str, object], ...],
    affine: tuple[str, ...],
) -> Launch:
    """Return the launch of a batch norm that updates running statistics, or of the statistics alone."""
    named, is_alone = dict(stage.operation.named), stage.operation.name == STATS
    running = RUNNING if named.get("running", 0) else ()
    statistics = StatisticsConfig(
        momentum=float(str(named.get("momentum", 0.1))), eps=float(str(named.get("eps", 1e-5)))
    )
    return Launch(
        entry=f"{HOST}.channel_norms:{'batch_norm_stats' if is_alone else 'batch_norm_training'}",
        static=(
            ("cfg", dataclasses.replace(cfg, returns_values=True, has_result=not is_alone)),
            ("statistics", statistics),
            *names,
            ("running_names", tuple(called(item, bound) for item in running[:2])),
        ),
        operands=("x", *affine, *running),
        many=(*(() if is_alone else (("affine", affine),)), ("running", running)),
    )
