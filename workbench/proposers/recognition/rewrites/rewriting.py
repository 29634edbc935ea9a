"""Writes other operations in place of some of a graph, at the emulated sizes and at full size."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable

from workbench.proposers.recognition.graph import names
from workbench.records import Facts, Operation, TensorSpec

Shape = tuple[int, ...]
GETITEM = "<built-in function getitem>"


@dataclasses.dataclass(frozen=True)
class Graph:
    """A graph that is being written: its operations as they were, and specs of its values at one size.

    `is_resized`: the specs are those at full size, but the numbers in the calls still those at the emulated sizes.
    """

    by_name: dict[str, Operation]
    specs: dict[str, TensorSpec]
    is_resized: bool = False

    def shape(self, value: str) -> Shape | None:
        """The shape of a value; None for a number, and for what is not known at this size."""
        spec = self.specs.get(value)
        return None if spec is None else spec.shape

    def producer(self, value: str, *targets: str) -> Operation | None:
        """The operation whose result a value is, if it is a call of one of these names: `mm`."""
        op = self.by_name.get(value)
        return op if op is not None and op.target.split(".")[1:2] in [[name] for name in targets] else None

    def producer_of_item(self, op: Operation, *targets: str) -> Operation | None:
        """The call of one of these names of whose results an operation takes the first."""
        is_first = op.target == GETITEM and op.operands[1] == "0"
        return self.producer(op.operands[0], *targets) if is_first else None


Write = Callable[[Operation, Graph], list[Operation] | None]


def rewrite(facts: Facts, write: Write, unread: Collection[str] = ()) -> Facts:
    """The same facts with what `write` gives in place of each operation, in both graphs; None keeps it.

    `write` sees each graph at its own sizes, and the first one at all others too, for the specs of new operations. It
    may add names of calls to `unread`: they go if nothing reads them any more.
    """
    state = {f"{kind}:{spec.name}": spec for kind in ("param", "buffer") for spec in facts.parameters}
    graph = _write_graph(facts.graph, {**state, **_by_name(facts.cases[0].inputs)}, write)
    if graph == facts.graph:
        return facts
    full = _add_written(facts.graph, facts.full, write)
    between = tuple(
        dataclasses.replace(one, values=tuple(_add_written(facts.graph, one.values, write).values()))
        for one in facts.between
    )
    inputs = {**full, **_by_name(facts.cases[-1].inputs)}
    full_graph = _write_graph(facts.full_graph, inputs, write)
    return dataclasses.replace(
        facts,
        graph=drop_unread(graph, unread),
        full_graph=drop_unread(full_graph, unread),
        full=tuple(full.values()),
        between=between,
    )


def drop_unread(graph: Iterable[Operation], droppable: Collection[str]) -> tuple[Operation, ...]:
    """The graph without those of the named operations, or items of theirs, that nothing reads."""
    left = [*graph]
    while True:
        read = {
            name for op in left for text in (*op.operands, *(text for _, text in op.keywords)) for name in names(text)
        }
        kept = [
            op
            for op in left
            if op.name in read or not (op.name in droppable or ("getitem" in op.target and op.operands[0] in droppable))
        ]
        if len(kept) == len(left):
            return tuple(left)
        left = kept


def make_operation(name: str, kind: str, operands: Iterable[str], result: TensorSpec) -> Operation:
    """A call of ATen with one result: kind `mm` is aten.mm.default."""
    target = kind if kind == GETITEM or "." in kind else f"aten.{kind}.default"
    return Operation(name=name, target=target, operands=tuple(operands), result=(result,))


def reshape_spec(like: TensorSpec, shape: Shape, name: str = "") -> TensorSpec:
    """The spec of a contiguous tensor of another shape."""
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return dataclasses.replace(like, name=name or like.name, shape=shape, strides=strides)


def _by_name(specs: Iterable[TensorSpec]) -> dict[str, TensorSpec]:
    return {spec.name: spec for spec in specs}


def _add_written(graph: tuple[Operation, ...], specs: tuple[TensorSpec, ...], write: Write) -> dict[str, TensorSpec]:
    """Specs of a graph's values at other sizes, with those of the operations that are written."""
    known = _by_name(specs)
    if known:
        whole = tuple(_resize(op, known) for op in graph)
        for op in _write_graph(whole, dict(known), write, is_resized=True):
            if op.result and op.target != "output":
                known.setdefault(op.name, dataclasses.replace(op.result[0], name=op.name))
    return known


def _resize(op: Operation, full: dict[str, TensorSpec]) -> Operation:
    """An operation with the spec of its first result at full size, if that is known."""
    known = full.get(op.name)
    return op if known is None or not op.result else dataclasses.replace(op, result=(known, *op.result[1:]))


def _write_graph(
    graph: tuple[Operation, ...], given: dict[str, TensorSpec], write: Write, *, is_resized: bool = False
) -> tuple[Operation, ...]:
    own = {op.name: op.result[0] for op in graph if op.result}
    before = Graph(by_name={op.name: op for op in graph}, specs={**given, **own}, is_resized=is_resized)
    made: list[Operation] = []
    for op in graph:
        new = write(op, before)
        made += [op] if new is None else new
    return tuple(made)
