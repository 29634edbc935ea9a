"""Cheap before dear: a candidate that is not expected to win is not sent to the GPU.

    evaluator = Screen(evaluator, space)      wraps any evaluator

What is expected comes from the candidate's prior (a modelled time, recorded times of other problems) and from the tries
so far, by `SearchMemory`. A candidate whose optimistic end is not faster than the best gets a result that says so and
costs no trial.
"""

from __future__ import annotations

import math

from workbench.policies.search.protocols import Evaluator, ShouldStop, Space
from workbench.policies.search.strategies.memory import SearchMemory
from workbench.policies.search.tree import SearchTree
from workbench.records.search import NORMAL_90, NodeResult, SearchCandidate

OPTIMISM = NORMAL_90  # standard deviations to the optimistic end (tests/bench/search_on_landscapes.py, `screen`)
LEAST_TRIALS = 3  # before anything is screened out: one says how far a prior is off, more how far it varies (inferred)


class Screen:
    """An evaluator that asks another one only about candidates that may win."""

    def __init__(self, evaluator: Evaluator, space: Space, optimism: float = OPTIMISM, most: float = math.inf) -> None:
        """After `most` candidates in a row that were screened out one is tried all the same: priors may be wrong."""
        self.evaluator, self.space, self.optimism, self.most = evaluator, space, optimism, most

    def judge(self, candidate: SearchCandidate, tree: SearchTree, should_stop: ShouldStop) -> NodeResult:
        """The result of the other evaluator, or one that is `screened`."""
        reason = self.why_not(candidate, tree)
        if reason:
            return NodeResult(outcome="passed", message=reason, screened=True)
        return self.evaluator.judge(candidate, tree, should_stop)

    def why_not(self, candidate: SearchCandidate, tree: SearchTree) -> str:
        """Why the candidate cannot win, in words; "" if it may."""
        bound = self.space.bound_s(candidate)
        if bound is not None and bound >= tree.best_s:
            return f"at its speed of light it takes {bound:.3g} s, the best {tree.best_s:.3g} s"
        if tree.trials < LEAST_TRIALS or tree.best is None or candidate.prior is None:
            return ""
        if tree.screened_in_a_row >= self.most:
            return ""
        memory = SearchMemory(tree, self.space)
        mean, deviation = memory.predict([candidate])
        optimistic = math.exp(-float(mean[0]) - self.optimism * float(deviation[0]))
        if optimistic < tree.best_s:
            return ""
        return f"{optimistic:.3g} s at the optimistic end of what is expected, the best {tree.best_s:.3g} s"
