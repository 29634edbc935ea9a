"""Replaces batched products between views, as `einsum` makes them, by plain products.

`einsum("ik,kj->ij", a, b)` is traced as unsqueeze, permute and view of both operands, a bmm of one batch, and views
of its result. Shape and strides tell which part of contiguous memory a view reads. The views are dropped if both
operands are matrices or batches of matrices, plain or transposed, and the result keeps its order. If the first operand
has more axes and the second is a matrix, one view joins all axes but the last, and one splits them again. Other tensors
of more axes are left to other matchers.
"""

from __future__ import annotations

import dataclasses
import math

from workbench.proposers.recognition import views
from workbench.proposers.recognition.graph import aten_name, names
from workbench.proposers.recognition.rewrites.rewriting import drop_unread
from workbench.records import Facts, Operation, TensorSpec

Specs = dict[str, TensorSpec]
VIEWS = (*(name for name in views.NAMES if name != "repeat_to"), "expand")


def fold_views(facts: Facts) -> Facts:
    """The same graph with mm, or a bmm of forward's tensors, for each bmm between views that can be replaced."""
    products = [op for op in facts.graph if aten_name(op) == "bmm"]
    for op in products:
        facts = _fold_product(facts, op)
    return facts


def _fold_product(facts: Facts, product: Operation) -> Facts:
    """The graph with one product folded, if its operands and its result allow it."""
    by_name = {op.name: op for op in facts.graph}
    sizes = [_specs(facts)] + ([_full_specs(facts)] if facts.full else [])
    last = _last_view(facts.graph, product)
    bases = [_find_base(by_name, value) for value in product.operands]
    if last is product or any(base == value for base, value in zip(bases, product.operands, strict=True)):
        return facts
    if (made := _fold_rows(sizes, bases, product, last)) is not None:
        return _replace(facts, product, last, made)
    forms = _forms(sizes, bases, product)
    rank = _rank(sizes, bases)
    if forms is None or rank is None or not _keeps_order(sizes, bases, product, last):
        return facts
    made = _Made(sizes)
    operands = tuple(
        made.operand(f"{product.name}_{side}", base, form) for side, base, form in zip("ab", bases, forms, strict=True)
    )
    target = "aten.mm.default" if rank == 2 else "aten.bmm.default"
    made.add(last.name, target, operands, [specs[last.name].shape for specs in sizes])
    return _replace(facts, product, last, made)


def _fold_rows(sizes: list[Specs], bases: list[str], product: Operation, last: Operation) -> _Made | None:
    """A product of the rows of a tensor of more axes with a matrix; None for any other product."""
    left, right = bases
    form = _form(sizes[0].get(right), sizes[0].get(product.operands[1]))
    for specs in sizes:
        base, matrix = specs.get(left), specs.get(right)
        if base is None or matrix is None or len(matrix.shape) != 2 or len(base.shape) < 3 or form is None:
            return None
        rows = (1, math.prod(base.shape[:-1]), base.shape[-1])
        is_wanted = specs[last.name].shape == (*base.shape[:-1], specs[product.name].shape[-1])
        if not (_is_plain(base) and _is_plain(specs[last.name]) and is_wanted):
            return None
        if specs[product.operands[0]].shape != rows or specs[product.operands[0]].strides[1:] != (rows[2], 1):
            return None
        if _form(matrix, specs[product.operands[1]]) != form:
            return None
    made = _Made(sizes)
    flat = made.view(f"{product.name}_flat", left, [specs[product.operands[0]].shape[1:] for specs in sizes])
    matrix_name = made.operand(f"{product.name}_b", right, form or "")
    shapes = [specs[product.name].shape[1:] for specs in sizes]
    product_name = made.add(f"{product.name}_rows", "aten.mm.default", (flat, matrix_name), shapes)
    made.view(last.name, product_name, [specs[last.name].shape for specs in sizes])
    return made


def _forms(sizes: list[Specs], bases: list[str], product: Operation) -> list[str] | None:
    """plain or transposed for each operand; None if one is neither, or if the cases disagree."""
    forms: list[str] = []
    for base, value in zip(bases, product.operands, strict=True):
        found = {_form(specs.get(base), specs.get(value)) for specs in sizes}
        form = found.pop()
        if found or form is None:
            return None
        forms.append(form)
    return forms


def _rank(sizes: list[Specs], bases: list[str]) -> int | None:
    """The operands' common rank, 2 or 3; None if it is another, or if their leading extents differ."""
    ranks = {len(sizes[0][base].shape) for base in bases if base in sizes[0]}
    leads = (_leads(specs, bases) for specs in sizes)
    return ranks.pop() if ranks in ({2}, {3}) and all(len(lead) == 1 for lead in leads) else None


def _leads(specs: Specs, bases: list[str]) -> set[tuple[int, ...]]:
    """The extents before the last two of each operand."""
    return {specs[base].shape[:-2] for base in bases if base in specs}


