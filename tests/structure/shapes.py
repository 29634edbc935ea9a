"""Pairs of graphs that colour refinement (1-WL) cannot tell apart, and what tells them apart here."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy

from workbench.structure.graph import Graph, read_graph
from workbench.structure.hashing.adjacency import join_graphs
from workbench.structure.hashing.structures import StructureHasher


def rings(*lengths: int) -> nx.Graph:
    """Disjoint rings."""
    return nx.disjoint_union_all([nx.cycle_graph(length) for length in lengths])


def joined_rings(one: int, other: int) -> nx.Graph:
    """Two rings with one edge between them: bicyclopentyl is joined_rings(5, 5)."""
    graph = rings(one, other)
    graph.add_edge(0, one)
    return graph


def fused_rings(one: int, other: int) -> nx.Graph:
    """Two rings that share an edge: decalin is fused_rings(6, 6)."""
    graph = nx.cycle_graph(one + other - 2)
    graph.add_edge(0, one - 1)
    return graph


def skip_links(size: int, skip: int) -> nx.Graph:
    """A ring with edges between nodes that are `skip` apart (circular skip links, CSL)."""
    return nx.circulant_graph(size, [1, skip])


def rook() -> nx.Graph:
    """The 4 x 4 rook's graph, strongly regular (16, 6, 2, 2)."""
    return nx.line_graph(nx.complete_bipartite_graph(4, 4))


def shrikhande() -> nx.Graph:
    """The Shrikhande graph, of the same parameters as the rook's."""
    graph = nx.Graph()
    for i, j in itertools.product(range(4), repeat=2):
        graph.add_edges_from(((i, j), ((i + a) % 4, (j + b) % 4)) for a, b in ((0, 1), (1, 0), (1, 1)))
    return graph


def cai_furer_immerman(twisted: bool) -> nx.Graph:
    """The construction of Cai, Fuerer and Immerman over the complete graph of four nodes, one edge twisted or none."""
    base = nx.complete_graph(4)
    graph = nx.Graph()
    for node in base:
        near = sorted(base[node])
        for size in range(0, len(near) + 1, 2):
            for chosen in itertools.combinations(near, size):
                for other in near:
                    graph.add_edge(("inner", node, chosen), ("outer", node, other, other in chosen))
    for one, other in base.edges:
        turn = twisted and (one, other) == (0, 1)
        for bit in (False, True):
            graph.add_edge(("outer", one, other, bit), ("outer", other, one, bit != turn))
    return graph


PAIRS = {  # name -> two graphs, and the least K at which they differ
    "two triangles and a hexagon": (rings(3, 3), rings(6), 1),
    "decalin and bicyclopentyl": (fused_rings(6, 6), joined_rings(5, 5), 2),
    "fused and joined squares and triangles": (fused_rings(4, 4), joined_rings(3, 3), 1),
    "two squares and an octagon": (rings(4, 4), rings(8), 2),
    "two pentagons and a decagon": (rings(5, 5), rings(10), 2),
    "two hexagons and a ring of twelve": (rings(6, 6), rings(12), 3),
    "prism and K(3, 3)": (nx.circular_ladder_graph(3), nx.complete_bipartite_graph(3, 3), 1),
    "cube and Wagner's graph": (nx.hypercube_graph(3), nx.circulant_graph(8, [1, 4]), 2),
    "dodecahedron and Desargues' graph": (nx.dodecahedral_graph(), nx.desargues_graph(), 2),
    "Petersen's graph and a pentagonal prism": (nx.petersen_graph(), nx.circular_ladder_graph(5), 2),
    "rook's graph and Shrikhande's": (rook(), shrikhande(), 1),
    "skip links 41, 2 and 41, 3": (skip_links(41, 2), skip_links(41, 3), 1),
    "skip links 41, 3 and 41, 4": (skip_links(41, 3), skip_links(41, 4), 2),
    "skip links 41, 5 and 41, 6": (skip_links(41, 5), skip_links(41, 6), 3),
    "skip links 41, 9 and 41, 12": (skip_links(41, 9), skip_links(41, 12), 4),
}


def hashes(graph: nx.Graph | Graph, radius: int) -> list[int]:
    """The hashes of all nodes, sorted; all of them must be complete."""
    found = StructureHasher(radius).hash(join_graphs([read_graph(graph)]))
    assert found.complete.all()
    return sorted(found.hashes.tolist())


def shuffled(graph: Graph, seed: int) -> Graph:
    """The graph with its nodes renumbered and its edges in another order and direction."""
    drawn = numpy.random.default_rng(seed)
    moved = graph.renumber(drawn.permutation(graph.size))
    order = drawn.permutation(len(moved.edges))
    edges = moved.edges[order]
    turned = edges if graph.directed else numpy.where(drawn.random((len(edges), 1)) < 0.5, edges[:, ::-1], edges)
    return Graph(
        size=moved.size,
        edges=turned,
        directed=moved.directed,
        node_columns=moved.node_columns,
        edge_columns={name: column[order] for name, column in moved.edge_columns.items()},
    )
