"""muCUTLASS text <-> programs: the lark parser and the formatter (a fixed point of parse then format)."""

from __future__ import annotations

import functools
import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ProgramError
from workbench.language.ir import Call, Program, Stage

if TYPE_CHECKING:
    from lark import Lark, Tree

GRAMMAR = Path(__file__).with_name("grammar.lark")
DEEPEST = 60  # calls in calls


def grammar_text() -> str:
    """The grammar as it is shown to people and to models."""
    return GRAMMAR.read_text()


@functools.cache
def _parser() -> Lark:
    from lark import Lark

    return Lark(grammar_text(), start="program", parser="lalr", maybe_placeholders=False)


@functools.lru_cache(maxsize=1 << 14)
def parse(text: str) -> Program:
    """The program; raises `ProgramError` with line, column and what was expected."""
    from lark.exceptions import UnexpectedInput

    if max(itertools.accumulate({"(": 1, ")": -1}.get(sign, 0) for sign in text), default=0) > DEEPEST:
        raise ProgramError(
            f"muCUTLASS cannot be read: calls are nested over {DEEPEST} deep; name parts as stages: h = ... |> ..."
        )
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        where = f"line {error.line}, column {error.column}" if getattr(error, "line", -1) > 0 else "the end"
        names = sorted(getattr(error, "expected", None) or getattr(error, "allowed", None) or [])[:6]
        expected = ", ".join(_terminal_text(name) for name in names)
        raise ProgramError(
            f"muCUTLASS cannot be read at {where}: {error.get_context(text, 20).strip().splitlines()[0]!r}"
            + (f"; expected {expected}" if expected else "")
        ) from None
    return Program(stages=tuple(_stage(child) for child in tree.children))


def _terminal_text(terminal: str) -> str:
    """What stands in a program for a terminal of the grammar."""
    pattern = next((item.pattern for item in _parser().terminals if item.name == terminal), None)
    return (
        repr(pattern.value)
        if pattern is not None and type(pattern).__name__ == "PatternStr"
        else {"NAME": "a name", "SIGNED_NUMBER": "a number", "$END": "the end"}.get(terminal, terminal)
    )


def _stage(tree: Tree) -> Stage:
    parts: dict[str, list[Call]] = {"operation": [], "setting": [], "epilogue": []}
    result = None
    for child in tree.children:
        if child.data == "result":
            result = str(child.children[0])
        else:
            parts[child.data].append(_call(child.children[0]))
    return Stage(
        operation=parts["operation"][0],
        settings=tuple(parts["setting"]),
        epilogues=tuple(parts["epilogue"]),
        result=result,
    )


def _call(tree: Tree) -> Call:
    name, *arguments = tree.children
    positional = tuple(_value(argument.children[0]) for argument in arguments if argument.data == "plain")
    named = tuple(
        (str(argument.children[0]), _value(argument.children[1])) for argument in arguments if argument.data == "named"
    )
    return Call(name=str(name), positional=positional, named=named)


def _value(tree: Tree) -> object:
    if tree.data == "call":
        return _call(tree)
    if tree.data == "several":
        return tuple(_value(child) for child in tree.children)
    text = str(tree.children[0])
    if tree.data == "name":
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def format_program(program: Program) -> str:
    """The canonical text of a program."""
    return " |> ".join(_format_stage(stage) for stage in program.stages)


def format_call(call: Call) -> str:
    """The canonical text of a call."""
    return _format(call)


def format_value(value: object) -> str:
    """The canonical text of a call, a name, a number, or several of them."""
    return _format(value)


def _format_stage(stage: Stage) -> str:
    named = [f"{stage.result} ="] if stage.result is not None else []
    return " ".join(
        [
            *named,
            _format(stage.operation),
            *("." + _format(call) for call in stage.settings),
            *(">> " + _format(call) for call in stage.epilogues),
        ]
    )


def _format(value: object) -> str:
    if isinstance(value, Call):
        inside = [*map(_format, value.positional), *(f"{key}={_format(item)}" for key, item in value.named)]
        return f"{value.name}({', '.join(inside)})"
    if isinstance(value, float) and math.isinf(value):  # a number that no float holds is read as infinite
        return "1e999" if value > 0 else "-1e999"
    return f"({', '.join(map(_format, value))})" if isinstance(value, tuple) else str(value)
