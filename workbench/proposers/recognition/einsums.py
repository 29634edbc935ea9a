"""Batched products between views, as `einsum` makes them -> the plain product that they are.

`einsum("ik,kj->ij", a, b)` is traced as unsqueeze, permute and view of both, a bmm of one batch, and views back. What a view is of contiguous memory its shape and strides say: where the operands are a
matrix, or matrices one after another, as they stand or transposed, and the result is left in its order, the views are left out. Tensors of more axes are left to others.
"""

from __future__ import annotations

import dataclasses
import math

from workbench.proposers.recognition import views
from workbench.proposers.recognition.graph import names, short
from workbench.records import Facts, Operation, TensorSpec

Specs = dict[str, TensorSpec]
VIEWS = (*views.NAMES, "expand")


def straightened(facts: Facts) -> Facts:
    """The same graph with mm, or a bmm of what forward reads, for each bmm that is one behind views; the facts themselves where there is none."""
    products = [op for op in facts.graph if short(op) == "bmm"]
    for op in products:
        facts = _straightened(facts, op)
    return facts


def _straightened(facts: Facts, product: Operation) -> Facts:
    graph, by_name = facts.graph, {op.name: op for op in facts.graph}
    sizes = [_specs(facts)] + ([_full(facts)] if facts.full else [])
    last = _end(graph, product)
    bases = [_base(by_name, value) for value in product.operands]
    if last is product or any(base == value for base, value in zip(bases, product.operands, strict=True)):
        return facts
    forms = [{_form(specs.get(base), specs.get(value)) for specs in sizes} for base, value in zip(bases, product.operands, strict=True)]
    ranks = {len(sizes[0][base].shape) for base in bases if base in sizes[0]}
    leads = [{specs[base].shape[:-2] for base in bases if base in specs} for specs in sizes]
    if any(len(form) != 1 or None in form for form in forms) or ranks not in ({2}, {3}) or any(len(lead) != 1 for lead in leads):
        return facts
    if any(not _plain(specs.get(last.name)) or specs[last.name].shape != (*next(iter(lead)), *specs[product.name].shape[-2:]) for specs, lead in zip(sizes, leads, strict=True)):
        return facts
    made = _Made(sizes)
    operands = tuple(made.operand(f"{product.name}_{side}", base, str(*form)) for side, base, form in zip("ab", bases, forms, strict=True))
    made.add(last.name, "aten.mm.default" if ranks == {2} else "aten.bmm.default", operands, [specs[last.name].shape for specs in sizes])
    place = graph.index(last)
    kept = _used((*graph[:place], *made.operations, *graph[place + 1 :]), {product.name, *(op.name for op in graph if short(op) in VIEWS)})
    more = tuple(made.full) if facts.full else ()
    return dataclasses.replace(facts, graph=kept, full=(*(spec for spec in facts.full if spec.name not in {item.name for item in more}), *more))


class _Made:
    """Operations that are put in, and what they give at full size."""

    def __init__(self, sizes: list[Specs]) -> None:
        self.sizes, self.operations, self.full = sizes, list[Operation](), list[TensorSpec]()

    def operand(self, name: str, base: str, form: str) -> str:
        """A tensor, transposed if need be."""
        if form == "plain":
            return base
        return self.add(name, "aten.transpose.int", (base, "-2", "-1"), [(*shape[:-2], shape[-1], shape[-2]) for shape in (specs[base].shape for specs in self.sizes)], turned=True)

    def add(self, name: str, target: str, operands: tuple[str, ...], shapes: list[tuple[int, ...]], *, turned: bool = False) -> str:
        """One operation; `turned`: the last two axes of its result are stored in the other order."""
        dtype = self.sizes[0][operands[0]].dtype
        specs = [TensorSpec(name=name, shape=shape, dtype=dtype, strides=_turned(shape) if turned else _strides(shape)) for shape in shapes]
        for known, spec in zip(self.sizes, specs, strict=True):
            known[name] = spec
        self.operations.append(Operation(name=name, target=target, operands=operands, result=(dataclasses.replace(specs[0], name="output0"),)))
        self.full.append(specs[-1])
        return name


def _specs(facts: Facts) -> Specs:
    state = {f"{kind}:{spec.name}": spec for kind in ("param", "buffer") for spec in facts.parameters}
    return {**{spec.name: spec for spec in facts.cases[0].inputs}, **state, **{op.name: op.result[0] for op in facts.graph if op.result}}


def _full(facts: Facts) -> Specs:
    return {spec.name: spec for spec in facts.full}


def _base(by_name: dict[str, Operation], value: str) -> str:
    """What a value is a view of."""
    while value in by_name and short(by_name[value]) in VIEWS:
        value = by_name[value].operands[0]
    return value


def _end(graph: tuple[Operation, ...], product: Operation) -> Operation:
    """The last of the views that a result goes through before anything else reads it."""
    last = product
    while True:
        users = [op for op in graph if any(last.name in names(text) for text in op.operands)]
        if len(users) != 1 or short(users[0]) not in VIEWS:
            return last
        last = users[0]


def _form(base: TensorSpec | None, view: TensorSpec | None) -> str | None:
    """How (batches, rows, columns) are read from a tensor: as it stands, or transposed; None for anything else, or where an extent of 1 leaves it open."""
    if base is None or view is None or len(base.shape) < 2 or len(view.shape) != 3 or not _plain(base) or 1 in view.shape[1:]:
        return None
    rows, columns = base.shape[-2:]
    if view.shape[0] != math.prod(base.shape[:-2]) or (view.shape[0] > 1 and view.strides[0] != rows * columns):
        return None
    if view.shape[1:] == (rows, columns) and view.strides[1:] == (columns, 1):
        return "plain"
    return "transposed" if view.shape[1:] == (columns, rows) and view.strides[1:] == (1, columns) else None


def _plain(spec: TensorSpec | None) -> bool:
    """Whether a tensor is contiguous and has no extent of 1, of which strides say nothing."""
    return spec is not None and 1 not in spec.shape and spec.strides == _strides(spec.shape)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*(math.prod(shape[axis + 1 :]) for axis in range(len(shape) - 2)), 1, shape[-2])


def _used(graph: tuple[Operation, ...], droppable: set[str]) -> tuple[Operation, ...]:
    """The graph without the named operations that nobody reads any more."""
    while True:
        read = {name for op in graph for text in (*op.operands, *(text for _, text in op.keywords)) for name in names(text)}
        kept = tuple(op for op in graph if op.name not in droppable or op.name in read)
        if len(kept) == len(graph):
            return kept
        graph = kept
