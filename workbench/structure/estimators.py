"""SymGraph's classifiers of graphs and of nodes, as scikit-learn estimators (arXiv 2602.16947; no code is published).

    model = SymGraphClassifier(radii=(1, 2)).fit(graphs, labels)
    model.predict(others)
    for rule in model.rules(): print(rule)

From the paper: hashes of ego graphs, roles by orbits, symbolic features, counted predicates, decision trees in both
layers, a genetic search over granularity with master trees that are grown once. Inferred here, and to be set: sizes
and rates of the search, the least support, the degree as a feature, several radii at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Self

import numpy
from numpy.typing import ArrayLike, NDArray

from workbench.errors import UserError
from workbench.structure.extras import require
from workbench.structure.features import FeatureSettings
from workbench.structure.granularity_search import Individual, SearchSettings
from workbench.structure.graph import Graph, check_graphs, read_graph
from workbench.structure.model_rules import RuleReader
from workbench.structure.rules import Rule, TreeNode
from workbench.structure.symbolic_model import ModelSettings, SymbolicModel
from workbench.structure.vocabulary import AnyCounts

require("sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.utils.validation import check_is_fitted  # noqa: E402

Indices = NDArray[numpy.int64]
_LEAST = {"most_leaves": 1, "least_support": 1, "trees": 1, "population": 2, "generations": 0}  # of parameters


def _check_labels(labels: NDArray[numpy.generic]) -> NDArray[numpy.generic]:
    """The labels. Raises `UserError` where some are no classes."""
    if labels.dtype.kind == "O" and not any(
        all(isinstance(label, kind) for label in labels) for kind in (str, Integral)
    ):
        raise UserError("labels are of several kinds, or some are missing; give texts, or whole numbers")
    if labels.dtype.kind == "f" and not (labels == numpy.floor(labels)).all():
        raise UserError("labels are numbers with fractions or NaN; give classes: texts, or whole numbers")
    return labels


class _SymGraph(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """What the two classifiers share.

    radii            hops of the ego graphs; a predicate is of one radius
    node_identity    attributes of nodes that are part of a structure; others only of its features
    edge_identity    the same of edges
    degrees          the degree of a node is one of its features
    most_leaves      of a master tree
    least_support    nodes that a structure must occur at
    final            "tree" (the rules are the model) or "forest" (the rules are of a tree on the same counts)
    trees            of the forest
    population, generations, price      of the genetic search; price is the accuracy that a predicate must bring
    use_search, use_orbits, use_hash    switched off in ablations
    """

    _of_nodes = False

    def __init__(
        self,
        *,
        radii: Sequence[int] = (1, 2),
        node_identity: Sequence[str] = (),
        edge_identity: Sequence[str] = (),
        degrees: bool = True,
        most_leaves: int = 16,
        least_support: int = 5,
        final: str = "tree",
        trees: int = 200,
        population: int = 12,
        generations: int = 8,
        price: float = 1e-4,
        use_search: bool = True,
        use_orbits: bool = True,
        use_hash: bool = True,
        random_state: int = 0,
    ) -> None:
        self.radii = radii
        self.node_identity = node_identity
        self.edge_identity = edge_identity
        self.degrees = degrees
        self.most_leaves = most_leaves
        self.least_support = least_support
        self.final = final
        self.trees = trees
        self.population = population
        self.generations = generations
        self.price = price
        self.use_search = use_search
        self.use_orbits = use_orbits
        self.use_hash = use_hash
        self.random_state = random_state

    def _fit(self, graphs: Sequence[Graph], rows: Indices, number: int, labels: ArrayLike) -> Self:
        """Fits on rows (of `number`) that have these labels."""
        given = numpy.asarray(labels)
        if given.shape != (len(rows),):
            raise UserError(
                f"there are {len(rows)} samples, but labels have the shape {given.shape}; give one for each"
            )
        self._check_identities(graphs)
        self.classes_, codes = numpy.unique(_check_labels(given), return_inverse=True)
        all_labels = numpy.full(number, -1, dtype=numpy.int64)
        all_labels[rows] = codes
        self.model_ = SymbolicModel(settings=self._settings())
        counts = self.model_.fit(graphs, all_labels, all_labels >= 0)
        place = numpy.cumsum(all_labels >= 0) - 1
        self._graphs_, self._labels_, self._counts_ = list(graphs), codes, counts[place[rows]]
        return self

    def _check_identities(self, graphs: Sequence[Graph]) -> None:
        """Raises `UserError` where an identity is no sequence of attributes that some graph has."""
        for what, given in (("node", self.node_identity), ("edge", self.edge_identity)):
            found = {
                name for graph in graphs for name in (graph.node_columns if what == "node" else graph.edge_columns)
            }
            if isinstance(given, str):
                raise UserError(f"{what}_identity is {given!r}; give a sequence of attributes, such as ({given!r},)")
            if missing := sorted({*given} - found):
                known = ", ".join(sorted(found)) or "none"
                raise UserError(f"no {what} has the attribute {missing[0]}; attributes of {what}s are: {known}")

    def _settings(self) -> ModelSettings:
        if self.final not in ("tree", "forest"):
            raise UserError(f"final is {self.final!r}; use tree or forest")
        radii = () if isinstance(self.radii, (str, Integral)) else tuple(self.radii)
        if not radii or not all(isinstance(radius, Integral) and radius >= 0 for radius in radii):
            raise UserError(f"radii are {self.radii!r}; give a sequence of at least one number of hops, such as (1, 2)")
        for name, least in _LEAST.items():
            if not isinstance(value := getattr(self, name), Integral) or value < least:
                raise UserError(f"{name} is {value!r}; give a whole number of at least {least}")
        return ModelSettings(
            radii=radii,
            features=FeatureSettings(
                node_identity=tuple(self.node_identity),
                edge_identity=tuple(self.edge_identity),
                use_hash=self.use_hash,
                use_orbits=self.use_orbits,
            ),
            degrees=self.degrees,
            most_leaves=self.most_leaves,
            least_support=self.least_support,
            forest=self.trees if self.final == "forest" else 0,
            search=SearchSettings(
                population=self.population,
                generations=self.generations,
                price=self.price,
                most_leaves=self.most_leaves,
            )
            if self.use_search
            else None,
            seed=self.random_state,
            of_nodes=self._of_nodes,
        )

    def _count(self, X: Sequence[object]) -> AnyCounts:
        raise NotImplementedError

    def predict_proba(self, X: Sequence[object]) -> NDArray[numpy.float64]:
        """[samples, classes]: the probability of each class, in the order of `classes_`."""
        check_is_fitted(self, "model_")
        return self.model_.probabilities(self._count(X))

    def predict(self, X: Sequence[object]) -> NDArray[numpy.generic]:
        """[samples]: the most probable class of each."""
        best = self.predict_proba(X).argmax(axis=1)
        found: NDArray[numpy.generic] = self.classes_[best]
        return found

    def rules(self) -> tuple[Rule, ...]:
        """The rules of the global tree, those that explain most samples first."""
        return self._reader().rules(self._counts_, self._labels_)

    def tree(self) -> TreeNode:
        """The global tree in words."""
        return self._reader().draw_tree()

    @property
    def history_(self) -> tuple[Individual, ...]:
        """The best of each generation of the search."""
        return self.model_.history

    def _reader(self) -> RuleReader:
        check_is_fitted(self, "model_")
        return RuleReader(self.model_, self.classes_.tolist(), self._graphs_)

    def __sklearn_tags__(self):  # type: ignore[no-untyped-def]
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.no_validation = True
        return tags


class SymGraphClassifier(_SymGraph):
    """A classifier of graphs. X is a sequence of graphs, of any kind that `read_graph` takes."""

    def fit(self, X: Iterable[object], y: ArrayLike) -> Self:
        """Learns from graphs and the label of each."""
        graphs = check_graphs(X)
        return self._fit(graphs, numpy.arange(len(graphs)), len(graphs), y)

    def _count(self, X: Sequence[object]) -> AnyCounts:
        return self.model_.count(check_graphs(X))


class SymGraphNodeClassifier(_SymGraph):
    """A classifier of nodes. X is a sequence of pairs: a graph and the number of one of its nodes (see `nodes_of`).

    All nodes of the graphs in X are looked at; only those in X have labels.
    """

    _of_nodes = True

    def fit(self, X: Sequence[tuple[object, int]], y: ArrayLike) -> Self:
        """Learns from nodes and the label of each."""
        graphs, rows = _join_nodes(X)
        return self._fit(graphs, rows, sum(graph.size for graph in graphs), y)

    def _count(self, X: Sequence[tuple[object, int]]) -> AnyCounts:  # type: ignore[override]
        graphs, rows = _join_nodes(X)
        return self.model_.count(graphs, rows)


def nodes_of(given: object) -> list[tuple[Graph, int]]:
    """All nodes of a graph, as samples of `SymGraphNodeClassifier`."""
    graph = read_graph(given)
    return [(graph, node) for node in range(graph.size)]


def _read_pair(number: int, sample: object) -> tuple[object, int]:
    """A sample's graph and node. Raises `UserError` where it is no such pair."""
    if not isinstance(sample, tuple) or len(sample) != 2:
        raise UserError(f"sample {number} is no pair of a graph and the number of a node (see nodes_of)")
    given, node = sample
    if not isinstance(node, Integral):
        raise UserError(
            f"sample {number} names node {node!r}; give its number: nodes are numbered in their graph's order"
        )
    return given, int(node)


def _join_nodes(samples: Sequence[tuple[object, int]]) -> tuple[list[Graph], Indices]:
    """The graphs of the samples, each once, and the numbers of the samples' nodes in the graphs' union."""
    known: dict[int, tuple[int, Graph]] = {}
    first = 0
    rows = []
    for number, sample in enumerate(samples):
        given, node = _read_pair(number, sample)
        if id(given) not in known:
            graph = read_graph(given)
            known[id(given)] = (first, graph)
            first += graph.size
        start, graph = known[id(given)]
        if not 0 <= node < graph.size:
            raise UserError(f"sample {number} is node {node}, but its graph has nodes 0 to {graph.size - 1}")
        rows.append(start + int(node))
    if not rows:
        raise UserError("there are no samples; give at least one pair of a graph and a node")
    return [graph for _, graph in known.values()], numpy.array(rows, dtype=numpy.int64)
