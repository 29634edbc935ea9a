"""Models compute what PyTorch Geometric's do, training learns and repeats, a sweep goes on where it was stopped."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.nn import GATConv, SAGEConv

from workbench.errors import UserError
from workbench.graphs import models
from workbench.graphs.batches import MiniBatches, Policy
from workbench.graphs.communities import Relabelled, relabel
from workbench.graphs.generators import Nodes, stochastic_block_model
from workbench.graphs.loaders import to_tensors
from workbench.graphs.locality import CacheModel
from workbench.graphs.models import GatLayer, GraphModel, SageLayer
from workbench.graphs.sweep import BASELINES, list_policies, read_rows, sweep
from workbench.graphs.training import Result, Training, train


@pytest.fixture(scope="module")
def prepared() -> Relabelled:
    given = Nodes(features=16, classes=4, noise=0.02, spread=2.0)
    return relabel(stochastic_block_model(2000, 20, 10, given=given), "given")


def csr(prepared: Relabelled) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    graph = prepared.graph
    arrays = (graph.features, graph.indptr, graph.indices.astype(np.int64), graph.labels)
    return tuple(torch.from_numpy(array) for array in arrays)


def edge_index(indptr: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return torch.stack((indices, torch.repeat_interleave(indptr.diff())))


def test_the_sage_layer_is_that_of_pyg(prepared: Relabelled) -> None:
    features, indptr, indices, _ = csr(prepared)
    torch.manual_seed(0)
    ours, theirs = SageLayer(16, 8), SAGEConv(16, 8)
    theirs.lin_l.weight, theirs.lin_l.bias = ours.near.weight, ours.own.bias
    theirs.lin_r.weight = ours.own.weight
    torch.testing.assert_close(ours(features, features, indptr, indices), theirs(features, edge_index(indptr, indices)))


def test_the_gat_layer_is_that_of_pyg(prepared: Relabelled) -> None:
    features, indptr, indices, _ = csr(prepared)
    torch.manual_seed(0)
    ours, theirs = GatLayer(16, 8, 2), GATConv(16, 4, heads=2, bias=False)
    theirs.lin.weight = ours.project.weight
    theirs.att_dst.data, theirs.att_src.data = ours.score[:1].data, ours.score[1:].data
    wanted = ours.finish(theirs(features, edge_index(indptr, indices)))
    torch.testing.assert_close(ours(features, features, indptr, indices), wanted)


@pytest.mark.parametrize("kind", models.MODELS)
def test_a_batch_of_all_neighbours_gives_the_logits_of_the_whole_graph(
    kind: models.ModelName, prepared: Relabelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, indptr, indices, labels = csr(prepared)
    torch.manual_seed(0)
    model = GraphModel(kind, 16, 8, 4, layers=2, heads=2, dropout=0.5).eval()
    whole = model.predict_all(features, indptr, indices)
    monkeypatch.setattr(models, "CHUNK_EDGES", 700)
    torch.testing.assert_close(model.predict_all(features, indptr, indices), whole)
    batch = next(iter(MiniBatches(prepared.graph, Policy(fanouts=(-1, -1), batch=64)).epoch(0)))
    tensors = to_tensors(batch, features[torch.from_numpy(batch.nodes)], labels)
    found = model(tensors.features, tensors.indptr, tensors.indices, tensors.ends, tensors.edges)
    torch.testing.assert_close(found, whole[batch.roots], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", models.MODELS)
def test_training_learns_more_than_features_alone_tell(kind: models.ModelName, prepared: Relabelled) -> None:
    policy = Policy(mix=0.25, p=0.9, batch=256, fanouts=(5, 5), seed=1)
    training = Training(model=kind, hidden=32, epochs=6, learning_rate=0.01)
    found = train(prepared, policy, training)
    graph = prepared.graph
    centres = np.stack([graph.features[graph.train & (graph.labels == label)].mean(axis=0) for label in range(4)])
    nearest = np.linalg.norm(graph.features[:, None] - centres, axis=2).argmin(axis=1)
    alone = float((nearest == graph.labels)[graph.test].mean())
    assert found.test > alone + 0.05 and found.test > 0.85
    assert (
        found.val == max(found.curve) and len(found.elapsed_s) == 6 and found.curve[found.best_epoch - 1] == found.val
    )
    assert 0 < found.sample_s < found.epoch_s
    assert train(prepared, policy, training).curve == found.curve  # the same seed
    assert found.prepare_s == prepared.prepare_s > 0
    assert found.sampler == "host"


@pytest.mark.parametrize("policy", [Policy(mix=0.25, p=0.9), Policy(name="labor"), Policy(name="cluster-gcn")])
def test_batches_of_torch_train_as_those_of_numpy(policy: Policy, prepared: Relabelled) -> None:
    policy = dataclasses.replace(policy, batch=256, fanouts=(5, 5))
    training = Training(hidden=32, epochs=5, learning_rate=0.01, sampler="device")
    ours = train(prepared, policy, training)
    theirs = train(prepared, policy, dataclasses.replace(training, sampler="host"))
    assert (ours.sampler, theirs.sampler) == ("device", "host")
    assert ours.curve == train(prepared, policy, training).curve != theirs.curve
    assert ours.val == pytest.approx(theirs.val, abs=0.06) and ours.val > 0.8
    assert ours.locality.unique_rows == pytest.approx(theirs.locality.unique_rows, rel=0.05)
    assert 0 < ours.sample_s < ours.epoch_s


def test_the_locality_of_a_policy_is_measured_once_for_all_models(prepared: Relabelled) -> None:
    policy, measured = Policy(batch=512, fanouts=(3,)), {}
    first = train(prepared, policy, Training(epochs=0), measured=measured)
    marked = dataclasses.replace(first.locality, hit_rate=0.125)
    measured[policy] = marked
    assert train(prepared, policy, Training(model="gat", epochs=0), measured=measured).locality is marked


def test_patience_ends_a_training(prepared: Relabelled) -> None:
    training = Training(hidden=16, epochs=60, patience=2, learning_rate=0.02)
    found = train(prepared, Policy(name="uniform", batch=512, fanouts=(4, 4)), training)
    assert len(found.curve) == found.best_epoch + 2 < 60
    assert found.prepare_s == 0


def test_times_to_an_accuracy_count_preprocessing(prepared: Relabelled) -> None:
    found = train(prepared, Policy(batch=512, fanouts=(3,)), Training(epochs=0))
    made = dataclasses.replace(found, prepare_s=10.0, curve=(0.5, 0.8, 0.801), elapsed_s=(1.0, 2.0, 3.0))
    assert made.reached(0.8) == (2, 12.0) and made.reached(0.9) is None and made.converged == (2, 12.0)
    assert found.converged is None and found.val is None


def test_a_sweep_keeps_results_and_goes_on(prepared: Relabelled, tmp_path: Path) -> None:
    path, training = tmp_path / "rows.jsonl", Training(epochs=1, hidden=8)
    like = Policy(batch=600, fanouts=(3, 3))
    policies = list_policies((1, 0.25), (0.5, 1), baselines=BASELINES, like=like)
    assert len(policies) == 4 + 4
    first = sweep(prepared, policies[:3], training, path)
    path.write_text(path.read_text()[:-40])  # the last line was cut off
    said: list[str] = []
    found = sweep(prepared, policies, training, path, report=said.append)
    assert len(said) == len(policies) - 2 and said[0].startswith("3 of 8: comm-rand mix=0.25 p=0.5")
    assert found[:2] == first[:2] and [result.policy for result in found] == policies
    assert [row.result for row in read_rows(path)] == found
    assert all(
        dict(row.versions)["torch"] == torch.__version__ and row.versions[0][0] == "date" for row in read_rows(path)
    )
    sweep(prepared, policies, training, path, report=said.append)
    assert len(said) == 6
    sweep(prepared, policies[:1], training, path, CacheModel(capacity_bytes=1 << 18), said.append)
    assert len(said) == 7  # another cache is another point
    path.write_text("no\n" + path.read_text())
    with pytest.raises(UserError, match=r"rows.jsonl:1: no result of a sweep"):
        list(read_rows(path))


def test_a_point_that_is_named_twice_is_run_once() -> None:
    policies = list_policies((0, 0.0, 1), (0.5, 0.5), (0, 1), ("labor", "labor"))
    assert [(one.name, one.mix, one.seed) for one in policies] == [
        (name, mix, seed) for seed in (0, 1) for name, mix in (("comm-rand", 0), ("comm-rand", 1), ("labor", 1))
    ]


def test_bad_settings_are_one_line(prepared: Relabelled) -> None:
    for training, said in (
        (Training(model="gcn"), "there are: sage, gat"),
        (Training(epochs=-1), "epochs=-1"),
        (Training(sampler="gpu"), "there are: auto, device, host"),
        (Training(device="cuda:99"), "device 'cuda:99' cannot be used here"),
    ):
        with pytest.raises(UserError, match=said) as error:
            train(prepared, Policy(batch=512, fanouts=(3,)), training)
        assert "\n" not in str(error.value)


def test_a_result_has_its_fields_in_a_file(prepared: Relabelled) -> None:
    from workbench.wire import dumps, loads

    found = train(prepared, Policy(batch=512, fanouts=(3,)), Training(epochs=0))
    assert loads(dumps(found), Result) == found
