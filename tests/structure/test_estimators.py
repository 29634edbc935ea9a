"""The classifiers: accuracy on small planted sets, invariance, inputs, scikit-learn's conventions, what is refused."""

from __future__ import annotations

import itertools
import pickle

import networkx as nx
import numpy
import pytest
import torch
from shapes import PAIRS, shuffled
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator
from torch_geometric.data import Data

from workbench.errors import UserError
from workbench.structure import datasets, symbolic_model
from workbench.structure.estimators import SymGraphClassifier, SymGraphNodeClassifier, nodes_of
from workbench.structure.graph import Graph, read_graph
from workbench.structure.master_tree import MasterTree
from workbench.structure.vocabulary import RowCounts, Rows


@pytest.fixture(scope="module")
def houses() -> datasets.GraphSet:
    return datasets.ba_2motifs(120)


@pytest.fixture(scope="module")
def fitted(houses: datasets.GraphSet) -> SymGraphClassifier:
    return SymGraphClassifier(radii=(1,)).fit(houses.graphs[:80], houses.labels[:80])


def test_planted_motifs_are_told_apart(houses: datasets.GraphSet, fitted: SymGraphClassifier) -> None:
    assert (fitted.predict(houses.graphs[80:]) == houses.labels[80:]).all()
    assert fitted.predict_proba(houses.graphs[80:]).shape == (40, 2)


