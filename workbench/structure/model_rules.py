"""Rules of a fitted model: its global tree's paths, with the structures of their predicates described and drawn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy
from numpy.typing import NDArray

from workbench.structure.graph import Graph
from workbench.structure.hashing.adjacency import join_graphs
from workbench.structure.hashing.egos import Egos, RefinedEgos, ego_graphs
from workbench.structure.hashing.structures import StructureHasher
from workbench.structure.rules import Literal, Path, Pattern, Rule, TreeNode, find_paths, order_rules, satisfies
from workbench.structure.symbolic_model import SymbolicModel
from workbench.structure.vocabulary import AnyCounts, Predicate

EXAMPLES = 5  # rows that a rule names


class RuleReader:
    """Puts a fitted model's tree into words."""

    def __init__(self, model: SymbolicModel, classes: Sequence[object], graphs: Sequence[Graph]) -> None:
        """`graphs` are those that the model was fitted on."""
        self._model, self._classes, self._graphs = model, classes, graphs
        self._adjacency = join_graphs(
            graphs, model.settings.features.node_identity, model.settings.features.edge_identity
        )
        self._patterns: dict[Predicate, Pattern] = {}

    def rules(self, counts: AnyCounts, labels: NDArray[numpy.int64]) -> tuple[Rule, ...]:
        """The rules, those that explain most rows first. `counts` and `labels` are of the rows learnt from."""
        paths = find_paths(self._model.tree.tree_)  # type: ignore[attr-defined]
        return order_rules([self._rule(path, counts, labels) for path in paths])

    def _rule(self, path: Path, counts: AnyCounts, labels: NDArray[numpy.int64]) -> Rule:
        held = satisfies(path, counts)
        inside = labels[held]
        label = int(numpy.bincount(inside, minlength=len(self._classes)).argmax())
        literals = [
            *(self._literal(column, least, False) for column, least in path.reached),
            *(self._literal(column, least, True) for column, least in path.missed),
        ]
        return Rule(
            label=str(self._classes[label]),
            literals=tuple(literals),
            support=len(inside),
            confidence=float((inside == label).mean()) if len(inside) else 0.0,
            examples=tuple(numpy.flatnonzero(held)[:EXAMPLES].tolist()),
        )

    def _literal(self, column: int, least: int, negated: bool) -> Literal:
        meaning = self._model.columns[column]
        return Literal(pattern=self.pattern(meaning.predicate), least=least, negated=negated, where=meaning.where)

    def pattern(self, predicate: Predicate) -> Pattern:
        """A predicate in words, with the ego graph of one node that satisfies its structure."""
        if predicate not in self._patterns:
            known = self._model.vocabulary.structures[predicate.structure]
            egos = ego_graphs(self._adjacency, numpy.array([known.example]), known.radius)
            tree = self._model.vocabulary.trees[predicate.structure]
            conditions = [
                self._model.vocabulary.describe_feature(predicate.structure, one) for one in tree.path(predicate.leaf)
            ]
            self._patterns[predicate] = self._draw(egos, known.radius, describe_ego(egos, known.radius), conditions)
        return self._patterns[predicate]

    def _draw(self, egos: Egos, radius: int, text: str, conditions: Iterable[str]) -> Pattern:
        order = numpy.argsort(egos.distances, kind="stable")
        place = numpy.argsort(order)
        graph = int(self._adjacency.graph_of[egos.anchors[0]])
        first = int(self._adjacency.graph_starts[graph])
        sources, targets = place[egos.sources], place[egos.targets]
        roles = next(StructureHasher(radius).roles(RefinedEgos(self._adjacency, radius), egos.anchors))
        keys = roles.keys[order]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys.tolist()))}
        return Pattern(
            text=" where ".join([text, *([" and ".join(conditions)] if conditions else [])]),
            radius=radius,
            graph=graph,
            nodes=tuple((egos.nodes[order] - first).tolist()),
            edges=tuple(sorted((int(a), int(b)) for a, b in zip(sources, targets, strict=True) if a < b)),
            orbits=tuple(numbers[key] for key in keys.tolist()),
        )

    def draw_tree(self) -> TreeNode:
        """The global tree in words."""
        tree = self._model.tree.tree_  # type: ignore[attr-defined]

        def build(node: int) -> TreeNode:
            support = int(tree.n_node_samples[node])
            if tree.children_left[node] < 0:
                return TreeNode(text=str(self._classes[int(tree.value[node][0].argmax())]), support=support)
            least = int(numpy.floor(tree.threshold[node])) + 1
            literal = self._literal(int(tree.feature[node]), least, False)
            return TreeNode(
                text=str(literal),
                support=support,
                yes=build(int(tree.children_right[node])),
                no=build(int(tree.children_left[node])),
            )

        return build(0)


def describe_ego(egos: Egos, radius: int) -> str:
    """A single ego graph in words: "in a ring of 5, with 3 neighbours (6 nodes and 6 edges within 2 hops)"."""
    near = int(numpy.diff(egos.edge_starts)[egos.distances == 0][0])
    nodes, edges = len(egos.nodes), len(egos.targets) // 2
    ring = shortest_ring(egos)
    hops = f"{radius} hop{'s' if radius != 1 else ''}"
    place = f"in a ring of {ring}, with" if ring else "with"
    return f"{place} {near} neighbour{'s' if near != 1 else ''} ({nodes} nodes, {edges} edges within {hops})"


def shortest_ring(egos: Egos) -> int:
    """The length of the shortest cycle through the anchor of a single ego graph; 0 if there is none."""
    anchor = int(numpy.flatnonzero(egos.distances == 0)[0])
    branch = {anchor: anchor}
    depth = {anchor: 0}
    queue = deque([anchor])
    best = 0
    while queue:
        node = queue.popleft()
        for other in egos.targets[egos.edge_starts[node] : egos.edge_starts[node + 1]].tolist():
            if other not in depth:
                depth[other] = depth[node] + 1
                branch[other] = other if node == anchor else branch[node]
                queue.append(other)
            elif node != anchor and other != anchor and branch[node] != branch[other]:
                length = depth[node] + depth[other] + 1
                best = length if not best else min(best, length)
    return best
