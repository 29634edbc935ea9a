"""Master trees: one decision tree for each structure, grown once and cut at any number of leaves without a new fit.

scikit-learn grows a tree of limited leaves best first: each step splits the leaf whose split helps most, and numbers
its two children next. So the tree of q leaves is what the first q - 1 steps made: the nodes below number 2 q - 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from workbench.structure.features import Matrix
from workbench.structure.global_tree import GrownTree, grow_tree, one_hot

Leaves = NDArray[numpy.int64]

LEAST_IN_LEAF = 5


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A test of one feature: at most, or over, a threshold."""

    feature: int
    threshold: float
    over: bool


class MasterTree:
    """A tree on the features of one structure's nodes, and its cuts."""

    def __init__(self, features: Matrix, labels: NDArray[numpy.int64], most_leaves: int, seed: int) -> None:
        """Grows the tree. `features` is [n, Z], `labels` is [n]; at least five nodes are in each leaf."""
        self._children = numpy.full((1, 2), -1)
        self._parents = numpy.full(1, -1)
        self._tree: GrownTree | None = None
        enough = most_leaves > 1 and len(labels) >= 2 * LEAST_IN_LEAF and features.shape[1] > 0
        if enough and (labels != labels[0]).any() and _differ(features):
            targets = one_hot(labels, int(labels.max()) + 1)
            targets = targets[:, targets.any(axis=0)]
            self._tree = grow_tree(
                features.astype(numpy.float32), targets, least=LEAST_IN_LEAF, most=most_leaves, seed=seed
            )
            self._children = numpy.stack([self._tree.children_left, self._tree.children_right], axis=1)
            self._parents = numpy.full(len(self._children), -1)
            inner = self._children[:, 0] >= 0
            self._parents[self._children[inner]] = numpy.flatnonzero(inner)[:, None]

    @property
    def size(self) -> int:
        """How many nodes the whole tree has."""
        return len(self._children)

    @property
    def leaves(self) -> int:
        """How many leaves the whole tree has."""
        return (len(self._children) + 1) // 2

    def apply(self, features: Matrix) -> Leaves:
        """[n]: the leaf of the whole tree that each row of features falls into."""
        if self._tree is None:
            return numpy.zeros(len(features), numpy.int64)
        found: Leaves = self._tree.apply(features.astype(numpy.float32)).astype(numpy.int64)
        return found

    def cut(self, leaves: int) -> Leaves:
        """[nodes of the whole tree]: the leaf of the tree cut at so many leaves that each node lies in."""
        bound = max(1, 2 * leaves - 1)
        found = numpy.arange(len(self._parents))
        for node in range(len(found)):  # a parent's number is smaller than its children's
            if node >= bound:
                found[node] = found[self._parents[node]]
        return found

    def leaves_of_cut(self, leaves: int) -> Leaves:
        """The numbers of the leaves of the tree cut at so many leaves, in ascending order."""
        bound = max(1, 2 * leaves - 1)
        inner = self._children[:, 0]
        return numpy.array([node for node in range(min(bound, len(inner))) if inner[node] < 0 or inner[node] >= bound])

    def path(self, leaf: int) -> tuple[Condition, ...]:
        """The conditions on the way to a node, from the root."""
        found: list[Condition] = []
        while self._tree is not None and self._parents[leaf] >= 0:
            parent = int(self._parents[leaf])
            found.append(
                Condition(
                    feature=int(self._tree.feature[parent]),
                    threshold=float(self._tree.threshold[parent]),
                    over=bool(self._children[parent, 1] == leaf),
                )
            )
            leaf = parent
        return tuple(reversed(found))


def _differ(features: Matrix) -> bool:
    """Whether any two rows differ."""
    first = features[0]
    return bool(((features != first) & ~(numpy.isnan(features) & numpy.isnan(first))).any())
