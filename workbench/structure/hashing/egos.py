"""Ego graphs: for each anchor, the nodes within K hops and all edges among them, many anchors at a time.

The union of all ego graphs of a batch is one large graph, and its colour refinement is a few operations on arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from workbench.structure.hashing.adjacency import Adjacency
from workbench.structure.hashing.mixing import Hashes, mix_all, mix_pairs, sum_runs

Indices = NDArray[numpy.int64]
Flags = NDArray[numpy.bool_]

MOST_MEMBERS = 1 << 19  # of a batch, about: what keeps its arrays under some 500 MB
MOST_KEPT = 3  # batches that are kept for a second pass


@dataclass(frozen=True, kw_only=True, eq=False)
class Egos:
    """Ego graphs one after the other. Members of ego graph e are starts[e] to starts[e + 1], by ascending node.

    Edges go from member to member, each from both ends, in ascending order of `sources` and then of `targets`.
    """

    anchors: Indices  # [A] nodes
    starts: Indices  # [A + 1]
    nodes: Indices  # [M] node of each member
    distances: Indices  # [M] hops from the anchor
    edge_starts: Indices  # [M + 1] of each member's edges
    targets: Indices  # [D] members
    labels: Hashes  # [D]
    node_labels: Hashes  # [M]

    @property
    def owners(self) -> Indices:
        """[M]: the ego graph of each member."""
        return numpy.repeat(numpy.arange(len(self.anchors)), numpy.diff(self.starts))

    @property
    def sources(self) -> Indices:
        """[D]: the member from which each edge goes."""
        return numpy.repeat(numpy.arange(len(self.nodes)), numpy.diff(self.edge_starts))

    def keep(self, wanted: Flags) -> Egos:
        """Only the wanted ego graphs; `wanted` has one flag for each."""
        members = numpy.repeat(wanted, numpy.diff(self.starts))
        edges = numpy.repeat(members, numpy.diff(self.edge_starts))
        moved = numpy.cumsum(members) - 1
        return Egos(
            anchors=self.anchors[wanted],
            starts=_starts(numpy.diff(self.starts)[wanted]),
            nodes=self.nodes[members],
            distances=self.distances[members],
            edge_starts=_starts(numpy.diff(self.edge_starts)[members]),
            targets=moved[self.targets[edges]],
            labels=self.labels[edges],
            node_labels=self.node_labels[members],
        )


def _starts(lengths: Indices) -> Indices:
    """Where runs of these lengths begin, and where the last ends."""
    return numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(lengths)])


def batches(graph: Adjacency, radius: int, anchors: Indices | None = None) -> Iterator[Indices]:
    """The anchors (by default all nodes) in runs whose ego graphs have together about MOST_MEMBERS members."""
    reach = numpy.ones(graph.size)
    for _ in range(radius):
        sums = numpy.concatenate([[0.0], numpy.cumsum(reach[graph.targets])])
        reach = 1 + sums[graph.starts[1:]] - sums[graph.starts[:-1]]
    members = numpy.minimum(reach, graph.size) * numpy.maximum(1, numpy.sqrt(graph.degrees))
    anchors = numpy.arange(graph.size) if anchors is None else anchors
    number = (numpy.cumsum(members[anchors]) // MOST_MEMBERS).astype(numpy.int64)
    for run in numpy.split(anchors, numpy.flatnonzero(numpy.diff(number)) + 1):
        if len(run):
            yield run


def ego_graphs(graph: Adjacency, anchors: Indices, radius: int) -> Egos:
    """The ego graphs of the anchors: nodes within `radius` hops, in either direction, and all edges among them."""
    size = max(graph.size, 1)
    reached = numpy.arange(len(anchors)) * size + anchors
    distances = numpy.zeros(len(anchors), numpy.int64)
    frontier = reached
    for hop in range(1, radius + 1):
        near, _, _ = _neighbours(graph, frontier // size, frontier % size)
        near = numpy.unique(near)
        frontier = near[~_is_in(near, reached)]
        reached = numpy.concatenate([reached, frontier])
        order = numpy.argsort(reached, kind="stable")
        distances = numpy.concatenate([distances, numpy.full(len(frontier), hop, numpy.int64)])[order]
        reached = reached[order]
    keys, labels, sources = _neighbours(graph, reached // size, reached % size)
    inside = _is_in(keys, reached)
    return Egos(
        anchors=anchors,
        starts=numpy.searchsorted(reached, numpy.arange(len(anchors) + 1) * size),
        nodes=reached % size,
        distances=distances,
        edge_starts=numpy.searchsorted(sources[inside], numpy.arange(len(reached) + 1)),
        targets=numpy.searchsorted(reached, keys[inside]),
        labels=labels[inside],
        node_labels=graph.node_labels[reached % size],
    )


def _neighbours(graph: Adjacency, owners: Indices, nodes: Indices) -> tuple[Indices, Hashes, Indices]:
    """Neighbours of nodes as owner * size + neighbour, the labels of the edges, and the place of each edge's source."""
    counts = graph.degrees[nodes]
    sources = numpy.repeat(numpy.arange(len(nodes)), counts)
    places = numpy.arange(len(sources)) + numpy.repeat(graph.starts[nodes] - _starts(counts)[:-1], counts)
    return owners[sources] * max(graph.size, 1) + graph.targets[places], graph.labels[places], sources


