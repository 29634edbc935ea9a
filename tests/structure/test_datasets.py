"""Generated sets: the published sizes, what is planted, and that a seed gives one set."""

from __future__ import annotations

import networkx as nx
import numpy
import pytest

from workbench.structure import datasets
from workbench.structure.graph import Graph


def as_networkx(graph: Graph) -> nx.Graph:
    found = nx.Graph(graph.edges.tolist())
    found.add_nodes_from(range(graph.size))
    return found


def test_a_half_of_the_graphs_has_a_house_and_a_half_a_ring() -> None:
    found = datasets.ba_2motifs(40)
    for graph, label, planted in zip(found.graphs, found.labels, found.planted, strict=True):
        motif = as_networkx(graph).subgraph(planted)
        assert nx.is_isomorphic(motif, nx.house_graph() if label else nx.cycle_graph(5))
        assert graph.size == 25 and nx.is_connected(as_networkx(graph))


def test_two_kinds_of_motifs_make_a_positive_graph() -> None:
    found = datasets.ba_multi_shapes(200)
    kinds: dict[int, set[int]] = {0: set(), 1: set()}
    for graph, label in zip(found.graphs, found.labels, strict=True):
        rings = len(graph.edges) - graph.size + 1  # independent: a house has 2, a grid 4, a wheel 5
        kinds[int(label)].add(rings)
        assert graph.size == 40
    assert kinds == {0: {0, 2, 4, 5, 11}, 1: {6, 7, 9}}


@pytest.mark.parametrize(
    ("make", "size", "edges", "classes"),
    [
        (datasets.ba_shapes, 700, 2055, [300, 160, 160, 80]),
        (datasets.tree_cycles, 871, 976, [511, 360]),
        (datasets.tree_grid, 1231, 1705, [511, 720]),
    ],
)
def test_sets_of_nodes_have_the_published_sizes(make, size: int, edges: int, classes: list[int]) -> None:
    found = make()
    assert (found.graph.size, len(found.graph.edges)) == (size, edges)
    assert numpy.bincount(found.labels).tolist() == classes
    assert (make().graph.edges == found.graph.edges).all()
    assert len(make(seed=1).graph.edges) == edges and (make(seed=1).graph.edges != found.graph.edges).any()
