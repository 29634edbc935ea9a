"""Ranks programs by rules that were learnt on the landscapes of other problems.

Each stage of a program is an anchor. Its symbolic features are the attributes of its node (see `program_graphs`); one
master tree is grown on them, with the rank of the program's row as what it says. The rank of a program is the mean of
its stages'.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy
from numpy.typing import NDArray

from workbench.structure.extras import require
from workbench.structure.features import Encoder, Matrix
from workbench.structure.hashing.adjacency import join_graphs
from workbench.structure.kernels.landscape_rows import RankedRow, stage_graphs

LEAVES = 100
LEAST_ROWS = 20
ABSENT = -1.0  # of a number that a stage does not have: below all that occur


class ProgramRanker:
    """Ranks of programs; fitted on rows of landscapes."""

    def __init__(self, trees: int = 0, seed: int = 0) -> None:
        """`trees`: of a forest, which ranks better; 0 is one tree, whose paths are rules."""
        require("sklearn")
        self._trees, self._seed = trees, seed
        self.encoder = Encoder(degrees=False)

    def fit(self, rows: Sequence[RankedRow]) -> ProgramRanker:
        """Learns from rows of several landscapes."""
        from sklearn.ensemble import ExtraTreesRegressor
        from sklearn.tree import DecisionTreeRegressor

        graph, owners = stage_graphs(rows)
        self.encoder.fit([graph])
        ranks = numpy.array([one.rank for one in rows])[owners]
        if self._trees:
            self.model = ExtraTreesRegressor(self._trees, min_samples_leaf=5, random_state=self._seed)
        else:
            self.model = DecisionTreeRegressor(
                max_leaf_nodes=LEAVES, min_samples_leaf=LEAST_ROWS, random_state=self._seed
            )
        self.model.fit(self._encode(rows)[0], ranks)
        return self

    def predict(self, rows: Sequence[RankedRow]) -> NDArray[numpy.float64]:
        """[rows]: the predicted rank of each."""
        features, owners = self._encode(rows)
        sums = numpy.bincount(owners, self.model.predict(features), len(rows))
        found: NDArray[numpy.float64] = sums / numpy.bincount(owners, minlength=len(rows))
        return found

    def predict_each(self, rows: Sequence[RankedRow]) -> NDArray[numpy.float64]:
        """[trees, rows]: what each tree of the forest predicts. Their spread is a part of the error."""
        features, owners = self._encode(rows)
        counts = numpy.bincount(owners, minlength=len(rows))
        trees = self.model.estimators_ if self._trees else [self.model]
        return numpy.array([numpy.bincount(owners, tree.predict(features), len(rows)) / counts for tree in trees])

    def _encode(self, rows: Sequence[RankedRow]) -> tuple[Matrix, NDArray[numpy.int64]]:
        graph, owners = stage_graphs(rows)
        return numpy.nan_to_num(self.encoder.encode([graph], join_graphs([graph])), nan=ABSENT), owners
