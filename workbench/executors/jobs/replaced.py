"""Notices that a candidate replaced functions of the workbench in its own process.

That process reads the inputs, emulates the launches and writes the outputs, so who replaces a function there can answer
as he likes. Python has no memory that its own code cannot write: a candidate that undoes its replacement in time, finds
what is kept here through the garbage collector, or writes to memory with native code is not noticed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FunctionType


def _functions() -> Iterator[tuple[dict[str, object], str, object, str]]:
    """(namespace, name in it, value, full name) of the functions and classes of all modules, and of their methods."""
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith("workbench."):
            continue
        for name, value in list(vars(module).items()):
            full = f"{module_name}.{name}"
            if isinstance(value, (FunctionType, type)):
                yield vars(module), name, value, full
            if isinstance(value, type) and value.__module__ == module_name:
                for inner, method in list(vars(value).items()):
                    if isinstance(method, FunctionType):
                        yield vars(value), inner, method, f"{full}.{inner}"  # type: ignore[misc]  # it is only read


def remember_functions() -> Callable[[], str]:
    """A function that names what was replaced since now: a function, class or method of the workbench, or its code.

    It gives "" if nothing was. Call this before the candidate is imported.
    """
    kept = [
        (namespace, name, value, full, getattr(value, "__code__", None))
        for namespace, name, value, full in _functions()
    ]

    def find_replaced() -> str:
        for namespace, name, value, full, code in kept:
            if namespace.get(name) is not value or getattr(value, "__code__", None) is not code:
                return full
        return ""

    return find_replaced
