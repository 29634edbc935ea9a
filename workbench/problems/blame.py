"""The reference at full size, or which of a person's settings keep it from running there. Used in workers only: it imports torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from workbench.errors import ProblemError
from workbench.problems import cases
from workbench.problems.cases import Measured
from workbench.problems.settings import assigned
from workbench.records import Problem

Names = Sequence[str]


def full(problem: Problem) -> Measured:
    """The full case; raises `ProblemError` in one line, which names the settings that are at fault where some are."""
    try:
        found = cases.measure(problem, "full")
    except ProblemError as error:
        raise ProblemError(_blamed(problem, str(error)) or str(error)) from None
    if not _has_result(found) and (names := _culprits(problem, _below(problem))):
        raise ProblemError(
            f"{_said(problem, names)}: the result has no elements, so there is nothing to compute; legal: {_legal(problem, names)}"
        )
    return found


def _blamed(problem: Problem, why: str) -> str | None:
    """What is wrong with the settings, where the reference runs without them; of a size below 1 torch's own words would add nothing."""
    below = _below(problem)
    if names := _culprits(problem, below):
        return f"{_said(problem, names)}: no size that this problem can have; legal: {_legal(problem, names)}"
    if names := _culprits(problem, [name for name in dict(problem.settings) if name not in below]):
        return f"{_said(problem, names)}: {why}; legal: what the reference runs with, as {_own(problem, names)}"
    return None


def _below(problem: Problem) -> list[str]:
    """Settings under 1 of what the file itself has as a whole number from 1 on: sizes, most likely, but -1 may be an axis and 0 a padding."""
    own = {item.name: item.value for item in assigned(problem.source)}
    return [
        name
        for name, value in dict(problem.settings).items()
        if isinstance(value, int) and value < 1 and not isinstance(own[name], (bool, float)) and own[name] > 0
    ]


def _culprits(problem: Problem, names: Names) -> Names:
    """As few of the settings as it takes, so that without them the reference runs and has a result; none, where that does not help."""
    if not names or not _runs_without(problem, names):
        return ()
    for name in names:
        fewer = [other for other in names if other != name]
        names = fewer if fewer and _runs_without(problem, fewer) else names
    return names


def _runs_without(problem: Problem, names: Names) -> bool:
    try:
        return _has_result(
            cases.measure(
                dataclasses.replace(problem, settings=tuple(pair for pair in problem.settings if pair[0] not in names)),
                "full",
            )
        )
    except ProblemError:
        return False


def _has_result(found: Measured) -> bool:
    return any(map(cases.count, found.case.outputs))


def _said(problem: Problem, names: Names) -> str:
    given = dict(problem.settings)
    return f"setting{'s' * (len(names) > 1)} {', '.join(f'{name}={given[name]!r}' for name in names)}"


def _legal(problem: Problem, names: Names) -> str:
    return f"whole numbers from 1 on ({_own(problem, names)})"


def _own(problem: Problem, names: Names) -> str:
    own = {item.name: item.value for item in assigned(problem.source)}
    return ", ".join(f"{name}={own[name]!r}" for name in names) + " in the problem"
