"""Lowers aggregate."""

from __future__ import annotations

from workbench.codegen.gemm.lower import operand_names
from workbench.codegen.launch import Launch
from workbench.language.ir import Binding, Stage
from workbench.language.operations.graphs.aggregate import config_of


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
