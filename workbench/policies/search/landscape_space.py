"""A recorded landscape as a space to search in: every row is a candidate, and trying it looks its time up.

    tree = search_landscape(place, RandomSearch(), seed=0, trials=20)
    share_of_best(place, tree)

Nothing is compiled or run.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from workbench.landscapes import Landscape, Row
from workbench.landscapes.keys import format_settings, settings_of
from workbench.language import check, parse
from workbench.policies.search.engine import run_search
from workbench.policies.search.logs import MemoryLog
from workbench.policies.search.protocols import ShouldStop, Strategy
from workbench.policies.search.tree import SearchNode, SearchTree
from workbench.records.search import NodeResult, Prior, SearchBudget, SearchCandidate
from workbench.wire import content_hash

Priors = Mapping[str, Prior]  # program -> what is expected of it


class LandscapeSpace:
    """The measured programs that are still legal. Two are neighbours if they differ in one setting."""

    writes = False

    def __init__(
        self, place: Landscape, priors: Priors | None = None, bounds: Mapping[str, float] | None = None
    ) -> None:
        """`bounds`: program -> its least time in seconds."""
        self.place = place
        self._bounds = bounds or {}
        self._near = neighbours(place)
        given = priors or {}
        self._candidates = {
            program: SearchCandidate(
                key=content_hash(program)[:16], text=program, title=_title(program), prior=given.get(program)
            )
            for program in self._near
        }
        self._roots = tuple(self._candidates.values())
        self._children = {
            program: tuple(self._candidates[other] for other in others) for program, others in self._near.items()
        }

    def roots(self) -> Sequence[SearchCandidate]:
        """All programs, in the order of their texts."""
        return self._roots

    def children(self, node: SearchNode, tree: SearchTree) -> Sequence[SearchCandidate]:
        """The neighbours of a program."""
        return self._children.get(node.candidate.text, ()) if node.candidate is not None else ()

    def expand(self, node: SearchNode, tree: SearchTree, should_stop: ShouldStop) -> Sequence[SearchCandidate]:
        """Nothing: all candidates are known."""
        return ()

    def bound_s(self, candidate: SearchCandidate) -> float | None:
        """The least time of a program, if it was given."""
        return self._bounds.get(candidate.text)

    def settings(self, candidate: SearchCandidate) -> Mapping[str, str]:
        """Its settings as people write them, with the defaults that it leaves out."""
        return format_settings(candidate.text)


class LandscapeEvaluator:
    """Looks rows up; `seconds` is what compiling took when it was recorded."""

    def __init__(self, place: Landscape) -> None:
        self.place = place

    def judge(self, candidate: SearchCandidate, tree: SearchTree, should_stop: ShouldStop) -> NodeResult:
        """The recorded result."""
        return result_of(self.place.rows[candidate.text])


def result_of(row: Row) -> NodeResult:
    """A row of a landscape as the result of a try."""
    failure = row.failure_record
    if row.correct and row.median_s:
        return NodeResult(
            outcome="passed", time_s=row.median_s, low_s=row.low_s, high_s=row.high_s, seconds=row.compile_s or 0.0
        )
    broken = failure is not None and failure.stage in ("source", "import", "compile")
    return NodeResult(
        outcome="compile-error" if broken else "failed", message=row.failure, seconds=row.compile_s or 0.0
    )


def search_landscape(
    place: Landscape, strategy: Strategy, seed: int = 0, trials: int | None = None, priors: Priors | None = None
) -> SearchTree:
    """The tree of a search on a landscape; without `trials` it ends when every program was tried."""
    space = LandscapeSpace(place, priors)
    return run_search(
        space, LandscapeEvaluator(place), strategy, MemoryLog(), seed=seed, budget=SearchBudget(trials=trials)
    )


def walk_landscape(place: Landscape, strategy: Strategy, seed: int = 0, trials: int | None = None) -> tuple[str, ...]:
    """The programs in the order of the tries."""
    tree = search_landscape(place, strategy, seed, trials)
    return tuple(node.candidate.text for node in tree.walk() if node.candidate is not None)


def planner_order(place: Landscape, programs: Iterable[str]) -> tuple[str, ...]:
    """The planner's programs in its order, without those that were not measured."""
    rows = (place.row(program) for program in programs)
    return tuple(dict.fromkeys(row.program for row in rows if row is not None))


def neighbours(place: Landscape) -> dict[str, tuple[str, ...]]:
    """Program -> the programs that differ from it in one setting, of the measured ones that are still legal."""
    return group_neighbours(sorted(_legal_programs(place)))


def group_neighbours(programs: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Program -> those of the programs that differ from it in one setting: another value, or the setting is absent."""
    settings = {program: settings_of(program) for program in programs}
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


def _legal_programs(place: Landscape) -> list[str]:
    """The measured programs that are still legal. Checks may have been added since they were recorded."""
    return [program for program in place.rows if _is_legal(program)]


@functools.cache
def _is_legal(program: str) -> bool:
    return not check(parse(program))


def _title(program: str) -> str:
    """A program's settings in a few words."""
    return ", ".join(f"{name} {value}" for name, value in format_settings(program).items() if name != "arch")


def time_s(place: Landscape, program: str) -> float:
    """The recorded time of a program in seconds; infinite where it failed."""
    row = place.rows[program]
    return row.median_s if row.correct and row.median_s else math.inf
