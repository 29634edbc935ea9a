"""Lowers the operations over compressed rows of indices."""

from __future__ import annotations

from workbench.codegen.gemm.lower import operand_names
from workbench.codegen.launch import Launch
from workbench.language.ir import Binding, Stage
from workbench.language.operations.graphs.aggregate import config_of
from workbench.language.operations.graphs.attention import sddmm_config, softmax_config


def lower_aggregate(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of aggregate."""
    weights = ("weight",) if dict(stage.operation.named).get("weighted") else ()
    roles = ("x", "indptr", "indices", *weights)
    return Launch(
        entry="workbench.kernels.aggregate.host:aggregate",
        static=(("cfg", config_of(stage)), ("names", operand_names(roles, dict(binding.operands)))),
        operands=roles,
        many=(("weights", weights),),
    )


def lower_sddmm(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of sddmm."""
    return _lower("sddmm", sddmm_config(stage), ("q", "k", "indptr", "indices"), binding)


def lower_segment_softmax(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of segment_softmax."""
    return _lower("segment_softmax", softmax_config(stage), ("scores", "indptr"), binding)


def _lower(function: str, config: object, roles: tuple[str, ...], binding: Binding) -> Launch:
    return Launch(
        entry=f"workbench.kernels.graph_attention.host:{function}",
        static=(("cfg", config), ("names", operand_names(roles, dict(binding.operands)))),
        operands=roles,
    )
