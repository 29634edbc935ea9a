"""All operations of the language by name; a new one adds its module here."""

from __future__ import annotations

from workbench.dsl import attention, elementwise, gather, gemm, pool, rows, scan
from workbench.dsl.operation import Operation

MODULES = (elementwise, rows, gemm, attention, scan, pool, gather)
OPERATIONS: dict[str, Operation] = {operation.name: operation for module in MODULES for operation in module.OPERATIONS}
