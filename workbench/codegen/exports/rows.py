"""Which computations have a gradient with kernels of its own: sums and means over compressed rows of indices."""

from __future__ import annotations

from workbench.language.ir import Call
from workbench.records import Facts, record


@record
class RowsGradient:
    """The reference as a reduction over compressed rows: its operands are arguments of forward or parameters."""

    reduce: str
    operands: tuple[tuple[str, str], ...]  # x, indptr, indices and perhaps weight -> `x`, or `self.table`


def gradient_of(call: Call, operands: tuple[tuple[str, str], ...], facts: Facts) -> RowsGradient | None:
    """The gradient of a computation; None if it is another operation, or one of its operands is computed."""
    reduce = str(dict(call.named).get("op", "sum"))
    known = {*facts.forward_arguments, *(f"self.{spec.name}" for spec in facts.parameters)}
    if call.name != "aggregate" or reduce == "max" or not {text for _, text in operands} <= known:
        return None
    return RowsGradient(reduce=reduce, operands=operands)
