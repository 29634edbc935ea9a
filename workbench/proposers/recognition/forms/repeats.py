"""Names repetitions of layers up to an extent of an input: heads of keys for groups of queries, a token per sample.

`k.repeat_interleave(heads // kv_heads, 1)` gives as many heads as q has, how often this may be at other sizes. A graph
has it as unsqueeze, expand, clone and view. A parameter of one row that is expanded to the batch and concatenated is
the other form. Both become `repeat_to`, which says whose extent is reached.
"""

from __future__ import annotations

import dataclasses

from workbench.proposers.recognition.graph import aten_name, names
from workbench.records import Facts, Operation

Shape = tuple[int, ...]
TARGET = "repeat_to"
SAME = ("alias", "detach", "slice")
RESHAPES = ("view", "_unsafe_view", "reshape")


def name_repeats(facts: Facts) -> Facts:
    """The same facts with `repeat_to` in both graphs, where an input has the extent at both sizes."""
    if facts.full_graph and [op.target for op in facts.full_graph] != [op.target for op in facts.graph]:
        return facts
    finders = [_Finder(facts.graph, {spec.name: spec.shape for spec in facts.cases[0].inputs})]
    if facts.full_graph:
        finders.append(_Finder(facts.full_graph, {spec.name: spec.shape for spec in facts.cases[-1].inputs}))
    for place in range(len(facts.graph)):
        found = [finder.find(finder.graph[place]) for finder in finders]
        likes = [finder.list_likes(finder.graph[place], one) for finder, one in zip(finders, found, strict=True)]
        common = sorted(set.intersection(*likes))
        for finder, one in zip(finders, found, strict=True):
            if one is not None and common:
                finder.replace(place, one, common[0])
    graph, full_graph = finders[0].kept(), finders[1].kept() if facts.full_graph else ()
    return dataclasses.replace(facts, graph=graph, full_graph=full_graph)


class _Finder:
    """Finds such repetitions in one graph, and writes them into it."""

    def __init__(self, graph: tuple[Operation, ...], inputs: dict[str, Shape]) -> None:
        self.graph, self.inputs = list(graph), inputs
        self.by_name = {op.name: op for op in graph}
        self.replaced = False

    def shape(self, value: str) -> Shape:
        op = self.by_name.get(value)
        return self.inputs.get(value, ()) if op is None else op.result[0].shape if op.result else ()

    def find(self, op: Operation) -> tuple[str, int] | None:
        """(the value whose layers are repeated, their axis) if an operation gives such a repetition."""
        if aten_name(op) == "expand":
            return self.find_expanded(op)
        return self.find_interleaved(op) if aten_name(op) in RESHAPES else None

    def find_interleaved(self, op: Operation) -> tuple[str, int] | None:
        """The repetition that ends in a view: unsqueeze, expand, clone, view."""
        copy = self.producer(op.operands[0], "clone")
        wide = self.producer(copy.operands[0], "expand") if copy is not None else None
        new = self.producer(wide.operands[0], "unsqueeze") if wide is not None else None
        if wide is None or new is None:
            return None
        of = self.skip_same(new.operands[0])
        before, after = self.shape(of), self.shape(op.name)
        axis = int(new.operands[1]) % (len(before) + 1) - 1
        if axis < 0 or len(before) != len(after):
            return None
        extents = self.shape(wide.name)
        is_repeated = extents == (*before[: axis + 1], extents[axis + 1], *before[axis + 1 :])
        is_joined = after == (*before[:axis], before[axis] * extents[axis + 1], *before[axis + 1 :])
        return (of, axis) if is_repeated and is_joined else None

    def find_expanded(self, op: Operation) -> tuple[str, int] | None:
        """The repetition of an axis of 1 that a concatenation reads."""
        before, after = self.shape(op.operands[0]), self.shape(op.name)
        if op.operands[0].startswith(("param:", "buffer:")):  # their shapes are those of the result, but for the axis
            sizes = names(op.operands[1], numbers=True)
            changed = [axis for axis, size in enumerate(sizes) if size != "-1"]
        else:
            changed = [axis for axis, pair in enumerate(zip(before, after, strict=False)) if len({*pair}) > 1]
        readers = [other for other in self.graph if any(op.name in names(text) for text in other.operands)]
        is_read = bool(readers) and all(aten_name(other) == "cat" for other in readers)
        return (op.operands[0], changed[0]) if is_read and len(changed) == 1 else None

    def producer(self, value: str, name: str) -> Operation | None:
        """The operation of that name behind a value."""
        op = self.by_name.get(self.skip_same(value))
        return op if op is not None and aten_name(op) == name else None

    def skip_same(self, value: str) -> str:
        """The value behind operations that keep everything."""
        while (op := self.by_name.get(value)) is not None and aten_name(op) in SAME:
            if self.shape(op.operands[0]) != self.shape(value):
                break
            value = op.operands[0]
        return value

    def list_likes(self, op: Operation, found: tuple[str, int] | None) -> set[tuple[str, int]]:
        """Inputs and their axes that have the extent of the repetition."""
        if found is None:
            return set()
        extent = self.shape(op.name)[found[1]]
        return {(name, axis) for name, shape in self.inputs.items() for axis, own in enumerate(shape) if own == extent}

    def replace(self, place: int, found: tuple[str, int], like: tuple[str, int]) -> None:
        """Write the repetition in place of an operation."""
        op, (of, axis) = self.graph[place], found
        operands = (of, str(axis), like[0], str(like[1]))
        self.graph[place] = dataclasses.replace(op, target=TARGET, operands=operands, keywords=())
        self.replaced = True

    def kept(self) -> tuple[Operation, ...]:
        """The graph without what only led to a repetition."""
        graph = self.graph
        while self.replaced:
            read = {name for op in graph for text in op.operands for name in names(text)}
            steps = ("unsqueeze", "expand", "clone", *SAME)
            left = [op for op in graph if op.name in read or aten_name(op) not in steps]
            if len(left) == len(graph):
                break
            graph = left
        return tuple(graph)
