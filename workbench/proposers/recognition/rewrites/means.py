"""Writes means of rows in any order as sums over counts: `scatter_reduce` and `index_reduce` into zeros."""

from __future__ import annotations

import dataclasses

from workbench.proposers.recognition.graph import plain_name
from workbench.proposers.recognition.patterns.graphs import Idioms
from workbench.proposers.recognition.rewrites.rewriting import Graph, make_operation, reshape_spec, rewrite
from workbench.records import Facts, Operation

Shape = tuple[int, ...]


def divide_by_counts(facts: Facts) -> tuple[Facts, ...]:
    """The same facts with sums over counts in both graphs; () if there are no such means."""
    idioms = Idioms(facts)
    rows = {op.name: found for op in facts.graph if (found := _find_rows(op, idioms))}

    def write(op: Operation, graph: Graph) -> list[Operation] | None:
        count = graph.shape(rows[op.name]) if op.name in rows else None
        return None if count is None else _divide(op, rows[op.name], op.result[0].shape, count)

    return (rewrite(facts, write),) if rows else ()


def _find_rows(op: Operation, idioms: Idioms) -> str:
    """The vector with a row for each of the values whose mean an operation takes; "" for any other operation."""
    if plain_name(op) not in ("scatter_reduce", "index_reduce") or idioms.find_reduce(op) != "mean":
        return ""
    rows = op.operands[2] if plain_name(op) == "index_reduce" else idioms.find_expanded(op.operands[2], op.operands[3])
    return rows if op.operands[1] == "0" and idioms.is_vector(rows) else ""


def _divide(op: Operation, rows: str, shape: Shape, count: Shape) -> list[Operation]:
    """A sum, the counts of its rows, and the quotient; `shape` is that of the result, `count` that of the rows."""
    zeros, _, _, src = op.operands[:4]
    wide = (shape[0], *(1 for _ in shape[1:]))

    def call(part: str, name: str, operands: tuple[str, ...], extents: Shape) -> Operation:
        return make_operation(f"{op.name}_{part}", name, operands, reshape_spec(op.result[0], extents))

    ones = call("ones", "new_ones", (src, str(list(count))), count)
    none = call("none", "new_zeros", (src, str([shape[0]])), shape[:1])
    counts = call("counts", "scatter_add", (none.name, "0", rows, ones.name), shape[:1])
    least = call("least", "clamp", (counts.name, "1"), shape[:1])
    divisor = call("divisor", "view", (least.name, str([-1, *wide[1:]])), wide)
    sums = call("sums", "index_add", (zeros, "0", rows, src), shape)
    quotient = dataclasses.replace(op, target="aten.div.Tensor", operands=(sums.name, divisor.name), keywords=())
    return [ones, none, counts, least, divisor, sums, quotient]
