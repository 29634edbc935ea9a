"""Medians with intervals, and whether two sets of samples differ by more than their noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 1000
SEED = 0  # the interval of the same samples is always the same


def _medians(samples: Sequence[float]) -> np.ndarray:
    values = np.asarray(samples, dtype=np.float64)
    picks = np.random.default_rng(SEED).integers(0, len(values), size=(RESAMPLES, len(values)))
    return np.median(values[picks], axis=1)


def median_interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """Median, and its bootstrap 95 % interval (percentile method)."""
    if not len(samples):
        raise ValueError("no samples")
    medians = _medians(samples)
    return float(np.median(np.asarray(samples))), float(np.quantile(medians, 0.025)), float(np.quantile(medians, 0.975))


def distinguishable(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether the bootstrap 95 % interval of the ratio of medians excludes 1."""
    first = _medians(a)
    values = np.asarray(b, dtype=np.float64)
    picks = np.random.default_rng(SEED + 1).integers(0, len(values), size=(RESAMPLES, len(values)))
    ratio = first / np.median(values[picks], axis=1)
    low, high = np.quantile(ratio, [0.025, 0.975])
    return bool(low > 1 or high < 1)
