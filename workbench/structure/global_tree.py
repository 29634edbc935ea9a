"""The global layer: one decision tree on the counts of predicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeClassifier

LEAST_IN_RULE = 3  # rows that a path must hold for; inferred


def grow_global_tree(counts: NDArray[numpy.float32], labels: NDArray[numpy.int64], seed: int) -> DecisionTreeClassifier:
    """A tree on counts, [rows, predicates]."""
    from sklearn import config_context
    from sklearn.tree import DecisionTreeClassifier

    with config_context(skip_parameter_validation=True, assume_finite=True):
        return DecisionTreeClassifier(random_state=seed, min_samples_leaf=LEAST_IN_RULE).fit(counts, labels)
