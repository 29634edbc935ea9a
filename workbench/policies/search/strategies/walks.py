"""Searches that keep no model: random, greedy, hill climbing with restarts, simulated annealing.

With `priors=True` each chooses by its own rule among what the priors say is best; its text says how.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping, Sequence

from workbench.policies.search.frontier import Option, can_write, options, options_at, pinned_options
from workbench.policies.search.protocols import Action, Expand, Space, Stop
from workbench.policies.search.tree import ROOT, SearchNode, SearchTree
from workbench.records import record
from workbench.records.base import Scalar

NOTHING_LEFT = "every candidate was tried"


@record
class RandomSearch:
    """A candidate at random. With priors: the one with the best prior, of those that have one, then at random."""

    name = "random"
    priors: bool = False

    @property
    def constants(self) -> Mapping[str, Scalar]:
        """All of its settings."""
        return constants_of(self)

    def choose(self, tree: SearchTree, space: Space, numbers: random.Random) -> Action:
        """The next action."""
        return pick(options(tree, space), self.priors, numbers) or write_more(tree, space)


@record
class GreedySearch:
    """A change of the best so far; of the next best once nothing is left of it. The first candidate is at random.

    With priors: the first candidate and each change are those with the best prior.
    """

    name = "greedy"
    priors: bool = False

    @property
    def constants(self) -> Mapping[str, Scalar]:
        """All of its settings."""
        return constants_of(self)

    def choose(self, tree: SearchTree, space: Space, numbers: random.Random) -> Action:
        """The next action."""
        if found := pinned_options(tree, space):
            return take(found, self.priors, numbers)
        for node in by_time(tree):
            if chosen := pick(options_at(tree, space, node), self.priors, numbers):
                return chosen
        return pick(options(tree, space), self.priors, numbers) or write_more(tree, space)


@record
class HillClimb:
    """A change of the fastest of the current climb, at random; the first one that is faster is the next to change.

    A climb ends after `patience` changes without a gain, and another one begins at a random candidate. With priors:
    climbs begin at the candidate with the best prior, and changes are taken in the order of their priors.
    """

    name = "hill-climb"
    patience: int = 10  # inferred
    priors: bool = False

    @property
    def constants(self) -> Mapping[str, Scalar]:
        """All of its settings."""
        return constants_of(self)

    def choose(self, tree: SearchTree, space: Space, numbers: random.Random) -> Action:
        """The next action."""
        if found := pinned_options(tree, space):
            return take(found, self.priors, numbers)
        here = self._current(tree)
        if here is not None and (chosen := pick(options_at(tree, space, here), self.priors, numbers)):
            return chosen
        fresh = options_at(tree, space, tree.nodes[ROOT]) or options(tree, space)
        return pick(fresh, self.priors, numbers) or write_more(tree, space)

    def _current(self, tree: SearchTree) -> SearchNode | None:
        """The fastest of the last climb, while the climb goes on."""
        climb = [number for number in tree.tried if tree.path(number)[1] == tree.path(tree.tried[-1])[1]]
        passed = [tree.nodes[number] for number in climb if tree.nodes[number].passed]
        if not passed:
            return None
        here = min(passed, key=_time_s)
        is_over = len(climb) - 1 - climb.index(here.number) >= self.patience or tree.is_closed(here.number)
        return None if is_over else here


@record
class Annealing:
    """Simulated annealing (Kirkpatrick et al., 1983): a random change of the current candidate becomes the current one
    with probability exp(-log(its time / the current time) / temperature). The temperature is multiplied by `cooling`
    with each try.

    The parent of the last try is the current candidate, so the state is in the tree. With priors: it begins at the
    candidate with the best prior, and a change is drawn with a weight of exp(prior / `prior_scale`).
    """

    name = "annealing"
    temperature: float = 0.3  # inferred: at first a change that is 1.35 times slower is taken with 1 / e
    cooling: float = 0.95  # inferred
    prior_scale: float = 0.1  # inferred
    priors: bool = False

    @property
    def constants(self) -> Mapping[str, Scalar]:
        """All of its settings."""
        return constants_of(self)

    def choose(self, tree: SearchTree, space: Space, numbers: random.Random) -> Action:
        """The next action."""
        if found := pinned_options(tree, space):
            return take(found, self.priors, numbers)
        here = self._current(tree, numbers)
        if here is not None:
            found = options_at(tree, space, here)
            if found and self.priors:
                best = max(map(prior_of, found))
                weights = [math.exp(max(-50.0, (prior_of(one) - best) / self.prior_scale)) for one in found]
                return numbers.choices(found, weights)[0].action()
            if chosen := pick(found, False, numbers):
                return chosen
        return pick(options(tree, space), self.priors, numbers) or write_more(tree, space)

    def _current(self, tree: SearchTree, numbers: random.Random) -> SearchNode | None:
        """The candidate that is changed next; None to begin anew."""
        if not tree.tried:
            return None
        last = tree.nodes[tree.tried[-1]]
        before = tree.nodes[last.parent] if last.parent else None
        if before is not None and (not before.passed or tree.is_closed(before.number)):
            before = None
        if not last.passed or tree.is_closed(last.number):
            return before
        if before is None:
            return last
        worse = math.log(_time_s(last) / _time_s(before))
        heat = self.temperature * self.cooling ** len(tree.tried)
        return last if worse <= 0 or numbers.random() < math.exp(-worse / max(heat, 1e-9)) else before


def constants_of(strategy: object) -> Mapping[str, Scalar]:
    """The fields of a strategy."""
    return dataclasses.asdict(strategy)  # type: ignore[call-overload, no-any-return]


def prior_of(option: Option) -> float:
    """The expected logarithm of the speed-up; below all others where nothing is known."""
    return option.candidate.prior.log_speedup if option.candidate.prior is not None else -1e9


def take(found: Sequence[Option], priors: bool, numbers: random.Random) -> Action:
    """`pick` of at least one option."""
    best = max(map(prior_of, found)) if priors else 0.0
    return numbers.choice([one for one in found if not priors or prior_of(one) == best]).action()


def pick(found: Sequence[Option], priors: bool, numbers: random.Random) -> Action | None:
    """The option with the best prior, or a random one; None of none. Equal priors are decided at random."""
    return take(found, priors, numbers) if found else None


def write_more(tree: SearchTree, space: Space) -> Action:
    """Ask the expander where no candidate is left: at the best node, then at the others; else stop."""
    nodes = [*by_time(tree), *(node for node in tree.nodes if not node.passed)]
    for node in nodes:
        if can_write(space, node) and not tree.is_closed(node.number) and (node.number == ROOT or node.result):
            return Expand(node=node.number, reason="no candidate is left")
    return Stop(reason=NOTHING_LEFT)


def by_time(tree: SearchTree) -> list[SearchNode]:
    """The nodes that passed and are not closed, fastest first."""
    passed = [tree.nodes[number] for number in tree.tried if tree.nodes[number].passed]
    return sorted((node for node in passed if not tree.is_closed(node.number)), key=_time_s)


def _time_s(node: SearchNode) -> float:
    return node.result.time_s if node.result is not None and node.result.time_s else math.inf
