"""Priors of programs that were not tried: from recorded times of other problems, from modelled times, from an order.

    priors = ProgramPriors().fit(other_places)         a forest on the landscapes of other problems
    expected = priors.predict(programs, problem)       program -> Prior
    combine(expected, modelled_priors(seconds))        one prior of several sources

A prior that is fitted is never fitted on rows of the problem that is searched: that is the caller's part, who names the
landscapes. Only differences of priors count, so sources need no common zero; `combine` brings them to one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from workbench.landscapes import Landscape, Row
from workbench.records.search import NORMAL_90, Prior
from workbench.structure.kernels.landscape_rows import RankedRow, context_attributes, rank_rows
from workbench.structure.kernels.program_graphs import Attributes, attributes_of_program
from workbench.structure.kernels.ranking import ProgramRanker

TREES = 50
DIGITS = 9  # decimals, in units of log seconds
FOLDS = 4  # of the calibration
CAP = 1.5  # log of a slow-down above which all are equally bad: a search does not care how bad (inferred)
OTHERS = 0.3  # log of how much slower a program is that the planner does not name (inferred)
LEAST = 0.05  # standard deviation of a prior at least (inferred)
COMPILED = ("registers", "spilled bytes", "shared bytes")  # known after compiling only
FOREST = "recorded times of other problems"

Priors = Mapping[str, Prior]  # program -> what is expected of it


class ProgramPriors:
    """A forest that predicts the logarithm of a program's slow-down against the best of its problem, with its error.

    Its deviation is that of its trees, times a factor: 90 % of the rows of held-out landscapes lie in the interval.
    """

    def __init__(self, trees: int = TREES, seed: int = 0) -> None:
        self._trees, self._seed = trees, seed
        self.factor = 1.0

    def fit(self, places: Iterable[tuple[str, Landscape]]) -> ProgramPriors:
        """Learns from the correct rows of landscapes, given as pairs of a name and a landscape."""
        return self.fit_rows(slowdown_rows(places))

    def fit_rows(self, rows: Sequence[RankedRow]) -> ProgramPriors:
        """Learns from what `slowdown_rows` made."""
        names = sorted({one.landscape for one in rows})
        ratios: list[float] = []
        for fold in range(min(FOLDS, len(names) - 1) if len(names) > 1 else 0):
            held = set(names[fold::FOLDS])
            mine = [one for one in rows if one.landscape in held]
            ranker = ProgramRanker(max(2, self._trees // FOLDS), self._seed)
            ratios += _ratios(ranker.fit([one for one in rows if one.landscape not in held]), mine)
        self.factor = float(np.quantile(ratios, 0.9)) / NORMAL_90 if ratios else 1.0
        self.ranker = ProgramRanker(self._trees, self._seed).fit(rows)
        return self

    def predict(self, programs: Sequence[str], problem: Attributes) -> dict[str, Prior]:
        """Priors of programs of a problem, which `problem_attributes` describes."""
        rows = [
            RankedRow(
                landscape="",
                row=Row(key="", run=0, program=program, correct=False),
                stages=tuple({**stage, **problem} for stage in attributes_of_program(program)),
                rank=0.0,
            )
            for program in programs
        ]
        return self._of(rows)

    def predict_place(self, place: Landscape) -> dict[str, Prior]:
        """Priors of all programs of a landscape."""
        return self.predict(tuple(place.rows), context_attributes(place))

    def _of(self, rows: Sequence[RankedRow]) -> dict[str, Prior]:
        if not rows:
            return {}
        mean, spread = _predict(self.ranker, rows)
        return {
            one.row.program: prior_of(-float(at), self.factor * float(wide), FOREST)
            for one, at, wide in zip(rows, mean, spread, strict=True)
        }


def slowdown_rows(places: Iterable[tuple[str, Landscape]]) -> list[RankedRow]:
    """The correct rows of landscapes with the logarithm of their slow-down in place of their rank, without what only a
    compiler knows.
    """
    known = dict(places)
    best = {name: place.best.median_s for name, place in known.items() if place.best is not None}
    made = []
    for one in rank_rows(known.items()):
        least, seconds = best[one.landscape], one.row.median_s
        assert least is not None and seconds is not None
        stages = tuple({name: value for name, value in stage.items() if name not in COMPILED} for stage in one.stages)
        made.append(dataclasses.replace(one, stages=stages, rank=min(math.log(seconds / least), CAP)))
    return made


def _predict(ranker: ProgramRanker, rows: Sequence[RankedRow]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    each = ranker.predict_each(rows)
    return each.mean(0), np.maximum(each.std(0), LEAST)


def _ratios(ranker: ProgramRanker, rows: Sequence[RankedRow]) -> list[float]:
    """Errors over deviations of held-out rows, less each landscape's mean error: only differences count."""
    mean, spread = _predict(ranker, rows)
    names = np.array([one.landscape for one in rows])
    error = mean - np.array([one.rank for one in rows])
    found: list[float] = []
    for name in sorted(set(names)):
        mine = names == name
        found += list(np.abs(error[mine] - error[mine].mean()) / spread[mine])
    return found


def prior_of(log_speedup: float, deviation: float, source: str) -> Prior:
    """A prior with this standard deviation. It is rounded, so that it is the same on every processor."""
    log_speedup, half = round(log_speedup, DIGITS), round(NORMAL_90 * deviation, DIGITS)
    return Prior(log_speedup=log_speedup, low=log_speedup - half, high=log_speedup + half, source=source)


def modelled_priors(seconds: Mapping[str, tuple[float, float]], source: str = "time model") -> dict[str, Prior]:
    """Priors of modelled times: program -> (seconds, standard deviation of their logarithm)."""
    return {
        program: prior_of(-math.log(time), max(spread, LEAST), source) for program, (time, spread) in seconds.items()
    }


def order_priors(
    order: Sequence[str], others: Iterable[str] = (), source: str = "planner", step: float = 0.02, spread: float = 0.4
) -> dict[str, Prior]:
    """Priors of programs in a planner's order: each is expected a step worse than the one before (inferred), and the
    others, which the planner does not name, `OTHERS` worse than its first one.
    """
    rest = {program: prior_of(-OTHERS, 1.5 * spread, source) for program in others}
    return rest | {program: prior_of(-step * at, spread, source) for at, program in enumerate(order)}


def combine(*sources: Priors) -> dict[str, Prior]:
    """One prior for each program, weighted by inverse variances; its deviation is the least of them.

    The errors of the sources are not independent, so several of them do not make a prior surer than its best one. Each
    source is brought to the zero of those before it by the programs that they share.
    """
    found: dict[str, Prior] = {}
    for source in sources:
        shared = [program for program in source if program in found]
        shift = (
            float(np.median([found[one].log_speedup - source[one].log_speedup for one in shared])) if shared else 0.0
        )
        for program, prior in source.items():
            moved = prior_of(prior.log_speedup + shift, prior.deviation, prior.source)
            found[program] = _join(found[program], moved) if program in found else moved
    return found


def _join(one: Prior, other: Prior) -> Prior:
    weights = np.array([max(prior.deviation, LEAST) ** -2 for prior in (one, other)])
    mean = float(weights @ [one.log_speedup, other.log_speedup] / weights.sum())
    return prior_of(mean, min(one.deviation, other.deviation), f"{one.source}; {other.source}")
