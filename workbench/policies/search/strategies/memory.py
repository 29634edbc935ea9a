"""What a search has learnt of the settings so far, read out of its tree. `discoveries` says it in words.

A Gaussian process over the settings of the tried candidates models the logarithm of 1 / time:

    f(x) = offset + trust prior(x) + deviation(x) g(x)          k_g(x, y) = exp(-d(x, y) / length)

d counts the settings that differ; of two values of one setting, as tile 128x256x64, the parts that differ count as a
fraction. The offset is not known, and neither is how far the priors can be trusted: `trust` has the mean 1. `deviation`
is that of the candidate's prior, or `spread` where it has none, times a factor that is fitted with `length` by the
likelihood of the tries. Of candidates that are no programs no settings are known, and only their priors count.

Libraries of linear algebra round in other ways on other processors. What decides is therefore rounded to DIGITS, so
that candidates that are equal stay equal, and a search with the same seed makes the same choices everywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from workbench.policies.search.protocols import Space
from workbench.policies.search.tree import SearchNode, SearchTree
from workbench.records import record
from workbench.records.search import SearchCandidate

Vector = NDArray[np.float64]
LENGTHS = (2.0, 4.0)
FACTORS = (0.5, 1.0, 2.0)  # of the candidates' deviations, as LENGTHS a grid that the likelihood chooses from
DIGITS = 7  # decimals, in units of log seconds; the rounding of the linear algebra is some 1e-11
OFFSET = 3.0  # standard deviation of the unknown offset: wide, as no time is known before the first try


@record
class MemorySettings:
    """Constants of the Gaussian process, all in units of log seconds; inferred where no other source is named."""

    spread: float = 0.5  # standard deviation over candidates without a prior (inferred)
    least_spread: float = 0.15  # no prior is surer than this (inferred)
    trust: float = 1.0  # standard deviation of the factor of the priors, whose mean is 1 (inferred)
    noise: float = 0.02  # between two measurements of one candidate (inferred)
    failed: float = 0.7  # how much slower than the slowest a failure counts (inferred)


class SettingsTable:
    """Settings of candidates as rows of numbers, so that the squared distance of two rows is d. It only grows."""

    def __init__(self) -> None:
        self.columns: dict[tuple[str, int, str], int] = {}
        self.rows: dict[str, int] = {}
        self.known: list[bool] = []
        self.matrix = np.zeros((64, 64))

    def of(self, space: Space, candidates: Sequence[SearchCandidate]) -> tuple[Vector, NDArray[np.bool_]]:
        """[candidates, columns] and [candidates]: whether any settings are known."""
        places = [self._place(space, one) for one in candidates]
        return self.matrix[places], np.array(self.known)[places] if places else np.zeros(0, bool)

    def _place(self, space: Space, candidate: SearchCandidate) -> int:
        place = self.rows.get(candidate.key)
        if place is None:
            place = self.rows[candidate.key] = len(self.rows)
            settings = space.settings(candidate)
            self.known.append(bool(settings))
            entries = [(self._column(column), weight) for column, weight in _weights(settings)]
            if place >= self.matrix.shape[0] or len(self.columns) > self.matrix.shape[1]:
                grown = np.zeros((max(64, 2 * len(self.rows)), max(64, 2 * len(self.columns))))
                grown[: self.matrix.shape[0], : self.matrix.shape[1]] = self.matrix
                self.matrix = grown
            for column, weight in entries:
                self.matrix[place, column] = weight
        return place

    def _column(self, column: tuple[str, int, str]) -> int:
        return self.columns.setdefault(column, len(self.columns))


def _weights(settings: Mapping[str, str]) -> list[tuple[tuple[str, int, str], float]]:
    """Columns of one candidate: the parts of a setting share a squared distance of 1."""
    found = []
    for name, text in settings.items():
        parts = re.split(r"[x ]", text)
        found += [((name, at, part), math.sqrt(0.5 / len(parts))) for at, part in enumerate(parts)]
    return found


_tables: WeakKeyDictionary[Space, SettingsTable] = WeakKeyDictionary()


class SearchMemory:
    """The Gaussian process after the tries of a tree."""

    def __init__(
        self, tree: SearchTree, space: Space, priors: bool = True, settings: MemorySettings | None = None
    ) -> None:
        """`priors`: whether the candidates' priors are used."""
        self.space, self.priors, self.settings = space, priors, settings or MemorySettings()
        self.table = _tables.setdefault(space, SettingsTable())
        nodes = list(tree.walk())
        self.candidates = [node.candidate for node in nodes if node.candidate is not None]
        self.values = log_speeds(nodes, self.settings.failed)
        self.has_best = tree.best is not None
        self.best = -math.log(tree.best_s) if self.has_best else -math.inf
        self._fit()

    def _fit(self) -> None:
        self.rows, self.known = self.table.of(self.space, self.candidates)
        given = [one.prior.log_speedup for one in self.candidates if one.prior is not None and self.priors]
        self.middle = sum(given) / len(given) if given else None
        means, deviations = self._priors(self.candidates)
        self.means, self.deviations, rest = means, deviations, self.values - means
        common = OFFSET**2 + self.settings.trust**2 * np.outer(self._trusted(means), self._trusted(means))
        self.length, self.factor, likeliest = LENGTHS[0], FACTORS[1], -math.inf
        size = len(rest)
        if not size:
            return
        distance = _distance(self.rows, self.known, self.rows, self.known)
        np.fill_diagonal(distance, 0.0)
        for length in LENGTHS:
            near = np.exp(-distance / length) * np.outer(deviations, deviations)
            for factor in FACTORS:
                whole = factor**2 * near + common + self.settings.noise**2 * np.eye(size)
                lower = np.linalg.cholesky(whole)
                half = np.linalg.solve(lower, rest)
                likelihood = -0.5 * float(half @ half) - float(np.log(np.diag(lower)).sum())
                likelihood -= 0.5 * math.log(factor) ** 2  # a weak preference for the prior's own deviation
                if round(likelihood, DIGITS) > likeliest:
                    likeliest, self.length, self.factor = round(likelihood, DIGITS), length, factor
                    self.lower, self.half = lower, half

    def predict(self, candidates: Sequence[SearchCandidate]) -> tuple[Vector, Vector]:
        """[candidates]: the expected logarithm of 1 / seconds and its standard deviation."""
        means, deviations = self._priors(candidates)
        spread = OFFSET**2 + self.settings.trust**2 * self._trusted(means) ** 2 + (self.factor * deviations) ** 2
        if not self.candidates or not candidates:
            return means.round(DIGITS), np.sqrt(spread).round(DIGITS)
        rows, known = self.table.of(self.space, candidates)
        width = max(rows.shape[1], self.rows.shape[1])
        distance = _distance(_widen(rows, width), known, _widen(self.rows, width), self.known)
        cross = self.factor**2 * np.exp(-distance / self.length) * np.outer(deviations, self.deviations)
        cross += OFFSET**2 + self.settings.trust**2 * np.outer(self._trusted(means), self._trusted(self.means))
        solved = np.linalg.solve(self.lower, cross.T)
        found = means + solved.T @ self.half
        deviation = np.sqrt(np.maximum(spread - (solved**2).sum(0), 1e-12))
        return found.round(DIGITS), deviation.round(DIGITS)

    def _trusted(self, means: Vector) -> Vector:
        """Priors from the mean of those tried: what the factor of the priors scales."""
        return means - (self.middle or 0.0)

    def _priors(self, candidates: Sequence[SearchCandidate]) -> tuple[Vector, Vector]:
        """[candidates]: mean and standard deviation; where a prior is missing, the mean of the others and `spread`."""
        given = [one.prior if self.priors else None for one in candidates]
        known = [one.log_speedup for one in given if one is not None]
        middle = self.middle if self.middle is not None else sum(known) / len(known) if known else 0.0
        means = np.array([middle if one is None else one.log_speedup for one in given])
        spread, least = self.settings.spread, self.settings.least_spread
        deviations = np.array([spread if one is None else max(one.deviation, least) for one in given])
        return means, deviations


def _widen(rows: Vector, width: int) -> Vector:
    return rows if rows.shape[1] == width else np.pad(rows, ((0, 0), (0, width - rows.shape[1])))


def _distance(one: Vector, one_known: NDArray[np.bool_], two: Vector, two_known: NDArray[np.bool_]) -> Vector:
    """[one, two]: d; infinite where the settings of either are not known."""
    found = (one**2).sum(1)[:, None] + (two**2).sum(1)[None] - 2 * one @ two.T
    return np.where(one_known[:, None] & two_known[None], np.maximum(found, 0.0), np.inf)


def log_speeds(nodes: Sequence[SearchNode], failed: float = MemorySettings().failed) -> Vector:
    """[nodes]: the logarithm of 1 / seconds; of failures, less than of the slowest."""
    times = [node.result.time_s if node.passed and node.result is not None else None for node in nodes]
    slowest = max((time for time in times if time), default=1.0)
    return np.array([-math.log(time) if time else -math.log(slowest) - failed for time in times])