def test_the_search_looks_at_some_of_many_rows(houses: datasets.GraphSet, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    whole = symbolic_model.search_granularities

    def watch(structures, bags, *more):
        seen.extend(len(one.labels) for one in bags)
        return whole(structures, bags, *more)

    monkeypatch.setattr(symbolic_model, "MOST_SEARCHED", 40)
    monkeypatch.setattr(symbolic_model, "search_granularities", watch)
    model = SymGraphClassifier(radii=(1,)).fit(houses.graphs[:80], houses.labels[:80])
    assert set(seen) == {40}
    assert model.model_.tree.tree_.n_node_samples[0] == 80
    assert (model.predict(houses.graphs[80:]) == houses.labels[80:]).all()


def test_the_planted_motif_is_among_the_first_three_rules(
    houses: datasets.GraphSet, fitted: SymGraphClassifier
) -> None:
    patterns = [literal.pattern for rule in fitted.rules()[:3] for literal in rule.literals if not literal.negated]
    assert any(set(pattern.nodes[:1]) <= set(houses.planted[pattern.graph]) for pattern in patterns)
    assert "in a ring of 3" in str(fitted.rules()[0]) or "in a ring of 3" in str(fitted.rules()[1])


def test_the_rules_are_the_model(houses: datasets.GraphSet, fitted: SymGraphClassifier) -> None:
    """Fidelity is 1: of each graph exactly one rule holds, and it says what the model predicts."""
    rules = fitted.rules()
    assert sum(rule.support for rule in rules) == 80
    predicted = fitted.predict(houses.graphs[:80])
    for rule in rules:
        assert all(str(predicted[example]) == rule.label for example in rule.examples)
    right = sum(rule.support * rule.confidence for rule in rules)
    assert right == pytest.approx((predicted == houses.labels[:80]).sum())


def test_predictions_of_a_thousand_relabellings_are_the_same(
    houses: datasets.GraphSet, fitted: SymGraphClassifier
) -> None:
    for label, graph in zip(houses.labels[80:82], houses.graphs[80:82], strict=True):
        given = [shuffled(graph, seed) for seed in range(500)]
        assert set(fitted.predict(given).tolist()) == {label}


@pytest.mark.parametrize("name", ["two triangles and a hexagon", "decalin and bicyclopentyl"])
def test_a_pair_that_refinement_does_not_tell_apart_is_learnt(name: str) -> None:
    one, other, radius = PAIRS[name]
    model = SymGraphClassifier(radii=(radius,)).fit([one, other] * 6, ["one", "other"] * 6)
    assert model.predict([other, one]).tolist() == ["other", "one"]


def test_roles_of_nodes_are_learnt() -> None:
    found = datasets.ba_shapes(houses=30, base=80)
    samples = nodes_of(found.graph)
    seen = numpy.arange(len(samples)) % 4 > 0
    model = SymGraphNodeClassifier().fit([samples[i] for i in numpy.flatnonzero(seen)], found.labels[seen])
    assert (model.predict([samples[i] for i in numpy.flatnonzero(~seen)]) == found.labels[~seen]).mean() > 0.9
    assert any(literal.where == "itself" for rule in model.rules() for literal in rule.literals)


def test_attributes_decide_where_structure_does_not() -> None:
    drawn = numpy.random.default_rng(0)
    graphs = []
    for number in range(60):
        weights = drawn.random(8) + (number % 2)  # only the nodes next to the first weigh more
        graphs.append(Graph.of([(0, i) for i in range(1, 8)], node_columns={"weight": weights}))
    model = SymGraphClassifier(radii=(1,), degrees=False).fit(graphs[:40], numpy.arange(40) % 2)
    assert (model.predict(graphs[40:]) == numpy.arange(20) % 2).mean() >= 0.9  # by structure alone: a half
    assert any("weight" in str(rule) for rule in model.rules())


def test_the_same_graph_of_three_libraries_is_one() -> None:
    house = nx.house_graph()
    pairs = numpy.array(house.edges)
    both = torch.from_numpy(numpy.concatenate([pairs, pairs[:, ::-1]]).T.copy())
    model = SymGraphClassifier(radii=(1,), use_search=False, least_support=1)
    model.fit([nx.house_graph(), nx.cycle_graph(5)] * 5, [1, 0] * 5)
    assert model.predict([house, Data(edge_index=both, num_nodes=5), pairs]).tolist() == [1, 1, 1]


def test_isolated_nodes_count() -> None:
    graphs = [Graph.of([(0, 1)], size=2 + number % 3) for number in range(30)]
    model = SymGraphClassifier(radii=(1,), use_search=False).fit(graphs, [graph.size for graph in graphs])
    assert model.predict([Graph.of([(0, 1)], size=4), Graph.of([(1, 0)])]).tolist() == [4, 2]


def test_a_master_tree_cut_is_the_tree_grown_to_that_size() -> None:
    drawn = numpy.random.default_rng(0)
    features = drawn.random((400, 5))
    labels = (features[:, 0] + features[:, 1] * features[:, 2] > 0.8).astype(int)
    whole = MasterTree(features, labels, 16, 0)
    for leaves in range(1, 17):
        refitted = DecisionTreeClassifier(max_leaf_nodes=max(2, leaves), min_samples_leaf=5, random_state=0)
        groups = refitted.fit(features, labels).apply(features) if leaves > 1 else numpy.zeros(400)
        cut = whole.cut(leaves)[whole.apply(features)]
        assert len({*zip(cut, groups, strict=True)}) == len(set(cut)) == len(set(groups)) == leaves
        assert set(cut) <= set(whole.leaves_of_cut(leaves))


def test_the_search_finds_a_smaller_vocabulary_that_is_as_good(houses: datasets.GraphSet) -> None:
    model = SymGraphClassifier().fit(houses.graphs, houses.labels)
    plain = SymGraphClassifier(use_search=False).fit(houses.graphs, houses.labels)
    assert len(model.model_.columns) < len(plain.model_.columns) / 2
    assert (model.predict(houses.graphs) == houses.labels).all()
    fitness = [one.fitness for one in model.history_]
    assert all(a <= b for a, b in itertools.pairwise(fitness))


def test_two_fits_are_equal(houses: datasets.GraphSet) -> None:
    texts = [[str(rule) for rule in SymGraphClassifier().fit(houses.graphs, houses.labels).rules()] for _ in range(2)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("model", [SymGraphClassifier(), SymGraphNodeClassifier()])
@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_scikit_learns_checks_pass_where_they_apply(model: SymGraphClassifier) -> None:
    """Those that fit on a matrix of numbers do not apply: the input is graphs, as the estimator's tags say."""
    check_estimator(model)
    other = clone(model).set_params(radii=(3,), final="forest")
    assert other.get_params()["radii"] == (3,) and model.get_params()["radii"] == (1, 2)


def test_cross_validation_of_scikit_learn_takes_graphs_and_nodes(houses: datasets.GraphSet) -> None:
    model = SymGraphClassifier(radii=(1,), use_search=False)
    assert cross_val_score(model, list(houses.graphs), houses.labels, cv=3).min() == 1
    found = datasets.tree_cycles(rings=15, height=5)
    node_model = SymGraphNodeClassifier(radii=(1, 2), use_search=False)
    assert cross_val_score(node_model, nodes_of(found.graph), found.labels, cv=3).mean() > 0.8


@pytest.mark.parametrize("switch", ["use_orbits", "use_hash", "use_search"])
def test_an_ablation_still_predicts(houses: datasets.GraphSet, switch: str) -> None:
    model = SymGraphClassifier(radii=(1, 2), **{switch: False}).fit(houses.graphs[:80], houses.labels[:80])
    assert set(model.predict(houses.graphs[80:]).tolist()) <= {0, 1}


def test_what_cannot_be_used_is_refused_in_one_line(fitted: SymGraphClassifier) -> None:
    with pytest.raises(NotFittedError):
        SymGraphClassifier().predict([nx.path_graph(3)])
    for wrong, message in [
        (lambda: fitted.predict([]), "no graphs"),
        (lambda: fitted.predict([nx.path_graph(3), "x"]), "graph 1: a str is no graph"),
        (lambda: SymGraphClassifier().fit([nx.path_graph(3)], [1, 2]), "give one for each"),
        (lambda: SymGraphClassifier(final="wood").fit([nx.path_graph(3)], [1]), "use tree or forest"),
        (lambda: SymGraphClassifier(radii=()).fit([nx.path_graph(3)], [1]), "at least one number of hops"),
        (lambda: Graph.of([(0, 5)], size=3), "nodes are 0 to 2"),
        (lambda: Graph.of([(0, 1)], node_columns={"kind": ["a"]}), "give 2 values"),
        (lambda: SymGraphNodeClassifier().fit([(nx.path_graph(3), 7)], [1]), "nodes 0 to 2"),
    ]:
        with pytest.raises(UserError, match=message) as found:
            wrong()
        assert "\n" not in str(found.value)


def test_a_large_table_of_nodes_is_sparse_and_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data = datasets.ba_shapes(base=60, houses=16)
    nodes = nodes_of(data.graph)
    models = []
    for most in (1 << 26, 0):
        monkeypatch.setattr(symbolic_model, "MOST_DENSE", most)
        models.append(SymGraphNodeClassifier().fit(nodes[::2], data.labels[::2]))
    dense, sparse = models
    assert isinstance(dense._counts_, numpy.ndarray) and not isinstance(sparse._counts_, numpy.ndarray)
    assert (sparse._counts_.toarray() == dense._counts_).all() and dense._counts_.any()
    assert (sparse.predict(nodes) == dense.predict(nodes)).all()
    supports = [sorted(rule.support for rule in model.rules()) for model in models]
    assert sum(supports[0]) == sum(supports[1]) == len(nodes[::2])


@pytest.mark.parametrize("kind", ["graphs", "nodes"])
def test_counts_of_known_samples_are_those_that_were_learnt_from(kind: str, houses: datasets.GraphSet) -> None:
    shapes = datasets.ba_shapes(base=60, houses=16)
    if kind == "graphs":
        model, samples = SymGraphClassifier().fit(houses.graphs, houses.labels), houses.graphs
    else:
        samples = nodes_of(shapes.graph)
        model = SymGraphNodeClassifier().fit(samples, shapes.labels)
    assert model._counts_.any() and (model._count(samples) == model._counts_).all()


def test_rows_of_one_hash_have_equal_counts_and_no_others() -> None:
    data = datasets.ba_shapes(base=60, houses=16)
    model = SymGraphNodeClassifier(use_search=False).fit(nodes_of(data.graph), data.labels).model_
    placed, adjacency = model.vocabulary.find_known([data.graph])
    counts = RowCounts(placed, model.vocabulary.trees, Rows.of_nodes(adjacency, numpy.arange(data.graph.size)))
    table = counts.matrix([64] * len(placed))
    hashes = counts.hash_rows()
    by_hash = {value: row.tobytes() for value, row in zip(hashes.tolist(), table, strict=True)}
    assert 1 < len(by_hash) == len({*by_hash.values()}) < len(table)
    assert all(by_hash[value] == row.tobytes() for value, row in zip(hashes.tolist(), table, strict=True))


RINGS = [nx.house_graph() if number % 2 else nx.cycle_graph(5) for number in range(20)]
LABELS = [number % 2 for number in range(20)]


def weighted(value: object) -> nx.Graph:
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, value, "weight")
    return graph


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["house", "ring"] * 10, ["house", "ring"]),
        ([True, False] * 10, [False, True]),
        ([1.0, 2.0] * 10, [1, 2]),
        (numpy.array([1, 2] * 10, dtype=object), [1, 2]),
        (["one"] * 20, ["one"]),
        (range(20), list(range(20))),
    ],
)
def test_labels_are_any_classes(labels: object, classes: list[object]) -> None:
    model = SymGraphClassifier(radii=(1,)).fit(RINGS, labels)
    assert model.classes_.tolist() == classes and model.predict(RINGS[:2]).shape == (2,) and model.rules()


