"""Guesses which candidates a search tries next, so that they can be emulated ahead. A wrong guess costs time only."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable

from workbench.errors import WorkbenchError
from workbench.policies.search import SearchTree, Space, Strategy, Try
from workbench.records.search import NodeResult, SearchCandidate, SearchEvent


def guess_next(space: Space, strategy: Strategy, events: Iterable[SearchEvent], count: int) -> list[SearchCandidate]:
    """The next candidates if each try, the pending one first, gives what its parent gave."""
    tree, found = SearchTree.replay(events), list[SearchCandidate]()
    if tree.setup is None:
        return found
    try:
        if tree.pending is not None:
            _assume(tree, tree.pending)
        while len(found) < count:
            numbers = random.Random(f"{tree.setup.seed}-{tree.turns}")
            action = strategy.choose(tree, space, numbers)
            if not isinstance(action, Try):
                break
            number = action.node
            if number is None and action.candidate is not None:
                _write(tree, SearchEvent(number=0, kind="added", parent=action.parent, candidates=(action.candidate,)))
                number = tree.pending
            if number is None or (candidate := tree.node(number).candidate) is None:
                break
            found.append(candidate)
            _assume(tree, number)
    except WorkbenchError:  # a guess may lead where no search goes
        pass
    return found


def _assume(tree: SearchTree, number: int) -> None:
    """Apply the result that a node would have if it were as its parent."""
    above = tree.node(tree.node(number).parent or 0).result
    known = above or (tree.best.result if tree.best is not None else None)
    result = dataclasses.replace(known, version=None) if known is not None else NodeResult(outcome="passed", time_s=1.0)
    _write(tree, SearchEvent(number=0, kind="tried", node=number, result=result))


def _write(tree: SearchTree, event: SearchEvent) -> None:
    tree.apply(dataclasses.replace(event, number=tree.events))
