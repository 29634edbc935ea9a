"""Rules: the paths of the global tree, in words, with their support, their confidence and examples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
from numpy.typing import NDArray

from workbench.records import record
from workbench.structure.vocabulary import AnyCounts


@record
class Pattern:
    """A predicate in words, and the shape of the structure: of one node that satisfies it.

    `edges` are pairs of positions in `nodes`, `nodes` are numbers in graph `graph`, the anchor first; `orbits` gives
    the orbit of each node.
    """

    text: str
    radius: int
    graph: int
    nodes: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    orbits: tuple[int, ...]


@record
class Literal:
    """At least `least` nodes satisfy the pattern; negated: fewer do. `where` says which nodes are counted."""

    pattern: Pattern
    least: int
    negated: bool = False
    where: str = ""

    def __str__(self) -> str:
        many = self.least > 1
        if self.negated:
            count = f"fewer than {self.least} nodes" if many else "no node"
        else:
            count = f"at least {self.least} node{'s' if many else ''}"
        if self.where == "itself":
            return f"it {'is not' if self.negated else 'is'} {self.pattern.text}"
        return f"{count}{' ' + self.where if self.where else ''} {'are' if many else 'is'} {self.pattern.text}"


@record
class Rule:
    """All literals hold: the label is `label`, with this confidence.

    `support` rows (graphs, or nodes in a task on nodes) of those learnt from satisfy it, among them the `examples`.
    `confidence` is the share of them that have the label.
    """

    label: str
    literals: tuple[Literal, ...]
    support: int
    confidence: float
    examples: tuple[int, ...]

    def __str__(self) -> str:
        what = " and ".join(map(str, self.literals)) or "always"
        return f"{self.label} if {what} (support {self.support}, confidence {self.confidence:.1%})"


@record
class TreeNode:
    """A node of the global tree, for drawing: a test with two branches (`yes` where it holds), or a label."""

    text: str
    support: int
    yes: TreeNode | None = None
    no: TreeNode | None = None


@record
class Path:
    """A leaf of the global tree as bounds on columns of counts: (column, least) of those reached, and of those not."""

    leaf: int
    reached: tuple[tuple[int, int], ...]
    missed: tuple[tuple[int, int], ...]


def find_paths(tree: object) -> tuple[Path, ...]:
    """The leaves of a scikit-learn tree (its `tree_`) on counts; of several bounds of a column the tightest stays."""
    left, right = tree.children_left, tree.children_right  # type: ignore[attr-defined]
    columns, thresholds = tree.feature, tree.threshold  # type: ignore[attr-defined]
    found: list[Path] = []

    def walk(node: int, reached: dict[int, int], missed: dict[int, int]) -> None:
        if left[node] < 0:
            found.append(Path(leaf=node, reached=tuple(reached.items()), missed=tuple(missed.items())))
            return
        column, least = int(columns[node]), int(numpy.floor(thresholds[node])) + 1
        walk(int(left[node]), reached, {**missed, column: min(least, missed.get(column, least))})
        walk(int(right[node]), {**reached, column: max(least, reached.get(column, least))}, missed)

    walk(0, {}, {})
    return tuple(found)


def satisfies(path: Path, counts: AnyCounts) -> NDArray[numpy.bool_]:
    """[rows]: whether each row of counts is in the path's leaf."""

    def values(column: int) -> NDArray[numpy.float32]:
        if isinstance(counts, numpy.ndarray):
            return counts[:, column]
        found: NDArray[numpy.float32] = counts[:, [column]].toarray()[:, 0]
        return found

    held = numpy.ones(counts.shape[0], bool)
    for column, least in path.reached:
        held &= values(column) >= least
    for column, least in path.missed:
        held &= values(column) < least
    return held


def order_rules(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Rules that explain most first: by the number of rows that they get right."""
    return tuple(sorted(rules, key=lambda rule: (-rule.support * rule.confidence, str(rule))))
