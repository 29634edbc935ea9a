"""Searches by optuna's samplers: the tree-structured Parzen estimator, and Bayesian optimisation by a Gaussian process.

The parameters of a study are the parts of the settings: of tile 128x256x64 three numbers. Numbers are ordered, other
values are categories. A sampler proposes values for all parameters at once; what is tried is the candidate that agrees
with most of them, since not every combination is a legal program.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from workbench.errors import Unavailable
from workbench.policies.search.frontier import Option, options, pinned_options
from workbench.policies.search.protocols import Action, Space
from workbench.policies.search.strategies.memory import log_speeds
from workbench.policies.search.strategies.walks import constants_of, prior_of, take, write_more
from workbench.policies.search.tree import SearchTree
from workbench.records import record
from workbench.records.base import Scalar
from workbench.records.search import SearchCandidate

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

STARTUP = 10  # optuna's own number of tries before the sampler begins
Parts = Mapping[str, str]  # parameter -> value as text; "" where the program leaves it out


def require_optuna() -> None:
    """Raises `Unavailable` where optuna is not installed."""
    try:
        import optuna
    except ImportError:
        raise Unavailable(
            "the searches tpe and bayes need optuna, which is not installed: pip install 'cutegen-workbench[tune]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


class _Problem:
    """The parameters of a search's candidates."""

    def __init__(self, parts: Mapping[str, Parts]) -> None:
        import optuna

        self.parts = parts
        names = sorted({name for one in parts.values() for name in one})
        self.values = {name: sorted({one.get(name, "") for one in parts.values()}, key=_order) for name in names}
        self.values = {name: values for name, values in self.values.items() if len(values) > 1}
        self.distributions: dict[str, BaseDistribution] = {
            name: optuna.distributions.IntDistribution(0, len(values) - 1)
            if all(value.isdigit() for value in values if value)
            else optuna.distributions.CategoricalDistribution(values)
            for name, values in self.values.items()
        }
        self._codes: dict[str, dict[str, int | str]] = {}

    def is_of(self, candidates: Sequence[SearchCandidate]) -> bool:
        """Whether all candidates are known."""
        return all(one.key in self.parts for one in candidates)

    def encode(self, key: str) -> dict[str, int | str]:
        """A candidate's parameters."""
        if key not in self._codes:
            one = self.parts[key]
            self._codes[key] = {
                name: values.index(one.get(name, "")) if self.is_ordered(name) else one.get(name, "")
                for name, values in self.values.items()
            }
        return self._codes[key]

    def is_ordered(self, name: str) -> bool:
        """Whether a parameter is a number."""
        return type(self.distributions[name]).__name__ == "IntDistribution"

    def ask(self, tree: SearchTree, sampler: BaseSampler) -> Mapping[str, int | str]:
        """What a sampler proposes after the tries of a tree. Failures are worse than the slowest.

        Each time the study is made anew, so that nothing but the tree counts.
        """
        import optuna

        nodes = tree.walk()
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials(
            optuna.trial.create_trial(
                params=self.encode(node.candidate.key), distributions=self.distributions, value=float(value)
            )
            for node, value in zip(nodes, log_speeds(nodes), strict=True)
            if node.candidate is not None
        )
        return dict(study.ask(self.distributions).params)


_problems: WeakKeyDictionary[SearchTree, _Problem] = WeakKeyDictionary()


@record
class Tpe:
    """The tree-structured Parzen estimator (Bergstra et al., 2011) of optuna, after random tries.

    With priors: the first tries are the candidates with the best priors instead of random ones, and of the candidates
    that agree equally well with a proposal the one with the best prior is tried.
    """

    name = "tpe"
    startup: int = STARTUP
    priors: bool = False

    @property
    def constants(self) -> Mapping[str, Scalar]:
        """All of its settings."""
        return constants_of(self)

    def choose(self, tree: SearchTree, space: Space, numbers: random.Random) -> Action:
        """The next action."""
        return _choose(self, tree, space, numbers)

    def sampler(self, seed: int) -> BaseSampler:
        """Optuna's sampler, with parameters that depend on each other."""
        from optuna.samplers import TPESampler

        return TPESampler(seed=seed, n_startup_trials=0, multivariate=True)


@record
class Bayes:
    """Bayesian optimisation by a Gaussian process (optuna's GPSampler), after random tries. Priors as in `Tpe`."""

    name = "bayes"
    startup: int = STARTUP
    priors: bool = False

    @property
    def constants(self) -> Mapping[str, Scalar]:
        """All of its settings."""
        return constants_of(self)

    def choose(self, tree: SearchTree, space: Space, numbers: random.Random) -> Action:
        """The next action."""
        return _choose(self, tree, space, numbers)

    def sampler(self, seed: int) -> BaseSampler:
        """Optuna's sampler."""
        from optuna.samplers import GPSampler

        return GPSampler(seed=seed, n_startup_trials=0)


def _choose(strategy: Tpe | Bayes, tree: SearchTree, space: Space, numbers: random.Random) -> Action:
    require_optuna()
    if found := pinned_options(tree, space):
        return take(found, strategy.priors, numbers)
    found = options(tree, space)
    if not found:
        return write_more(tree, space)
    if len(tree.tried) < strategy.startup:
        return take(found, strategy.priors, numbers)
    problem = _problem_of(tree, space, found)
    if not problem.distributions:  # sources without settings
        return take(found, strategy.priors, numbers)
    wanted = problem.ask(tree, strategy.sampler(numbers.randrange(1 << 31)))
    return _nearest(problem, wanted, found, strategy.priors, numbers)


def _problem_of(tree: SearchTree, space: Space, found: Sequence[Option]) -> _Problem:
    """The tree's parameters; new ones where there are candidates that it does not know."""
    candidates = [one.candidate for one in found]
    problem = _problems.get(tree)
    if problem is None or not problem.is_of(candidates):
        tried = [node.candidate for node in map(tree.node, tree.tried) if node.candidate is not None]
        problem = _problems[tree] = _Problem(
            {one.key: split_settings(space.settings(one)) for one in (*candidates, *tried)}
        )
    return problem


def _nearest(
    problem: _Problem, wanted: Mapping[str, int | str], found: Sequence[Option], priors: bool, numbers: random.Random
) -> Action:
    """The option that agrees best with a proposal; numbers that are near count in part."""
    lengths = {name: len(values) - 1 for name, values in problem.values.items()}

    def differ(option: Option) -> float:
        own = problem.encode(option.candidate.key)
        return sum(
            abs(int(own[name]) - int(value)) / lengths[name] if problem.is_ordered(name) else own[name] != value
            for name, value in wanted.items()
        )

    far = list(map(differ, found))
    near = [option for option, distance in zip(found, far, strict=True) if distance <= min(far) + 1e-9]
    best = max(map(prior_of, near)) if priors else 0.0
    return numbers.choice([one for one in near if not priors or prior_of(one) == best]).action()


def split_settings(settings: Mapping[str, str]) -> Parts:
    """The parts of settings, each a parameter: tile 128x256 -> tile 1: 128, tile 2: 256."""
    return {
        f"{name} {at}": part for name, text in settings.items() for at, part in enumerate(re.split(r"[x ]", text), 1)
    }


def _order(value: str) -> tuple[int, int, str]:
    return (0, int(value), "") if value.isdigit() else (-1 if not value else 1, 0, value)
