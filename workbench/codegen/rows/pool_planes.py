"""poolwise(expression, op, window) -> a launch of the kernel that pools and reduces planes."""

from __future__ import annotations

import dataclasses

from workbench.codegen.guards import called
from workbench.codegen.launch import Launch
from workbench.codegen.rows.lowering import make_config
from workbench.codegen.simple import pool_config
from workbench.kernels.pool.config import PlanesConfig
from workbench.language.expressions.reduction_passes import plan
from workbench.language.ir import Binding, Call, Stage, number


def lower_poolwise(stage: Stage, binding: Binding) -> Launch:
    """Return the launch of a pool whose planes are reduced."""
    threads = number(stage, "threads", 256)
    found = plan(stage.operation.positional[0])
    by_rows = dataclasses.replace(stage, settings=(Call(name="threads_per_row", positional=(threads,)),))
    (x,) = found.plain
    config = PlanesConfig(
        pool=pool_config(stage),
        rows=make_config(found, by_rows, axis="last", keepdim=False),
        threads=threads,
        turns=number(stage, "unroll", 1),
        keepdim=bool(dict(stage.operation.named).get("keepdim", 0)),
    )
    return Launch(
        entry="workbench.kernels.pool.planes:pool_planes",
        static=(("cfg", config), ("names", (called(x, dict(binding.operands)),))),
        operands=(x,),
    )
