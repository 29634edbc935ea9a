"""Planted communities are found; relabelling makes them contiguous and changes no edge."""

from __future__ import annotations

import networkx
import numpy as np
import pytest

from workbench.errors import UserError
from workbench.graphs import communities
from workbench.graphs.communities import METHODS, modularity, relabel
from workbench.graphs.conversion import edges_of, from_edges, from_networkx, to_networkx
from workbench.graphs.generators import Nodes, barabasi_albert, stochastic_block_model
from workbench.graphs.graph import Graph


@pytest.fixture(scope="module")
def planted() -> Graph:
    return stochastic_block_model(6000, 40, 16, given=Nodes(features=2))


def test_modularity_is_that_of_networkx() -> None:
    made = stochastic_block_model(200, 5, 8, given=Nodes(features=1))
    sets = [set(np.flatnonzero(made.community == c).tolist()) for c in range(5)]
    wanted = networkx.community.modularity(to_networkx(made).to_undirected(), sets)
    assert modularity(made, made.community) == pytest.approx(wanted)


@pytest.mark.parametrize("method", ["louvain", "label_propagation", "parallel_louvain", "rabbit"])
def test_planted_communities_are_found(method: str, planted: Graph) -> None:
    assert relabel(planted, method).modularity >= 0.9 * modularity(planted, planted.community)


@pytest.mark.parametrize("method", METHODS)
def test_relabelling_makes_communities_contiguous_and_keeps_edges(method: str, planted: Graph) -> None:
    found = relabel(planted, method)
    moved, order = found.graph, found.order
    assert (np.diff(moved.community) >= 0).all() and set(np.diff(moved.community)) <= {0, 1}
    before = np.stack(edges_of(planted))
    after = order[np.stack(edges_of(moved))]
    key = np.array([planted.nodes, 1])
    np.testing.assert_array_equal(np.sort(key @ before), np.sort(key @ after))
    np.testing.assert_array_equal(moved.features, planted.features[order])
    np.testing.assert_array_equal(moved.train, planted.train[order])
    assert found.detect_s > 0 and found.permute_s > 0
    assert found.prepare_s == found.detect_s + found.permute_s


def test_a_walk_keeps_subtrees_together() -> None:
    #       0        4
    #      / \       |
    #     3   5      1
    #     |
    #     2
    order = communities._walk_depth_first(np.array([0, 4, 3, 0, 4, 0]))
    assert order.tolist() == [0, 3, 2, 5, 4, 1]


def test_rabbit_joins_two_cliques_each_in_one_piece() -> None:
    found = from_networkx(networkx.barbell_graph(6, 0))
    community, order = communities.rabbit(found)
    assert len(set(community[:6])) == len(set(community[6:])) == 1 and community[0] != community[6]
    assert {*order[:6].tolist()} in ({*range(6)}, {*range(6, 12)})


def test_rabbit_puts_neighbours_close_together(planted: Graph) -> None:
    def distance(graph: Graph) -> float:
        source, target = edges_of(graph)
        return float(np.median(np.abs(source - target)))

    assert distance(relabel(planted, "rabbit").graph) < distance(planted) / 10


def test_networkx_takes_over_without_igraph(monkeypatch: pytest.MonkeyPatch) -> None:
    small = stochastic_block_model(400, 8, 12, given=Nodes(features=1))
    monkeypatch.setitem(__import__("sys").modules, "igraph", None)
    for find in (communities.louvain, communities.label_propagation):
        assert modularity(small, find(small, 0)) >= 0.9 * modularity(small, small.community)


def test_many_edges_without_igraph_are_for_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "igraph", None)
    monkeypatch.setitem(__import__("sys").modules, "networkx", None)  # which would take several times as long
    made = stochastic_block_model(6000, 20, seed=1, given=Nodes(features=1))
    assert made.edges >= communities.MANY_EDGES
    assert modularity(made, communities.louvain(made)) >= 0.9 * modularity(made, made.community)


def test_a_seed_gives_one_partition() -> None:
    made = barabasi_albert(500, 3, given=Nodes(features=1))
    first, again = communities.louvain(made, 5), communities.louvain(made, 5)
    np.testing.assert_array_equal(first, again)


def test_what_cannot_be_found_is_one_line(planted: Graph) -> None:
    with pytest.raises(UserError, match="there are: louvain, label_propagation, parallel_louvain, rabbit, given"):
        relabel(planted, "metis")
    bare = from_edges(np.array([0]), np.array([1]), 2)
    with pytest.raises(UserError, match="no communities of its own"):
        relabel(bare, "given")
    assert relabel(from_edges(np.array([], int), np.array([], int), 3)).modularity == 0
