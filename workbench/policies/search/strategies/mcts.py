"""Monte Carlo tree search over whole kernels, after KernelPro (arXiv 2606.26453, its section on search).

Its parts, and where they are from:

    progressive widening     a node has at most ceil(k N^alpha) children, N its visits (the paper; constants inferred)
    asymmetric branching     nodes that passed have many children, a failed one at most `repair_rounds`, and those are
                             repairs; a repair is no idea, so it does not count as a child when a node is widened
    logarithmic reward       rewards.py (the paper; constants inferred)
    dead ends                a node is pruned after `dead_after` changes that gave no gain; equal code is tried
                             once; what cannot beat the best even at its own speed of light, or at the optimistic end
                             of what is expected of it, is not tried
    memory                   what the tries say of the settings, anywhere in the tree (memory.py; ours)
    priors                   with the memory they decide which child of a node is made next (ours)
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np

from workbench.policies.search.frontier import Option, can_write, options, options_at, pinned_options
from workbench.policies.search.protocols import Action, Expand, Prune, Space, Stop
from workbench.policies.search.strategies.memory import MemorySettings, SearchMemory, Vector
from workbench.policies.search.strategies.walks import NOTHING_LEFT, constants_of, write_more
from workbench.policies.search.tree import ROOT, SearchNode, SearchTree
from workbench.records import record
from workbench.records.base import Scalar


@record
class TreeSearch:
    """UCT with progressive widening. A node's next child is the one with the largest expected improvement over the best
    (Mockus, 1978), by its prior and what the memory learnt of its settings.

    With priors they are the mean from which the memory begins; without, it begins from knowing nothing, and the first
    candidate is at random. A node is worth the best time below it, as in single-player tree search.
    """

    name = "tree"
    exploration: float = 0.05  # UCT's c, for rewards in [-1/4, 1] (inferred)
    widen: float = 2.0  # k (inferred)
    alpha: float = 0.5  # (inferred)
    repair_rounds: int = 2  # as the policy `chain`
    dead_after: int = 8  # (inferred)
    optimism: float = 3.0  # standard deviations to the optimistic end (inferred)
    spread: float = 0.5  # this and the next four: see MemorySettings
    least_spread: float = 0.15
    trust: float = 1.0
    noise: float = 0.02
    failed: float = 0.7
    priors: bool = False

    @property
    def constants(self) -> Mapping[str, Scalar]:
        """All of its settings."""
        return constants_of(self)

    @property
    def memory(self) -> MemorySettings:
        """The constants of its memory."""
        return MemorySettings(**{name: getattr(self, name) for name in MemorySettings.__dataclass_fields__})

    def choose(self, tree: SearchTree, space: Space, numbers: random.Random) -> Action:
        """The next action."""
        round_ = _Round(self, tree, space, numbers)
        return round_.repair() or round_.close() or round_.descend() or round_.anywhere()


class _Round:
    """One choice of a tree search."""

    def __init__(self, settings: TreeSearch, tree: SearchTree, space: Space, numbers: random.Random) -> None:
        self.settings, self.tree, self.space, self.numbers = settings, tree, space, numbers
        self.memory = SearchMemory(tree, space, settings.priors, settings.memory)
        self.hopeless = 0  # candidates that cannot beat the best

    def repair(self) -> Action | None:
        """The next repair of the last try, if it failed and something can repair it."""
        if self.tree.pinned is not None or not self.tree.tried:
            return None
        node = self.tree.nodes[self.tree.tried[-1]]
        rounds = 0
        while node.candidate is not None and node.candidate.kind == "repair" and node.parent:
            node, rounds = self.tree.nodes[node.parent], rounds + 1
        last = self.tree.nodes[self.tree.tried[-1]]
        if not last.failed or rounds >= self.settings.repair_rounds or self.tree.is_closed(last.number):
            return None
        found = options_at(self.tree, self.space, last)
        if found:
            return self._best(found).action("repair")
        return Expand(node=last.number, reason="repair") if can_write(self.space, last) else None

    def close(self) -> Prune | None:
        """A dead end, of the nodes that the last try touched; an open node that cannot beat the best."""
        for number in reversed(self.tree.path(self.tree.tried[-1])[1:] if self.tree.tried else ()):
            node = self.tree.nodes[number]
            if reason := self._why_dead(node):
                return Prune(node=number, reason=reason)
        for node in self.tree.nodes[1:]:
            if node.status == "open" and node.candidate and not node.kept and not self.tree.is_closed(node.number):
                bound = self.space.bound_s(node.candidate)
                if bound is not None and bound >= self.tree.best_s:
                    reason = (
                        f"at its speed of light it takes {bound * 1e6:.4g} µs, the best {self.tree.best_s * 1e6:.4g} µs"
                    )
                    return Prune(node=node.number, reason=reason)
        return None

    def _why_dead(self, node: SearchNode) -> str:
        if node.kept or node.pruned or node.pinned or node is self.tree.best:
            return ""
        tried = [self.tree.nodes[number] for number in node.children if self.tree.nodes[number].result is not None]
        if not node.passed:
            failed = [one for one in tried if not one.passed]
            enough = (
                len(failed) == len(tried) and self._depth_of_repair(node) + len(failed) >= self.settings.repair_rounds
            )
            return f"{len(failed)} repairs failed" if failed and enough else ""
        own = node.result.time_s if node.result is not None and node.result.time_s else math.inf
        if len(tried) < self.settings.dead_after or node.least_s < own:
            return ""
        return f"{len(tried)} changes of it gave no gain"

    def _depth_of_repair(self, node: SearchNode) -> int:
        depth = 0
        while node.candidate is not None and node.candidate.kind == "repair" and node.parent:
            node, depth = self.tree.nodes[node.parent], depth + 1
        return depth

    def descend(self) -> Action | None:
        """From the root to a node that may be widened; its next child."""
        if found := pinned_options(self.tree, self.space):
            return self._best(found).action("pinned")
        node = self.tree.nodes[ROOT]
        while True:
            children = [self.tree.nodes[number] for number in node.children]
            ideas = [child for child in children if child.candidate is not None and child.candidate.kind == "idea"]
            most = math.ceil(self.settings.widen * max(1, node.visits) ** self.settings.alpha)
            below = [child for child in children if self._is_alive(child)]
            if len(ideas) < most or not below or any(child.status == "open" for child in ideas):
                if found := self._hopeful(options_at(self.tree, self.space, node)):
                    return self._best(found).action()
                if can_write(self.space, node) and not node.pruned:
                    return Expand(node=node.number)
            if not below:
                return None
            node = max(below, key=lambda child, above=node: self._score(above, child))  # type: ignore[misc]

    def anywhere(self) -> Action:
        """Any candidate that may win, wherever it stands."""
        found = options(self.tree, self.space)
        if hopeful := self._hopeful(found):
            return self._best(hopeful).action()
        more = write_more(self.tree, self.space)
        if found and isinstance(more, Stop):
            return Stop(reason=f"none of the {len(found)} candidates that are left can beat the best")
        return more if not isinstance(more, Stop) else Stop(reason=NOTHING_LEFT)

    def _is_alive(self, node: SearchNode) -> bool:
        if not node.passed or node.pruned:
            return False
        return can_write(self.space, node) or bool(options_at(self.tree, self.space, node))

    def _score(self, node: SearchNode, child: SearchNode) -> float:
        slower = child.least_s / self.tree.best_s if self.tree.best is not None else 1.0
        worth = max(-1.0, -math.log2(slower)) / self.tree.reward.clip
        return worth + self.settings.exploration * math.sqrt(math.log(max(2, node.visits)) / child.visits)

    def _hopeful(self, found: Sequence[Option]) -> list[Option]:
        """The options that can beat the best."""
        if not found or not self.memory.has_best:
            return list(found)
        mean, deviation = self.memory.predict([one.candidate for one in found])
        may_win = mean + self.settings.optimism * deviation > self.memory.best
        bounds = (self.space.bound_s(one.candidate) for one in found)
        return [
            one
            for one, likely, bound in zip(found, may_win, bounds, strict=True)
            if likely and (bound is None or bound < self.tree.best_s)
        ]

    def _best(self, found: Sequence[Option]) -> Option:
        mean, deviation = self.memory.predict([one.candidate for one in found])
        if self.memory.has_best:
            worth = expected_improvement(mean, deviation, self.memory.best)
        else:
            worth = mean
        best = np.flatnonzero(worth >= worth.max())
        return found[int(self.numbers.choice(list(best)))]


def expected_improvement(mean: Vector, deviation: Vector, best: float) -> Vector:
    """[candidates]: the expected gain over `best` of a normal distribution, where a loss counts 0."""
    z = (mean - best) / deviation
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    cumulative = 0.5 * (1 + np.array([math.erf(value / math.sqrt(2)) for value in z]))
    gain: Vector = deviation * np.maximum(z * cumulative + density, 0.0)
    return gain
