"""Hashes of ego graphs: what they tell apart, that names and orders do not matter, and how long they take."""

from __future__ import annotations

import time
from collections.abc import Callable

import networkx as nx
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes import PAIRS, cai_furer_immerman, hashes, shuffled

from workbench.structure.graph import Graph, read_graph
from workbench.structure.hashing.adjacency import join_graphs
from workbench.structure.hashing.canonical_form import CanonicalForm
from workbench.structure.hashing.egos import RefinedEgos, ego_graphs, refine_colours
from workbench.structure.hashing.structures import StructureHasher


def stable_colours(graph: nx.Graph) -> list[tuple[int, ...]]:
    """1-WL of the whole graph, by its definition: how often each colour occurs in each round."""
    colours = dict.fromkeys(graph, 0)
    found = []
    for _ in range(len(graph)):
        keys = {node: (colours[node], tuple(sorted(colours[other] for other in graph[node]))) for node in graph}
        names = {key: number for number, key in enumerate(sorted(set(keys.values())))}
        colours = {node: names[key] for node, key in keys.items()}
        found.append((*sorted(colours.values()), *(hash(key) for key in names)))
    return found


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_that_refinement_does_not_tell_apart_differs_at_its_radius(name: str) -> None:
    one, other, radius = PAIRS[name]
    assert stable_colours(one) == stable_colours(other)  # 1-WL sees no difference
    assert hashes(one, radius) != hashes(other, radius)
    assert hashes(one, radius - 1) == hashes(other, radius - 1)


def test_a_twisted_pair_needs_a_radius_that_holds_the_twist() -> None:
    plain, twisted = cai_furer_immerman(False), cai_furer_immerman(True)
    assert hashes(plain, 2) == hashes(twisted, 2)  # not told apart: no ego graph of two hops holds a whole ring
    found = [radius for radius in range(3, 7) if hashes(plain, radius) != hashes(twisted, radius)]
    assert found, "the pair is not told apart at any radius"


def all_orbits(graph: nx.Graph, anchor: int) -> set[frozenset[int]]:
    """Orbits of the automorphisms that leave the anchor in place, by enumeration."""
    marked = nx.Graph(graph)
    nx.set_node_attributes(marked, {node: node == anchor for node in marked}, "anchor")
    matcher = nx.isomorphism.GraphMatcher(marked, marked, lambda a, b: a["anchor"] == b["anchor"])
    found: dict[int, set[int]] = {node: set() for node in marked}
    for mapping in matcher.isomorphisms_iter():
        for node, to in mapping.items():
            found[node].add(to)
    return {frozenset(orbit) for orbit in found.values()}


@given(st.integers(0, 10**6), st.integers(4, 8), st.floats(0.2, 0.8))
def test_orbits_are_those_of_all_automorphisms(seed: int, size: int, share: float) -> None:
    graph = nx.gnp_random_graph(size, share, seed=seed)
    roles = next(StructureHasher(size).roles(RefinedEgos(join_graphs([read_graph(graph)]), size)))
    for anchor in range(size):
        run = slice(*roles.egos.starts[anchor : anchor + 2])
        found: dict[int, set[int]] = {}
        for node, key in zip(roles.egos.nodes[run].tolist(), roles.keys[run].tolist(), strict=True):
            found.setdefault(key, set()).add(node)
        inside = graph.subgraph(nx.node_connected_component(graph, anchor))
        assert {frozenset(orbit) for orbit in found.values()} == all_orbits(inside, anchor)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0.3, 0.7))
def test_two_hashes_are_equal_exactly_if_the_graphs_are_isomorphic(one: int, other: int, share: float) -> None:
    graphs = [nx.gnp_random_graph(6, share, seed=seed) for seed in (one, other)]
    forms = [CanonicalForm([dict.fromkeys(graph[node], 1) for node in graph]).hash([0] * 6) for graph in graphs]
    assert (forms[0] == forms[1]) == nx.is_isomorphic(*graphs)


def attributed() -> Graph:
    """A directed graph with a loop, two edges between one pair, an isolated node, and attributes of both kinds."""
    drawn = numpy.random.default_rng(1)
    edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 2), (3, 3), (4, 0), (4, 1), (4, 1), (5, 6), (6, 7), (7, 5), (8, 5)]
    return Graph.of(
        edges,
        size=10,
        directed=True,
        node_columns={"kind": ["a", "b"] * 5, "weight": drawn.random(10)},
        edge_columns={"bond": [str(i % 3) for i in range(len(edges))]},
    )


