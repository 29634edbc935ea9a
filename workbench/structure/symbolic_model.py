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
from workbench.structure.hashing.mixing import mix_pairs
from workbench.structure.master_tree import MasterTree
from workbench.structure.vocabulary import (
    AnyCounts,
    Placed,
    Predicate,
    RowCounts,
    Rows,
    Vocabulary,
    list_predicates,
)

Labels = NDArray[numpy.int64]
FEW_ROWS = 20  # with fewer, no rows are kept apart and nothing is searched
MOST_DENSE = 1 << 26  # counts that are held with their zeros
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

    def fit(self, graphs: Sequence[Graph], labels: Labels, used: Flags) -> AnyCounts:
        """Learns from rows (graphs, or nodes of the graphs' union) with labels; of rows that are not used, only the
        structure is seen. Returns the counts of the used rows.
        """
        own = self.settings
        self.vocabulary = Vocabulary(own.radii, own.features, own.degrees, own.least_support)
        blocks, adjacency = self.vocabulary.learn_structures(graphs)
        self.granularities = tuple(own.most_leaves for _ in blocks)
        if own.search is not None and used.sum() >= FEW_ROWS:
            some = self._draw_rows(used)
            bags = [self._keep_apart(blocks, adjacency, labels, some, apart) for apart in self._parts(labels, some)]
            if bags:
                self.granularities, self.history = search_granularities(
                    self.vocabulary.structures, bags, own.search, own.seed
                )
        seen = numpy.where(used, labels, -1)
        self.vocabulary.trees = self._grow(blocks, adjacency, seen)
        placed = self.vocabulary.place(blocks, self.vocabulary.trees)
        self.columns = self._name_columns()
        counts = self._count_rows(placed, adjacency, numpy.flatnonzero(used))
        self._fit_global(counts, labels[used])
        return counts

    def _grow(self, blocks: Sequence[Block], adjacency: Adjacency, seen: Labels) -> tuple[MasterTree, ...]:
        """The master trees with the labels of rows that are seen; -1 for others."""
        of_nodes = seen if self.settings.of_nodes else seen[adjacency.graph_of]
        return self.vocabulary.grow(blocks, of_nodes, self.settings.most_leaves, self.settings.seed)

    def _rows(self, adjacency: Adjacency, wanted: Indices) -> Rows:
        return (Rows.of_nodes if self.settings.of_nodes else Rows.of_graphs)(adjacency, wanted)

    def _count_rows(self, placed: Sequence[Placed], adjacency: Adjacency, wanted: Indices) -> AnyCounts:
        """[wanted rows, predicates]; sparse where the table would be large."""
        counts = RowCounts(placed, self.vocabulary.trees, self._rows(adjacency, wanted))
        if len(wanted) * len(self.columns) > MOST_DENSE:
            return counts.sparse_matrix(self.granularities).tocsc()
        return counts.matrix(self.granularities)

    def _draw_rows(self, used: Flags) -> Flags:
        """The used rows, or MOST_SEARCHED of them: the search grows a hundred trees and more."""
        at = numpy.flatnonzero(used)
        if len(at) <= MOST_SEARCHED:
            return used
        found = numpy.zeros(len(used), bool)
        found[numpy.random.default_rng(self.settings.seed).choice(at, MOST_SEARCHED, replace=False)] = True
        return found

    def _parts(self, labels: Labels, used: Flags) -> list[Flags]:
        """Quarters of the used rows, of each label in proportion; one for each turn of the search. None where each row
        has a label of its own.
        """
        drawn = numpy.random.default_rng(self.settings.seed)
        part = numpy.full(len(labels), -1)
        for label in numpy.unique(labels[used]):
            own = drawn.permutation(numpy.flatnonzero(used & (labels == label)))
            if len(own) > 1:
                part[own] = numpy.arange(len(own)) % 4
        turns = range(self.settings.search.turns if self.settings.search else 0)
        return [part == i for i in turns if (part == i).any()]

    def _keep_apart(
        self, blocks: Sequence[Block], adjacency: Adjacency, labels: Labels, used: Flags, apart: Flags
    ) -> Bags:
        """The counts with master trees that saw no label of the rows that are kept apart. Rows that no granularity
        tells apart are counted together.
        """
        trees = self._grow(blocks, adjacency, numpy.where(used & ~apart, labels, -1))
        placed = self.vocabulary.place(blocks, trees)
        at = numpy.flatnonzero(used)
        hashes = RowCounts(placed, trees, self._rows(adjacency, at)).hash_rows()
        kinds = mix_pairs(hashes, (2 * labels[at] + apart[at]).astype(numpy.uint64))
        _, first, weights = numpy.unique(kinds, return_index=True, return_counts=True)
        at = at[first]
        return Bags(
            matrix=RowCounts(placed, trees, self._rows(adjacency, at)).matrix,
            labels=labels[at],
            apart=apart[at],
            weights=weights.astype(numpy.float64),
        )

    def _fit_global(self, counts: AnyCounts, labels: Labels) -> None:
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

    def count(self, graphs: Sequence[Graph], wanted: Indices | None = None) -> AnyCounts:
        """[rows, predicates] of other graphs: of all of them, or of the wanted rows alone."""
        placed, adjacency = self.vocabulary.find_known(graphs)
        if wanted is None:
            wanted = numpy.arange(adjacency.size if self.settings.of_nodes else len(graphs))
        return self._count_rows(placed, adjacency, wanted)

    def probabilities(self, counts: AnyCounts) -> NDArray[numpy.float64]:
        """[rows, classes]."""
        model = self.forest or self.tree
        counts = _never_empty(counts)
        if not isinstance(counts, numpy.ndarray):
            counts = counts.tocsr()
        found: NDArray[numpy.float64] = model.predict_proba(counts)  # type: ignore[attr-defined]
        return found


def _never_empty(counts: AnyCounts) -> AnyCounts:
    """The counts, or one column of zeros where there is no predicate."""
    return counts if counts.shape[1] else numpy.zeros((counts.shape[0], 1), numpy.float32)
