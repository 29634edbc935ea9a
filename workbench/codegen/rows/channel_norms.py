"""Lowering of batchnorm, groupnorm, its means, and instancenorm to the channel norm kernels."""

from __future__ import annotations

import dataclasses

from workbench.codegen.guards import called
from workbench.codegen.launch import Launch
from workbench.codegen.rows.lowering import HOST, make_config
from workbench.kernels.rows.config import RunningConfig
from workbench.language.expressions.lowering import moments, normalise, normalise_means
from workbench.language.expressions.reduction_passes import plan
from workbench.language.ir import Binding, Call, Stage
from workbench.language.operations.channel_norms import reduced_axis
from workbench.language.operations.epilogue import chain_of, write_expression

STATISTICS = ("running_mean", "running_var", "batches")


def lower_channel_norm(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of a channel norm."""
    name, named, bound = stage.operation.name, dict(stage.operation.named), dict(binding.operands)
    affine: tuple[str, ...] = ("weight", "bias") if named.get("affine", 1) else ()
    value = write_expression(chain_of(stage).calls, normalise("x", named.get("eps", 1e-5), bool(affine)))
    found = plan(value)
    affine = found.spread
    cfg = make_config(found, stage, axis=reduced_axis(stage.operation), keepdim=False)
    static: tuple[tuple[str, object], ...] = (
        ("cfg", cfg),
        ("names", tuple(called(item, bound) for item in ("x", *affine))),
    )
    function = {"batchnorm": "batch_norm", "groupnorm": "group_norm", "instancenorm": "instance_norm"}[name]
    operands: tuple[str, ...] = ("x", *affine)
    if name == "groupnorm":
        static = (*static, ("groups", int(str(named["groups"]))))
    if name == "batchnorm" and named.get("running", 0):
        function = "batch_norm_training"
        operands = (*operands, *STATISTICS)
        static = (
            ("cfg", dataclasses.replace(cfg, returns_values=True)),
            static[1],
            ("running", RunningConfig(momentum=float(str(named.get("momentum", 0.1))))),
            ("running_names", tuple(called(item, bound) for item in STATISTICS[:2])),
        )
    return Launch(
        entry=f"{HOST}.channel_norms:{function}",
        static=static,
        operands=operands,
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
