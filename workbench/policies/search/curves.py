"""How good the best so far of a search is after each try, against the best of all that was recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence

from workbench.landscapes import Landscape
from workbench.policies.search.landscape_space import time_s


def regret(place: Landscape, walk: Sequence[str]) -> tuple[float, ...]:
    """After each try: how much slower the best program so far is than the best of all. 0.1 means 10 %.

    The value is infinite until the first correct program. A failing program counts as a try like any other.
    """
    best = place.best
    if best is None or best.median_s is None:
        return tuple(math.inf for _ in walk)
    found, least = [], math.inf
    for program in walk:
        least = min(least, time_s(place, program))
        found.append(least / best.median_s - 1)
    return tuple(found)


def share_of_best(place: Landscape, walk: Sequence[str]) -> tuple[float, ...]:
    """After each try: the best time of all over the best so far. 1 is the best, 0 before the first correct program."""
    return tuple(1 / (1 + value) for value in regret(place, walk))


def median_curve(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The median over several walks after each try. A walk that has ended keeps its last value."""
    longest = max(map(len, curves), default=0)
    columns = [sorted(curve[min(at, len(curve) - 1)] for curve in curves if curve) for at in range(longest)]
    return tuple(column[len(column) // 2] for column in columns)
