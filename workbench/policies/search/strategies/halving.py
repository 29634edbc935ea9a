"""Successive halving: many candidates are judged cheaply, few go on to the dear rung."""

from __future__ import annotations

import random
from collections.abc import Mapping

from workbench.policies.search.frontier import options, pinned_options
from workbench.policies.search.protocols import Action, Space
from workbench.policies.search.strategies.walks import constants_of, prior_of, take, write_more
from workbench.policies.search.tree import SearchTree
from workbench.records import record
from workbench.records.base import Scalar


@record
class SuccessiveHalving:
    """Brackets of `keep` * `eta` candidates, drawn at random; the best `keep` of each are tried (Jamieson and
    Talwalkar, 2016, with two rungs; a kernel is timed or it is not, so there is no third).

    The first rung is the prior. Without priors it knows nothing, keeps whatever was drawn first, and the search is
    random search. A bracket is drawn anew from its number, so that the state is in the tree.
    """

    name = "halving"
    keep: int = 4  # inferred
    eta: int = 8  # inferred; the paper names 3 and more
    priors: bool = False

    @property
    def constants(self) -> Mapping[str, Scalar]:
        """All of its settings."""
        return constants_of(self)

    def choose(self, tree: SearchTree, space: Space, numbers: random.Random) -> Action:
        """The next action."""
        if found := pinned_options(tree, space):
            return take(found, self.priors, numbers)
        found = options(tree, space)
        if not found:
            return write_more(tree, space)
        if not self.priors:
            return take(found, False, numbers)
        bracket, place = divmod(len(tree.tried), self.keep)
        seed = tree.setup.seed if tree.setup is not None else 0
        drawn = sorted(found, key=lambda one: _draw(f"{seed}-{bracket}-{one.candidate.key}"))
        size = self.keep * self.eta - place  # those of the bracket that are left
        return max(drawn[:size], key=prior_of).action(f"bracket {bracket + 1}")


def _draw(text: str) -> float:
    return random.Random(text).random()
