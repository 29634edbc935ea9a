"""Sorts the edges of a graph by the row that they are reduced to, where nothing that is done with them sees their order.

Rows in any order, as PyTorch Geometric has them, become rows that are made of offsets, which kernels without atomics
want. Of vectors with an element for each edge, forward then takes the sorted ones; a `sorted` in a graph is such a
vector, and `sorted_rows` the rows themselves.
"""

from __future__ import annotations

import dataclasses
import re

import torch

from workbench.proposers.recognition.forms.parts import list_specs
from workbench.proposers.recognition.graph import aten_name, names, parse_number, plain_name
from workbench.proposers.recognition.operands import find_argument
from workbench.proposers.recognition.patterns.graphs import ONES, ROWS, SORTED, ZEROS, Idioms
from workbench.records import Facts, Operation, TensorSpec

REDUCTIONS = ("scatter_add", "index_add", "scatter_reduce", "index_reduce")  # the same in any order, but for rounding
SAME_ROWS = ("view", "reshape", "_unsafe_view", "unsqueeze", "expand", "alias", "detach", "clone", "_to_copy")
TAKES = {"index": 1, "index_select": 2, "gather": 2, "embedding": 1}  # -> the place of the index
FOLDS = ("sum", "mean", "amax", "amin")


def sort_edges(facts: Facts) -> tuple[Facts, ...]:
    """The same facts with sorted edges in both graphs; () if there are no edges, or if something sees their order."""
    sorters = [_Sorter(facts, facts.graph, list_specs(facts.graph, facts.cases[0], facts, 0))]
    if facts.full_graph:
        sorters.append(_Sorter(facts, facts.full_graph, list_specs(facts.full_graph, facts.cases[-1], facts, 1)))
    if any([op.target for op in sorter.graph] != [op.target for op in facts.graph] for sorter in sorters):
        return ()
    if not all(sorter.rows and sorter.is_free() for sorter in sorters) or len({one.rows for one in sorters}) > 1:
        return ()
    extent = sorters[0].describe_rows()
    graphs = [sorter.write(extent) for sorter in sorters] if extent else []
    if not graphs or any([op.target for op in graph] != [op.target for op in graphs[0]] for graph in graphs):
        return ()
    made = [dataclasses.replace(spec, name=_name(spec.name)) for spec in facts.full if spec.name in sorters[0].given]
    return (
        dataclasses.replace(
            facts,
            graph=graphs[0],
            full_graph=graphs[1] if len(graphs) > 1 else (),
            full=(*facts.full, *made),
        ),
    )


def _name(argument: str) -> str:
    """The name of an argument of forward in the order of rows."""
    return f"{argument}_by_row"


