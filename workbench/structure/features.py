"""Symbolic features of nodes: attributes aggregated over the orbits of their ego graphs.

A node's features Z are a row of numbers. For each orbit of its ego graph, in a canonical order (the anchor's own first,
then by distance, size and key), there is each attribute's mean over the orbit's members: of a category, its frequency.
Nodes of one structure have rows of one length, and a column means the same in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy
from numpy.typing import NDArray

from workbench.structure.graph import Column, Columns, Graph
from workbench.structure.hashing.adjacency import Adjacency
from workbench.structure.hashing.egos import Indices, RefinedEgos
from workbench.structure.hashing.mixing import Hashes, mix_pair
from workbench.structure.hashing.structures import Roles, StructureHasher

Matrix = NDArray[numpy.float64]


@dataclass(kw_only=True)
class Encoder:
    """Attributes of nodes, and of the edges at them, as columns of numbers; a category becomes one column each.

    `degrees`: the degree in the whole graph is a column too. The paper's authors do not name this choice; it lets an
    ego graph's features say how its border goes on.
    """

    degrees: bool = True
    names: tuple[str, ...] = ()
    _categories: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    _edge_categories: dict[str, tuple[str, ...] | None] = field(default_factory=dict)

    def fit(self, graphs: Sequence[Graph]) -> Encoder:
        """Learns which columns and categories there are."""
        self._categories = _find_categories([graph.node_columns for graph in graphs])
        self._edge_categories = _find_categories([graph.edge_columns for graph in graphs])
        at = ("edges out", "edges in") if any(graph.directed for graph in graphs) else ("edges",)
        self._at = at
        self.names = (
            *(("degree",) if self.degrees else ()),
            *_names(self._categories),
            *(f"{name} of {way}" for way in at for name in _names(self._edge_categories)),
        )
        return self

    def encode(self, graphs: Sequence[Graph], adjacency: Adjacency) -> Matrix:
        """[N, F]: a row for each node of the graphs' union. NaN where a node has no such attribute."""
        degrees = [adjacency.degrees[:, None].astype(numpy.float64)] if self.degrees else []
        nodes = numpy.zeros((adjacency.size, 0))
        if self._categories:
            nodes = _stack([_encode(graph.node_columns, self._categories, graph.size) for graph in graphs])
        edges = [
            _stack([_mean_at_nodes(graph, self._edge_categories, way) for graph in graphs])
            for way in range(len(self._at))
            if self._edge_categories
        ]
        return numpy.hstack([*degrees, nodes, *edges])


def _find_categories(columns: Iterable[Columns]) -> dict[str, tuple[str, ...] | None]:
    """Attribute -> its categories in order, or None where it holds numbers."""
    found: dict[str, set[str] | None] = {}
    for one in columns:
        for name, values in one.items():
            if values.dtype.kind == "f":
                found.setdefault(name, None)
            else:
                known = found.get(name) or set()
                found[name] = known | set(map(str, numpy.unique(values))) - {""}
    return {name: None if kinds is None else tuple(sorted(kinds)) for name, kinds in found.items()}


def _names(categories: dict[str, tuple[str, ...] | None]) -> tuple[str, ...]:
    """Names of the encoded columns: `size`, `kind=gemm`."""
    return tuple(
        text
        for name, kinds in categories.items()
        for text in ([name] if kinds is None else [f"{name}={kind}" for kind in kinds])
    )


def _encode(columns: Columns, categories: dict[str, tuple[str, ...] | None], length: int) -> Matrix:
    """[length, F] of one graph's columns."""
    parts = [numpy.zeros((length, 0))]
    for name, kinds in categories.items():
        values: Column | None = columns.get(name)
        if kinds is None:
            numbers = numpy.full(length, numpy.nan)
            if values is not None and values.dtype.kind == "f":
                numbers = values.astype(numpy.float64)
            parts.append(numbers[:, None])
        else:
            texts = numpy.full(length, "") if values is None else values.astype(numpy.str_)
            parts.append((texts[:, None] == numpy.array(kinds, dtype=numpy.str_)[None, :]).astype(numpy.float64))
    return numpy.hstack(parts)


