"""Notices that a candidate replaced functions of the workbench in its own process.

That process reads the inputs, emulates the launches and writes the outputs, so who replaces a function there can answer
as he likes. Python has no memory that its own code cannot write: a candidate that undoes its replacement in time, finds
what is kept here through the garbage collector, or writes to memory with native code is not noticed.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType


def _functions() -> Iterator[tuple[dict[str, object], str, object, str]]:
    """(namespace, name in it, value, full name) of the functions and classes of all modules, and of their methods."""
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith("workbench."):
            continue
        for name, value in list(vars(module).items()):
            full = f"{module_name}.{name}"
            if isinstance(value, (FunctionType, BuiltinFunctionType, type)):
                yield vars(module), name, value, full
            if isinstance(value, type) and value.__module__ == module_name:
                own = vars(value)  # one object for all of them
                for inner, method in list(own.items()):
                    if isinstance(method, FunctionType):
                        yield own, inner, method, f"{full}.{inner}"  # type: ignore[misc]  # it is only read


_PREPARED: dict[frozenset[str], Callable[[], str]] = {}


def prepare() -> None:
    """Let `remember_functions` of processes that are forked from this one answer at once, if they import no more."""
    _PREPARED.clear()
    _PREPARED[_modules()] = _remember()


def _modules() -> frozenset[str]:
    return frozenset(name for name in sys.modules if name.startswith("workbench."))


def remember_functions() -> Callable[[], str]:
    """A function that names what was replaced since now: a function, class or method of the workbench, or its code.

    It gives "" if nothing was. Call this before the candidate is imported.
    """
    return _PREPARED.get(_modules()) or _remember()


def _remember() -> Callable[[], str]:
    kept: dict[int, tuple[Callable[[str], object], list[str], list[object], list[str]]] = {}
    functions: dict[int, tuple[FunctionType, CodeType, str]] = {}
    for namespace, name, value, full in _functions():
        _, names, values, fulls = kept.setdefault(id(namespace), (namespace.get, [], [], []))
        names.append(name)
        values.append(value)
        fulls.append(full)
        if isinstance(value, FunctionType):
            functions[id(value)] = (value, value.__code__, full)
    places = list(kept.values())
    bare, codes = [one for one, _, _ in functions.values()], [code for _, code, _ in functions.values()]
    is_same, every, apply, read_code = operator.is_, all, map, operator.attrgetter("__code__")

    def find_replaced() -> str:  # without a step of Python for each function, since it is called often
        for get, names, values, fulls in places:
            if not every(apply(is_same, apply(get, names), values)):
                return next(
                    full for name, value, full in zip(names, values, fulls, strict=True) if get(name) is not value
                )
        if not every(apply(is_same, apply(read_code, bare), codes)):
            return next(full for one, code, full in functions.values() if one.__code__ is not code)
        return ""

    return find_replaced