@pytest.mark.parametrize(
    ("samples", "labels", "settings", "said"),
    [
        (RINGS, [numpy.nan, *[1.0] * 19], {}, "fractions or NaN"),
        (RINGS, numpy.linspace(0, 1, 20), {}, "fractions or NaN"),
        (RINGS, [None, *["a"] * 19], {}, "several kinds"),
        (RINGS, LABELS, {"radii": 1}, "radii are 1; give a sequence"),
        (RINGS, LABELS, {"radii": (1.5,)}, "radii are"),
        (RINGS, LABELS, {"population": 0}, "population is 0"),
        (RINGS, LABELS, {"most_leaves": 2.5}, "most_leaves is 2.5"),
        (RINGS, LABELS, {"node_identity": "kind"}, "give a sequence of attributes"),
        (RINGS, LABELS, {"node_identity": ("kind",)}, "no node has the attribute kind; attributes of nodes are: none"),
        ([weighted(1)] * 20, LABELS, {"node_identity": ("size",)}, "attributes of nodes are: weight"),
        ([weighted(float("inf"))] * 20, LABELS, {}, "graph 0: attribute weight has an infinite value"),
        ([numpy.array([[0.5, 1.0]])] * 20, LABELS, {}, "graph 0: an edge names a node that is no whole number"),
        ([[("a", "b")]] * 20, LABELS, {}, "no whole number"),
        ([Data(edge_index=torch.tensor([[0], [5]]), num_nodes=3)] * 20, LABELS, {}, "not among the 3 nodes"),
        (
            [Data(edge_index=torch.tensor([[0], [1]]), num_nodes=3, x=torch.ones(2, 1))] * 20,
            LABELS,
            {},
            "give 3 rows, one for each",
        ),
    ],
)
def test_what_is_no_graph_label_or_setting_is_named(
    samples: list[object], labels: object, settings: dict[str, object], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        SymGraphClassifier(**settings).fit(samples, labels)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sample", "said"), [(RINGS[0], "no pair"), ((RINGS[0], "a"), "names node 'a'"), ((RINGS[0], 1.5), "node 1.5")]
)
def test_what_is_no_node_is_named(sample: object, said: str) -> None:
    with pytest.raises(UserError, match=said):
        SymGraphNodeClassifier().fit([sample], [1])  # type: ignore[list-item]


