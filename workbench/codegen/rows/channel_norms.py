"""Lowering of batchnorm, batch_norm_stats, groupnorm and instancenorm to the channel norm kernels."""

from __future__ import annotations

import dataclasses

from workbench.codegen.guards import called
from workbench.codegen.launch import Launch
from workbench.codegen.rows.lowering import HOST, make_config
from workbench.kernels.rows.config import RowConfig, StatisticsConfig
from workbench.language.expressions.lowering import normalise
from workbench.language.expressions.reduction_passes import plan
from workbench.language.ir import Binding, Stage
from workbench.language.operations.channel_norms import RUNNING, STATS, reduced_axis


def lower_channel_norm(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of a channel norm."""
    name, named, bound = stage.operation.name, dict(stage.operation.named), dict(binding.operands)
    affine = ("weight", "bias") if named.get("affine", 1) and name != STATS else ()
    value = normalise("x", named.get("eps", 1e-5), bool(affine))
    cfg = make_config(plan(value), stage, axis=reduced_axis(stage.operation), keepdim=False)
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
