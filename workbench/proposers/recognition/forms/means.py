"""Writes means of rows in any order as sums over counts: `scatter_reduce` and `index_reduce` into zeros."""

from __future__ import annotations

import dataclasses

from workbench.proposers.recognition.graph import plain_name
from workbench.proposers.recognition.patterns.graphs import Idioms
from workbench.records import Facts, Operation

Shape = tuple[int, ...]


def divide_by_counts(facts: Facts) -> tuple[Facts, ...]:
    """The same facts with sums over counts in both graphs; () if there are no such means."""
    idioms = Idioms(facts)
    rows = {op.name: found for op in facts.graph if (found := _find_rows(op, idioms))}
    if not rows:
        return ()
    specs = {spec.name: spec for spec in facts.full}
    made = [
        dataclasses.replace(new.result[0], name=new.name)
        for op in facts.graph
        if op.name in rows and op.name in specs and rows[op.name] in specs
        for new in _divide(op, rows[op.name], specs[op.name].shape, specs[rows[op.name]].shape)[:-1]
    ]
    graph = tuple(new for op in facts.graph for new in _write(op, rows, idioms))
    at_full = Idioms(dataclasses.replace(facts, graph=facts.full_graph, cases=facts.cases[-1:]))
    full_graph = tuple(new for op in facts.full_graph for new in _write(op, rows, at_full))
    return (dataclasses.replace(facts, graph=graph, full_graph=full_graph, full=(*facts.full, *made)),)


def _find_rows(op: Operation, idioms: Idioms) -> str:
    """The vector with a row for each of the values whose mean an operation takes; "" for any other operation."""
    if plain_name(op) not in ("scatter_reduce", "index_reduce") or idioms.find_reduce(op) != "mean":
        return ""
    rows = op.operands[2] if plain_name(op) == "index_reduce" else idioms.find_expanded(op.operands[2], op.operands[3])
    return rows if op.operands[1] == "0" and idioms.is_vector(rows) else ""


def _write(op: Operation, rows: dict[str, str], idioms: Idioms) -> list[Operation]:
    """What stands for an operation in a graph."""
    if op.name not in rows:
        return [op]
    return _divide(op, rows[op.name], op.result[0].shape, idioms.specs[rows[op.name]].shape)


def _divide(op: Operation, rows: str, shape: Shape, count: Shape) -> list[Operation]:
    """A sum, the counts of its rows, and the quotient; `shape` is that of the result, `count` that of the rows."""
    zeros, _, _, src = op.operands[:4]
    wide = (shape[0], *(1 for _ in shape[1:]))

    def call(part: str, name: str, operands: tuple[str, ...], extents: Shape) -> Operation:
        spec = dataclasses.replace(op.result[0], shape=extents, strides=_strides(extents))
        target = f"aten.{name}.default"
        return dataclasses.replace(
            op, name=f"{op.name}_{part}", target=target, operands=operands, keywords=(), result=(spec,)
        )

    ones = call("ones", "new_ones", (src, str(list(count))), count)
    none = call("none", "new_zeros", (src, str([shape[0]])), shape[:1])
    counts = call("counts", "scatter_add", (none.name, "0", rows, ones.name), shape[:1])
    least = call("least", "clamp", (counts.name, "1"), shape[:1])
    divisor = call("divisor", "view", (least.name, str([-1, *wide[1:]])), wide)
    sums = call("sums", "index_add", (zeros, "0", rows, src), shape)
    quotient = dataclasses.replace(op, target="aten.div.Tensor", operands=(sums.name, divisor.name), keywords=())
    return [ones, none, counts, least, divisor, sums, quotient]


def _strides(shape: Shape) -> Shape:
    """The strides of a contiguous tensor."""
    found = [1]
    for extent in shape[:0:-1]:
        found.append(found[-1] * extent)
    return tuple(found[::-1])
