"""The model below the estimators: vocabulary, granularities, and the global tree or forest on counted predicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy
from numpy.typing import NDArray

from workbench.structure.features import Block, FeatureSettings
from workbench.structure.global_tree import grow_global_tree
from workbench.structure.granularity_search import Bags, Individual, SearchSettings, search_granularities
from workbench.structure.graph import Graph
from workbench.structure.hashing.adjacency import Adjacency
from workbench.structure.hashing.egos import Flags, Indices
from workbench.structure.master_tree import MasterTree
from workbench.structure.vocabulary import CountCache, Counts, Placed, Predicate, Vocabulary, list_predicates

Labels = NDArray[numpy.int64]
FEW_ROWS = 20  # with fewer, no rows are kept apart and nothing is searched
MOST_SEARCHED = 20_000  # rows that the search looks at; inferred: more tell no granularities apart


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """What the estimators' parameters say."""

    radii: tuple[int, ...]
    features: FeatureSettings
    degrees: bool
    most_leaves: int
    least_support: int
    forest: int  # trees of the forest; 0: one decision tree
    search: SearchSettings | None
    seed: int
    of_nodes: bool


@dataclass(frozen=True, kw_only=True)
class ColumnMeaning:
    """What a column of counts counts: nodes of the graph (""), the node "itself", or its neighbours."""

    predicate: Predicate
    where: str


@dataclass(kw_only=True)
class SymbolicModel:
    """A fitted model; `fit` fills it."""

    settings: ModelSettings
    vocabulary: Vocabulary = field(init=False)
    granularities: tuple[int, ...] = ()
    columns: tuple[ColumnMeaning, ...] = ()
    history: tuple[Individual, ...] = ()
    tree: object = None
    forest: object = None

    def fit(self, graphs: Sequence[Graph], labels: Labels, used: Flags) -> Counts:
        """Learns from rows (graphs, or nodes of the graphs' union) with labels; of rows that are not used, only the
        structure is seen. Returns the counts of all rows.
        """
        own = self.settings
        self.vocabulary = Vocabulary(own.radii, own.features, own.degrees, own.least_support)
        blocks, adjacency = self.vocabulary.learn_structures(graphs)
        rows = _Rows.of(adjacency, own.of_nodes)
        self.granularities = tuple(own.most_leaves for _ in blocks)
        if own.search is not None and used.sum() >= FEW_ROWS:
            some = self._draw_rows(used)
            bags = [self._keep_apart(blocks, rows, labels, some, apart) for apart in self._parts(labels, some)]
            self.granularities, self.history = search_granularities(
                self.vocabulary.structures, bags, own.search, own.seed
            )
        seen = numpy.where(used, labels, -1)
        self.vocabulary.trees = self.vocabulary.grow(blocks, seen[rows.owners], own.most_leaves, own.seed)
        counts = rows.matrix(
            rows.cache(self.vocabulary.place(blocks, self.vocabulary.trees), self.vocabulary.trees), self.granularities
        )
        self.columns = self._name_columns()
        self._fit_global(counts[used], labels[used])
        return counts

    def _draw_rows(self, used: Flags) -> Flags:
        """The used rows, or MOST_SEARCHED of them: the search grows a hundred trees and more."""
        at = numpy.flatnonzero(used)
        if len(at) <= MOST_SEARCHED:
            return used
        found = numpy.zeros(len(used), bool)
        found[numpy.random.default_rng(self.settings.seed).choice(at, MOST_SEARCHED, replace=False)] = True
        return found

    def _parts(self, labels: Labels, used: Flags) -> list[Flags]:
        """Quarters of the used rows, of each label in proportion; one for each turn of the search."""
        drawn = numpy.random.default_rng(self.settings.seed)
        part = numpy.full(len(labels), -1)
        for label in numpy.unique(labels[used]):
            own = drawn.permutation(numpy.flatnonzero(used & (labels == label)))
            part[own] = numpy.arange(len(own)) % 4
        return [part == i for i in range(self.settings.search.turns if self.settings.search else 0)]

    def _keep_apart(self, blocks: Sequence[Block], rows: _Rows, labels: Labels, used: Flags, apart: Flags) -> Bags:
        """The counts with master trees that saw no label of the rows that are kept apart."""
        seen = numpy.where(used & ~apart, labels, -1)
        trees = self.vocabulary.grow(blocks, seen[rows.owners], self.settings.most_leaves, self.settings.seed)
        cache = rows.cache(self.vocabulary.place(blocks, trees), trees)
        return Bags(matrix=lambda sizes: rows.matrix(cache, sizes)[used], labels=labels[used], apart=apart[used])

    def _fit_global(self, counts: Counts, labels: Labels) -> None:
        from sklearn.ensemble import RandomForestClassifier

        own = self.settings
        counts = _never_empty(counts)
        self.tree = grow_global_tree(counts, labels, own.seed)
        if own.forest:
            self.forest = RandomForestClassifier(own.forest, random_state=own.seed).fit(counts, labels)

    def _name_columns(self) -> tuple[ColumnMeaning, ...]:
        predicates = list_predicates(self.vocabulary.trees, self.granularities)
        places = ("itself", "next to it") if self.settings.of_nodes else ("",)
        return tuple(ColumnMeaning(predicate=one, where=where) for where in places for one in predicates)

    def count(self, graphs: Sequence[Graph]) -> Counts:
        """[rows, predicates] of other graphs."""
        placed, adjacency = self.vocabulary.find_known(graphs)
        rows = _Rows.of(adjacency, self.settings.of_nodes)
        return rows.matrix(rows.cache(placed, self.vocabulary.trees), self.granularities)

    def probabilities(self, counts: Counts) -> NDArray[numpy.float64]:
        """[rows, classes]."""
        model = self.forest or self.tree
        found: NDArray[numpy.float64] = model.predict_proba(_never_empty(counts))  # type: ignore[attr-defined]
        return found


def _never_empty(counts: Counts) -> Counts:
    """The counts, or one column of zeros where there is no predicate."""
    return counts if counts.shape[1] else numpy.zeros((len(counts), 1), numpy.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    """What a row is: a graph, or a node of the union (then its neighbours are counted as well)."""

    owners: Indices  # [N]: the row of each node
    number: int
    adjacency: Adjacency
    of_nodes: bool

    @classmethod
    def of(cls, adjacency: Adjacency, of_nodes: bool) -> _Rows:
        owners = numpy.arange(adjacency.size) if of_nodes else adjacency.graph_of
        number = adjacency.size if of_nodes else len(adjacency.graph_starts) - 1
        return cls(owners=owners, number=number, adjacency=adjacency, of_nodes=of_nodes)

    def cache(self, placed: Sequence[Placed], trees: Sequence[MasterTree]) -> CountCache:
        return CountCache(placed, trees, self.owners, self.number)

    def matrix(self, cache: CountCache, granularities: Sequence[int]) -> Counts:
        counts = cache.matrix(granularities)
        if not self.of_nodes:
            return counts
        from scipy.sparse import csr_matrix

        ones = numpy.ones(len(self.adjacency.targets), numpy.float32)
        near = csr_matrix((ones, self.adjacency.targets, self.adjacency.starts), shape=(self.number, self.number))
        return numpy.hstack([counts, near @ counts])
