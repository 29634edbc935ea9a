"""Search strategies on a recorded landscape, and their regret after each try.

    walk = hill_climb(landscape, seed=0)     the programs in the order of the tries
    regret(landscape, walk)                  after each try: best time so far / best time of all - 1

A failing program counts as a try like any other. Nothing is compiled or run.
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
    """The planner's programs in its order, without those that were not measured."""
    rows = (landscape.row(program) for program in programs)
    return tuple(dict.fromkeys(row.program for row in rows if row is not None))


def random_order(landscape: Landscape, seed: int) -> tuple[str, ...]:
    """All legal programs in a random order."""
    programs = sorted(_legal_programs(landscape))
    random.Random(seed).shuffle(programs)
    return tuple(programs)


def neighbours(landscape: Landscape) -> dict[str, tuple[str, ...]]:
    """Program -> the programs that differ from it in one setting: another value, or the setting is absent."""
    settings = {program: settings_of(program) for program in sorted(_legal_programs(landscape))}
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
    """Greedy hill climbing: try the neighbours of the best program so far in random order.

    Move to the first one that is faster. If none is, restart from a random program.
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
        tried[here] = _time_s(landscape, here)
        moved = True
        while moved:
            moved = False
            for other in numbers.sample(near[here], len(near[here])):
                if other not in tried:
                    tried[other] = _time_s(landscape, other)
                    if tried[other] < tried[here]:
                        here, moved = other, True
                        break
    return tuple(tried)


def _legal_programs(landscape: Landscape) -> list[str]:
    """The measured programs that are still legal. Checks may have been added since they were recorded."""
    return [program for program in landscape.rows if _is_legal(program)]


@functools.cache
def _is_legal(program: str) -> bool:
    return not check(parse(program))


def _time_s(landscape: Landscape, program: str) -> float:
    row = landscape.rows[program]
    return row.median_s if row.correct and row.median_s else math.inf


def regret(landscape: Landscape, walk: Sequence[str]) -> tuple[float, ...]:
    """After each try: how much slower the best program so far is than the best of all. 0.1 means 10 %.

    The value is infinite until the first correct program.
    """
    best = landscape.best
    if best is None or best.median_s is None:
        return tuple(math.inf for _ in walk)
    found, least = [], math.inf
    for program in walk:
        least = min(least, _time_s(landscape, program))
        found.append(least / best.median_s - 1)
    return tuple(found)


def median_curve(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The median over several walks after each try. A walk that has ended keeps its last value."""
    longest = max(map(len, curves), default=0)
    columns = [sorted(curve[min(at, len(curve) - 1)] for curve in curves if curve) for at in range(longest)]
    return tuple(column[len(column) // 2] for column in columns)