def test_what_has_no_value_is_no_number() -> None:
    graphs = [weighted(numpy.nan if label else 1.0) for label in LABELS]
    model = SymGraphClassifier(radii=(1,)).fit(graphs, LABELS)
    assert model.predict([weighted(None), weighted(numpy.nan), weighted(1)]).tolist() == [1, 1, 0]


def test_a_directed_graph_with_several_edges_between_two_nodes() -> None:
    def graph(more: int) -> nx.MultiDiGraph:
        made = nx.MultiDiGraph([(0, 1), (1, 0), (1, 2), (2, 2)])
        made.add_edges_from([(0, 1)] * more)
        return made

    model = SymGraphClassifier(radii=(1,)).fit([graph(label) for label in LABELS], LABELS)
    assert model.predict([graph(1), graph(0)]).tolist() == [1, 0]


def test_graphs_without_nodes_are_graphs() -> None:
    model = SymGraphClassifier(radii=(1,)).fit([nx.Graph() if label else nx.path_graph(3) for label in LABELS], LABELS)
    assert model.predict([nx.Graph(), nx.path_graph(3)]).tolist() == [1, 0]
    nothing = SymGraphClassifier(radii=(1,)).fit([nx.Graph()] * 20, [0, *[1] * 19])
    assert nothing.predict([nx.Graph(), nx.path_graph(3)]).tolist() == [1, 1]


