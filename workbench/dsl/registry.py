"""All operations of the language by name; a new one adds its module here."""

from __future__ import annotations

from workbench.dsl import elementwise, gemm, hopper_grouped, rows
from workbench.dsl.operation import Operation

MODULES = (elementwise, rows, gemm, hopper_grouped)
OPERATIONS: dict[str, Operation] = {operation.name: operation for module in MODULES for operation in module.OPERATIONS}
