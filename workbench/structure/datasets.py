"""Generated data sets with planted motifs, as published; deterministic in the seed.

    ba_2motifs()        1,000 graphs of 25 nodes: a house or a ring of five on a random tree (PGExplainer, 2020)
    ba_multi_shapes()   1,000 graphs of 40 nodes with houses, grids and wheels; label 1: exactly two kinds
                        (GLGExplainer, arXiv 2210.07147)
    ba_shapes()         700 nodes: houses on a Barabasi-Albert graph; the role of each node (GNNExplainer, 2019)
    tree_cycles()       871 nodes: rings of six on a binary tree; which nodes are in rings
    tree_grid()         1,231 nodes: 3 x 3 grids on a binary tree; which nodes are in grids

Each graph of the first two also says which nodes are of a motif, so that rules can be compared with what was planted.
The three sets of nodes have the published numbers of nodes, and of edges to within one (2,055, 976 and 1,705):
random edges are added until they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from workbench.structure.graph import Graph

Edges = list[tuple[int, int]]

HOUSE: Edges = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4)]  # 4 is the roof, 0 and 1 are below it
HOUSE_ROLES = (1, 1, 2, 2, 3)  # as in GNNExplainer: middle, bottom, top
RING_5: Edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
RING_6: Edges = [(i, (i + 1) % 6) for i in range(6)]
GRID: Edges = [(3 * i + j, 3 * i + j + 1) for i in range(3) for j in range(2)] + [(i, i + 3) for i in range(6)]
WHEEL: Edges = [(0, i) for i in range(1, 6)] + [(i, i % 5 + 1) for i in range(1, 6)]
SIZES = {"house": 5, "grid": 9, "wheel": 6, "ring": 5}
MOTIFS = {"house": HOUSE, "grid": GRID, "wheel": WHEEL, "ring": RING_5}


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphSet:
    """Graphs and the label of each; `planted[i]` holds the nodes of graph i that are of a motif."""

    graphs: tuple[Graph, ...]
    labels: NDArray[numpy.int64]
    planted: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeSet:
    """One graph, and the label of each of its nodes."""

    graph: Graph
    labels: NDArray[numpy.int64]


def ba_2motifs(number: int = 1000, seed: int = 0) -> GraphSet:
    """Half of the graphs have a house (label 1), half a ring of five (label 0); the other 20 nodes are a tree."""
    drawn = numpy.random.default_rng(seed)
    labels = numpy.arange(number) % 2
    made = [_plant(("ring", "house")[label], 20, drawn) for label in labels]
    return _as_set(made, labels)


def ba_multi_shapes(number: int = 1000, seed: int = 0) -> GraphSet:
    """Label 1: two of house, grid and wheel. Label 0: none (six in ten), one, or all three (one in ten each)."""
    drawn = numpy.random.default_rng(seed)
    labels = numpy.arange(number) % 2
    pairs = (("wheel", "grid"), ("wheel", "house"), ("house", "grid"))
    others: list[tuple[str, ...]] = [("wheel",), ("house",), ("grid",), ("house", "grid", "wheel")]
    made = []
    for label in labels:
        if label:
            motifs: tuple[str, ...] = pairs[int(drawn.integers(3))]
        else:
            kind = int(drawn.integers(10))
            motifs = others[kind] if kind < len(others) else ()
        made.append(_plant(motifs, 40 - sum(SIZES[motif] for motif in motifs), drawn))
    return _as_set(made, labels)


def _plant(motifs: str | Sequence[str], base: int, drawn: numpy.random.Generator) -> tuple[Graph, int]:
    """A Barabasi-Albert tree of `base` nodes with motifs, each joined by one random edge to what is there before it."""
    edges = attach_preferentially(base, 1, drawn)
    size = base
    for motif in [motifs] if isinstance(motifs, str) else motifs:
        edges += [(a + size, b + size) for a, b in MOTIFS[motif]]
        edges.append((int(drawn.integers(size)), size + int(drawn.integers(SIZES[motif]))))
        size += SIZES[motif]
    return Graph.of(edges, size=size), base


def _as_set(made: Sequence[tuple[Graph, int]], labels: NDArray[numpy.int64]) -> GraphSet:
    return GraphSet(
        graphs=tuple(graph for graph, _ in made),
        labels=labels.astype(numpy.int64),
        planted=tuple(tuple(range(base, graph.size)) for graph, base in made),
    )


def attach_preferentially(size: int, edges_each: int, drawn: numpy.random.Generator) -> Edges:
    """A Barabasi-Albert graph's edges: a new node joins `edges_each` nodes, drawn in proportion to their degrees."""
    edges: Edges = []
    ends = list(range(edges_each))
    targets = set(range(edges_each))
    for node in range(edges_each, size):
        edges += [(node, target) for target in sorted(targets)]
        if node == edges_each:
            ends.clear()
        ends += [*sorted(targets), *[node] * edges_each]
        targets = set()
        while len(targets) < edges_each:
            targets.add(ends[int(drawn.integers(len(ends)))])
    return edges


def ba_shapes(seed: int = 0, houses: int = 80, base: int = 300) -> NodeSet:
    """Houses on a Barabasi-Albert graph with 5 edges for each node. Labels: 0 base, 1 middle, 2 bottom, 3 roof."""
    drawn = numpy.random.default_rng(seed)
    edges = attach_preferentially(base, 5, drawn)
    return _plant_nodes(edges, base, HOUSE, HOUSE_ROLES, houses, 0.01, drawn)


def tree_cycles(seed: int = 0, rings: int = 60, height: int = 8) -> NodeSet:
    """Rings of six on a binary tree. Labels: 0 tree, 1 ring."""
    base = 2 ** (height + 1) - 1
    return _plant_nodes(_binary_tree(base), base, RING_6, (1,) * 6, rings, 0.05, numpy.random.default_rng(seed))


def tree_grid(seed: int = 0, grids: int = 80, height: int = 8) -> NodeSet:
    """3 x 3 grids on a binary tree. Labels: 0 tree, 1 grid."""
    base = 2 ** (height + 1) - 1
    return _plant_nodes(_binary_tree(base), base, GRID, (1,) * 9, grids, 0.1, numpy.random.default_rng(seed))


def _binary_tree(size: int) -> Edges:
    return [((node - 1) // 2, node) for node in range(1, size)]


def _plant_nodes(
    edges: Edges,
    base: int,
    motif: Edges,
    roles: Sequence[int],
    number: int,
    noise: float,
    drawn: numpy.random.Generator,
) -> NodeSet:
    """Motifs joined to random nodes of the base, and a share of random edges added."""
    labels, edges = [0] * base, list(edges)
    for _ in range(number):
        size = len(labels)
        edges += [*((a + size, b + size) for a, b in motif), (int(drawn.integers(base)), size)]
        labels += roles
    known = {(min(pair), max(pair)) for pair in edges}
    wanted = len(known) + int(noise * len(known))
    while len(known) < wanted:
        one, other = sorted(map(int, drawn.integers(len(labels), size=2)))
        if one != other:
            known.add((one, other))
    return NodeSet(graph=Graph.of(sorted(known), size=len(labels)), labels=numpy.array(labels))
