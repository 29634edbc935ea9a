"""Keeps results for stages of programs: neighbours of a program differ in one stage, and the others are asked again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from workbench.language.ir import Stage

T = TypeVar("T")
MOST = 1 << 14  # stages


def remember(function: Callable[[Stage], T]) -> Callable[[Stage], T]:
    """The function with its results kept by the stage's text. In that 1, 1.0 and True differ, which are equal keys."""
    known: dict[str, T] = {}

    @functools.wraps(function)
    def look(stage: Stage) -> T:
        text = repr(stage)
        found = known.get(text)
        if found is None:
            found = function(stage)
            if len(known) >= MOST:
                known.clear()
            known[text] = found
        return found

    return look
