"""Simplifies graphs before they are matched: constants become numbers, reductions of single elements and pads go.

A reduction that keeps its axes leaves extents of 1, whatever the sizes are. Another reduction over these axes has one
element to reduce: its sum, mean, largest element or logsumexp is that element.
"""

from __future__ import annotations

import dataclasses

from workbench.language.expressions.scalars import ATEN
from workbench.proposers.recognition.graph import Unrecognised, aten_name, names, parse_number, plain_name
from workbench.proposers.recognition.patterns.reductions import Reduced, find_reduction
from workbench.proposers.recognition.rewrites.remaps import fold_pads
from workbench.proposers.recognition.rewrites.rewriting import drop_unread
from workbench.proposers.recognition.scalars import THROUGH, TWO
from workbench.records import Facts, Operation

PRODUCTS = {"addcmul": "aten.mul.Tensor", "addcdiv": "aten.div.Tensor"}
CONSTANT = "constant"
NEUTRAL = ("sum", "mean", "prod", "amax", "amin", "max", "min", "logsumexp")  # of one element: that element
BY_ELEMENT = {*ATEN, *THROUGH} - {"expand", "expand_as", "scalar_tensor"}


def simplify(facts: Facts) -> Facts:
    """The same computation with fewer operations."""
    shapes = {spec.name: spec.shape for spec in facts.cases[0].inputs}
    shapes |= {f"{prefix}:{spec.name}": spec.shape for spec in facts.parameters for prefix in ("param", "buffer")}
    graph = _drop_single_reductions(_fold_constants(_take_results(_split_sums(fold_pads(facts.graph), shapes))))
    return facts if graph == facts.graph else dataclasses.replace(facts, graph=graph)


def _split_sums(graph: tuple[Operation, ...], shapes: dict[str, tuple[int, ...]]) -> tuple[Operation, ...]:
    """The graph with a product or a quotient, and a sum, for each `addcmul` and `addcdiv` of tensors of one shape."""
    made: list[Operation] = []
    known = dict(shapes)
    for op in graph:
        if len(op.result) == 1:
            known[op.name] = op.result[0].shape
        inner = PRODUCTS.get(plain_name(op))
        if inner is None or any(known.get(name) != op.result[0].shape for name in op.operands[1:]):
            made.append(op)
            continue
        part = f"{op.name}_part"
        made.append(dataclasses.replace(op, name=part, target=inner, operands=op.operands[1:], keywords=()))
        more = tuple(("alpha", text) for key, text in op.keywords if key == "value")
        made.append(dataclasses.replace(op, target="aten.add.Tensor", operands=(op.operands[0], part), keywords=more))
    return tuple(made)


def _take_results(graph: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The graph with the first result of an element-wise call that has several (logsigmoid) as a call of its own."""
    several = {op.name: op for op in graph if plain_name(op) in ATEN and len(op.result) > 1}
    if not several:
        return graph
    made = [
        dataclasses.replace(op, target=of.target, operands=of.operands, keywords=of.keywords)
        if "getitem" in op.target and op.operands[1] == "0" and (of := several.get(op.operands[0])) is not None
        else op
        for op in graph
    ]
    return drop_unread(made, {*several})


def _fold_constants(graph: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The graph with numbers in place of constants without axes, where element-wise calls read them."""
    numbers: dict[str, str] = {}
    made: list[Operation] = []
    for op in graph:
        if op.target == CONSTANT and op.result and not op.result[0].shape:
            text = dict(op.keywords).get("value", "")
            if op.result[0].dtype.startswith("float") and parse_number(text) is not None:
                numbers[op.name] = text
        elif op.operands and op.operands[0] in numbers and plain_name(op) in THROUGH and not op.keywords:
            numbers[op.name] = numbers[op.operands[0]]
        elif plain_name(op) in TWO and any(name not in numbers for name in op.operands):
            op = dataclasses.replace(op, operands=tuple(numbers.get(name, name) for name in op.operands))
        made.append(op)
    return drop_unread(made, {*numbers})


def _drop_single_reductions(graph: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The graph with an alias for each reduction over axes that an earlier one left with one element."""
    by_name = {op.name: op for op in graph}
    single: dict[str, frozenset[int]] = {}  # value -> its axes of 1, counted from the end
    made: list[Operation] = []
    replaced: set[str] = set()
    for op in graph:
        of = by_name.get(op.operands[0]) if "getitem" in op.target and op.operands[1] == "0" else op
        found = _find_kept(of) if of is not None else None
        if found is None or of is None:
            if _is_by_element(op):
                single[op.name] = _common_axes(op, by_name, single)
            made.append(op)
            continue
        rank = len(op.result[0].shape)
        axes = frozenset(axis % rank - rank for axis in found.axes or range(rank))
        before = single.get(found.of[0], frozenset())
        single[op.name] = axes | before
        is_same = aten_name(of) in NEUTRAL and axes <= before and by_name[found.of[0]].result[0].dtype == _dtype(op)
        if is_same:
            replaced.add(of.name)
            op = dataclasses.replace(op, target="aten.alias.default", operands=found.of[:1], keywords=())
        made.append(op)
    return drop_unread(made, replaced)


def _find_kept(op: Operation) -> Reduced | None:
    """The reduction of one tensor that a call is, if it keeps its axes as extents of 1."""
    if not op.result or len(op.result[0].shape) == 0:
        return None
    try:
        found = find_reduction(op)
    except (Unrecognised, ValueError, IndexError):
        return None
    return found if found is not None and found.keep and len(found.of) == 1 else None


def _is_by_element(op: Operation) -> bool:
    return plain_name(op) in BY_ELEMENT and len(op.result) == 1


def _common_axes(op: Operation, by_name: dict[str, Operation], single: dict[str, frozenset[int]]) -> frozenset[int]:
    """The axes of 1 of an element-wise call's result: those of each tensor that it reads."""
    rank = len(op.result[0].shape)
    read = [name for text in op.operands for name in names(text) if text not in ("None", "True", "False")]
    axes = frozenset(range(-rank, 0))
    for name in read:
        known = by_name.get(name)
        own = len(known.result[0].shape) if known is not None and known.result else rank
        axes &= single.get(name, frozenset()) | frozenset(range(-rank, -own))
    return axes if read else frozenset()


def _dtype(op: Operation) -> str:
    return op.result[0].dtype
