"""The tree of a search: a pure function of the events of its log.

Node 0 is the problem. Every other node is a candidate. `SearchTree.replay(events)` builds the tree, `apply` adds one
event. Nothing else changes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from workbench.errors import WorkbenchError
from workbench.records.search import (
    NORMAL_90,
    NodeResult,
    Reward,
    SearchAuthor,
    SearchBudget,
    SearchCandidate,
    SearchEvent,
    SearchSetup,
)

NodeStatus = Literal["root", "open", "passed", "failed", "screened", "pruned"]
ROOT = 0


@dataclass(slots=True, eq=False)
class SearchNode:
    """A candidate in the tree. Only `SearchTree.apply` changes it."""

    number: int
    parent: int | None
    candidate: SearchCandidate | None = None  # None: the root
    by: SearchAuthor = "strategy"
    children: list[int] = field(default_factory=list)
    result: NodeResult | None = None
    pruned: str = ""  # why
    pinned: bool = False
    asked: int = 0  # how often the expander was asked for children
    exhausted: bool = False  # the expander had none
    made: list[int] = field(default_factory=list)  # nodes that the expander made of it, also those that were there
    kept: bool = False  # a person revived it, so that no strategy prunes it again
    taken: bool = False
    visits: int = 0  # tries in its subtree, its own among them; without those that were screened out
    total: float = 0.0  # of their rewards
    squares: float = 0.0
    least_s: float = math.inf  # least time in its subtree, in seconds

    @property
    def is_given(self) -> bool:
        """Whether it was there before the search, which spent no trial on it."""
        return self.by == "engine"

    @property
    def passed(self) -> bool:
        """Whether it was tried and is correct; not of one that was screened out."""
        return self.result is not None and self.result.outcome == "passed" and not self.result.screened

    @property
    def failed(self) -> bool:
        """Whether it was tried and is wrong, or does not compile."""
        return self.result is not None and self.result.outcome != "passed"

    @property
    def status(self) -> NodeStatus:
        """open: not tried yet; screened: judged without a GPU and not sent there."""
        if self.number == ROOT:
            return "root"
        if self.pruned:
            return "pruned"
        if self.result is None:
            return "open"
        return "failed" if self.failed else "passed" if self.passed else "screened"

    @property
    def value(self) -> float | None:
        """The mean reward of its subtree; None before the first try."""
        return self.total / self.visits if self.visits else None

    @property
    def value_interval(self) -> tuple[float, float] | None:
        """The interval of 90 % of the mean reward, by a normal distribution; None with fewer than two tries."""
        if self.visits < 2:
            return None
        mean = self.total / self.visits
        spread = max(0.0, self.squares / self.visits - mean * mean) * self.visits / (self.visits - 1)
        half = NORMAL_90 * math.sqrt(spread / self.visits)
        return mean - half, mean + half


class SearchTree:
    """Nodes, the best so far, what was spent, and the budget that holds."""

    def __init__(self) -> None:
        self.reward = Reward()
        self.nodes: list[SearchNode] = [SearchNode(number=ROOT, parent=None)]
        self.setup: SearchSetup | None = None
        self.budget = SearchBudget()
        self.best: SearchNode | None = None  # the fastest that passed, or by the setup's aim
        self.reference_s: float | None = None  # time of the first that passed: rewards are relative to it
        self.tried: list[int] = []  # nodes in the order of the tries
        self.keys: dict[str, int] = {}  # key of the code -> node
        self.pins: list[int] = []  # pinned nodes, the last one first served
        self.pending: int | None = None  # added by the strategy and not tried yet
        self.events = 0
        self.turns = 0  # events by the strategy and the expander: what its random numbers depend on
        self.trials = 0  # results that were neither screened out nor given
        self.screened = 0
        self.seconds = 0.0
        self.tokens = 0
        self.usd = 0.0
        self.joules = 0.0
        self.stopped = ""  # why, where the last event says so

    @classmethod
    def replay(cls, events: Iterable[SearchEvent]) -> SearchTree:
        """The tree after the events, which are all of a log from its first on."""
        tree = cls()
        for event in events:
            tree.apply(event)
        return tree

    def __len__(self) -> int:
        return len(self.nodes)

    def node(self, number: int | None) -> SearchNode:
        """The node with this number. Raises `WorkbenchError` if there is none."""
        if number is None or not 0 <= number < len(self.nodes):
            raise WorkbenchError(f"the search has no node {number}; it has 0 to {len(self.nodes) - 1}")
        return self.nodes[number]

    @property
    def pinned(self) -> SearchNode | None:
        """The node that is expanded next because a person pinned it."""
        return self.nodes[self.pins[-1]] if self.pins else None

    @property
    def best_s(self) -> float:
        """The time of the best node in seconds, infinite before the first correct one."""
        return _time_s(self.best)

    @property
    def screened_in_a_row(self) -> int:
        """How many of the last tries cost no trial because they were screened out."""
        found = 0
        for number in reversed(self.tried):
            if self.nodes[number].status != "screened":
                break
            found += 1
        return found

    @property
    def unverified(self) -> SearchNode | None:
        """The fastest node by a quick trial that may be faster than the best; None if there is none."""
        found = [node for node in self.walk() if node.passed and node.result is not None and node.result.quick]
        fastest = min(found, key=_time_s, default=None)
        return fastest if _time_s(fastest) < self.best_s else None

    def path(self, number: int) -> tuple[int, ...]:
        """The numbers from the root to a node."""
        found = [number]
        while (parent := self.nodes[found[-1]].parent) is not None:
            found.append(parent)
        return tuple(reversed(found))

    def is_closed(self, number: int) -> bool:
        """Whether the node or one above it is pruned."""
        return any(self.nodes[at].pruned for at in self.path(number))

    def walk(self) -> tuple[SearchNode, ...]:
        """The tried nodes in the order of the tries, without those that were screened out."""
        nodes = (self.nodes[number] for number in self.tried)
        return tuple(node for node in nodes if node.result is not None and not node.result.screened)

    def apply(self, event: SearchEvent) -> None:
        """Add one event. Raises `WorkbenchError` if it does not fit to those before."""
        if event.number != self.events:
            raise WorkbenchError(f"the log of the search is damaged: event {event.number} follows {self.events} others")
        self.stopped = ""
        getattr(self, f"_on_{event.kind}")(event)
        self.events += 1
        self.turns += event.by in ("strategy", "expander") and event.kind not in ("started", "stopped", "budget")

    def _on_started(self, event: SearchEvent) -> None:
        self.setup = event.setup
        self.budget = event.budget or SearchBudget()
        self.reward = event.setup.reward if event.setup is not None else Reward()

    def _on_added(self, event: SearchEvent) -> None:
        number = self._add(event, event.candidates[0])
        if event.by == "strategy" and self.nodes[number].result is None and not self.is_closed(number):
            self.pending = number

    def _on_idea(self, event: SearchEvent) -> None:
        self._add(event, event.candidates[0])

    def _on_opened(self, event: SearchEvent) -> None:
        node = self.node(event.node)
        node.asked += 1
        new = [one for one in event.candidates if one.key not in self.keys]
        node.exhausted = not new
        node.made += [self._add(event, candidate, node.number) for candidate in event.candidates]

    def _add(self, event: SearchEvent, candidate: SearchCandidate, parent: int | None = None) -> int:
        """The number of the candidate's node: a new one, or the one that has the same code."""
        above = self.node(event.parent if parent is None else parent)
        if candidate.key in self.keys:
            return self.keys[candidate.key]
        number = len(self.nodes)
        self.nodes.append(SearchNode(number=number, parent=above.number, candidate=candidate, by=event.by))
        above.children.append(number)
        self.keys[candidate.key] = number
        return number

    def _on_tried(self, event: SearchEvent) -> None:
        node, result = self.node(event.node), event.result
        if result is None or node.result is not None:
            raise WorkbenchError(
                f"the log of the search is damaged: event {event.number} tries node {node.number} again"
            )
        node.result = result
        self.pending = None if self.pending == node.number else self.pending
        self.tried.append(node.number)
        self._spend(result, is_trial=not (node.is_given or result.screened))
        if not result.screened:
            self._count(node, result)

    def _on_verified(self, event: SearchEvent) -> None:
        """The whole verdict of a quick trial. It is no trial, and the rewards stay those of the quick one."""
        node, result = self.node(event.node), event.result
        if result is None or node.result is None or not node.result.quick:
            raise WorkbenchError(f"the log of the search is damaged: event {event.number} verifies node {node.number}")
        node.result = result
        self._spend(result, is_trial=False)
        if node.passed and self._is_better(node):
            self.best = node

    def _count(self, node: SearchNode, result: NodeResult) -> None:
        """Add a result to the visits and rewards of the nodes above it; it may be the best."""
        if node.passed and self.reference_s is None:
            self.reference_s = result.time_s
        reward = self.reward.of(result, self.reference_s)
        for at in self.path(node.number):
            above = self.nodes[at]
            above.visits += 1
            above.total += reward
            above.squares += reward * reward
            if node.passed:
                above.least_s = min(above.least_s, result.time_s or math.inf)
        if node.passed and self._is_better(node):
            self.best = node

    def _spend(self, result: NodeResult, is_trial: bool) -> None:
        self.trials += is_trial
        self.screened += result.screened
        self.seconds += result.seconds
        self.tokens += result.tokens
        self.usd += result.usd
        self.joules += result.spent_joules

    def _is_better(self, node: SearchNode) -> bool:
        """By the aim: less time; or fewer joules at a time not worse than the least by more than its interval."""
        if self.setup is None or self.setup.aim == "time":
            return node.result is not None and not node.result.quick and _time_s(node) < self.best_s
        passed = [one for one in self.walk() if one.passed]
        fastest = min(passed, key=_time_s)
        assert fastest.result is not None
        most = max(_time_s(fastest), fastest.result.high_s or 0.0)
        close = [
            one for one in passed if _low_s(one) <= most and one.result is not None and one.result.joules is not None
        ]
        chosen = min(close, key=_joules, default=fastest)
        if chosen is not node and chosen is not self.best:
            self.best = chosen
            return False
        return chosen is node

    def _on_pruned(self, event: SearchEvent) -> None:
        self.node(event.node).pruned = event.reason or "pruned"
        if self.pending is not None and self.is_closed(self.pending):
            self.pending = None

    def _on_revived(self, event: SearchEvent) -> None:
        node = self.node(event.node)
        node.pruned, node.kept = "", event.by == "person"

    def _on_pinned(self, event: SearchEvent) -> None:
        node = self.node(event.node)
        node.pinned = True
        self.pins = [*(number for number in self.pins if number != node.number), node.number]

    def _on_unpinned(self, event: SearchEvent) -> None:
        node = self.node(event.node)
        node.pinned = False
        self.pins = [number for number in self.pins if number != node.number]

    def _on_taken(self, event: SearchEvent) -> None:
        self.node(event.node).taken = True

    def _on_budget(self, event: SearchEvent) -> None:
        self.budget = event.budget or SearchBudget()

    def _on_stopped(self, event: SearchEvent) -> None:
        self.stopped = event.reason or "stopped"


def _time_s(node: SearchNode | None) -> float:
    return node.result.time_s if node is not None and node.result is not None and node.result.time_s else math.inf


def _low_s(node: SearchNode) -> float:
    return (node.result.low_s if node.result is not None else None) or _time_s(node)


def _joules(node: SearchNode) -> float:
    joules = node.result.joules if node.result is not None else None
    return math.inf if joules is None else joules
