"""The cache model is exact, and its figures fall and rise with the order of the data as they must."""

from __future__ import annotations

import itertools
from collections import OrderedDict

import numpy as np
import pytest

from workbench.errors import UserError
from workbench.graphs.batches import Batch, MiniBatches, Policy
from workbench.graphs.communities import relabel
from workbench.graphs.generators import Nodes, stochastic_block_model
from workbench.graphs.graph import Graph
from workbench.graphs.locality import CacheModel, EpochLocality, measure_batches, summarise


def replay_lines(rows: np.ndarray, row_bytes: int, cache: CacheModel) -> list[bool]:
    """Line by line: every line of a row goes to the set of its address; whether the row's first line was there."""
    lines = -(-row_bytes // cache.line_bytes)
    sets = cache.capacity_bytes // cache.line_bytes // cache.ways
    kept: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(sets)]
    found = []
    for row in rows.tolist():
        for n in range(lines):
            line = row * lines + n
            one = kept[line % sets]
            if n == 0:
                found.append(line in one)
            one.pop(line, None)
            one[line] = None
            if len(one) > cache.ways:
                one.popitem(last=False)
    return found


@pytest.mark.parametrize(("ways", "row_bytes"), [(1, 128), (4, 128), (4, 512), (16, 200), (2, 1024)])
def test_hits_are_those_of_a_replay_line_by_line(ways: int, row_bytes: int) -> None:
    rng = np.random.default_rng(2)
    rows = np.concatenate((rng.zipf(1.3, 3000) % 700, rng.integers(0, 700, 3000)))
    cache = CacheModel(capacity_bytes=1 << 16, ways=ways)
    found = cache.hits(rows, row_bytes)
    assert 0.05 < found.mean() < 0.95
    np.testing.assert_array_equal(found, replay_lines(rows, row_bytes, cache))


def test_fully_associative_is_the_stack_distance() -> None:
    rows = np.random.default_rng(3).integers(0, 60, 800)
    found = CacheModel(capacity_bytes=20 * 128, ways=0).hits(rows, 100)
    wanted = []
    for at, row in enumerate(rows):
        before = np.flatnonzero(rows[:at] == row)
        wanted.append(bool(len(before)) and len(set(rows[before[-1] : at].tolist())) <= 20)
    assert found.tolist() == wanted


def test_a_cache_that_holds_no_row_is_refused() -> None:
    with pytest.raises(UserError, match="a cache of 256 bytes and 16 ways holds no row of 512 bytes"):
        CacheModel(capacity_bytes=256).hits(np.array([0]), 512)


def test_figures_of_a_batch_made_by_hand() -> None:
    graph = Graph(
        indptr=np.array([0, 2, 3, 3, 3]),
        indices=np.array([2, 3, 2]),
        features=np.zeros((4, 32), np.float32),
        labels=np.array([0, 1, 0, 0]),
        train=np.array([1, 1, 0, 0], bool),
        val=np.zeros(4, bool),
        test=np.zeros(4, bool),
        community=np.array([0, 0, 0, 1]),
    )
    batch = Batch(nodes=np.arange(4), ends=(2, 4), indptr=np.array([0, 2, 3]), indices=np.array([2, 3, 2]))
    found = measure_batches(graph, [batch, batch])
    first, second = found
    assert (first.roots, first.unique_rows, first.feature_bytes, first.edges) == (2, 4, 512, 3)
    assert first.inside_share == pytest.approx(2 / 3) and first.label_bits == pytest.approx(1)
    assert first.hit_rate == pytest.approx(1 / 3) and second.hit_rate == 1  # node 2 again; then all are there
    assert summarise(found).hit_rate == pytest.approx(4 / 6)
    with pytest.raises(UserError, match="without mini-batches"):
        summarise([])


@pytest.fixture(scope="module")
def graph() -> Graph:
    return relabel(stochastic_block_model(8000, 40, 12, given=Nodes(features=32)), "given").graph


def locality(graph: Graph, name: str = "comm-rand", mix: float = 1.0, p: float = 0.5) -> EpochLocality:
    made = MiniBatches(graph, Policy(name=name, mix=mix, p=p, batch=512))
    cache = CacheModel(capacity_bytes=128 << 10)
    return summarise(measure_batches(graph, list(made.epoch(0)), cache))


def test_structure_raises_hits_and_lowers_rows_bytes_and_entropy(graph: Graph) -> None:
    knobs = ((1, 0.5), (0.25, 0.5), (0.25, 1), (0.05, 1))
    found = [locality(graph, mix=mix, p=p) for mix, p in knobs]
    for before, after in itertools.pairwise(found):
        assert after.hit_rate > before.hit_rate
        assert after.unique_rows < before.unique_rows and after.feature_bytes < before.feature_bytes
        assert after.label_bits < before.label_bits + 0.01
    assert found[-1].hit_rate > 2 * found[0].hit_rate
    assert found[2].inside_share == 1


def test_baselines_stand_where_they_must(graph: Graph) -> None:
    uniform, clusters, labor = (locality(graph, name) for name in ("uniform", "cluster-gcn", "labor"))
    norand = locality(graph, "norand", p=1)
    assert labor.unique_rows < uniform.unique_rows
    assert max(norand.unique_rows, clusters.unique_rows) < labor.unique_rows / 2
    assert clusters.label_bits < uniform.label_bits