def test_a_grid_search_and_a_pickle() -> None:
    grid = GridSearchCV(SymGraphClassifier(), {"radii": [(1,), (1, 2)], "most_leaves": [4, 16]}, cv=2)
    best = grid.fit(RINGS, LABELS)
    again = pickle.loads(pickle.dumps(best.best_estimator_))
    assert best.best_score_ == 1 and (again.predict(RINGS) == LABELS).all()
    assert [str(rule) for rule in again.rules()] == [str(rule) for rule in best.best_estimator_.rules()]


def test_vectors_of_networkx_are_columns_as_those_of_pytorch_geometric() -> None:
    """`to_networkx` of PyTorch Geometric gives each node its row of `x` as a list."""
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, {0: [1.0, 0], 1: numpy.array([0.0, 2.0])}, "x")
    nx.set_edge_attributes(graph, (1, 0.5), "bond")
    read = read_graph(graph)
    assert {name: values.tolist()[:2] for name, values in read.node_columns.items()} == {"x0": [1, 0], "x1": [0, 2]}
    assert all(numpy.isnan(values[2]) for values in read.node_columns.values())
    assert {name: values.tolist() for name, values in read.edge_columns.items()} == {
        "bond0": [1, 1],
        "bond1": [0.5] * 2,
    }
    for different in ([1.0], ["C", 1.0], "C", 1.0):
        nx.set_node_attributes(graph, {2: different}, "x")
        assert [values.dtype.kind for values in read_graph(graph).node_columns.values()] == ["U"]
    nx.set_node_attributes(graph, {2: [numpy.inf, 1.0]}, "x")
    with pytest.raises(UserError, match="x has an infinite value"):
        read_graph(graph)


def test_vectors_of_nodes_tell_graphs_apart() -> None:
    graphs = [nx.cycle_graph(4) for _ in range(20)]
    for number, graph in enumerate(graphs):
        nx.set_node_attributes(graph, [1.0, float(number)], "x")
    labels = [0] * 10 + [1] * 10
    model = SymGraphClassifier(radii=(1,)).fit(graphs, labels)
    assert model.score(graphs, labels) == 1 and "x1 of" in str(model.rules()[0])


@pytest.mark.parametrize(("edges", "node"), [([(0, -2)], "-2"), ([(0, 7)], "7")])
def test_the_node_that_is_out_of_range_is_named(edges: list[tuple[int, int]], node: str) -> None:
    with pytest.raises(UserError, match=f"names node {node}, but nodes are 0 to 2"):
        Graph.of(edges, size=3)
