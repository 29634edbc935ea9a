"""Finds communities, numbers nodes by them, and says how good they are.

`louvain` and `label_propagation` are igraph's, or networkx's where igraph is missing; for graphs of many edges, on
which networkx takes several times as long, `louvain` is then `parallel_louvain`. That one is torch's, on a GPU where
there is one. `rabbit` is a reordering after RABBIT (Arai, Shiokawa, Yamamuro, Onizuka and Iwamura, IPDPS
2016). From the paper: nodes are taken by rising degree, each joins the neighbour with the highest gain of modularity if
that is positive, and the order is a depth-first walk of the tree that results. Inferred here: nodes are joined in
rounds instead of one by one (in a round a node joins only a node that stays), so that each round is a few sparse
products; a tie goes to the neighbour with the lower number.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.errors import Unavailable, UserError
from workbench.graphs.conversion import HOW_TO_GET, edges_of
from workbench.graphs.graph import Graph, Ints, permute

if TYPE_CHECKING:
    import scipy.sparse

MANY_EDGES = 100_000  # from which on networkx is not asked for Louvain's method


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relabelled:
    """A graph whose communities are contiguous: `order[i]` is the old number of node i.

    `graph.community` numbers the communities in the order of the nodes. `detect_s` and `permute_s` are seconds of the
    two steps of preprocessing, measured on this machine.
    """

    graph: Graph
    order: Ints
    method: str
    modularity: float
    detect_s: float
    permute_s: float

    @property
    def count(self) -> int:
        """The number of communities."""
        return int(np.max(self.graph.community, initial=-1)) + 1 if self.graph.community is not None else 0

    @property
    def prepare_s(self) -> float:
        """Seconds of preprocessing."""
        return self.detect_s + self.permute_s


def modularity(graph: Graph, community: Ints) -> float:
    """Newman's modularity of a partition: the share of edges inside, less that of random edges with these degrees."""
    if graph.edges == 0:
        return 0.0
    source, target = edges_of(graph)
    count = int(community.max()) + 1
    inside = float(np.mean(community[source] == community[target]))
    out = np.bincount(community[source], minlength=count) / graph.edges
    into = np.bincount(community[target], minlength=count) / graph.edges
    return inside - float(out @ into)


def louvain(graph: Graph, seed: int = 0) -> Ints:
    """Communities by Louvain's method (Blondel and others 2008): int64[N], numbered from 0.

    Without igraph, graphs of `MANY_EDGES` or more have those of `parallel_louvain`.
    """
    found = _with_igraph(graph, seed, "community_multilevel")
    if found is not None:
        return found
    if graph.edges >= MANY_EDGES:
        return parallel_louvain(graph, seed)
    import networkx

    return _from_sets(graph, networkx.community.louvain_communities(_networkx(graph), seed=seed))


def parallel_louvain(graph: Graph, seed: int = 0) -> Ints:
    """Communities by a parallel Louvain method in torch, on the GPU if there is one: int64[N], numbered from 0."""
    import torch

    from workbench.graphs.device.communities import louvain_on_device

    return louvain_on_device(graph, "cuda" if torch.cuda.is_available() else "cpu", seed)


def label_propagation(graph: Graph, seed: int = 0) -> Ints:
    """Communities by label propagation (Raghavan, Albert and Kumara 2007): int64[N], numbered from 0."""
    found = _with_igraph(graph, seed, "community_label_propagation")
    if found is not None:
        return found
    import networkx

    return _from_sets(graph, networkx.community.fast_label_propagation_communities(_networkx(graph), seed=seed))


def _with_igraph(graph: Graph, seed: int, method: str) -> Ints | None:
    """The communities by a method of igraph, or None if it is not installed. The graph counts as undirected."""
    try:
        import igraph
    except ImportError:
        return None
    igraph.set_random_number_generator(random.Random(seed))
    try:
        made = igraph.Graph(n=graph.nodes, edges=_undirected_pairs(graph))
        return np.asarray(getattr(made, method)().membership, np.int64)
    finally:
        igraph.set_random_number_generator(random)


def _networkx(graph: Graph) -> Any:
    try:
        import networkx
    except ImportError:
        raise Unavailable(f"communities need igraph or networkx: {HOW_TO_GET}") from None
    made = networkx.Graph()
    made.add_nodes_from(range(graph.nodes))
    made.add_edges_from(_undirected_pairs(graph).tolist())
    return made


