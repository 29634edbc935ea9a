"""Mini-batches, by numpy and by torch, hold what their policy says; structure saves rows; loaders give the same."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
import torch

from workbench.errors import Unavailable, UserError
from workbench.graphs import loaders
from workbench.graphs.batches import POLICIES, Batch, MiniBatches, NeighborSampler, Policy
from workbench.graphs.communities import relabel
from workbench.graphs.conversion import edges_of, from_edges
from workbench.graphs.device.batches import DeviceMiniBatches
from workbench.graphs.generators import Nodes, stochastic_block_model
from workbench.graphs.graph import Graph
from workbench.graphs.neighbors import BiasedDraw

SURELY = 1e-4


@pytest.fixture(scope="module")
def graph() -> Graph:
    made = stochastic_block_model(12_000, 60, 14, given=Nodes(features=8))
    return relabel(made, "given").graph


def edge_keys(graph: Graph) -> set[int]:
    source, target = edges_of(graph)
    return set((target * graph.nodes + source).tolist())


def batch_keys(graph: Graph, batch: Batch) -> np.ndarray:
    targets = np.repeat(batch.nodes[: len(batch.indptr) - 1], np.diff(batch.indptr))
    return targets * graph.nodes + batch.reads()


def make_by_numpy(graph: Graph, policy: Policy, number: int = 0) -> list[Batch]:
    return list(MiniBatches(graph, policy).epoch(number))


def make_by_torch(graph: Graph, policy: Policy, number: int = 0) -> list[Batch]:
    made = DeviceMiniBatches(MiniBatches(graph, policy), torch.device("cpu"))
    batches = list(made.epoch(number))
    assert all(batch.edges == batch.to_host().edges for batch in batches)
    return [batch.to_host() for batch in batches]


Make = Callable[..., list[Batch]]
by_both = pytest.mark.parametrize("make", [make_by_numpy, make_by_torch], ids=["numpy", "torch"])


@by_both
@pytest.mark.parametrize("name", POLICIES)
def test_a_batch_is_a_subgraph_hop_by_hop(name: str, make: Make, graph: Graph) -> None:
    policy = Policy(name=name, mix=0.25, p=0.8, fanouts=(5, 4), batch=256)
    found, roots, keys = make(graph, policy), [], edge_keys(graph)
    for batch in found:
        assert len(np.unique(batch.nodes)) == len(batch.nodes) == batch.ends[-1]
        drawn = batch_keys(graph, batch)
        assert set(drawn.tolist()) <= keys and len(np.unique(drawn)) == len(drawn)
        assert len(batch.indptr) - 1 == batch.ends[-2] or name == "cluster-gcn"
        for hop in (0, 1):  # rows of what is h hops away point no further than h + 1 hops
            assert batch.indices[: batch.indptr[batch.ends[hop]]].max() < batch.ends[hop + 1]
        roots += batch.roots.tolist()
    assert sorted(roots) == np.flatnonzero(graph.train).tolist()
    if name not in ("labor", "cluster-gcn"):
        assert np.diff(found[0].indptr[: found[0].ends[0] + 1]).max() == 5


@pytest.mark.few(4)
@by_both
@pytest.mark.parametrize("name", POLICIES)
def test_an_epoch_is_made_again_from_seed_and_number(name: str, make: Make, graph: Graph) -> None:
    def nodes(seed: int, number: int) -> list[int]:
        made = make(graph, Policy(name=name, mix=0.25, p=0.9, seed=seed, batch=512), number)
        return [int(batch.nodes.sum()) * len(batch.indices) + int(batch.indices.sum()) for batch in made]

    assert nodes(1, 2) == nodes(1, 2)
    assert nodes(1, 2) != nodes(1, 3)
    assert name == "norand" or nodes(1, 2) != nodes(2, 2)


def unique_rows(graph: Graph, mix: float, p: float, name: str = "comm-rand") -> np.ndarray:
    made = MiniBatches(graph, Policy(name=name, mix=mix, p=p, batch=512))
    return np.array([len(batch.nodes) for number in range(2) for batch in made.epoch(number) if batch.ends[0] == 512])


def test_rows_fall_with_either_knob(graph: Graph) -> None:
    """Along mix at three p, and along p at three mix; a step counts as a fall within two standard errors."""
    knobs = (1, 0.5, 0.25, 0.1, 0), (0.5, 0.75, 0.9, 1)
    found = {(mix, p): unique_rows(graph, mix, p) for mix in knobs[0] for p in knobs[1]}
    mean = {at: rows.mean() for at, rows in found.items()}
    error = {at: rows.std() / np.sqrt(len(rows)) for at, rows in found.items()}
    steps = [((a, p), (b, p)) for a, b in itertools.pairwise(knobs[0]) for p in knobs[1]]
    steps += [((mix, a), (mix, b)) for a, b in itertools.pairwise(knobs[1]) for mix in knobs[0]]
    for more, less in steps:
        assert mean[less] <= mean[more] + 2 * np.hypot(error[more], error[less]), (more, less)
    assert mean[0, 1] < 0.6 * mean[0.1, 1] < 0.6 * mean[1, 0.5] / 3


@pytest.mark.few(1)
@by_both
def test_the_random_end_is_the_stock_sampler(make: Make, graph: Graph) -> None:
    """Unique rows and edges a batch, against roots by torch's randperm and neighbours by a plain loop (KS)."""
    policy = Policy(fanouts=(4, 3), batch=256)
    ours = [
        (len(b.nodes), len(b.indices)) for number in range(6) for b in make(graph, policy, number) if b.ends[0] == 256
    ]
    roots = np.flatnonzero(graph.train)
    torch.manual_seed(1)
    generator = np.random.default_rng(1)
    theirs = []
    for _ in range(4):
        shuffled = roots[torch.randperm(len(roots)).numpy()]
        theirs += [plain_sample(graph, shuffled[n : n + 256], (4, 3), generator) for n in range(0, 256 * 10, 256)]
    for part in (0, 1):
        one, other = ([pair[part] for pair in some] for some in (ours, theirs))
        assert scipy.stats.ks_2samp(one, other).pvalue > SURELY
    biased = unique_rows(graph, 0.5, 0.5)
    assert scipy.stats.ks_2samp(biased, unique_rows(graph, 1, 0.5, "uniform")).pvalue < SURELY