def _mean_at_nodes(graph: Graph, categories: dict[str, tuple[str, ...] | None], way: int) -> Matrix:
    """[N, F]: means over the edges of each node; in a directed graph those out of it (way 0) or into it (way 1)."""
    rows = _encode(graph.edge_columns, categories, len(graph.edges))
    ends = [graph.edges[:, way]] if graph.directed else [graph.edges[:, 0], graph.edges[:, 1]]
    sums, counts = numpy.zeros((graph.size, rows.shape[1])), numpy.zeros(graph.size)
    for nodes in ends:
        numpy.add.at(sums, nodes, rows)
        numpy.add.at(counts, nodes, 1)
    return sums / numpy.maximum(counts, 1)[:, None]


def _stack(parts: Sequence[Matrix]) -> Matrix:
    return numpy.vstack(parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Orbit:
    """An orbit of a structure: its distance from the anchor and how many members it has."""

    distance: int
    size: int

    def __str__(self) -> str:
        if self.distance == 0:
            return "the node"
        what = f"{self.size} nodes" if self.size > 1 else "a node"
        return f"{what} {self.distance} hop{'s' if self.distance > 1 else ''} away"


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """All nodes of one structure: which they are in the union, and their features, one row each. `colours` is the hash
    of the structure's stable colours.
    """

    structure: int
    colours: int
    nodes: Indices  # [n]
    features: Matrix  # [n, O * F]
    orbits: tuple[Orbit, ...]


@dataclass(frozen=True, kw_only=True)
class FeatureSettings:
    """How structures and features are found. `use_hash` and `use_orbits` are off in ablations only: without the
    hash all nodes have one structure and are aggregated by distance, without orbits a sum goes over the ego graph.
    """

    node_identity: tuple[str, ...] = ()
    edge_identity: tuple[str, ...] = ()
    use_hash: bool = True
    use_orbits: bool = True


def structure_id(radius: int, value: int) -> int:
    """A structure's number of 64 bits: of its radius and its hash."""
    return mix_pair(radius, value)


def find_blocks(
    adjacency: Adjacency,
    rows: Matrix,
    hasher: StructureHasher,
    settings: FeatureSettings,
    least: int,
    known: Mapping[int, int] | None = None,
) -> list[Block]:
    """The nodes of the graphs' union by structure, largest first, without structures of fewer than `least` nodes.

    `rows` are the encoded attributes. With `known`, structure -> the hash of its colours, those structures alone. The
    colours tell most structures apart already: only where they leave enough nodes alike is more looked for.
    """
    refined = RefinedEgos(adjacency, hasher.radius)
    colours = refined.hash() if settings.use_hash else numpy.zeros(adjacency.size, numpy.uint64)
    if known is None:
        _, places, counts = numpy.unique(colours, return_inverse=True, return_counts=True)
        anchors = numpy.flatnonzero(counts[places] >= least)
    else:
        anchors = numpy.flatnonzero(numpy.isin(colours, numpy.array([*known.values()], numpy.uint64)))
    tables = [_aggregate(roles, rows, settings, hasher.radius) for roles in hasher.roles(refined, anchors)]
    found = numpy.concatenate([numpy.zeros(0, numpy.uint64), *(table.structures for table in tables)])
    values, counts = numpy.unique(found, return_counts=True)
    enough = counts >= least
    if known is not None:
        enough &= numpy.array([structure_id(hasher.radius, int(value)) in known for value in values], bool)
    kept = values[enough]
    parts: dict[int, list[Block]] = {}
    for table in tables:
        for value, block in table.split(kept):
            parts.setdefault(value, []).append(block)
    blocks = [
        Block(
            structure=structure_id(hasher.radius, value),
            colours=int(colours[found[0].nodes[0]]),
            nodes=numpy.concatenate([block.nodes for block in found]),
            features=numpy.vstack([block.features for block in found]),
            orbits=found[0].orbits,
        )
        for value, found in parts.items()
    ]
    return sorted(blocks, key=lambda block: (-len(block.nodes), block.structure))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Table:
    """Aggregated rows of a batch, ordered by structure, ego graph and orbit."""

    structures: Hashes  # [A], of each ego graph in the batch's order
    ego: Indices  # [R]
    node: Indices  # [R]
    structure: Hashes  # [R]
    distance: Indices  # [R]
    size: Indices  # [R]
    means: Matrix  # [R, F]

    def split(self, kept: Hashes) -> list[tuple[int, Block]]:
        """The rows of each kept structure, reshaped to one row for each ego graph."""
        found = []
        values, first = numpy.unique(self.structure, return_index=True)
        ends = numpy.append(first[1:], len(self.structure))
        for value in numpy.intersect1d(values, kept):
            at = int(numpy.searchsorted(values, value))
            run = slice(int(first[at]), int(ends[at]))
            egos = int((numpy.diff(self.ego[run]) != 0).sum()) + 1
            orbits = (run.stop - run.start) // egos
            found.append(
                (
                    int(value),
                    Block(
                        structure=int(value),
                        colours=0,
                        nodes=self.node[run][::orbits],
                        features=self.means[run].reshape(egos, -1),
                        orbits=tuple(
                            Orbit(distance=int(distance), size=int(size))
                            for distance, size in zip(self.distance[run][:orbits], self.size[run][:orbits], strict=True)
                        ),
                    ),
                )
            )
        return found


def _aggregate(roles: Roles, rows: Matrix, settings: FeatureSettings, radius: int) -> _Table:
    """Means of the attributes over each orbit of each ego graph of a batch."""
    egos = roles.egos
    owners = egos.owners
    structures = roles.structures.hashes if settings.use_hash else numpy.zeros(len(egos.anchors), numpy.uint64)
    keys = roles.keys
    if not settings.use_hash:
        keys = egos.distances.astype(numpy.uint64)
    elif not settings.use_orbits:
        keys = numpy.where(egos.distances == 0, 0, 1).astype(numpy.uint64)
    order = numpy.lexsort((keys, egos.distances, owners)) if settings.use_orbits else numpy.lexsort((keys, owners))
    owner, key = owners[order], keys[order]
    fresh = numpy.ones(len(order), bool)
    fresh[1:] = (owner[1:] != owner[:-1]) | (key[1:] != key[:-1])
    group = numpy.cumsum(fresh) - 1
    sizes = numpy.bincount(group)
    means = _group_means(rows[egos.nodes[order]], group, len(sizes))
    if not settings.use_orbits:
        means = means * sizes[:, None]
    ego = owner[fresh]
    if not settings.use_hash:  # every node gets a row for each distance, empty or not
        return _fill_distances(egos.anchors, ego, egos.distances[order][fresh], means, radius + 1)
    distance = egos.distances[order][fresh]
    by = numpy.lexsort((key[fresh], sizes, distance, ego, structures[ego]))
    return _Table(
        structures=structures,
        ego=ego[by],
        node=egos.anchors[ego[by]],
        structure=structures[ego[by]],
        distance=distance[by],
        size=sizes[by],
        means=means[by],
    )


def _group_means(rows: Matrix, group: Indices, size: int) -> Matrix:
    """Means over groups without the NaN; NaN where a group holds nothing else."""
    known = ~numpy.isnan(rows)
    sums, counts = numpy.zeros((size, rows.shape[1])), numpy.zeros((size, rows.shape[1]))
    for i in range(rows.shape[1]):
        sums[:, i] = numpy.bincount(group, numpy.where(known[:, i], rows[:, i], 0), size)
        counts[:, i] = numpy.bincount(group, known[:, i], size)
    with numpy.errstate(invalid="ignore"):
        means: Matrix = numpy.where(counts > 0, sums / numpy.maximum(counts, 1), numpy.nan)
    return means


def _fill_distances(anchors: Indices, ego: Indices, distance: Indices, means: Matrix, far: int) -> _Table:
    """A table with a row for each ego graph and each of `far` distances; NaN where nothing is that far."""
    filled = numpy.full((len(anchors), far, means.shape[1]), numpy.nan)
    filled[ego, distance] = means
    number = len(anchors) * far
    return _Table(
        structures=numpy.zeros(len(anchors), numpy.uint64),
        ego=numpy.repeat(numpy.arange(len(anchors)), far),
        node=numpy.repeat(anchors, far),
        structure=numpy.zeros(number, numpy.uint64),
        distance=numpy.tile(numpy.arange(far), len(anchors)),
        size=numpy.ones(number, numpy.int64),
        means=filled.reshape(number, -1),
    )
