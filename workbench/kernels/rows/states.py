"""Reductions with several values of state: how they absorb an element and merge two states.

A variance is kept as mean, sum of squared deviations and count (Welford; merged after Chan, Golub and LeVeque), which
is as accurate as two passes. A thread that walks a row alone compensates the mean (Kahan), because the roundings of
thousands of steps add up where they have one sign. An argmax keeps value and index; of equal values it takes the
smaller index.
"""

import cutlass
from cutlass import cute

from workbench.kernels.scalars import choose


def variance_absorb(center, squares, seen, value):
    away = value - center
    seen = seen + 1.0
    center = center + away * cute.arch.rcp_approx(seen)
    squares = squares + away * (value - center)
    return center, squares, seen


def compensated_variance_absorb(center, squares, seen, lost, value):
    away = value - center
    seen = seen + 1.0
    step = away * cute.arch.rcp_approx(seen) - lost
    moved = center + step
    lost = (moved - center) - step
    squares = squares + away * (value - moved)
    return moved, squares, seen, lost


def variance_merge(center, squares, seen, other_center, other_squares, other_seen):
    away = other_center - center
    share = other_seen * cute.arch.rcp_approx(cute.arch.fmax(seen + other_seen, cutlass.Float32(1.0)))
    squares = squares + other_squares + away * away * seen * share
    center = center + away * share
    return center, squares, seen + other_seen


def larger(a, b):
    """Return whether a > b; as in torch, NaN is larger than any number."""
    return (a > b) | ((a != a) & (b == b))  # noqa: PLR0124 (a number equals itself)


def smaller(a, b):
    """Return whether a < b; as in torch, NaN is smaller than any number."""
    return (a < b) | ((a != a) & (b == b))  # noqa: PLR0124 (a number equals itself)


def argmax_absorb(best, place, value, position):
    better = larger(value, best)
    return choose(better, value, best), cutlass.Int32(cutlass.select_(better, position, place))


def argmin_absorb(best, place, value, position):
    better = smaller(value, best)
    return choose(better, value, best), cutlass.Int32(cutlass.select_(better, position, place))


@cute.jit
def argmax_merge(best, place, other, other_place):
    better = larger(other, best) | ((other_place < place) & (not larger(best, other)))
    return choose(better, other, best), cutlass.Int32(cutlass.select_(better, other_place, place))


@cute.jit
def argmin_merge(best, place, other, other_place):
    better = smaller(other, best) | ((other_place < place) & (not smaller(best, other)))
    return choose(better, other, best), cutlass.Int32(cutlass.select_(better, other_place, place))


def exponential_absorb(largest, total, value):
    """Online softmax: when the maximum grows, rescale the sum so far."""
    bigger = cute.arch.fmax(largest, value)
    total = total * cute.math.exp(largest - bigger, fastmath=True) + cute.math.exp(value - bigger, fastmath=True)
    return bigger, total
