"""Memoises functions of a stage: neighbouring programs differ in one stage, and the others are asked again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from workbench.language.ir import Stage

T = TypeVar("T")
MAX_ENTRIES = 1 << 14


def memoise(function: Callable[[Stage], T]) -> Callable[[Stage], T]:
    """Return the function with a cache; the key is the stage's text, in which 1, 1.0 and True differ."""
    cache: dict[str, T] = {}

    @functools.wraps(function)
    def look_up(stage: Stage) -> T:
        key = repr(stage)
        found = cache.get(key)
        if found is None:
            found = function(stage)
            if len(cache) >= MAX_ENTRIES:
                cache.clear()
            cache[key] = found
        return found

    return look_up
