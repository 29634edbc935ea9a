"""All operations of the language by name; a new one adds its module here."""

from __future__ import annotations

from workbench.language.operation import Operation
from workbench.language.operations import (
    attention,
    channel_norms,
    concat,
    conv,
    elementwise,
    gather,
    gemm,
    graphs,
    outputs,
    pool,
    remap,
    rows,
    rowwise,
    scan,
    top_k,
    view,
)

MODULES = (
    elementwise,
    rows,
    rowwise,
    channel_norms,
    scan,
    pool,
    gather,
    graphs,
    gemm,
    conv,
    attention,
    view,
    outputs,
    concat,
    remap,
    top_k,
)
OPERATIONS: dict[str, Operation] = {operation.name: operation for module in MODULES for operation in module.OPERATIONS}
