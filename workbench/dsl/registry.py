"""All operations of the language by name; a new one adds its module here."""

from __future__ import annotations

from workbench.dsl import attention, channels, conv, elementwise, gather, gemm, hopper_grouped, pool, rows, rowwise, scan, views
from workbench.dsl.operation import Operation

MODULES = (elementwise, rows, rowwise, channels, scan, pool, gather, gemm, hopper_grouped, conv, attention, views)
OPERATIONS: dict[str, Operation] = {operation.name: operation for module in MODULES for operation in module.OPERATIONS}