def _keeps_order(sizes: list[Specs], bases: list[str], product: Operation, last: Operation) -> bool:
    """Whether the views of the result leave it contiguous, as (leading extents, rows, columns)."""
    for specs in sizes:
        lead = next(iter(_leads(specs, bases)))
        if not _is_plain(specs.get(last.name)) or specs[last.name].shape != (*lead, *specs[product.name].shape[-2:]):
            return False
    return True


def _replace(facts: Facts, product: Operation, last: Operation, made: _Made) -> Facts:
    """The facts with new operations for a product and the views around it."""
    graph, place = facts.graph, facts.graph.index(last)
    kept = drop_unread(
        (*graph[:place], *made.operations, *graph[place + 1 :]),
        {product.name, *(op.name for op in graph if aten_name(op) in VIEWS)},
    )
    more = tuple(made.full) if facts.full else ()
    names_of_more = {item.name for item in more}
    full = (*(spec for spec in facts.full if spec.name not in names_of_more), *more)
    return dataclasses.replace(facts, graph=kept, full=full)


class _Made:
    """New operations, and the specs of their results at full size."""

    def __init__(self, sizes: list[Specs]) -> None:
        self.sizes, self.operations, self.full = sizes, list[Operation](), list[TensorSpec]()

    def operand(self, name: str, base: str, form: str) -> str:
        """The name of a tensor, or of its transpose if the form is not plain."""
        if form == "plain":
            return base
        return self.add(
            name,
            "aten.transpose.int",
            (base, "-2", "-1"),
            [(*shape[:-2], shape[-1], shape[-2]) for shape in (specs[base].shape for specs in self.sizes)],
            turned=True,
        )

    def view(self, name: str, of: str, shapes: list[tuple[int, ...]]) -> str:
        """A view of a value with other extents."""
        return self.add(name, "aten.view.default", (of, f"[{', '.join(map(str, shapes[0]))}]"), shapes)

    def add(
        self, name: str, target: str, operands: tuple[str, ...], shapes: list[tuple[int, ...]], *, turned: bool = False
    ) -> str:
        """One operation; `turned`: the last two axes of its result are stored in the other order."""
        dtype = self.sizes[0][operands[0]].dtype
        specs = [
            TensorSpec(
                name=name, shape=shape, dtype=dtype, strides=_transposed_strides(shape) if turned else _strides(shape)
            )
            for shape in shapes
        ]
        for known, spec in zip(self.sizes, specs, strict=True):
            known[name] = spec
        self.operations.append(
            Operation(
                name=name, target=target, operands=operands, result=(dataclasses.replace(specs[0], name="output0"),)
            )
        )
        self.full.append(specs[-1])
        return name


def _specs(facts: Facts) -> Specs:
    state = {f"{kind}:{spec.name}": spec for kind in ("param", "buffer") for spec in facts.parameters}
    return {
        **{spec.name: spec for spec in facts.cases[0].inputs},
        **state,
        **{op.name: op.result[0] for op in facts.graph if op.result},
    }


def _full_specs(facts: Facts) -> Specs:
    return {spec.name: spec for spec in facts.full}


def _find_base(by_name: dict[str, Operation], value: str) -> str:
    """The value behind all views."""
    while value in by_name and aten_name(by_name[value]) in VIEWS:
        value = by_name[value].operands[0]
    return value


def _last_view(graph: tuple[Operation, ...], product: Operation) -> Operation:
    """The last view of a result before any other operation reads it."""
    last = product
    while True:
        users = [op for op in graph if any(last.name in names(text) for text in op.operands)]
        if len(users) != 1 or aten_name(users[0]) not in VIEWS:
            return last
        last = users[0]


def _form(base: TensorSpec | None, view: TensorSpec | None) -> str | None:
    """How a view reads (batches, rows, columns) from a tensor: plain or transposed.

    None for anything else, and if an extent of 1 makes it ambiguous.
    """
    if (
        base is None
        or view is None
        or len(base.shape) < 2
        or len(view.shape) != 3
        or not _is_plain(base)
        or 1 in view.shape[1:]
    ):
        return None
    rows, columns = base.shape[-2:]
    if view.shape[0] != math.prod(base.shape[:-2]) or (view.shape[0] > 1 and view.strides[0] != rows * columns):
        return None
    if view.shape[1:] == (rows, columns) and view.strides[1:] == (columns, 1):
        return "plain"
    return "transposed" if view.shape[1:] == (columns, rows) and view.strides[1:] == (1, columns) else None


def _is_plain(spec: TensorSpec | None) -> bool:
    """Whether a tensor is contiguous and has no extent of 1, whose stride could be anything."""
    return spec is not None and 1 not in spec.shape and spec.strides == _strides(spec.shape)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _transposed_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*(math.prod(shape[axis + 1 :]) for axis in range(len(shape) - 2)), 1, shape[-2])
