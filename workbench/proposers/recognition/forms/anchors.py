"""Pieces of a pipeline around products: vectors that their epilogues read, and what a piece costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from workbench.proposers.recognition.graph import DISTANCES, aten_name, plain_name
from workbench.proposers.recognition.views import ELEMENT
from workbench.records import Operation, TensorSpec

PRODUCTS = ("mm", "bmm", "addmm", "mv", "_grouped_mm", DISTANCES)
SUMS = ("sum", "mean", "amax", "amin", "prod", "logsumexp", "linalg_vector_norm", "norm")
Cone = Callable[[str], list[Operation]]  # the operations that a value still needs


def find_vector_beside(
    anchor: Operation, by_name: Mapping[str, Operation], readers: Mapping[str, list[Operation]], cone: Cone
) -> Operation | None:
    """A sum of rows or columns that an element-wise call behind a product combines with its result.

    It is made first, so that the call is an epilogue. None if there is none, or if it depends on the product.
    """
    value = anchor
    while aten_name(anchor) in PRODUCTS and len(value.result) == 1 and len(value.result[0].shape) == 2:
        users = readers.get(value.name, [])
        if len(users) != 1 or plain_name(users[0]) not in ELEMENT:
            return None
        for name in users[0].operands:
            op = by_name.get(name)
            if op is not None and op is not value and _is_vector_of(op, value.result[0].shape):
                needed = cone(name)
                if anchor not in needed and any(aten_name(item) in SUMS for item in needed):
                    return op
        value = users[0]
    return None


def _is_vector_of(op: Operation, shape: tuple[int, ...]) -> bool:
    """Whether an operation gives one number for each row, or for each column, of a matrix."""
    rows, columns = shape
    return len(op.result) == 1 and rows != 1 != columns and op.result[0].shape in ((rows, 1), (1, columns), (columns,))


def count_work(cone: Sequence[Operation], by_name: Mapping[str, Operation], full: Mapping[str, TensorSpec]) -> int:
    """Cost of a piece, to order pieces by importance. A moved element counts as 100 FLOPs of a product."""
    total = 0
    for op in cone:
        sizes = [
            full.get(name) or next(iter(by_name[name].result if name in by_name else ()), None)
            for name in (op.name, *op.operands[:3])
        ]
        counts = [math.prod(spec.shape) if spec is not None else 0 for spec in sizes]
        if aten_name(op) == "convolution" and (weight := sizes[2]) is not None:
            total += 2 * max(counts[0], counts[1]) * math.prod(weight.shape[1:])
        elif aten_name(op) in PRODUCTS and (left := sizes[-2 if aten_name(op) == "addmm" else 1]) is not None:
            total += 2 * counts[0] * left.shape[-1]
        else:
            total += 100 * counts[0]
    return total
