"""Finds the extents of a product at the full case: m, n, k and batches."""

from __future__ import annotations

import math

from workbench.proposers.recognition.graph import TRANSPOSES, aten_name
from workbench.proposers.recognition.patterns.products import PRODUCTS
from workbench.records import Case, Facts, Operation, record


@record
class Size:
    """Extents of a product."""

    m: int
    n: int
    k: int
    batches: int = 1


def size_of(facts: Facts) -> Size | None:
    """The extents of the product at the full case, from forward's inputs and the counted FLOPs.

    None if the facts do not tell them.
    """
    product = next((op for op in facts.graph if aten_name(op) in PRODUCTS), None)
    if product is None:
        return None
    return _size_from_shapes(facts, product) or _size_from_flops(facts, product)


def _size_from_shapes(facts: Facts, product: Operation) -> Size | None:
    """The extents if the sizes of all values are known, else None."""
    shapes = {spec.name: spec.shape for spec in facts.full}
    a, b = (shapes.get(name) for name in product.operands[-2:])
    if a is None or b is None or not 2 <= len(a) <= 3 or len(b) < 2 or min(*a, *b) < 1:
        return None
    return Size(m=a[-2], n=b[-1], k=a[-1], batches=math.prod(a[:-2]))


def _size_from_flops(facts: Facts, product: Operation) -> Size | None:
    """The extents if at least one operand is an input of forward. FLOPs give the extent of the other operand."""
    case = next((case for case in facts.cases if case.name == "full"), None)
    work = next((work for work in facts.work if work.case == "full"), None)
    if case is None or work is None:
        return None
    flops = next((flops for name, flops in work.parts if name.split(".")[-1] in PRODUCTS or "mm" in name), work.flops)
    a, b = (_full_shape(facts, case, name) for name in product.operands[-2:])
    if a is not None:
        *lead, m, k = a
        batches = math.prod(lead)
        n = b[-1] if b is not None else flops // max(2 * m * k * batches, 1)
    elif b is not None:
        *lead, k, n = b
        batches = math.prod(lead)
        m = flops // max(2 * n * k * batches, 1)
    else:
        return None
    return Size(m=m, n=n, k=k, batches=batches) if min(m, n, k, batches) > 0 else None


def operand_shapes(facts: Facts, name: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shapes of the first two operands of an ATen call at the full case; None unless both are inputs of forward."""
    case = next((case for case in facts.cases if case.name == "full"), None)
    call = next((op for op in facts.graph if aten_name(op) == name), None)
    if case is None or call is None:
        return None
    a, b = (_full_shape(facts, case, value) for value in call.operands[:2])
    return (a, b) if a is not None and b is not None else None


def _full_shape(facts: Facts, case: Case, value: str) -> tuple[int, ...] | None:
    """The shape of an operand at a case, looking through one transposition.

    None for a parameter, whose size depends on the module.
    """
    op = next((op for op in facts.graph if op.name == value), None)
    turned = op is not None and aten_name(op) in TRANSPOSES
    name = op.operands[0] if op is not None and turned else value
    spec = next((spec for spec in case.inputs if spec.name == name), None)
    if spec is None or len(spec.shape) < 2:
        return None
    shape = tuple(spec.shape)
    return (*shape[:-2], shape[-1], shape[-2]) if turned else shape