def plain_sample(
    graph: Graph, roots: np.ndarray, fanouts: tuple[int, ...], rng: np.random.Generator
) -> tuple[int, int]:
    """(rows, edges) of a batch that is sampled node by node."""
    known, frontier, edges = set(roots.tolist()), roots.tolist(), 0
    for fanout in fanouts:
        fresh: dict[int, None] = {}
        for node in frontier:
            row = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
            drawn = rng.choice(row, min(fanout, len(row)), replace=False).tolist()
            edges += len(drawn)
            fresh |= dict.fromkeys(one for one in drawn if one not in known)
        known |= fresh.keys()
        frontier = list(fresh)
    return len(known), edges


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "mix", "p"), [("comm-rand", 0, 1), ("comm-rand", 0.25, 0.9), ("comm-rand", 1, 0.5), ("labor", 1, 0.5)]
)
def test_torch_and_numpy_have_one_law(name: str, mix: float, p: float, graph: Graph) -> None:
    """Unique rows, edges and share of edges inside of a batch (KS); another p is told apart."""

    def figures(make: Make, p: float) -> np.ndarray:
        policy = Policy(name=name, mix=mix, p=p, fanouts=(4, 3), batch=256)
        batches = [one for number in range(4) for one in make(graph, policy, number) if one.ends[0] == 256]
        return np.array([(len(one.nodes), len(one.indices), inside_of(graph, one)) for one in batches]).T

    ours, theirs = figures(make_by_torch, p), figures(make_by_numpy, p)
    for one, other in zip(ours, theirs, strict=True):
        assert scipy.stats.ks_2samp(one, other).pvalue > SURELY
    if name == "comm-rand":
        assert scipy.stats.ks_2samp(ours[2], figures(make_by_torch, 0.75)[2]).pvalue < SURELY


def inside_of(graph: Graph, batch: Batch) -> float:
    targets = np.repeat(batch.nodes[: len(batch.indptr) - 1], np.diff(batch.indptr))
    return float((graph.community[targets] == graph.community[batch.reads()]).mean())


def test_uniform_is_comm_rand_at_its_random_end(graph: Graph) -> None:
    one, other = (next(iter(MiniBatches(graph, Policy(name=name)).epoch(0))) for name in ("uniform", "comm-rand"))
    np.testing.assert_array_equal(one.nodes, other.nodes)


def test_a_batch_of_a_large_graph_takes_well_under_a_tenth_of_a_second() -> None:
    big = stochastic_block_model(60_000, 300, 18, given=Nodes(features=1))
    made = MiniBatches(big, Policy())
    batches = made.epoch(0)
    next(batches)
    took = []
    for _ in range(6):
        start = time.process_time()
        next(batches)
        took.append(time.process_time() - start)
    assert min(took) < 0.08


