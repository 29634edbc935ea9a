"""Medians and ratios with intervals that hold between runs, and whether two sets of samples differ by more than noise.

Samples are taken in rounds. Calls of one round resemble each other (one placement of memory, one state of clocks). So
the bootstrap resamples rounds, then calls in them: the bootstrap of a clustered sample (Davison and Hinkley, Bootstrap
Methods and their Application, 1997, section 3.8). With few rounds the percentile interval is too narrow, so it is
expanded to where Student's interval would be (Hesterberg, What Teachers Should Know About the Bootstrap, The American
Statistician 69, 2015, section 5.2: the expanded percentile interval). One run cannot show effects that differ only
between runs: a floor stands for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

RESAMPLES = 2000
SEED = 0  # the interval of the same samples is always the same
LEVEL = 0.95
BETWEEN_RUNS = (
    0.004  # relative half-width of effects between runs (placement of memory and code, temperature; inferred)
)
EVENT_S = 0.5e-6  # resolution of a CUDA event (CUDA runtime's manual, cudaEventElapsedTime)

Rounds = Sequence[Sequence[float]]


def split_rounds(samples: Sequence[float], per_round: int) -> list[list[float]]:
    """Samples as rounds of `per_round`; each sample is its own round when that is 0."""
    size = max(per_round, 1)
    return [list(samples[at : at + size]) for at in range(0, len(samples), size)]


def student_t(df: int, level: float = LEVEL) -> float:
    """Half the width of Student's t interval of that level: the expansion in 1/df of Abramowitz and Stegun, 26.7.5. The
    error is within 1 % from 3 degrees of freedom on.
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + math.fsum(term / float(df) ** (n + 1) for n, term in enumerate(terms))


def _expanded_interval(values: np.ndarray, clusters: int) -> tuple[float, float]:
    """The expanded percentile interval of a statistic that was resampled over so many clusters."""
    tail = NormalDist().cdf(-math.sqrt(clusters / (clusters - 1)) * student_t(clusters - 1)) if clusters > 1 else 0.0
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def _draw_rounds(rng: np.random.Generator, clusters: int) -> np.ndarray:
    """Numbers of the rounds that each resample draws, shape (RESAMPLES, clusters)."""
    return rng.integers(0, clusters, size=(RESAMPLES, clusters))


def _resampled_medians(rounds: Rounds, picks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The pooled median of each row of `picks` (numbers of rounds), with calls resampled within their rounds. Rounds of
    unequal length are cut to the shortest.
    """
    size = min(len(one) for one in rounds)
    values = np.asarray([list(one)[:size] for one in rounds], dtype=np.float64)
    inner = (
        rng.integers(0, size, size=(*picks.shape, size)) if size > 1 else np.zeros((*picks.shape, 1), dtype=np.int64)
    )
    pooled = values[picks[:, :, None], inner]
    return np.asarray(np.median(pooled.reshape(len(picks), -1), axis=1))


def median_interval(
    samples: Sequence[float], per_round: int = 0, *, between_runs: float = 0.0, resolution_s: float = 0.0
) -> tuple[float, float, float]:
    """The median and its 95 % interval: the bootstrap's, widened in quadrature by `between_runs` (relative) and
    `resolution_s`.
    """
    if not len(samples):
        raise ValueError("no samples")
    rounds = split_rounds(samples, per_round)
    rng = np.random.default_rng(SEED)
    low, high = _expanded_interval(_resampled_medians(rounds, _draw_rounds(rng, len(rounds)), rng), len(rounds))
    median = float(np.median(np.asarray(samples)))
    floor = math.hypot(between_runs * median, resolution_s)
    return (
        median,
        max(median - math.hypot(max(median - low, 0.0), floor), 0.0),
        median + math.hypot(max(high - median, 0.0), floor),
    )


def ratio_interval(a: Rounds, b: Rounds, *, between_runs: float = 0.0) -> tuple[float, float, float]:
    """Median of a over median of b, and its 95 % interval.

    Round n of a and round n of b were taken side by side, so pairs of rounds are resampled and slow drift cancels out.
    """
    count = min(len(a), len(b))
    if not count:
        raise ValueError("no rounds")
    a, b = a[:count], b[:count]
    rng = np.random.default_rng(SEED)
    picks = _draw_rounds(rng, count)
    ratios = _resampled_medians(a, picks, rng) / _resampled_medians(b, picks, rng)
    low, high = _expanded_interval(ratios, count)
    ratio = float(
        np.median(np.concatenate([np.asarray(one) for one in a]))
        / np.median(np.concatenate([np.asarray(one) for one in b]))
    )
    floor = math.sqrt(2) * between_runs * ratio
    return ratio, ratio - math.hypot(max(ratio - low, 0.0), floor), ratio + math.hypot(max(high - ratio, 0.0), floor)


def unpaired_ratio(
    a: Sequence[float], b: Sequence[float], per_round: tuple[int, int] = (0, 0), *, between_runs: float = 0.0
) -> tuple[float, float, float]:
    """Median of a over median of b, and its 95 % interval, for samples of two runs whose rounds do not pair up."""
    rng = np.random.default_rng(SEED)
    first, second = split_rounds(a, per_round[0]), split_rounds(b, per_round[1])
    ratios = _resampled_medians(first, _draw_rounds(rng, len(first)), rng) / _resampled_medians(
        second, _draw_rounds(rng, len(second)), rng
    )
    low, high = _expanded_interval(ratios, min(len(first), len(second)))
    ratio = float(np.median(np.asarray(a)) / np.median(np.asarray(b)))
    floor = math.sqrt(2) * between_runs * ratio
    return ratio, ratio - math.hypot(max(ratio - low, 0.0), floor), ratio + math.hypot(max(high - ratio, 0.0), floor)
