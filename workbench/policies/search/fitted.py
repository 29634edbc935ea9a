"""Priors from recorded times for a problem that is about to be searched: fitted on all other problems."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence

from workbench.errors import Unavailable
from workbench.landscapes import landscapes
from workbench.landscapes.keys import problem_key
from workbench.policies.search.priors import ProgramPriors
from workbench.records import Facts, Problem
from workbench.records.search import Prior
from workbench.structure.kernels.landscape_rows import problem_attributes

_one_fit = threading.Lock()


def fit_on_others(key: str | None) -> ProgramPriors | None:
    """Priors from the recorded times of all problems, but the one of this key; None without scikit-learn.

    The fit takes some 15 s. Who asks for it meanwhile, from another thread, waits for it.
    """
    with _one_fit:
        return _fit_on_others(key)


@functools.lru_cache(maxsize=2)
def _fit_on_others(key: str | None) -> ProgramPriors | None:
    others = [(name, place) for name, place in landscapes().items() if place.key != key]
    try:
        return ProgramPriors().fit(others)
    except Unavailable:
        return None


class RecordedPriors:
    """Priors of a problem's programs, each predicted once."""

    def __init__(self, fitted: ProgramPriors, problem: Problem, facts: Facts) -> None:
        """Raises `StopIteration` for facts without the work of the full case."""
        work = next(one for one in facts.work if one.case == "full")
        self._fitted = fitted
        self._problem = problem_attributes(work.flops, work.least_bytes, problem.precision, facts.kind)
        self._known: dict[str, Prior] = {}

    def predict(self, programs: Sequence[str]) -> list[Prior]:
        """The prior of each program, in canonical form; 0 is the best program of the problem."""
        new = [program for program in dict.fromkeys(programs) if program not in self._known]
        if new:
            self._known |= self._fitted.predict(new, self._problem)
        return [self._known[program] for program in programs]


def fit_recorded(problem: Problem, facts: Facts) -> RecordedPriors | None:
    """Priors for a problem; None where its work is not known, or without scikit-learn."""
    if not any(one.case == "full" and one.least_bytes for one in facts.work):
        return None
    key = problem_key(problem)
    is_recorded = any(place.key == key for place in landscapes().values())
    fitted = fit_on_others(key if is_recorded else None)  # one fit for all problems without a landscape
    return RecordedPriors(fitted, problem, facts) if fitted is not None else None
