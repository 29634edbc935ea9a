"""Decision trees: the global layer on the counts of predicates, and how many small trees are grown in little time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeClassifier

LEAST_IN_RULE = 3  # rows that a path must hold for; inferred
Labels = NDArray[numpy.int64]
Targets = NDArray[numpy.float64]


class GrownTree(Protocol):
    """What is read of a scikit-learn tree."""

    children_left: Labels
    children_right: Labels
    feature: Labels
    threshold: Targets
    value: Targets

    def apply(self, rows: NDArray[numpy.float32]) -> Labels: ...


def grow_global_tree(counts: object, labels: Labels, seed: int) -> DecisionTreeClassifier:
    """A tree on counts, [rows, predicates], sparse or not."""
    from sklearn import config_context
    from sklearn.tree import DecisionTreeClassifier

    with config_context(skip_parameter_validation=True, assume_finite=True):
        return DecisionTreeClassifier(random_state=seed, min_samples_leaf=LEAST_IN_RULE).fit(counts, labels)


def grow_tree(
    rows: NDArray[numpy.float32],
    targets: Targets,
    *,
    least: int,
    seed: int,
    most: int | None = None,
    weights: Targets | None = None,
) -> GrownTree:
    """A tree with at least so many rows in each leaf, and at most `most` leaves. `targets` is [rows, classes]: 1 at the
    row's class, else 0. `weights`: how many rows each row stands for.

    It splits as a tree of classes does, because the variance of such targets is Gini's impurity; but scikit-learn
    looks at targets that are numbers no further, which takes longer than a small tree.
    """
    from sklearn import config_context
    from sklearn.tree import DecisionTreeRegressor

    given = numpy.ascontiguousarray(rows, dtype=numpy.float32)
    share = 0.0 if weights is None else (least - 0.25) / float(weights.sum())  # weights are whole numbers
    with config_context(skip_parameter_validation=True, assume_finite=True):
        grown = DecisionTreeRegressor(
            min_samples_leaf=least if weights is None else 1,
            min_weight_fraction_leaf=share,
            max_leaf_nodes=most,
            random_state=seed,
        )
        grown.fit(given, targets, weights, check_input=bool(numpy.isnan(given).any()))
    tree: GrownTree = grown.tree_
    return tree


def one_hot(labels: Labels, classes: int) -> Targets:
    """[rows, classes]: 1 at each row's class."""
    found = numpy.zeros((len(labels), classes))
    found[numpy.arange(len(labels)), labels] = 1
    return found
