"""The graph of a module's operators, and which of its layers are interchangeable: what is tuned for one serves all."""

from __future__ import annotations

import re
from collections.abc import Sequence

from workbench.records import Operation
from workbench.structure.graph import Graph
from workbench.structure.hashing.adjacency import join_graphs
from workbench.structure.hashing.structures import StructureHasher

KEY_RADIUS = 3
NAME = re.compile(r"[\w:.]+")


def operator_graph(graph: Sequence[Operation]) -> Graph:
    """Nodes are operations and what they read; edges go where values go.

    `kind` is the ATen call with the values that are no tensors, `result` the shapes and dtypes; a parameter or an input
    is of the kind "value". The edge's `operand` is the place among the operands.
    """
    names: dict[str, int] = {}
    kinds: list[str] = []
    results: list[str] = []
    edges: list[tuple[int, int]] = []
    operands: list[str] = []

    def add(name: str, kind: str, result: str) -> int:
        names[name] = len(kinds)
        kinds.append(kind)
        results.append(result)
        return names[name]

    made = {one.name for one in graph}
    for one in graph:
        reads = [(place, name) for place, text in enumerate(one.operands) for name in _read_names(text, made)]
        for _, name in reads:
            if name not in names:
                add(name, "value", "")
        constants = [text for text in one.operands if not _read_names(text, made)]
        node = add(
            one.name,
            f"{one.target}({', '.join(constants)}; {dict(one.keywords)})",
            str([(spec.shape, spec.dtype) for spec in one.result]),
        )
        edges += [(names[name], node) for _, name in reads]
        operands += [str(place) for place, _ in reads]
    return Graph.of(
        edges,
        size=len(kinds),
        directed=True,
        node_columns={"kind": kinds, "result": results},
        edge_columns={"operand": operands},
        names=list(names),
    )


def graph_key(graph: Sequence[Operation]) -> tuple[int, ...]:
    """A key that two graphs of operators share if an isomorphism takes one to the other: the same calls on results of
    the same shapes, whatever the names. The hashes of the nodes' surroundings within `KEY_RADIUS` hops, in order.
    """
    joined = join_graphs([operator_graph(graph)], ("kind", "result"), ("operand",))
    return tuple(sorted(StructureHasher(KEY_RADIUS).hash(joined).hashes.tolist()))


def _read_names(text: str, made: set[str]) -> list[str]:
    """Names of values in an operand: of operations, parameters, buffers, or an input of forward."""
    found = NAME.findall(text)
    return [name for name in found if name in made or name.startswith(("param:", "buffer:")) or name.isidentifier()]


def interchangeable_layers(graph: Sequence[Operation], radius: int = 1) -> tuple[tuple[str, ...], ...]:
    """Names of operations in groups that one tuning serves, the largest group first; groups of one are left out.

    Two operations are in one group if an isomorphism takes one to the other with all that is within `radius` hops: the
    same calls on the same shapes, in the same places. With a radius as large as the graph the groups are its orbits.
    """
    made = operator_graph(graph)
    joined = join_graphs([made], ("kind", "result"), ("operand",))
    hashes = StructureHasher(radius).hash(joined).hashes.tolist()
    groups: dict[int, list[str]] = {}
    for node, value in enumerate(hashes):
        if made.node_columns["kind"][node] != "value":
            groups.setdefault(value, []).append(made.node_name(node))
    found = [tuple(group) for group in groups.values() if len(group) > 1]
    return tuple(sorted(found, key=lambda group: (-len(group), group)))
