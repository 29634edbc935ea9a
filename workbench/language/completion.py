"""What may come next in the unfinished text of a program: operations, their named arguments, settings of the operation,
values of both, epilogues."""

from __future__ import annotations

import re

from workbench.language.operation import Argument, Operation, Setting
from workbench.language.parser import format_value
from workbench.language.registry import OPERATIONS


def completions(text: str) -> tuple[str, list[str]]:
    """(the end of the text that is taken out, what may stand there instead), in the order of the language.

    A setting that takes values ends in "(".
    """
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
    if opened == [head.end() - 1]:
        return _arguments(operation, stage[opened[0] + 1 :])
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
    return found[0], _starting(
        found[0],
        [
            f".{item.name}" + ("()" if item.values == ((),) else "(")
            for item in operation.settings
            if item.name not in given
        ],
    )


def _arguments(operation: Operation, inside: str) -> tuple[str, list[str]]:
    """Named arguments that are not yet given, behind the operands, or the values of one.

    A value that takes more ends in "(".
    """
    if (found := re.search(r",\s*(\w*)$", inside)) is not None:
        given = set(re.findall(r"(\w+)\s*=", inside))
        return found[1], _starting(
            found[1], [f"{item.name}=" for item in operation.arguments if item.name not in given]
        )
    found = re.search(r",\s*(\w+)\s*=\s*(\w*)$", inside)
    known = next((item for item in operation.arguments if found and item.name == found[1]), None)
    return ("", []) if found is None or known is None else (found[2], _starting(found[2], _listed(known)))


def _listed(known: Argument) -> list[str]:
    """The words and numbers that are legal for an argument: of `last, last(n), a number from 0`, last and last(."""
    parts = re.split(r",\s+(?:or\s+)?(?![^()]*\))|\s+or\s+", known.legal)
    words = [
        found[1] + (found[2] and "(") for part in parts if (found := re.fullmatch(r"(\d+|\w{2,})((?:\(.*\))?)", part))
    ]
    return list(dict.fromkeys(words))


def _values(known: Setting, inside: str) -> tuple[str, list[str]]:
    """What is left of each value that begins as the text does; of a value of several parts, all that are left."""
    end = re.search(r"[^\s(),]*$", inside)
    assert end is not None  # it matches nothing too
    before, typed = inside[: end.start()], re.sub(r"\s+", "", inside)
    found = [
        format_value(value).removeprefix("(").removesuffix(")") if isinstance(value, tuple) else str(value)
        for value in known.values
    ]
    parts = before.count(",")
    kept = [", ".join(text.split(", ")[parts:]) for text in found if text.replace(" ", "").startswith(typed)]
    return end[0], list(dict.fromkeys(filter(None, kept)))


def _starting(fragment: str, options: list[str]) -> list[str]:
    return [option for option in options if option.startswith(fragment)]