@by_both
def test_clusters_keep_all_edges_among_them(make: Make, graph: Graph) -> None:
    for batch in make(graph, Policy(name="cluster-gcn", batch=512)):
        members = set(np.unique(graph.community[batch.nodes]).tolist())
        assert np.isin(graph.community, list(members)).sum() == len(batch.nodes)
        source, target = edges_of(graph)
        inside = np.isin(graph.community[source], list(members)) & np.isin(graph.community[target], list(members))
        assert inside.sum() == len(batch.indices)
        assert 2 <= len(members) <= 6


def test_bad_roots_and_policies_are_one_line(graph: Graph) -> None:
    sampler = NeighborSampler(graph, BiasedDraw(graph, graph.community, 0.5), (3,))
    for roots, said in (([1, 1], "names a root twice"), ([], "needs a root"), ([10**6], "roots must be nodes")):
        with pytest.raises(UserError, match=said):
            sampler.sample(np.array(roots, np.int64))
    assert sampler.sample(np.array([1, 2])).ends[0] == 2  # a refused call leaves nothing behind
    for policy, said in (
        (Policy(name="random"), "there are: comm-rand"),
        (Policy(mix=2), "mix=2"),
        (Policy(p=-1), "p=-1"),
        (Policy(seed=-1), "seed=-1"),
    ):
        with pytest.raises(UserError, match=said):
            MiniBatches(graph, policy)
    with pytest.raises(UserError, match="has no communities"):
        MiniBatches(from_edges(np.array([0]), np.array([1]), 2), Policy())


# ---- loaders ----


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_of_torch_gives_the_same_batches(workers: int, graph: Graph) -> None:
    policy = Policy(mix=0.25, p=0.9, batch=1024, fanouts=(5, 5), seed=2)
    options = {"num_workers": workers, "persistent_workers": True} if workers else {}
    loader = loaders.torch_loader(graph, policy, **options)
    for number in (0, 1):  # each pass is the next epoch, also in workers that stay
        for tensors, batch in zip(loader, MiniBatches(graph, policy).epoch(number), strict=True):
            np.testing.assert_array_equal(tensors.features.numpy(), graph.features[batch.nodes])
            np.testing.assert_array_equal(tensors.indices.numpy(), batch.indices)
            np.testing.assert_array_equal(tensors.labels.numpy(), graph.labels[batch.roots])
            assert tensors.ends == batch.ends


def test_the_loader_of_pyg_gives_data_that_its_layers_take(graph: Graph) -> None:
    from torch_geometric.nn import SAGEConv
    from torch_geometric.utils import trim_to_layer

    policy = Policy(mix=0.25, p=0.9, batch=1024, fanouts=(5, 5))
    loader = loaders.pyg_loader(graph, policy)
    data, batch = next(iter(loader)), next(iter(MiniBatches(graph, policy).epoch(0)))
    assert len(loader) == -(-int(graph.train.sum()) // 1024) and data.batch_size == 1024
    np.testing.assert_array_equal(data.n_id.numpy(), batch.nodes)
    np.testing.assert_array_equal(data.x.numpy(), graph.features[batch.nodes])
    targets = np.repeat(np.arange(len(batch.indptr) - 1), np.diff(batch.indptr))
    np.testing.assert_array_equal(data.edge_index.numpy(), np.stack((batch.indices, targets)))
    torch.manual_seed(0)
    layers = [SAGEConv(8, 8), SAGEConv(8, 8)]
    whole, trimmed, edges = data.x, data.x, data.edge_index
    for number, layer in enumerate(layers):
        whole = layer(whole, data.edge_index)
        trimmed, edges, _ = trim_to_layer(number, data.num_sampled_nodes, data.num_sampled_edges, trimmed, edges)
        trimmed = layer(trimmed, edges)
    torch.testing.assert_close(whole[: data.batch_size], trimmed[: data.batch_size])


def test_weights_of_edges_are_the_knob(graph: Graph) -> None:
    source, target = edges_of(graph)
    inside = graph.community[source] == graph.community[target]
    weights = loaders.edge_weights(graph, 0.9)
    np.testing.assert_allclose(weights, np.where(inside, 0.9, 0.1))
    assert np.bincount(target, loaders.edge_weights(graph, 1), graph.nodes).min() > 0  # no node without a neighbour


def test_what_a_loader_cannot_do_is_one_line(graph: Graph) -> None:
    with pytest.raises(UserError, match="iterate over MiniBatches"):
        loaders.torch_loader(graph, Policy(name="cluster-gcn"))
    if not __import__("importlib.util").util.find_spec("dgl"):
        with pytest.raises(Unavailable, match="DGL cannot be imported"):
            loaders.dgl_sampler(graph, 0.9, (5, 5))
