"""Generated graphs have the degrees, communities, features and labels that their settings say, by their seed."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from workbench.errors import UserError
from workbench.graphs import generators
from workbench.graphs.conversion import edges_of
from workbench.graphs.generators import Nodes, barabasi_albert, rmat, stochastic_block_model
from workbench.graphs.graph import Graph


def share_inside(graph: Graph) -> float:
    source, target = edges_of(graph)
    return float(np.mean(graph.community[source] == graph.community[target]))


@pytest.mark.parametrize("inside", [0.0, 0.5, 0.9, 1.0])
def test_the_block_model_has_its_share_of_edges_inside(inside: float) -> None:
    made = stochastic_block_model(8000, 20, 12, inside=inside, given=Nodes(features=2))
    assert share_inside(made) == pytest.approx(inside, abs=0.02)
    assert made.edges == pytest.approx(8000 * 12, rel=0.05)
    sizes = np.bincount(made.community)
    assert len(sizes) == 20 and sizes.max() < 3 * sizes.min()
    assert np.diff(made.indptr).std() < 2 * np.sqrt(12)  # near Poisson


def test_numbers_of_nodes_say_nothing_about_communities() -> None:
    made = stochastic_block_model(8000, 20, 12, given=Nodes(features=2))
    neighbours_by_number = np.mean(made.community[1:] == made.community[:-1])
    assert neighbours_by_number == pytest.approx(1 / 20, abs=0.02)


def test_labels_and_features_follow_communities() -> None:
    given = Nodes(features=8, classes=4, noise=0.2, spread=0.5)
    made = stochastic_block_model(8000, 20, 12, given=given)
    own = np.array([np.bincount(made.labels[made.community == c], minlength=4).max() for c in range(20)])
    assert own.sum() / 8000 == pytest.approx(0.8 + 0.2 / 4, abs=0.02)
    centres = np.stack([made.features[made.labels == label].mean(axis=0) for label in range(4)])
    assert (made.features - centres[made.labels]).std() == pytest.approx(0.5, rel=0.05)
    assert [mask.mean().round(2) for mask in (made.train, made.val, made.test)] == [0.6, 0.2, 0.2]


def test_a_class_has_as_many_centres_as_it_is_given() -> None:
    given = Nodes(features=16, classes=3, modes=4, noise=0.0, spread=0.1)
    made = stochastic_block_model(6000, 24, 12, given=given)
    means = np.stack([made.features[made.community == c].mean(axis=0) for c in range(24)])
    labels = np.array([made.labels[made.community == c][0] for c in range(24)])
    apart = np.linalg.norm(means[:, None] - means[None], axis=2)
    kinds = (apart < 1).argmax(axis=1)  # the first community with the same centre
    assert len(np.unique(kinds)) == 3 * 4
    for label in range(3):
        assert len(np.unique(kinds[labels == label])) == 4
    with pytest.raises(UserError, match="modes=0: there must be one at least"):
        stochastic_block_model(100, 4, 4, given=Nodes(modes=0))


def test_scaled_features_have_unit_variance() -> None:
    given = Nodes(features=64, classes=8, modes=8, spread=5.0)
    wide, unit = (
        stochastic_block_model(4000, 64, 8, given=dataclasses.replace(given, scaled=scaled)) for scaled in (False, True)
    )
    assert unit.features.std() == pytest.approx(1, rel=0.03)
    np.testing.assert_allclose(unit.features * np.sqrt(26), wide.features, rtol=1e-4, atol=1e-5)


def test_attachment_prefers_nodes_in_proportion_to_their_degree() -> None:
    made = barabasi_albert(20_000, 4, seed=1, given=Nodes(features=2))
    degrees = np.sort(np.diff(made.indptr))
    assert degrees[0] >= 1 and made.edges == pytest.approx(2 * 4 * 20_000, rel=0.03)
    # the law is P(degree >= k) ~ k**-2: a line of slope -2 in the logarithms
    at = np.array([8, 16, 32, 64, 128])
    tail = np.array([(degrees >= k).mean() for k in at])
    slope = np.polyfit(np.log(at), np.log(tail), 1)[0]
    assert slope == pytest.approx(-2, abs=0.35)


def test_rmat_has_skewed_degrees_and_no_lonely_nodes() -> None:
    made = rmat(12, 16, given=Nodes(features=2))
    degrees = np.diff(made.indptr)
    assert degrees.min() >= 1 and degrees.max() > 20 * degrees.mean()
    even = rmat(12, 16, shares=(0.25, 0.25, 0.25, 0.25), given=Nodes(features=2))
    assert np.diff(even.indptr).max() < 4 * np.diff(even.indptr).mean()


@pytest.mark.parametrize("name", generators.GENERATORS)
def test_a_seed_gives_one_graph(name: str) -> None:
    sizes = {"scale": 9} if name == "rmat" else {"nodes": 600}
    if name == "sbm":
        sizes["communities"] = 10
    one, same, other = (generators.GENERATORS[name](**sizes, seed=seed) for seed in (1, 1, 2))
    assert one.digest() == same.digest() != other.digest()
    assert one.community is not None


def test_a_million_edges_take_seconds() -> None:
    start = time.process_time()
    made = stochastic_block_model(60_000, 300, 18)
    assert made.edges > 1_000_000
    assert time.process_time() - start < 5


def test_bad_settings_are_one_line() -> None:
    for call, said in (
        (lambda: stochastic_block_model(nodes=0), "nodes=0: it must be above 0"),
        (lambda: stochastic_block_model(nodes=10, communities=20), "20 communities need as many nodes"),
        (lambda: stochastic_block_model(inside=1.5), "inside=1.5: it is a probability"),
        (lambda: rmat(shares=(1, 1, 1, 1)), "four probabilities with the sum 1"),
        (lambda: stochastic_block_model(100, 2, given=Nodes(train=0.9, val=0.2)), "must not be more than 1"),
        (lambda: stochastic_block_model(seed=-1), "seed=-1"),
    ):
        with pytest.raises(UserError, match=said):
            call()
