"""Names the leading rows that a graph takes of parameters and buffers, as many as an input has along an axis.

`mask[:, :, :T, :T]` and `positions(arange(T))` depend on the sizes of the inputs. Each becomes a value of its own,
whose expression in forward is a slice: `self.mask[:, :, :q.shape[2], :q.shape[2]]`.
"""

from __future__ import annotations

import dataclasses

from workbench.proposers.recognition.graph import LEADING, aten_name, names
from workbench.records import Case, Facts, Operation, TensorSpec

Axes = set[tuple[str, int]]  # arguments of forward and their axes
STATE = ("param:", "buffer:")


def name_leading(facts: Facts) -> Facts:
    """The same facts with such values in both graphs. An axis must have the rows' number at both sizes."""
    finders = [_Finder(facts.graph, facts.cases[0])]
    if facts.full_graph:
        finders.append(_Finder(facts.full_graph, facts.cases[-1]))
    if all([op.target for op in finder.graph] == [op.target for op in facts.graph] for finder in finders):
        _name_together(finders)
    else:
        for finder in finders:
            _name_together([finder])
        finders[1].name_whole(finders[0])
    return dataclasses.replace(
        facts,
        graph=finders[0].kept(),
        full_graph=finders[1].kept() if len(finders) > 1 else (),
        parameters=(*facts.parameters, *finders[0].specs.values()),
        full=(*facts.full, *finders[-1].full_specs()) if facts.full and len(finders) > 1 else facts.full,
    )


def _name_together(finders: list[_Finder]) -> None:
    """Name the rows that operations at the same places take at each size."""
    for place in range(len(finders[0].graph)):
        taken = [one for finder in finders if (one := finder.find(finder.graph[place])) is not None]
        axes = sorted(set.intersection(*(one.axes for one in taken))) if len(taken) == len(finders) else []
        for finder, one in zip(finders, taken, strict=False) if axes else ():
            finder.replace(place, one, axes[0])


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Leading rows of a value along an axis; `axes` are those of inputs that have as many."""

    of: str
    axis: int
    axes: Axes
    shape: tuple[int, ...]
    unsqueezed: bool = False


class _Finder:
    """Finds such rows in one graph, and writes them into it."""

    def __init__(self, graph: tuple[Operation, ...], case: Case) -> None:
        self.graph, self.case = list(graph), case
        self.same: dict[str, str] = {}  # a value -> the parameter, the buffer or the rows that it is
        self.specs: dict[str, TensorSpec] = {}  # of what was named, by what it is

    def find(self, op: Operation) -> _Rows | None:
        """The rows that an operation takes; None if it takes none."""
        if not op.result or not op.operands or op.keywords:
            return None
        of = self.same.get(op.operands[0], op.operands[0])
        if not of.startswith(STATE):
            return None
        if aten_name(op) in ("alias", "detach"):
            self.same[op.name] = of
        elif aten_name(op) == "slice" and len(op.operands) == 4 and op.operands[2] == "0":
            axis = int(op.operands[1]) % len(op.result[0].shape)
            return self.rows(of, axis, op.result[0].shape)
        elif aten_name(op) == "embedding":
            return self.find_positions(of, op)
        return None

    def find_positions(self, of: str, op: Operation) -> _Rows | None:
        """The rows of an embedding at arange(n), or at arange(n).unsqueeze(0)."""
        by_name = {one.name: one for one in self.graph}
        index, shape = by_name.get(op.operands[1]), op.result[0].shape
        unsqueezed = index is not None and aten_name(index) == "unsqueeze" and index.operands[1] == "0"
        if index is not None and unsqueezed:
            index, shape = by_name.get(index.operands[0]), shape[1:]
        if index is None or aten_name(index) != "arange" or len(shape) != 2:
            return None
        if index.operands not in ((str(shape[0]),), ("0", str(shape[0]))):
            return None
        return dataclasses.replace(self.rows(of, 0, shape), unsqueezed=unsqueezed)

    def rows(self, of: str, axis: int, shape: tuple[int, ...]) -> _Rows:
        """Rows of a value along an axis, by the shape of the result."""
        axes = {
            (spec.name, place)
            for spec in self.case.inputs
            for place, extent in enumerate(spec.shape)
            if extent == shape[axis]
        }
        return _Rows(of=of, axis=axis, axes=axes, shape=shape)

    def replace(self, place: int, rows: _Rows, like: tuple[str, int]) -> None:
        """Write a value of its own in place of the operation that takes the rows."""
        op = self.graph[place]
        value = LEADING.join((rows.of, str(rows.axis), like[0], str(like[1])))
        spec = op.result[0]
        self.specs[value] = dataclasses.replace(
            spec, name=value.split(":", 1)[1], shape=rows.shape, strides=spec.strides[-len(rows.shape) :]
        )
        target, more = ("aten.unsqueeze.default", ("0",)) if rows.unsqueezed else ("aten.alias.default", ())
        self.graph[place] = dataclasses.replace(op, target=target, operands=(value, *more))
        if not rows.unsqueezed:
            self.same[op.name] = value

    def name_whole(self, other: _Finder) -> None:
        """Name what is read whole in this graph and in part in another, if the parts would be the whole here."""
        sizes = {(spec.name, axis): extent for spec in self.case.inputs for axis, extent in enumerate(spec.shape)}
        wanted = {value.split(LEADING)[0]: value for value in other.specs}  # the longest comes last
        for place, op in enumerate(self.graph):
            value = wanted.get(op.operands[0]) if op.operands and aten_name(op) in ("alias", "detach") else None
            parts = value.split(LEADING)[1:] if value is not None else []
            rows = {int(parts[n]): sizes.get((parts[n + 1], int(parts[n + 2]))) for n in range(0, len(parts), 3)}
            if value is not None and all(op.result[0].shape[axis] == extent for axis, extent in rows.items()):
                self.specs[value] = dataclasses.replace(op.result[0], name=value.split(":", 1)[1])
                self.graph[place] = dataclasses.replace(op, operands=(value,))
                self.same[op.name] = value

    def kept(self) -> tuple[Operation, ...]:
        """The graph without positions and rows that nothing reads any more."""
        graph = self.graph
        while True:
            read = {name for op in graph for text in op.operands for name in names(text)}
            left = [op for op in graph if op.name in read or not self.is_droppable(op)]
            if len(left) == len(graph):
                return tuple(graph)
            graph = left

    def is_droppable(self, op: Operation) -> bool:
        """Whether an operation only served what was named."""
        named = self.same.get(op.name, "") in self.specs
        return named or (bool(self.specs) and aten_name(op) in ("arange", "unsqueeze"))

    def full_specs(self) -> tuple[TensorSpec, ...]:
        """Specs by the names that values have in a graph."""
        return tuple(dataclasses.replace(spec, name=value) for value, spec in self.specs.items())
