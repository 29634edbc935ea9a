"""Makes random undirected graphs with features and labels that follow communities.

`stochastic_block_model` plants its communities. `rmat` and `barabasi_albert` have none by construction; theirs are
found by Louvain's method, so their labels follow what a detection sees. All are drawn by numpy, a million edges in
seconds, and depend on the seed only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from workbench.errors import UserError
from workbench.graphs.conversion import from_edges
from workbench.graphs.graph import Graph, Ints, permute

COMMUNITY_NODES = 200  # nodes of a planted community in the mean, where only the number of nodes is given
RMAT_SHARES = (0.57, 0.19, 0.19, 0.05)  # of the quadrants, as Graph500 has them


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """How features and labels follow communities.

    Each community has a class. A node's label is its community's class, or with probability `noise` any class. Its
    features are its label's centre plus `spread` times standard normal noise; centres are standard normal. A class has
    `modes` centres and a community one of them: with more than one, a class is no linear function of the features.
    `scaled` divides features by their standard deviation, as people do with those of real graphs. A share `train` of
    the nodes, then `val`, is drawn for the masks; the rest is test.
    """

    features: int = 64
    classes: int = 16
    noise: float = 0.1
    spread: float = 4.0
    modes: int = 1
    scaled: bool = False
    train: float = 0.6
    val: float = 0.2


def stochastic_block_model(
    nodes: int = 60_000,
    communities: int = 300,
    degree: float = 18.0,
    inside: float = 0.9,
    seed: int = 0,
    given: Nodes | None = None,
) -> Graph:
    """A graph with planted communities: each edge is inside one with probability `inside`, else it crosses.

    The number of edges is fixed, nodes * degree / 2 before doubles are dropped; the ends of an edge are uniform, so
    degrees are near Poisson and a community's edges are in proportion to its size. Sizes are within a factor of about
    two of their mean. Numbers of nodes say nothing about communities.
    """
    _check(nodes=nodes, communities=communities, degree=degree, seed=seed)
    if not 0 <= inside <= 1:
        raise UserError(f"inside={inside}: it is a probability, 0 to 1")
    if communities > nodes:
        raise UserError(f"{communities} communities need as many nodes at least, not {nodes}")
    rng = np.random.default_rng((seed, 1))
    weights = rng.uniform(0.6, 1.4, communities)
    community = np.sort(
        np.concatenate(
            (np.arange(communities), rng.choice(communities, nodes - communities, p=weights / weights.sum()))
        )
    )
    sizes = np.bincount(community, minlength=communities)
    starts = np.cumsum(sizes) - sizes
    count = round(nodes * degree / 2)
    source = rng.integers(0, nodes, count)
    home = community[source]
    near = starts[home] + rng.integers(0, sizes[home])
    far = rng.integers(0, np.maximum(nodes - sizes[home], 1))  # of the nodes outside, counted round the community
    far = np.where(far < starts[home], far, far + sizes[home]) % nodes
    target = np.where(rng.random(count) < inside, near, far)
    name = f"sbm({nodes},{communities},{degree:g},{inside:g},{seed})"
    return _finish(source, target, nodes, community, name, seed, given)


def rmat(
    scale: int = 16,
    degree: float = 16.0,
    shares: tuple[float, float, float, float] = RMAT_SHARES,
    seed: int = 0,
    given: Nodes | None = None,
) -> Graph:
    """A recursive-matrix graph (Chakrabarti, Zhan and Faloutsos 2004) of up to 2**scale nodes with skewed degrees.

    Each bit of an edge's two ends is drawn with the shares of the four quadrants. Nodes without an edge are left out.
    """
    _check(nodes=2**scale, degree=degree, seed=seed)
    if len(shares) != 4 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise UserError(f"shares={shares}: four probabilities with the sum 1")
    rng = np.random.default_rng((seed, 2))
    nodes = 1 << scale
    count = round(nodes * degree / 2)
    source, target = np.zeros(count, np.int64), np.zeros(count, np.int64)
    top, left = shares[0] + shares[1], shares[0] / max(shares[0] + shares[1], 1e-12)
    below = shares[2] / max(shares[2] + shares[3], 1e-12)
    for _ in range(scale):
        down = rng.random(count) >= top
        right = rng.random(count) >= np.where(down, below, left)
        source, target = 2 * source + down, 2 * target + right
    used, ends = np.unique(np.concatenate((source, target)), return_inverse=True)
    source, target = ends[:count], ends[count:]
    return _finish(source, target, len(used), None, f"rmat({scale},{degree:g},{seed})", seed, given)


def barabasi_albert(nodes: int = 60_000, each: int = 9, seed: int = 0, given: Nodes | None = None) -> Graph:
    """A graph grown by preferential attachment: each node brings `each` edges to nodes in proportion to their degree.

    Edge i picks one of the ends of the edges before it; an end that is still open is followed until it is known
    (Sanders and Schulz 2016), so all edges are drawn at once. Doubles are dropped.
    """
    _check(nodes=nodes, each=each, seed=seed)
    rng = np.random.default_rng((seed, 3))
    source = np.repeat(np.arange(1, nodes), each)
    # position 2 i is the source of edge i, 2 i + 1 its target; the edges of node 1 go to node 0
    before = 2 * each * (source - 1)
    target_at = np.where(source == 1, -1, rng.integers(0, np.maximum(before, 1)))
    target = np.where(target_at < 0, 0, source[target_at // 2])
    open_edges = np.flatnonzero((target_at >= 0) & (target_at % 2 == 1))
    while len(open_edges):
        target_at[open_edges] = target_at[target_at[open_edges] // 2]
        at = target_at[open_edges]
        target[open_edges] = np.where(at < 0, 0, source[at // 2])
        open_edges = open_edges[(at >= 0) & (at % 2 == 1)]
    return _finish(source, target, nodes, None, f"ba({nodes},{each},{seed})", seed, given)


def _check(seed: int, **sizes: float) -> None:
    for name, value in sizes.items():
        if not value > 0:
            raise UserError(f"{name}={value:g}: it must be above 0")
    if seed < 0:
        raise UserError(f"seed={seed}: it must not be negative")


def _finish(
    source: Ints, target: Ints, nodes: int, community: Ints | None, name: str, seed: int, given: Nodes | None
) -> Graph:
    """The graph of the edges, its nodes in random order, with features, labels and masks."""
    given = given or Nodes()
    bare = from_edges(source, target, nodes, community=community, undirected=True, name=name)
    rng = np.random.default_rng((seed, 4))
    bare = permute(bare, rng.permutation(nodes))
    if bare.community is None:
        from workbench.graphs.communities import louvain

        bare = dataclasses.replace(bare, community=louvain(bare, seed=seed))
    return add_nodes(bare, given, seed)


def add_nodes(graph: Graph, given: Nodes, seed: int = 0) -> Graph:
    """The graph with features, labels and masks drawn by its communities. Raises `UserError` if it has none."""
    if graph.community is None:
        raise UserError(f"graph {graph.name!r} has no communities that features and labels could follow")
    for name in ("classes", "features", "modes"):
        if getattr(given, name) < 1:
            raise UserError(f"{name}={getattr(given, name)}: there must be one at least")
    for name in ("noise", "train", "val"):
        if not 0 <= getattr(given, name) <= 1:
            raise UserError(f"{name}={getattr(given, name)}: it is a share, 0 to 1")
    if given.train + given.val > 1:
        raise UserError(f"train={given.train} and val={given.val}: together they must not be more than 1")
    rng = np.random.default_rng((seed, 5))
    kinds = given.classes * given.modes  # of communities; kind k has class k modulo the number of classes
    of_community = rng.permutation(np.arange(int(graph.community.max()) + 1) % kinds)
    mode, labels = np.divmod(of_community[graph.community].astype(np.int64), given.classes)
    drawn = rng.random(graph.nodes) < given.noise
    labels[drawn] = rng.integers(0, given.classes, int(drawn.sum()))
    centres = rng.standard_normal((kinds, given.features), np.float32)
    features = centres[mode * given.classes + labels]
    features += np.float32(given.spread) * rng.standard_normal(features.shape, np.float32)
    if given.scaled:
        features /= np.float32(np.sqrt(1 + given.spread**2))
    place = rng.permutation(graph.nodes) / graph.nodes
    return dataclasses.replace(
        graph,
        features=features,
        labels=labels,
        train=place < given.train,
        val=(place >= given.train) & (place < given.train + given.val),
        test=place >= given.train + given.val,
        _digest=[],
    )


GENERATORS: Mapping[str, Callable[..., Graph]] = {
    "sbm": stochastic_block_model,
    "rmat": rmat,
    "ba": barabasi_albert,
}
