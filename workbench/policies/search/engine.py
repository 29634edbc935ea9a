"""The loop of every search: choose, do, write the event.

    tree = run_search(space, evaluator, strategy, MemoryLog(), seed=0, budget=SearchBudget(trials=20))

The log is the whole state. Called again with a log that has events, the search goes on: a candidate that was added and
not tried is tried first, a budget that is larger than the one before is written down. A search may be stopped at any
moment; its best so far is its result.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from workbench.errors import Stopped, UserError, WorkbenchError
from workbench.policies.search.frontier import can_write, options_at, steer
from workbench.policies.search.protocols import (
    Action,
    Evaluator,
    Expand,
    Prune,
    SearchLog,
    ShouldStop,
    Space,
    Stop,
    Strategy,
    Try,
)
from workbench.policies.search.tree import ROOT, SearchNode, SearchTree
from workbench.records.search import (
    NodeResult,
    SearchAim,
    SearchBudget,
    SearchCandidate,
    SearchEvent,
    SearchEventKind,
    SearchSetup,
)

Given = tuple[SearchCandidate, NodeResult]  # what was tried before the search
Verify = Callable[[SearchNode], NodeResult]  # gives a node that had a quick trial the whole verdict
MOST_VERIFIED = 3  # at the end of a search: each that fails lets the next one be the fastest (inferred)
MOST_SCREENED = 20  # candidates in a row that a model may write for nothing (inferred)


def never() -> bool:
    """No stop."""
    return False


def run_search(
    space: Space,
    evaluator: Evaluator,
    strategy: Strategy,
    log: SearchLog,
    *,
    seed: int = 0,
    budget: SearchBudget | None = None,
    should_stop: ShouldStop = never,
    aim: SearchAim = "time",
    expander: str = "",
    start: int | None = None,
    given: Given | None = None,
    verify: Verify | None = None,
) -> SearchTree:
    """Run a search until its budget is spent, its strategy stops or `should_stop` says so; returns the tree.

    `should_stop` is asked before and after each choice; what takes longer asks it itself. With a log that has events
    the search goes on, and `budget` replaces the one before if it is given. `expander` and `start` are kept in the log.
    What is `given` is a node from the first action on, so that the best of a search is never slower. Where trials may
    be quick, `verify` is asked at the end about the fastest that may be better than the best. Raises `UserError` if
    the log is of another strategy or of other constants.
    """
    runner = _Runner(space, evaluator, strategy, log, should_stop, verify)
    constants = tuple(sorted(strategy.constants.items()))
    setup = SearchSetup(strategy=strategy.name, seed=seed, constants=constants, aim=aim, expander=expander, start=start)
    runner.begin(setup, budget)
    if given is not None:
        runner.add_given(*given)
    try:
        while runner.step():
            pass
    except Stopped:
        runner.write("stopped", reason="stopped by the person", by="person")
    return runner.tree


def why_spent(tree: SearchTree) -> str | None:
    """What of the budget is used up, in words; None to go on."""
    for name, unit in (("trials", ""), ("seconds", " s"), ("tokens", ""), ("usd", " USD"), ("joules", " J")):
        most, used = getattr(tree.budget, name), getattr(tree, name)
        if most is not None and used >= most:
            return f"the budget of {most:g} {name if not unit else unit.strip()} is used up"
    return None


class _Runner:
    """One run of a search."""

    def __init__(
        self,
        space: Space,
        evaluator: Evaluator,
        strategy: Strategy,
        log: SearchLog,
        should_stop: ShouldStop,
        verify: Verify | None,
    ) -> None:
        self.space, self.evaluator, self.strategy, self.log = space, evaluator, strategy, log
        self.should_stop, self.verify = should_stop, verify
        self.tree = SearchTree.replay(log.events())

    def write(self, kind: SearchEventKind, **fields: object) -> None:
        """Append an event, and apply it with those that a person's thread wrote meanwhile."""
        self.log.append(dataclasses.replace(SearchEvent(number=0, kind=kind), **fields))  # type: ignore[arg-type]
        self.catch_up()

    def catch_up(self) -> None:
        """Apply what is new in the log."""
        for event in self.log.events(self.tree.events):
            self.tree.apply(event)

    def begin(self, setup: SearchSetup, budget: SearchBudget | None) -> None:
        """Write how the search begins, or see to it that it goes on as it began."""
        before = self.tree.setup
        if before is None:
            self.write("started", setup=setup, budget=budget or SearchBudget())
            return
        if (before.strategy, before.constants) != (setup.strategy, setup.constants):
            raise UserError(
                f"this search began with {_describe(before)} and cannot go on with {_describe(setup)}; "
                "start another one, or name the same strategy and constants"
            )
        if budget is not None and budget != self.tree.budget:
            self.write("budget", budget=budget, by="person")

    def add_given(self, candidate: SearchCandidate, result: NodeResult) -> None:
        """Add what was tried before the search as a child of the root, unless the tree has it."""
        if candidate.key not in self.tree.keys:
            number = len(self.tree)
            self.write("added", parent=ROOT, candidates=(candidate,), reason="what the session has", by="engine")
            self.write("tried", node=number, result=result, by="engine")

    def step(self) -> bool:
        """One action; False at the end."""
        self.catch_up()
        if self.should_stop():
            raise Stopped
        spent = why_spent(self.tree)
        if spent is not None:
            return self._end(spent)
        if self.space.writes and (idle := self.tree.screened_in_a_row) >= MOST_SCREENED:
            return self._end(f"the last {idle} candidates were screened out")
        if self.tree.pending is not None:
            self._try(self.tree.pending)
            return True
        action = steer(self.tree, self.space) or self._choose()
        if self.should_stop():  # choosing may take long
            raise Stopped
        return self._do(action)

    def _end(self, reason: str) -> bool:
        """Verify what may be the best, and write why the search ends; False."""
        for _ in range(MOST_VERIFIED):
            node = self.tree.unverified
            if node is None or self.verify is None:
                break
            self.write("verified", node=node.number, result=self.verify(node), by="engine")
            if self.should_stop():
                raise Stopped
        self.write("stopped", reason=reason, by="engine")
        return False

    def _choose(self) -> Action:
        assert self.tree.setup is not None
        numbers = random.Random(f"{self.tree.setup.seed}-{self.tree.turns}")
        return self.strategy.choose(self.tree, self.space, numbers)

    def _do(self, action: Action) -> bool:
        if isinstance(action, Stop):
            return self._end(action.reason)
        if isinstance(action, Prune):
            self.write("pruned", node=action.node, reason=action.reason)
        elif isinstance(action, Expand):
            node = self.tree.node(action.node)
            found = tuple(self.space.expand(node, self.tree, self.should_stop))
            self.write("opened", node=action.node, candidates=found, reason=action.reason, by="expander")
        else:
            self._start(action)
        return True

    def _start(self, action: Try) -> None:
        """Write down what is tried, then try it."""
        number = action.node
        if number is None:
            if action.candidate is None or action.candidate.key in self.tree.keys:
                raise WorkbenchError(f"the strategy {self.strategy.name} tries nothing new: {action.reason or action}")
            self._refuse_foreign(action)
            self.write("added", parent=action.parent, candidates=(action.candidate,), reason=action.reason)
            number = self.tree.pending
            if number is None:  # a person closed it, or added the same code, just now
                return
        if self.tree.node(number).result is not None or self.tree.is_closed(number):
            raise WorkbenchError(f"the strategy {self.strategy.name} tries node {number}, which is not open")
        self._try(number)

    def _refuse_foreign(self, action: Try) -> None:
        """Raise `WorkbenchError` where a strategy tries what is closed, or another node than the pinned one."""
        pinned = self.tree.pinned
        if self.tree.is_closed(action.parent):
            raise WorkbenchError(
                f"the strategy {self.strategy.name} tries a child of node {action.parent}, which is pruned"
            )
        if (
            pinned is not None
            and action.parent != pinned.number
            and not self.tree.is_closed(pinned.number)
            and (options_at(self.tree, self.space, pinned) or can_write(self.space, pinned))
        ):
            raise WorkbenchError(f"the strategy {self.strategy.name} passes over the pinned node {pinned.number}")

    def _try(self, number: int) -> None:
        node = self.tree.node(number)
        assert node.candidate is not None
        result = self.evaluator.judge(node.candidate, self.tree, self.should_stop)
        self.write("tried", node=number, result=result)


def _describe(setup: SearchSetup) -> str:
    return f"{setup.strategy} ({', '.join(f'{name}={value}' for name, value in setup.constants) or 'no constants'})"
