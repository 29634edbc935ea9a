"""The disjoint union of graphs as compressed rows, with a label of 64 bits at each neighbour and each node.

The label of a neighbour says which attributes the edges to it and from it have, so that a directed graph, or one with
several edges between two nodes, is an undirected simple graph with labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from workbench.structure.graph import Column, Columns, Graph
from workbench.structure.hashing.mixing import Hashes, hash_text, mix_all, mix_pairs, sum_runs

_UNDIRECTED, _OUT, _IN, _LOOP = (numpy.uint64(n) for n in range(1, 5))


@dataclass(frozen=True, kw_only=True, eq=False)
class Adjacency:
    """Node i of the union has the neighbours targets[starts[i]:starts[i + 1]], in ascending order."""

    starts: NDArray[numpy.int64]  # [N + 1]
    targets: NDArray[numpy.int64]  # [2E]
    labels: Hashes  # [2E]
    node_labels: Hashes  # [N]
    graph_starts: NDArray[numpy.int64]  # [G + 1]: the first node of each graph

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.starts) - 1

    @property
    def degrees(self) -> NDArray[numpy.int64]:
        """[N]: how many neighbours each node has."""
        return numpy.diff(self.starts)

    @property
    def graph_of(self) -> NDArray[numpy.int64]:
        """[N]: the graph of each node."""
        return numpy.repeat(numpy.arange(len(self.graph_starts) - 1), numpy.diff(self.graph_starts))


def join_graphs(
    graphs: Sequence[Graph], node_identity: Sequence[str] = (), edge_identity: Sequence[str] = ()
) -> Adjacency:
    """The union of graphs. Labels tell apart the values of the attributes that the two identities name."""
    graph_starts = numpy.cumsum([0, *(graph.size for graph in graphs)])
    sources, targets, labels = _both_ways(graphs, edge_identity, graph_starts[:-1])
    node_labels = numpy.zeros(int(graph_starts[-1]), numpy.uint64)
    if node_identity:
        found = [hash_columns(graph.node_columns, node_identity, graph.size) for graph in graphs]
        node_labels = numpy.concatenate([node_labels[:0], *found])
    size = int(graph_starts[-1])
    order = numpy.lexsort((targets, sources))
    sources, targets, labels = sources[order], targets[order], labels[order]
    fresh = numpy.ones(len(sources), bool)
    fresh[1:] = (sources[1:] != sources[:-1]) | (targets[1:] != targets[:-1])
    first = numpy.flatnonzero(fresh)
    labels = sum_runs(mix_all(labels), numpy.append(first, len(labels)))
    sources, targets = sources[first], targets[first]
    loops = sources == targets
    node_labels[sources[loops]] = mix_pairs(node_labels[sources[loops]], labels[loops])
    sources, targets, labels = sources[~loops], targets[~loops], labels[~loops]
    return Adjacency(
        starts=numpy.searchsorted(sources, numpy.arange(size + 1)),
        targets=targets,
        labels=labels,
        node_labels=node_labels,
        graph_starts=graph_starts,
    )


def _both_ways(
    graphs: Sequence[Graph], identity: Sequence[str], firsts: NDArray[numpy.int64]
) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64], Hashes]:
    """Sources, targets and labels of the graphs' edges, each edge from both of its ends. `firsts` are first nodes."""
    counts = [len(graph.edges) for graph in graphs]
    edges = numpy.concatenate([numpy.zeros((0, 2), numpy.int64), *(graph.edges for graph in graphs)])
    edges = edges + numpy.repeat(firsts, counts)[:, None]
    own = numpy.zeros(len(edges), numpy.uint64)
    if identity:
        found = [hash_columns(graph.edge_columns, identity, len(graph.edges)) for graph in graphs]
        own = numpy.concatenate([own[:0], *found])
    directed = numpy.repeat(numpy.array([graph.directed for graph in graphs], bool), counts)
    one, other = edges[:, 0], edges[:, 1]
    loops = one == other
    away = numpy.where(loops, _LOOP, numpy.where(directed, _OUT, _UNDIRECTED))
    back = numpy.where(directed, _IN, _UNDIRECTED)
    return (
        numpy.concatenate([one, other[~loops]]),
        numpy.concatenate([other, one[~loops]]),
        numpy.concatenate([mix_pairs(own, away), mix_pairs(own[~loops], back[~loops])]),
    )


def hash_columns(columns: Columns, names: Sequence[str], length: int) -> Hashes:
    """[length]: a hash of the values that the named columns hold; an absent column counts as empty."""
    found = numpy.zeros(length, numpy.uint64)
    for name in names:
        found = mix_pairs(found, _hash_column(columns[name]) if name in columns else numpy.zeros(length, numpy.uint64))
    return found


def _hash_column(column: Column) -> Hashes:
    """A hash of each value of a column."""
    values, places = numpy.unique(column, return_inverse=True)
    hashes = numpy.array([hash_text(str(value)) for value in values.tolist()], dtype=numpy.uint64)
    return hashes[places]