class _Sorter:
    """What happens to the edges in one graph."""

    def __init__(self, facts: Facts, graph: tuple[Operation, ...], specs: dict[str, TensorSpec]) -> None:
        self.facts, self.graph, self.specs = facts, graph, specs
        self.by_name = {op.name: op for op in graph}
        self.given: set[str] = set()  # arguments of forward that are in the order of edges
        self.edges: set[str] = set()  # values in the order of edges
        self.constants: set[str] = set()  # values that are the same in any order
        self.reductions = [op for op in graph if plain_name(op) in REDUCTIONS and len(op.operands) > 3]
        rows = {self.find_vector(op.operands[2]) for op in self.reductions}
        self.rows = self.write_vector(rows.pop()) if len(rows) == 1 else ""
        index = self.specs.get(self.reductions[0].operands[2]) if self.reductions else None
        self.count = index.shape[0] if index is not None and index.shape else 0

    def find_vector(self, value: str) -> str:
        """The expression in forward of the vector behind an index that is made wider."""
        op = self.by_name.get(value)
        while op is not None and aten_name(op) in ("view", "reshape", "unsqueeze", "expand", "alias"):
            value = op.operands[0]
            op = self.by_name.get(value)
        return self.write_vector(value)

    def write_vector(self, value: str) -> str:
        """The expression in forward of one of its vectors, or of a row or column of its matrices; "" for others."""
        op = self.by_name.get(value)
        if op is None:
            return value if value in self.facts.forward_arguments or "[" in value else ""
        is_layer = aten_name(op) == "part" and op.operands[1] == "layer"
        if not is_layer or op.operands[0] not in self.facts.forward_arguments or len(op.result[0].shape) != 1:
            return ""
        return f"{op.operands[0]}[{':, ' * int(op.operands[2])}{op.operands[3]}]"

    def describe_rows(self) -> str:
        """The number of rows that the edges are reduced to, as an expression in forward; "" if it is none."""
        idioms = Idioms(self.facts)
        found = {idioms.describe_extents(op.operands[0])[:1] for op in self.reductions}
        return found.pop()[0] if len(found) == 1 and () not in found else ""

    def is_free(self) -> bool:
        """Whether the results are the same for edges in any order."""
        self.given = {
            name for name in self.facts.forward_arguments if (spec := self.specs.get(name)) and self.is_by_edge(spec)
        }
        self.edges = {*self.given}
        return self.count > 1 and all(map(self.follow, self.graph))

    def follow(self, op: Operation) -> bool:
        """Take note of an operation's result; whether it sees no order."""
        read = [name for text in (*op.operands, *(text for _, text in op.keywords)) for name in names(text)]
        if plain_name(op) in (*ZEROS, *ONES):
            self.constants.add(op.name)
        elif self.write_vector(op.name) and op.name in self.by_name and self.is_by_edge(op.result[0]):
            self.edges.add(op.name)
        elif self.edges.isdisjoint(read):
            return True
        elif op in self.reductions:
            return self.is_reduction(op)
        elif len(op.result) == 1 and self.is_by_edge(op.result[0]) and self.is_by_row(op, read):
            self.edges.add(op.name)
        else:
            return False
        return True

    def is_by_edge(self, spec: TensorSpec) -> bool:
        """Whether a tensor may have a row for each edge."""
        return len(spec.shape) > 0 and spec.shape[0] == self.count

    def is_reduction(self, op: Operation) -> bool:
        """Whether rows of edges are reduced into something that has another order."""
        into, axis, index, values = op.operands[:4]
        return (
            axis == "0" and into not in self.edges and index in self.edges and values in self.edges | self.constants
        )

    def is_by_row(self, op: Operation, read: list[str]) -> bool:
        """Whether each row of a result is made of the same rows of what is in the order of edges."""
        name, first = aten_name(op), self.specs.get(op.operands[0])
        if name in SAME_ROWS:
            return first is not None and self.is_by_edge(first) and (
                name != "expand" or len(first.shape) == len(op.result[0].shape)
            )
        if name in TAKES:
            place = TAKES[name]
            axis = int(op.operands[1]) % len(first.shape) if first is not None and place == 2 and first.shape else 0
            index = names(op.operands[place])
            return axis == 0 and op.operands[0] not in self.edges and len(index) == 1 and index[0] in self.edges
        if name in FOLDS:
            axes = [parse_number(text) for text in names(find_argument(op, 1, "dim", ""), numbers=True)]
            rank = len(first.shape) if first is not None else 0
            return rank > 1 and bool(axes) and all(axis is not None and axis % rank != 0 for axis in axes)
        return _is_pointwise(op) and all(
            value in self.edges | self.constants or self.is_alike(value, len(op.result[0].shape)) for value in read
        )

    def is_alike(self, value: str, rank: int) -> bool:
        """Whether a value is the same for all edges."""
        spec = self.specs.get(value)
        return spec is not None and (len(spec.shape) < rank or spec.shape[0] == 1)

    def write(self, extent: str) -> tuple[Operation, ...]:
        """The graph with sorted edges."""
        made = [
            self.sort(Operation(name=_name(name), target="", operands=(), result=(self.specs[name],)), name, extent)
            for name in sorted(self.given)
        ]
        for op in self.graph:
            if op.name in self.edges and (vector := self.write_vector(op.name)):
                made.append(self.sort(op, vector, extent))
            else:
                made.append(
                    dataclasses.replace(
                        op,
                        operands=tuple(map(self.rename, op.operands)),
                        keywords=tuple((key, self.rename(text)) for key, text in op.keywords),
                    )
                )
        return tuple(made)

    def sort(self, op: Operation, vector: str, extent: str) -> Operation:
        """An operation that stands for a vector in the order of rows."""
        is_rows = vector == self.rows
        return dataclasses.replace(
            op,
            target=ROWS if is_rows else SORTED,
            operands=(vector, extent) if is_rows else (vector, self.rows),
            keywords=(),
        )

    def rename(self, text: str) -> str:
        """An operand with the new names."""
        return re.sub(r"[\w.:]+", lambda found: _name(found[0]) if found[0] in self.given else found[0], text)


def _is_pointwise(op: Operation) -> bool:
    """Whether an operation computes each element of its new result of the same elements of its operands."""
    packet = getattr(torch.ops.aten, aten_name(op), None)
    overload = getattr(packet, op.target.split(".")[-1], None)
    return (
        isinstance(overload, torch._ops.OpOverload)
        and torch.Tag.pointwise in overload.tags
        and not overload._schema.is_mutable
    )