def _is_in(keys: Indices, ordered: Indices) -> Flags:
    """Which keys are among `ordered`, which ascends."""
    places = numpy.minimum(numpy.searchsorted(ordered, keys), len(ordered) - 1)
    found: Flags = ordered[places] == keys
    return found


def refine_colours(egos: Egos) -> Hashes:
    """[M]: the stable colour of each member (colour refinement from its distance, its label and the labels of edges).

    Each ego graph is refined until its number of colours grows no more, so that a colour depends on its graph alone.
    """
    colours = mix_pairs(egos.distances.astype(numpy.uint64), egos.node_labels)
    final = colours.copy()
    places = numpy.arange(len(colours))
    counts = _count_colours(egos, colours)
    while len(egos.anchors):
        messages = mix_pairs(colours[egos.targets], egos.labels)
        colours = mix_pairs(colours, sum_runs(messages, egos.edge_starts))
        final[places] = colours
        grown = _count_colours(egos, colours)
        going = grown > counts
        members = numpy.repeat(going, numpy.diff(egos.starts))
        egos, colours, places, counts = egos.keep(going), colours[members], places[members], grown[going]
    return final


def _count_colours(egos: Egos, colours: Hashes) -> Indices:
    """[A]: how many different colours each ego graph has."""
    return count_distinct(egos.owners, colours, len(egos.anchors))


def count_distinct(owners: Indices, values: Hashes, size: int) -> Indices:
    """[size]: how many different values each owner has."""
    order = numpy.lexsort((values, owners))
    owners, values = owners[order], values[order]
    fresh = numpy.ones(len(values), bool)
    fresh[1:] = (owners[1:] != owners[:-1]) | (values[1:] != values[:-1])
    return numpy.bincount(owners[fresh], minlength=size)


def find_cores(egos: Egos) -> Flags:
    """[M]: members of the 2-cores: what is left when nodes with fewer than two neighbours are taken away again."""
    left = numpy.ones(len(egos.nodes), bool)
    degrees = numpy.diff(egos.edge_starts)
    sources = egos.sources
    while True:
        gone = left & (degrees < 2)
        if not gone.any():
            return left
        left &= ~gone
        degrees = degrees - numpy.bincount(egos.targets[gone[sources]], minlength=len(left))


def find_settled(egos: Egos, colours: Hashes) -> Flags:
    """[A]: ego graphs that their stable colours determine, up to isomorphism.

    These are the graphs whose 2-core has no two nodes of one colour: the trees that hang on such a core are determined
    by their colours (colour refinement identifies forests), and so are the edges of the core.
    """
    core = find_cores(egos)
    owners = egos.owners[core]
    sizes = numpy.bincount(owners, minlength=len(egos.anchors))
    settled: Flags = count_distinct(owners, colours[core], len(egos.anchors)) == sizes
    return settled


def hash_egos(egos: Egos, colours: Hashes) -> Hashes:
    """[A]: a hash of the colours of each ego graph, of its size and of its number of edges."""
    total = sum_runs(mix_all(colours), egos.starts)
    sizes = numpy.diff(egos.starts).astype(numpy.uint64)
    edges = (egos.edge_starts[egos.starts[1:]] - egos.edge_starts[egos.starts[:-1]]).astype(numpy.uint64)
    return mix_pairs(mix_pairs(total, sizes), edges)


class RefinedEgos:
    """The ego graphs of a graph's nodes with their stable colours, some at a time.

    They are kept where MOST_KEPT batches hold all of them, so that they are not made again for a second pass.
    """

    def __init__(self, graph: Adjacency, radius: int) -> None:
        self._graph, self._radius = graph, radius
        self._kept: list[tuple[Egos, Hashes]] | None = None

    def _make(self, anchors: Indices) -> tuple[Egos, Hashes]:
        egos = ego_graphs(self._graph, anchors, self._radius)
        return egos, refine_colours(egos)

    def batches(self, anchors: Indices | None = None) -> Iterator[tuple[Egos, Hashes]]:
        """The ego graphs of the anchors, which ascend (by default of all nodes), and the colour of each member."""
        if anchors is None:
            runs = list(batches(self._graph, self._radius))
            if self._kept is None and len(runs) <= MOST_KEPT:
                self._kept = list(map(self._make, runs))
            yield from map(self._make, runs) if self._kept is None else self._kept
            return
        if self._kept is None:
            yield from map(self._make, batches(self._graph, self._radius, anchors))
            return
        wanted = numpy.zeros(self._graph.size, bool)
        wanted[anchors] = True
        for egos, colours in self._kept:
            some = wanted[egos.anchors]
            if some.all():
                yield egos, colours
            elif some.any():
                yield egos.keep(some), colours[numpy.repeat(some, numpy.diff(egos.starts))]

    def hash(self) -> Hashes:
        """[N]: the hash of each node's ego graph as far as its colours tell; equal for those that are isomorphic."""
        found = [hash_egos(egos, colours) for egos, colours in self.batches()]
        return numpy.concatenate([numpy.zeros(0, numpy.uint64), *found])
