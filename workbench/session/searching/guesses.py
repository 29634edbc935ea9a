"""Guesses which candidates a search tries next, so that they can be emulated ahead. A wrong guess costs time only."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable

from workbench.errors import WorkbenchError
from workbench.policies.search import SearchTree, Space, Strategy, Try
from workbench.policies.search.frontier import steer
from workbench.records.search import NodeResult, SearchCandidate, SearchEvent

WhyNot = Callable[[SearchCandidate, SearchTree], str]
STEPS = 4  # of a strategy for each guess, at most: others may be screened out
MOST_S = 0.5  # that guessing may take: the search waits for it (inferred)


def never(candidate: SearchCandidate, tree: SearchTree) -> str:
    """No reason."""
    return ""


def guess_next(
    space: Space, strategy: Strategy, events: Iterable[SearchEvent], count: int, why_not: WhyNot = never
) -> list[SearchCandidate]:
    """The next candidates if each try, the pending one first, gives what is expected of it. `why_not` says why one is
    screened out untried.
    """
    end = time.monotonic() + MOST_S
    tree, found = SearchTree.replay(events), list[SearchCandidate]()
    if tree.setup is None:
        return found
    try:
        if tree.pending is not None:
            _assume(tree, tree.pending)
        for _ in range(STEPS * count):
            if len(found) == count or time.monotonic() > end:
                break
            numbers = random.Random(f"{tree.setup.seed}-{tree.turns}")
            action = steer(tree, space) or strategy.choose(tree, space, numbers)
            if not isinstance(action, Try):
                break
            number = action.node
            if number is None and action.candidate is not None:
                _write(tree, SearchEvent(number=0, kind="added", parent=action.parent, candidates=(action.candidate,)))
                number = tree.pending
            if number is None or (candidate := tree.node(number).candidate) is None:
                break
            if why_not(candidate, tree):
                screened = NodeResult(outcome="passed", screened=True)
                _write(tree, SearchEvent(number=0, kind="tried", node=number, result=screened))
                continue
            found.append(candidate)
            _assume(tree, number)
    except WorkbenchError:  # a guess may lead where no search goes
        pass
    return found


def _assume(tree: SearchTree, number: int) -> None:
    """Apply the result that a node would have if its prior were right; without one, if it were as its parent."""
    node = tree.node(number)
    prior = node.candidate.prior if node.candidate is not None else None
    above = tree.node(node.parent or 0).result
    time_s = above.time_s if above is not None else None
    if prior is not None:
        time_s = _scale(tree) * math.exp(-prior.log_speedup)
    _write(tree, SearchEvent(number=0, kind="tried", node=number, result=NodeResult(outcome="passed", time_s=time_s)))


def _scale(tree: SearchTree) -> float:
    """The time of the reference of the priors in seconds, as the tries so far have it; 1 before the first."""
    found = [
        node.result.time_s * math.exp(node.candidate.prior.log_speedup)
        for node in tree.walk()
        if node.result is not None and node.result.time_s and node.candidate is not None and node.candidate.prior
    ]
    return statistics.median(found) if found else 1.0


def _write(tree: SearchTree, event: SearchEvent) -> None:
    tree.apply(dataclasses.replace(event, number=tree.events))
