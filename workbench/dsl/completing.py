"""What may come next in the unfinished text of a program: operations, settings of the operation, values of a setting, epilogues."""

from __future__ import annotations

import re

from workbench.dsl.operation import Operation, Setting
from workbench.dsl.registry import OPERATIONS
from workbench.dsl.text import format_value


def completions(text: str) -> tuple[str, list[str]]:
    """(the end of the text that is taken out, what may stand there instead), in the order of the language; a setting that takes values ends in "("."""
    stage = text.rpartition("|>")[2]
    head = re.match(r"\s*(?:\w+\s*=\s*)?(\w*)(\s*\()?", stage)
    assert head is not None  # it matches anything
    if head[2] is None:
        return (head[1], _starting(head[1], list(OPERATIONS))) if head.end() == len(stage) else ("", [])
    operation = OPERATIONS.get(head[1])
    if operation is None:
        return "", []
    opened = _open(stage)
    if not opened:
        return _behind(operation, stage)
    named = re.search(r"\.(\w+)\s*$", stage[: opened[0]])
    known = operation.setting(named[1]) if named and len(opened) == 1 else None
    return _values(known, stage[opened[0] + 1 :]) if known is not None else ("", [])


def _open(stage: str) -> list[int]:
    """Where the parentheses stand that are not yet closed."""
    found: list[int] = []
    for at, sign in enumerate(stage):
        if sign == "(":
            found.append(at)
        elif sign == ")" and found:
            found.pop()
    return found


def _behind(operation: Operation, stage: str) -> tuple[str, list[str]]:
    """Settings that are not yet set, or epilogues."""
    if (found := re.search(r">>\s*(\w*)$", stage)) is not None:
        return found[1], _starting(found[1], [f"{name}(" for name in operation.epilogues])
    if ">>" in stage or (found := re.search(r"\.\w*$", stage)) is None:
        return "", []
    given = set(re.findall(r"\.(\w+)\s*\(", stage))
    return found[0], _starting(found[0], [f".{item.name}" + ("()" if item.values == ((),) else "(") for item in operation.settings if item.name not in given])


def _values(known: Setting, inside: str) -> tuple[str, list[str]]:
    """What is left of each value that begins as the text does; of a value of several parts, all that are left."""
    end = re.search(r"[^\s(),]*$", inside)
    assert end is not None  # it matches nothing too
    before, typed = inside[: end.start()], re.sub(r"\s+", "", inside)
    found = [format_value(value).removeprefix("(").removesuffix(")") if isinstance(value, tuple) else str(value) for value in known.values]
    parts = before.count(",")
    kept = [", ".join(text.split(", ")[parts:]) for text in found if text.replace(" ", "").startswith(typed)]
    return end[0], list(dict.fromkeys(filter(None, kept)))


def _starting(fragment: str, options: list[str]) -> list[str]:
    return [option for option in options if option.startswith(fragment)]