def _undirected_pairs(graph: Graph) -> Ints:
    """Each pair of linked nodes once, int64[pairs, 2]."""
    source, target = edges_of(graph)
    low, high = np.minimum(source, target), np.maximum(source, target)
    keys = np.unique(low * graph.nodes + high)
    return np.stack((keys // graph.nodes, keys % graph.nodes), axis=1)


def _from_sets(graph: Graph, sets: Any) -> Ints:
    found = np.zeros(graph.nodes, np.int64)
    for number, members in enumerate(sets):
        found[list(members)] = number
    return found


def rabbit(graph: Graph) -> tuple[Ints, Ints]:
    """(communities, order of the nodes) by hierarchical agglomeration: int64[N] each. Nothing in it is random."""
    parents = _agglomerate(graph)
    roots = parents
    while not np.array_equal(roots, roots[roots]):
        roots = roots[roots]
    order = _walk_depth_first(parents)
    _, community = np.unique(roots, return_inverse=True)
    return community.astype(np.int64), order


def _agglomerate(graph: Graph) -> Ints:
    """The node that each node joined, or itself: int64[N], the forest of the agglomeration."""
    import scipy.sparse

    size, parents = graph.nodes, np.arange(graph.nodes)
    source, target = edges_of(graph)
    links = scipy.sparse.coo_matrix((np.ones(graph.edges), (target, source)), (size, size)).tocsr()
    links = links + links.T
    total = float(links.sum()) or 1.0
    strength = np.asarray(links.sum(axis=1)).reshape(-1)
    while True:  # the pair with the highest gain of all is joined, so each round but the last moves a node
        joins = _choose_joins(links, strength, total)
        moved = np.flatnonzero(joins != np.arange(size))
        if not len(moved):
            return parents
        parents[moved] = joins[moved]
        strength = np.bincount(joins, strength, size)
        entries = links.tocoo()
        links = scipy.sparse.coo_matrix((entries.data, (joins[entries.row], joins[entries.col])), (size, size)).tocsr()


def _choose_joins(links: scipy.sparse.csr_matrix, strength: Any, total: float) -> Ints:
    """The node that each node joins in this round, or itself: int64[N].

    The gain of joining u and v is 2 (w_uv / total - strength_u strength_v / total**2). A node joins its best neighbour
    of higher strength (higher number among equals) if that neighbour itself stays in this round.
    """
    size = links.shape[0]
    entries = links.tocoo()
    row, col = entries.row.astype(np.int64), entries.col.astype(np.int64)
    gain = entries.data / total - strength[row] * strength[col] / total**2
    rises = (strength[row] < strength[col]) | ((strength[row] == strength[col]) & (row < col))
    kept = (gain > 0) & (row != col)
    row, col, gain, rises = row[kept], col[kept], gain[kept], rises[kept]
    best = np.zeros(size)
    np.maximum.at(best, row, gain)
    chosen = (gain == best[row]) & rises
    joins = np.full(size, size, np.int64)
    np.minimum.at(joins, row[chosen], col[chosen])
    joins = np.where(joins == size, np.arange(size), joins)
    stays = joins == np.arange(size)
    return np.asarray(np.where(stays[joins], joins, np.arange(size)), np.int64)


def _depths(parents: Ints) -> Ints:
    """Steps from each node of a forest to its root: int64[N]; pointers are doubled until all are at a root."""
    depth: Ints = (parents != np.arange(len(parents))).astype(np.int64)
    above = parents
    while not np.array_equal(above, above[above]):
        depth, above = depth + depth[above], above[above]
    return depth


def _walk_depth_first(parents: Ints) -> Ints:
    """The nodes of a forest, each before the ones that joined it, subtrees without gaps: int64[N].

    Positions come from sizes of subtrees: a child begins after its parent and its elder siblings' subtrees.
    """
    count = len(parents)
    depth = _depths(parents)
    sizes = np.ones(count, np.int64)
    by_depth = np.argsort(depth, kind="stable")
    levels = np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1)
    for level in reversed(levels[1:]):
        np.add.at(sizes, parents[level], sizes[level])
    place = np.zeros(count, np.int64)
    for number, level in enumerate(levels):
        family = np.zeros(len(level), np.int64) if number == 0 else parents[level]
        by_family = np.argsort(family, kind="stable")
        members, whose = level[by_family], family[by_family]
        ahead = np.cumsum(sizes[members]) - sizes[members]
        first = np.searchsorted(whose, whose)
        place[members] = ahead - ahead[first] + (place[whose] + 1 if number else 0)
    order = np.empty(count, np.int64)
    order[place] = np.arange(count)
    return order


def relabel(graph: Graph, method: str = "louvain", seed: int = 0) -> Relabelled:
    """The graph with contiguous communities: rows, features, labels and masks are permuted once.

    Methods: louvain, label_propagation, parallel_louvain, rabbit, or given (those of the graph). Communities follow
    each other by their lowest old number, and nodes of one keep their order; rabbit's are in the order of its walk.
    Raises `UserError`.
    """
    if method not in METHODS:
        raise UserError(f"no method {method!r} finds communities; there are: {', '.join(METHODS)}")
    if method == "given" and graph.community is None:
        raise UserError(f"graph {graph.name!r} has no communities of its own: find them with louvain")
    start = time.perf_counter()
    community, order = METHODS[method](graph, seed)
    _, first, dense = np.unique(community[order], return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    by_community = np.argsort(rank[dense], kind="stable")
    order, dense = order[by_community], rank[dense][by_community]
    found = time.perf_counter()
    moved = dataclasses.replace(permute(graph, order), community=dense, _digest=[])
    done = time.perf_counter()
    return Relabelled(
        graph=moved,
        order=order,
        method=method,
        modularity=modularity(moved, dense),
        detect_s=found - start,
        permute_s=done - found,
    )


def _in_order(find: Callable[[Graph, int], Ints]) -> Callable[[Graph, int], tuple[Ints, Ints]]:
    return lambda graph, seed: (find(graph, seed), np.arange(graph.nodes, dtype=np.int64))


METHODS: Mapping[str, Callable[[Graph, int], tuple[Ints, Ints]]] = {  # -> (community, order) of the nodes
    "louvain": _in_order(louvain),
    "label_propagation": _in_order(label_propagation),
    "parallel_louvain": _in_order(parallel_louvain),
    "rabbit": lambda graph, _: rabbit(graph),
    "given": _in_order(lambda graph, _: np.asarray(graph.community)),
}
