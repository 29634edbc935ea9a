"""Matrix products: gemm, with or without a schedule for Hopper, and ggemm for groups of rows."""

from __future__ import annotations

from workbench.language.operations.gemm import grouped, operation

OPERATIONS = (*operation.OPERATIONS, *grouped.OPERATIONS)
