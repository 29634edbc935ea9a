"""The parts of a search: a space of candidates, an evaluator, a strategy and a log. Each can be replaced alone.

A strategy is pure: what it chooses depends on the tree, the space and its random numbers, which come from the seed and
the number of turns. So a search that was killed goes on exactly where it was.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from workbench.policies.search.tree import SearchNode, SearchTree
from workbench.records import record
from workbench.records.base import Scalar
from workbench.records.search import NodeResult, SearchCandidate, SearchEvent

ShouldStop = Callable[[], bool]


@record
class Try:
    """Try a candidate: one that the space knows, with the node that it is a child of, or an open node of the tree."""

    candidate: SearchCandidate | None = None
    parent: int = 0
    node: int | None = None  # of an open node; then `candidate` and `parent` are not used
    reason: str = ""


@record
class Expand:
    """Ask the space's expander for children of a node."""

    node: int
    reason: str = ""


@record
class Prune:
    """Close a node and all below it."""

    node: int
    reason: str


@record
class Stop:
    """Nothing is left to do."""

    reason: str


Action = Try | Expand | Prune | Stop


class Space(Protocol):
    """What can be tried. All methods but `expand` cost nothing and give the same for the same tree."""

    writes: bool  # whether `expand` writes new candidates (a model), so that it may be asked again

    def roots(self) -> Sequence[SearchCandidate]:
        """Candidates that need no parent, the expander's own preference first."""

    def children(self, node: SearchNode, tree: SearchTree) -> Sequence[SearchCandidate]:
        """Candidates made of a node's by one change, the expander's own preference first."""

    def expand(self, node: SearchNode, tree: SearchTree, should_stop: ShouldStop) -> Sequence[SearchCandidate]:
        """New candidates below a node; may cost time and money (a call of a model). () where nothing is left.

        Raises `Stopped` within a second after `should_stop` says so.
        """

    def bound_s(self, candidate: SearchCandidate) -> float | None:
        """The least time that the candidate's code can take, in seconds; None where it is not known."""

    def settings(self, candidate: SearchCandidate) -> Mapping[str, str]:
        """Its settings by name, as text; {} where it is no program."""


class Evaluator(Protocol):
    """Judges candidates."""

    def judge(self, candidate: SearchCandidate, tree: SearchTree, should_stop: ShouldStop) -> NodeResult:
        """What trying it gave. Raises `Stopped` within a second after `should_stop` says so."""


@runtime_checkable
class Strategy(Protocol):
    """Decides what is done next. Plug-ins are found by the entry point `workbench.search_strategies`."""

    name: str

    @property
    def constants(self) -> Mapping[str, Scalar]:
        """Every setting that its choices depend on; kept in the log."""

    def choose(self, tree: SearchTree, space: Space, numbers: random.Random) -> Action:
        """The next action."""


class SearchLog(Protocol):
    """The events of a search, append-only. A person's events may come in from another thread."""

    def events(self, start: int = 0) -> Sequence[SearchEvent]:
        """The events from number `start` on."""

    def append(self, event: SearchEvent) -> SearchEvent:
        """Keep an event under the next number, which replaces its own; returns it as kept."""
