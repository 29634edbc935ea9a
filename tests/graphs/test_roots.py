"""The order of roots, by numpy and torch, keeps its law at both ends of `mix` and between; it is torch's own at 1."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
import torch
from torch.utils.data import RandomSampler

from workbench.errors import UserError
from workbench.graphs.device.batches import DeviceRoots, seed_stream
from workbench.graphs.generators import Nodes, stochastic_block_model
from workbench.graphs.graph import Graph
from workbench.graphs.loaders import RootSampler
from workbench.graphs.roots import cut, mixed_order, static_order

COMMUNITY = np.repeat(np.arange(24), 10)  # 24 communities of 10 nodes
ROOTS = np.flatnonzero(np.arange(240) % 10 < 8)  # 8 roots in each
SURELY = 1e-4  # p-value below which two laws are held to differ; seeds are fixed, so a test never flickers


Orders = Callable[[float, int], list[np.ndarray]]


def order_by_numpy(mix: float, many: int) -> list[np.ndarray]:
    return [mixed_order(ROOTS, COMMUNITY, mix, np.random.default_rng((7, n))) for n in range(many)]


def order_by_torch(mix: float, many: int) -> list[np.ndarray]:
    made = DeviceRoots(ROOTS, COMMUNITY, mix, torch.device("cpu"))
    return [made.order(seed_stream(torch.Generator(), 7, n)).numpy() for n in range(many)]


@pytest.fixture(params=[order_by_numpy, order_by_torch], ids=["numpy", "torch"])
def orders(request: pytest.FixtureRequest) -> Orders:
    return request.param


def runs(order: np.ndarray) -> int:
    """How often the community changes along the order, plus one."""
    return int((np.diff(COMMUNITY[order]) != 0).sum()) + 1


@pytest.mark.parametrize("mix", [0, 0.125, 0.25, 0.5, 1])
def test_blocks_hold_their_share_of_communities(orders: Orders, mix: float) -> None:
    size = max(1, round(mix * 24))
    for order in orders(mix, 5):
        np.testing.assert_array_equal(np.sort(order), ROOTS)
        blocks = [set(COMMUNITY[block].tolist()) for block in cut(order, 8 * size)]
        assert [len(block) for block in blocks] == [size] * (24 // size)
        assert len(set.union(*blocks)) == 24  # no community is in two blocks


@pytest.mark.parametrize("mix", [0.125, 0.25, 0.5])
def test_roots_are_uniform_within_their_block(orders: Orders, mix: float) -> None:
    """Runs of one community inside a block of B communities: 1 + (n - 1)(1 - (8 - 1)/(n - 1)) with n = 8 B roots."""
    size = round(mix * 24)
    found = [runs(block) for order in orders(mix, 200) for block in cut(order, 8 * size)]
    count = 8 * size
    wanted = 1 + (count - 1) * (1 - 7 / (count - 1))
    assert abs(np.mean(found) - wanted) < 4 * np.std(found) / np.sqrt(len(found))


def test_communities_are_shuffled_at_mix_0(orders: Orders) -> None:
    first = [COMMUNITY[order[0]] for order in orders(0, 2400)]
    assert scipy.stats.chisquare(np.bincount(first, minlength=24)).pvalue > SURELY
    assert {runs(order) for order in orders(0, 20)} == {24}


def test_mix_1_is_the_stock_shuffle(orders: Orders) -> None:
    """Against torch's RandomSampler: positions of a root (KS), first roots (chi-square), runs of communities (KS)."""
    ours = orders(1, 3000)
    stock = [ROOTS[list(RandomSampler(range(len(ROOTS))))] for _ in range(3000)]
    for root in (0, 95, 191):
        one, other = ([int(np.flatnonzero(order == ROOTS[root])[0]) for order in some] for some in (ours, stock))
        assert scipy.stats.ks_2samp(one, other).pvalue > SURELY
    assert scipy.stats.ks_2samp([runs(o) for o in ours], [runs(o) for o in stock]).pvalue > SURELY
    table = [np.bincount([order[0] for order in some], minlength=240)[ROOTS] for some in (ours, stock)]
    assert scipy.stats.chi2_contingency(table).pvalue > SURELY
    pairs = [np.bincount([COMMUNITY[o[0]] == COMMUNITY[o[1]] for o in some], minlength=2) for some in (ours, stock)]
    assert scipy.stats.chi2_contingency(pairs).pvalue > SURELY


def test_a_smaller_mix_is_told_from_the_stock_shuffle(orders: Orders) -> None:
    stock = [runs(order) for order in orders(1, 200)]
    assert scipy.stats.ks_2samp([runs(order) for order in orders(0.5, 200)], stock).pvalue < SURELY


def test_the_static_order_goes_community_by_community() -> None:
    mixed = np.random.default_rng(0).permutation(ROOTS)
    order = static_order(mixed, COMMUNITY)
    assert runs(order) == 24 and (np.diff(COMMUNITY[order]) >= 0).all()


@pytest.fixture(scope="module")
def graph() -> Graph:
    return stochastic_block_model(500, 10, 6, given=Nodes(features=2))


def test_the_sampler_of_torch_gives_batches_by_epoch_and_seed(graph: Graph) -> None:
    sampler = RootSampler(graph, 0.25, batch=64, seed=3)
    first, second = list(sampler), list(sampler)
    assert len(sampler) == len(first) == -(-int(graph.train.sum()) // 64)
    assert sorted(root for part in first for root in part) == np.flatnonzero(graph.train).tolist() and first != second
    sampler.set_epoch(1)
    assert list(sampler) == second
    assert list(RootSampler(graph, 0.25, batch=64, seed=4)) != first
    static = RootSampler(graph, static=True, batch=64)
    assert list(static) == list(static)


def test_bad_knobs_are_one_line(graph: Graph) -> None:
    for mix in (-0.1, 1.1, float("nan")):
        with pytest.raises(UserError, match="it goes from 0 to 1"):
            RootSampler(graph, mix)
    with pytest.raises(UserError, match="a batch of 0 roots"):
        RootSampler(graph, batch=0)
