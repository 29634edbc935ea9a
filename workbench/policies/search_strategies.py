"""Search strategies replayed on a landscape: the order of tries, and the distance to the best after each try.

    walk = hill_climb(landscape, seed=0)     the programs in the order in which they are tried
    regret(landscape, walk)                  after each try: time of the best so far over that of the best, minus 1

A try of a program that fails costs as much as any other. Nothing is compiled or run.
"""

from __future__ import annotations

import functools
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

from workbench.landscapes import Landscape
from workbench.landscapes.keys import settings_of
from workbench.language import check, parse


def planner_order(landscape: Landscape, programs: Iterable[str]) -> tuple[str, ...]:
    """The planner's order: its programs as far as they were measured."""
    rows = (landscape.row(program) for program in programs)
    return tuple(dict.fromkeys(row.program for row in rows if row is not None))


def random_order(landscape: Landscape, seed: int) -> tuple[str, ...]:
    """All programs, shuffled."""
    programs = sorted(_legal(landscape))
    random.Random(seed).shuffle(programs)
    return tuple(programs)


def neighbours(landscape: Landscape) -> dict[str, tuple[str, ...]]:
    """Program -> those that differ from it in one setting (another value, or left out)."""
    settings = {program: settings_of(program) for program in sorted(_legal(landscape))}
    names = sorted({name for one in settings.values() for name in one})
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for program, one in settings.items():
        for name in names:
            groups[name, tuple(sorted((key, value) for key, value in one.items() if key != name))].append(program)
    found: dict[str, dict[str, None]] = {program: {} for program in settings}
    for members in groups.values():
        for program in members:
            found[program].update(dict.fromkeys(other for other in members if other != program))
    return {program: tuple(others) for program, others in found.items()}


def hill_climb(landscape: Landscape, seed: int, start: str | None = None) -> tuple[str, ...]:
    """Greedy hill climbing: try the neighbours of the best so far in random order.

    Move on at the first that is faster; begin anew at random when none is.
    """
    numbers = random.Random(seed)
    near = neighbours(landscape)
    tried: dict[str, float] = {}
    while len(tried) < len(near):
        here = (
            start
            if start in near and not tried
            else numbers.choice([program for program in near if program not in tried])
        )
        tried[here] = _seconds(landscape, here)
        moved = True
        while moved:
            moved = False
            for other in numbers.sample(near[here], len(near[here])):
                if other not in tried:
                    tried[other] = _seconds(landscape, other)
                    if tried[other] < tried[here]:
                        here, moved = other, True
                        break
    return tuple(tried)


def _legal(landscape: Landscape) -> list[str]:
    """The measured programs that are still legal: checks may have been added since."""
    return [program for program in landscape.rows if _is_legal(program)]


@functools.cache
def _is_legal(program: str) -> bool:
    return not check(parse(program))


def _seconds(landscape: Landscape, program: str) -> float:
    row = landscape.rows[program]
    return row.median_s if row.correct and row.median_s else math.inf


def regret(landscape: Landscape, walk: Sequence[str]) -> tuple[float, ...]:
    """After each try how much slower the best so far is than the best of all: 0.1 is 10 %.

    It is infinite until the first correct program.
    """
    best = landscape.best
    if best is None or best.median_s is None:
        return tuple(math.inf for _ in walk)
    found, least = [], math.inf
    for program in walk:
        least = min(least, _seconds(landscape, program))
        found.append(least / best.median_s - 1)
    return tuple(found)


def median_curve(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The median over several walks, after each try; a walk that has ended stays where it is."""
    longest = max(map(len, curves), default=0)
    columns = [sorted(curve[min(at, len(curve) - 1)] for curve in curves if curve) for at in range(longest)]
    return tuple(column[len(column) // 2] for column in columns)
