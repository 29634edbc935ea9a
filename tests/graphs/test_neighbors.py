"""Neighbours are drawn by their weights without replacement, by numpy and by torch: the law at both ends, between."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
import torch

from workbench.errors import UserError
from workbench.graphs.conversion import from_edges
from workbench.graphs.device.draws import DeviceBiasedDraw, DeviceLaborDraw, hash_to_unit
from workbench.graphs.graph import Graph
from workbench.graphs.neighbors import ALL, BiasedDraw, LaborDraw, _hash_to_unit, check_fanouts

SURELY = 1e-4
NEAR, FAR = 6, 8  # neighbours of node 0 inside and outside of its community
DRAWS = 20_000


@pytest.fixture(scope="module")
def star() -> Graph:
    """Node 0 aggregates from 1..14, the first 6 in its community; 15 only from others, 16 only from its own."""
    source = [*range(1, 15), *range(1, 6), *range(7, 12)]
    target = [0] * 14 + [15] * 5 + [16] * 5
    community = np.array([0] * 7 + [1] * 8 + [1, 1])
    return from_edges(np.array(source), np.array(target), 17, community=community)


Drawn = tuple[np.ndarray, np.ndarray]
Draw = Callable[..., Drawn]


def draw_by_numpy(graph: Graph, p: float, fanout: int, node: int = 0, many: int = DRAWS) -> Drawn:
    return BiasedDraw(graph, graph.community, p)(np.full(many, node), fanout, np.random.default_rng(5))


def draw_by_torch(graph: Graph, p: float, fanout: int, node: int = 0, many: int = DRAWS) -> Drawn:
    made = DeviceBiasedDraw(graph, graph.community, p, torch.device("cpu"))
    taken, found = made(torch.full((many,), node), fanout, torch.Generator().manual_seed(5))
    return taken.numpy(), found.numpy()


@pytest.fixture(params=[draw_by_numpy, draw_by_torch], ids=["numpy", "torch"])
def draw(request: pytest.FixtureRequest) -> Draw:
    return request.param


def sets_of(taken: np.ndarray, found: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(sorted(part.tolist())) for part in np.split(found, np.cumsum(taken)[:-1])]


@pytest.mark.parametrize("p", [0, 0.3, 0.5, 0.75, 0.9, 1])
def test_draws_follow_the_law_of_multinomial(draw: Draw, star: Graph, p: float) -> None:
    """The number inside and each neighbour's frequency are those of torch.multinomial without replacement."""
    taken, found = draw(star, p, 5)
    assert (taken == 5).all()
    ours = found.reshape(DRAWS, 5)
    assert (np.diff(np.sort(ours, axis=1)) > 0).all()  # without replacement
    weights = torch.tensor([p] * NEAR + [1 - p] * FAR, dtype=torch.float64)
    torch.manual_seed(11)
    theirs = 1 + torch.multinomial(weights.expand(DRAWS, -1), 5).numpy()
    for count in (lambda rows: (rows <= NEAR).sum(axis=1), lambda rows: rows.reshape(-1)):
        table = np.stack([np.bincount(count(rows), minlength=15) for rows in (ours, theirs)])
        table = table[:, table.sum(axis=0) > 0]
        assert table.shape[1] == 1 or scipy.stats.chi2_contingency(table).pvalue > SURELY


def test_half_is_uniform_over_all_sets(draw: Draw, star: Graph) -> None:
    """Each of the C(14, 2) pairs alike, and the number inside hypergeometric."""
    pairs = sets_of(*draw(star, 0.5, 2))
    _, counts = np.unique(np.array(pairs), axis=0, return_counts=True)
    assert len(counts) == 14 * 13 // 2
    assert scipy.stats.chisquare(counts).pvalue > SURELY
    inside = (draw(star, 0.5, 5)[1].reshape(DRAWS, 5) <= NEAR).sum(axis=1)
    wanted = scipy.stats.hypergeom(14, NEAR, 5).pmf(range(6)) * DRAWS
    assert scipy.stats.chisquare(np.bincount(inside, minlength=6), wanted).pvalue > SURELY


def test_the_share_inside_rises_with_p(draw: Draw, star: Graph) -> None:
    shares = [float((draw(star, p, 4)[1] <= NEAR).mean()) for p in (0, 0.25, 0.5, 0.75, 0.9, 1)]
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == 1
    assert shares[2] == pytest.approx(NEAR / (NEAR + FAR), abs=0.01)


def test_a_weight_of_zero_is_not_drawn_unless_there_is_nothing_else(draw: Draw, star: Graph) -> None:
    taken, found = draw(star, 1, 10, many=50)
    assert (taken == NEAR).all() and found.max() <= NEAR  # fewer than the fan-out, and none from outside
    pairs = sets_of(*draw(star, 1, 2, node=15))  # all neighbours outside: uniform
    assert scipy.stats.chisquare(np.unique(np.array(pairs), axis=0, return_counts=True)[1]).pvalue > SURELY
    assert (draw(star, 0, 3, node=16)[0] == 3).all()
    assert draw(star, 0, 10, many=50)[1].min() > NEAR


def test_few_neighbours_are_all_taken_and_no_neighbours_give_none(draw: Draw, star: Graph) -> None:
    for p in (0.3, 0.5):
        taken, found = draw(star, p, 20, many=3)
        assert taken.tolist() == [14] * 3 and sorted(found[:14].tolist()) == list(range(1, 15))
        assert draw(star, p, ALL, many=1)[1].tolist() == list(range(1, 15))
    taken, found = draw(star, 0.9, 5, node=3, many=2)
    assert taken.tolist() == [0, 0] and len(found) == 0


def draw_labor_by_numpy(graph: Graph, frontier: list[int], seed: int) -> Drawn:
    return LaborDraw(graph)(np.array(frontier), 3, np.random.default_rng(seed))


def draw_labor_by_torch(graph: Graph, frontier: list[int], seed: int) -> Drawn:
    made = DeviceLaborDraw(graph, torch.device("cpu"))
    taken, found = made(torch.tensor(frontier), 3, torch.Generator().manual_seed(seed))
    return taken.numpy(), found.numpy()


@pytest.mark.parametrize("draw_labor", [draw_labor_by_numpy, draw_labor_by_torch])
def test_labor_shares_its_numbers_and_meets_the_fan_out_in_the_mean(draw_labor: Draw, star: Graph) -> None:
    found = [draw_labor(star, [0, 15, 0], n) for n in range(3000)]
    counts = np.array([taken for taken, _ in found])
    assert counts.mean(axis=0) == pytest.approx([3, 3, 3], abs=0.1)
    assert (counts[:, 0] == counts[:, 2]).all()  # the same numbers for the same node
    assert counts[:, 0].std() > 0.5
    # node 15 has the lower degree, so it takes each neighbour that node 0 takes of those they share
    for taken, rows in found[:200]:
        first, second, _ = np.split(rows, np.cumsum(taken)[:-1])
        assert set(first[first <= 5].tolist()) <= set(second.tolist())


def test_torch_hashes_as_numpy_does() -> None:
    numbers = np.random.default_rng(0).integers(0, 1 << 40, 1000)
    for key in (0, 12345, (1 << 62) - 1):
        found = hash_to_unit(torch.from_numpy(numbers), torch.tensor([key])).numpy()
        np.testing.assert_array_equal(found, _hash_to_unit(numbers, key))


def test_bad_fan_outs_are_one_line() -> None:
    for bad in ((), (0,), (10, -2)):
        with pytest.raises(UserError, match="one number for each hop"):
            check_fanouts(bad)
