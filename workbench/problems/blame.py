"""Measures the reference at full size. Where it does not run, finds the settings of the person that are at fault.

Used in workers only: it imports torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from workbench.errors import ProblemError
from workbench.problems import cases
from workbench.problems.cases import Measured
from workbench.problems.settings import find_assignments
from workbench.records import Problem

Names = Sequence[str]


def measure_full(problem: Problem) -> Measured:
    """The full case. Raises `ProblemError` in one line, which names the settings at fault if there are some."""
    try:
        found = cases.measure(problem, "full")
    except ProblemError as error:
        raise ProblemError(_explain_settings(problem, str(error)) or str(error)) from None
    if not _has_result(found) and (names := _find_culprits(problem, _nonpositive_sizes(problem))):
        raise ProblemError(
            f"{_name_settings(problem, names)}: the result has no elements, so there is nothing to compute; "
            f"legal: {_legal_sizes(problem, names)}"
        )
    return found


def _explain_settings(problem: Problem, why: str) -> str | None:
    """What is wrong with the settings; None if the reference does not run without them either.

    For a size below 1, torch's own message is left out: it would add nothing.
    """
    below = _nonpositive_sizes(problem)
    if names := _find_culprits(problem, below):
        legal = _legal_sizes(problem, names)
        return f"{_name_settings(problem, names)}: no size that this problem can have; legal: {legal}"
    if names := _find_culprits(problem, [name for name in dict(problem.settings) if name not in below]):
        own = _own_values(problem, names)
        return f"{_name_settings(problem, names)}: {why}; legal: what the reference runs with, as {own}"
    return None


def _nonpositive_sizes(problem: Problem) -> list[str]:
    """Settings below 1 whose value in the file is an integer of at least 1.

    They are most likely sizes. (A -1 in the file may be an axis, and a 0 a padding.)
    """
    own = {item.name: item.value for item in find_assignments(problem.source)}
    return [
        name
        for name, value in dict(problem.settings).items()
        if isinstance(value, int) and value < 1 and not isinstance(own[name], (bool, float)) and own[name] > 0
    ]


def _find_culprits(problem: Problem, names: Names) -> Names:
    """The fewest settings without which the reference runs and has a result; () if leaving them out is no help."""
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
    return any(spec.elements for spec in found.case.outputs)


def _name_settings(problem: Problem, names: Names) -> str:
    given = dict(problem.settings)
    return f"setting{'s' * (len(names) > 1)} {', '.join(f'{name}={given[name]!r}' for name in names)}"


def _legal_sizes(problem: Problem, names: Names) -> str:
    return f"whole numbers from 1 on ({_own_values(problem, names)})"


def _own_values(problem: Problem, names: Names) -> str:
    own = {item.name: item.value for item in find_assignments(problem.source)}
    return ", ".join(f"{name}={own[name]!r}" for name in names) + " in the problem"
