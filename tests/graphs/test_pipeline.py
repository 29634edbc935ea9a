"""Batches made ahead are those that would have been made one by one, and threads end with their reader."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator

import pytest
import torch

from workbench.graphs.batches import MiniBatches, Policy
from workbench.graphs.communities import Relabelled, relabel
from workbench.graphs.device.batches import DeviceMiniBatches
from workbench.graphs.device.pipeline import Feed, HostRows, Stopwatch, run_ahead
from workbench.graphs.generators import Nodes, stochastic_block_model
from workbench.graphs.training import Training, train


@pytest.fixture(scope="module")
def prepared() -> Relabelled:
    return relabel(stochastic_block_model(1500, 15, 10, given=Nodes(features=8, classes=4)), "given")


def count(to: int, made: list[int], fails_at: int = -1) -> Generator[int, None, None]:
    for number in range(to):
        if number == fails_at:
            raise ValueError("no more")
        made.append(number)
        yield number


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_items_come_in_order_and_errors_where_they_arose(depth: int) -> None:
    assert list(run_ahead(count(20, []), depth)) == list(range(20))
    found = []
    with pytest.raises(ValueError, match="no more"):
        found.extend(run_ahead(count(20, [], fails_at=7), depth))
    seen = []
    with pytest.raises(ValueError, match="no more"):
        for item in run_ahead(count(20, [], fails_at=7), depth):
            seen.append(item)
    assert seen == list(range(7))


def test_no_more_is_made_than_the_depth_allows_and_closing_ends_the_threads() -> None:
    made: list[int] = []
    before = threading.active_count()
    items = run_ahead(run_ahead(count(100, made), 1), 2)
    assert next(items) == 0
    deadline = time.monotonic() + 10
    while len(made) < 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    # one is read, two wait in the second queue, one in its thread's hand, one in the first queue, one in hand
    assert made == list(range(6))
    items.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("name", ["comm-rand", "cluster-gcn"])
@pytest.mark.parametrize("draws", ["numpy", "torch"])
def test_a_feed_gives_the_same_tensors_however_far_ahead(prepared: Relabelled, name: str, draws: str) -> None:
    batches = MiniBatches(prepared.graph, Policy(name=name, mix=0.2, p=0.9, batch=128, fanouts=(4, 3)))
    features, labels = torch.from_numpy(prepared.graph.features), torch.from_numpy(prepared.graph.labels)
    device = torch.device("cpu")
    both = [
        list(
            Feed(batches if draws == "numpy" else DeviceMiniBatches(batches, device), features, labels, depth).epoch(3)[
                0
            ]
        )
        for depth in (0, 2)
    ]
    assert len(both[0]) == len(both[1]) > 2
    for one, other in zip(*both, strict=True):
        assert one.ends == other.ends
        assert one.edges == other.edges
        for part in ("features", "indptr", "indices", "labels"):
            assert torch.equal(getattr(one, part), getattr(other, part))


def test_training_is_the_same_however_far_ahead(prepared: Relabelled) -> None:
    policy = Policy(mix=0.25, p=0.9, batch=128, fanouts=(4, 4), seed=3)
    alone, ahead = (
        train(prepared, policy, Training(hidden=8, epochs=3, sampler="device", prefetch=depth)) for depth in (0, 2)
    )
    assert ahead.curve == alone.curve
    assert ahead.parts is not None
    assert ahead.parts.step_s > 0
    assert ahead.parts.draw_s == ahead.sample_s


def test_buffers_of_rows_are_used_again_and_grow() -> None:
    matrix = torch.arange(60.0).reshape(20, 3)
    rows = HostRows(matrix, torch.device("cpu"))
    watches = [Stopwatch(torch.device("cpu")) for _ in range(2)]
    asked = [torch.tensor(one) for one in ([1, 5], [2], [7, 7, 0], [19], [])]
    found = [rows.fetch(nodes.long(), *watches) for nodes in asked]
    for nodes, got in zip(asked, found, strict=True):  # none was overwritten by a later one
        assert torch.equal(got, matrix[nodes.long()])
    assert all(watch.seconds() > 0 for watch in watches)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_a_gpu_gets_the_rows_of_each_batch_while_steps_run(prepared: Relabelled, place: str) -> None:
    device = torch.device("cuda")
    batches = MiniBatches(prepared.graph, Policy(mix=0.2, p=0.9, batch=64, fanouts=(4, 3)))
    features = torch.from_numpy(prepared.graph.features)
    labels = torch.from_numpy(prepared.graph.labels).to(device)
    feeds = [Feed(DeviceMiniBatches(batches, device), features.to(place), labels, depth) for depth in (0, 2)]
    busy = torch.randn(2048, 2048, device=device)
    for number in range(2):  # buffers are used again
        drawn = [one.nodes.cpu() for one in DeviceMiniBatches(batches, device).epoch(number)]
        for feed in feeds:
            got = []
            for tensors in feed.epoch(number)[0]:
                busy = (busy @ busy).tanh()  # work of a step, behind which batches are made
                got.append((tensors.features.clone(), tensors.labels.clone()))
            for nodes, (rows, own) in zip(drawn, got, strict=True):
                assert torch.equal(rows.cpu(), features[nodes])
                assert torch.equal(own, labels[nodes[: len(own)].to(device)])