def test_a_thousand_relabellings_have_the_same_hashes() -> None:
    graph = attributed()

    def find(one: Graph) -> list[int]:
        joined = join_graphs([one], ("kind",), ("bond",))
        return sorted(StructureHasher(2).hash(joined).hashes.tolist())

    wanted = find(graph)
    assert len(set(wanted)) == 10  # each node has a place of its own
    for seed in range(1000):
        assert find(shuffled(graph, seed)) == wanted


@pytest.mark.parametrize(
    ("change", "seen_by"),
    [
        ({"directed": False}, ((), ())),
        ({"node_columns": {"kind": ["a"] * 10}}, (("kind",), ())),
        ({"edge_columns": {"bond": ["0"] * 13}}, ((), ("bond",))),
    ],
)
def test_direction_and_attributes_are_part_of_a_structure_where_they_are_named(change, seen_by) -> None:
    graph = attributed()
    parts = {"directed": True, "node_columns": graph.node_columns, "edge_columns": graph.edge_columns}
    other = Graph.of(graph.edges, size=10, **{**parts, **change})

    def find(one: Graph, identity: tuple[tuple[str, ...], tuple[str, ...]]) -> list[int]:
        return sorted(StructureHasher(1).hash(join_graphs([one], *identity)).hashes.tolist())

    assert find(graph, seen_by) != find(other, seen_by)
    if "directed" not in change:
        assert find(graph, ((), ())) == find(other, ((), ()))


def test_hashes_are_those_of_the_first_release() -> None:
    """A change of these numbers makes stored hashes useless: do not, but for a fault."""
    house = Graph.of([(0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4)])
    assert [f"{value:016x}" for value in hashes(house, 1)] == FIRST_RELEASE


FIRST_RELEASE = [
    "0987f2c92d5441a8",
    "0987f2c92d5441a8",
    "b6c548cd4aa7e8cf",
    "e5b690134c2608c4",
    "e5b690134c2608c4",
]


def test_an_isolated_node_has_a_structure() -> None:
    found = StructureHasher(2).hash(join_graphs([Graph.of([(0, 1)], size=4)])).hashes
    assert found[2] == found[3] != found[0] == found[1]


def test_a_star_of_200_leaves_takes_less_than_a_second(slowness: Callable[[], float]) -> None:
    start = time.perf_counter()
    roles = next(StructureHasher(2).roles(RefinedEgos(join_graphs([read_graph(nx.star_graph(200))]), 2)))
    took = time.perf_counter() - start
    assert took < slowness()
    assert len(set(roles.keys[:201].tolist())) == 2  # the centre, the leaves
    assert len(set(roles.keys[201:402].tolist())) == 3  # the anchor, the centre, the other leaves


def test_many_rings_at_one_node_take_less_than_a_second(slowness: Callable[[], float]) -> None:
    graph = Graph.of([pair for i in range(100) for pair in ((0, 2 * i + 1), (2 * i + 1, 2 * i + 2), (2 * i + 2, 0))])
    start = time.perf_counter()
    found = StructureHasher(1).hash(join_graphs([graph]))
    took = time.perf_counter() - start
    assert took < slowness()
    assert found.complete.all()
    assert len(set(found.hashes.tolist())) == 2


def test_where_a_search_is_too_long_the_hash_says_so_and_order_still_does_not_matter() -> None:
    cube = read_graph(nx.hypercube_graph(4))
    one, other = (StructureHasher(4, budget=50).hash(join_graphs([graph])) for graph in (cube, shuffled(cube, 3)))
    assert not one.complete.any() and not other.complete.any()
    assert set(one.hashes.tolist()) == set(other.hashes.tolist())
    assert len(set(one.hashes.tolist())) == 1
    assert StructureHasher(4).hash(join_graphs([cube])).complete.all()


def test_colours_of_an_ego_graph_start_from_the_distance_to_its_anchor() -> None:
    union = join_graphs([read_graph(nx.cycle_graph(6))])
    egos = ego_graphs(union, numpy.arange(6), 3)
    assert len(set(refine_colours(egos)[:6].tolist())) == 4
