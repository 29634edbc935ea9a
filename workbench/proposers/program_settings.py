"""The settings of programs, and which changes of a ladder a program has."""

from __future__ import annotations

from workbench.language import Call, parse
from workbench.proposers.ladders.base import Rung


def settings_of(program: str) -> set[Call]:
    """All settings of a program, of whatever stage."""
    return {call for stage in parse(program).stages for call in stage.settings}


def find_earlier_changes(program: str | None, rung: Rung, rungs: tuple[Rung, ...]) -> tuple[str, ...]:
    """Titles of the earlier rungs on which a rung is built and which the baseline's program has not: they were
    rejected, or taken in part. So a version's title never leaves out what else it changes.
    """
    own = settings_of(program) if program else set()
    return tuple(
        other.title
        for other in (rungs[1 : rungs.index(rung)] if rung in rungs else ())
        if other.settings and {*other.settings} < {*rung.settings} and not {*other.settings} <= own
    )
