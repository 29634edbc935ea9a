"""A Gaussian process over the features of a call: the logarithm of measured over modelled seconds, with its error.

Prior: f(x) = a function that changes smoothly with the features, whose covariance is

    k(x, y) = amplitude^2 (1 + d^2 / 3)^(-3/2) + linear^2 x.y + offset^2     d^2 = sum over features ((x - y) / scale)^2

with features x that are standardised over the fitted rows. A measured row adds noise of its own and a deviation that
all rows of its problem share. The deviation is the reason why two versions of one problem are compared better than each
is known: it cancels. Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), chapter 2 and
equation 4.19 (rational quadratic covariance).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.records import record

SMALL = 128  # rows of a matrix that is inverted at once

Array = np.ndarray[Any, np.dtype[np.float64]]


@record
class Hyperparameters:
    """Parameters of the covariance, all as standard deviations of the logarithm except `scales`."""

    scales: tuple[float, ...]  # of each feature, in standard deviations
    amplitude: float
    linear: float
    offset: float
    problem: float  # deviation that the rows of one problem share
    noise: float


def covariance(a: Any, b: Any, scales: Any, amplitude: Any, linear: Any, offset: Any) -> Any:
    """Prior covariances between the rows of `a` and of `b`, standardised features; numpy arrays or torch tensors."""
    near, far = a / scales, b / scales
    squared = (near * near).sum(1)[:, None] + (far * far).sum(1)[None] - 2 * near @ far.T
    return amplitude**2 * (1 + squared / 3) ** -1.5 + linear**2 * (a @ b.T) + offset**2


@dataclass(frozen=True, slots=True, eq=False)
class GaussianProcess:
    """The posterior, given fitted rows."""

    hyper: Hyperparameters
    mean: Array  # of each feature, (features,)
    deviation: Array  # likewise
    rows: Array  # standardised features, (rows, features)
    weights: Array  # inverse covariance of the rows times their values, (rows,)
    factor: Array  # inverse of the lower Cholesky factor of the rows' covariance, (rows, rows)

    @classmethod
    def fit(cls, hyper: Hyperparameters, features: Array, values: Array, problems: Array) -> GaussianProcess:
        """The posterior of `values` (rows,) at `features` (rows, features); `problems` numbers each row's problem."""
        mean, deviation = features.mean(0), features.std(0)
        deviation = np.where(deviation > 0, deviation, 1.0)
        rows = (features - mean) / deviation
        whole = _prior(hyper, rows, rows) + hyper.problem**2 * (problems[:, None] == problems[None])
        factor = _invert_lower(np.linalg.cholesky(whole + hyper.noise**2 * np.eye(len(rows))))
        return cls(hyper, mean, deviation, rows, factor.T @ (factor @ values), factor)

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Posterior mean (rows,) and covariance (rows, rows) of new rows that are all of one new problem.

        Noise and the problem's deviation are in the covariance.
        """
        new = (features - self.mean) / self.deviation
        between = _prior(self.hyper, new, self.rows)
        explained = between @ self.factor.T
        left = _prior(self.hyper, new, new) - explained @ explained.T
        own = self.hyper.problem**2 + self.hyper.noise**2 * np.eye(len(new))
        return between @ self.weights, left + own


def _invert_lower(lower: Array) -> Array:
    """The inverse of a lower triangular matrix by halves: a sixth of the operations of `numpy.linalg.inv`."""
    if len(lower) <= SMALL:
        return np.linalg.inv(lower).astype(np.float64, copy=False)
    half = len(lower) // 2
    inverse = np.zeros_like(lower)
    inverse[:half, :half] = upper = _invert_lower(lower[:half, :half])
    inverse[half:, half:] = last = _invert_lower(lower[half:, half:])
    inverse[half:, :half] = -last @ (lower[half:, :half] @ upper)
    return inverse


def _prior(hyper: Hyperparameters, a: Array, b: Array) -> Array:
    found: Array = covariance(a, b, np.asarray(hyper.scales), hyper.amplitude, hyper.linear, hyper.offset)
    return found
