"""Writes the configurations of a space: programs from the text of `--over`, files from a ModelNew file's constants."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping

from workbench import problems
from workbench.codegen.canonical import canonical
from workbench.errors import ProgramError, UserError
from workbench.language import OPERATIONS, Call, Program, Stage, format_program, parse
from workbench.language.operation import close

SPACE = "SPACE"  # the constant of a ModelNew file that declares what may vary
MODEL_NEW = "model_new"  # name of the operation in rows of such a file


def parse_over(text: str) -> dict[str, tuple[object, ...]]:
    """`tile=128x128x64|128x256x64,stages` -> setting -> values. () as values means all that the language tries."""
    found: dict[str, tuple[object, ...]] = {}
    for part in filter(None, text.split(",")):
        name, equals, values = part.strip().partition("=")
        if not name.isidentifier() or (equals and not values):
            raise UserError(f"--over {part!r}: write NAME or NAME=VALUE|VALUE, as in tile=128x128x64|128x256x64,stages")
        found[name] = tuple(_parse_value(value) for value in values.split("|")) if equals else ()
    return found


def _parse_value(text: str) -> object:
    parts = [int(part) if part.lstrip("-").isdigit() else part for part in text.strip().split("x")]
    words = any(isinstance(part, str) for part in parts)
    return text.strip() if words else parts[0] if len(parts) == 1 else tuple(parts)


def vary_program(text: str, over: Mapping[str, tuple[object, ...]]) -> list[str]:
    """The program, then its legal variants over the settings in the order of a hash. Equal programs appear once.

    Raises `UserError` for a value in `over` that is legal in no combination.
    """
    program = parse(text)
    if not over:
        return [canonical(text)]
    choices = [(name, _values(program, name, values)) for name, values in over.items()]
    found = dict.fromkeys([canonical(text)])
    refused: dict[tuple[str, object], ProgramError] = {}
    taken: set[tuple[str, object]] = set()
    for values in itertools.product(*(options for _, options in choices)):
        varied = program
        for (name, _), value in zip(choices, values, strict=True):
            varied = _with_setting(varied, name, value)
        try:
            found[canonical(format_program(varied))] = None
            taken.update(zip(over, values, strict=True))
        except ProgramError as error:  # this combination is not legal
            refused |= {one: error for one in zip(over, values, strict=True) if one not in refused}
    for (name, value), reason in refused.items():
        if (name, value) not in taken and value in over[name]:
            raise UserError(f"--over {name}: {_format_value(value)} is legal in no combination: {reason}")
    first, *rest = found
    return [first, *sort_by_hash(rest)]


def _format_value(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _values(program: Program, name: str, values: tuple[object, ...]) -> tuple[object, ...]:
    known = {setting.name: setting for stage in program.stages for setting in OPERATIONS[stage.operation.name].settings}
    if name not in known:
        raise UserError(f"--over {name}: the program has no such setting; legal: {close(name, tuple(known))}")
    return values or known[name].values


def _with_setting(program: Program, name: str, value: object) -> Program:
    return Program(stages=tuple(_stage_with(stage, name, value) for stage in program.stages))


def _stage_with(stage: Stage, name: str, value: object) -> Stage:
    if OPERATIONS[stage.operation.name].setting(name) is None:
        return stage
    call = Call(name=name, positional=value if isinstance(value, tuple) else (value,))
    return dataclasses.replace(stage, settings=(*(one for one in stage.settings if one.name != name), call))


def vary_file(source: str, where: str) -> dict[str, str]:
    """Row name -> file text for every combination of the constants in `SPACE`. The unchanged file comes first."""
    space = read_space(source, where)
    found: dict[str, str] = {}
    for values in itertools.product(*space.values()):
        chosen = tuple(zip(space, values, strict=True))
        found[name_row(chosen)] = problems.with_settings(source, chosen)
    own = tuple((name, value) for name, value in problems.module_scalars(source).items() if name in space)
    first = name_row(tuple((name, dict(own)[name]) for name in space))
    return {name: found[name] for name in dict.fromkeys([*([first] if first in found else []), *sort_by_hash(found)])}


def name_row(chosen: Iterable[tuple[str, object]]) -> str:
    """Name of a combination in a row: model_new() .TILE(64) .STAGES(2)."""
    return " ".join([f"{MODEL_NEW}()", *(f".{name}({value})" for name, value in chosen)])


def read_space(source: str, where: str) -> dict[str, tuple[int | float, ...]]:
    """`SPACE = {"TILE": (64, 128)}` of a file. Raises `UserError` if a constant cannot be varied."""
    constants = problems.module_scalars(source)
    for node in _assignments(source):
        if not any(isinstance(target, ast.Name) and target.id == SPACE for target in node.targets):
            continue
        try:
            space = {str(name): tuple(values) for name, values in ast.literal_eval(node.value).items()}
        except (ValueError, TypeError, AttributeError):
            raise UserError(
                f'{where}:{node.lineno}: write {SPACE} as {{"TILE": (64, 128), "STAGES": (2, 3)}}'
            ) from None
        for name, values in space.items():
            if name not in constants or not values or not all(isinstance(value, int | float) for value in values):
                raise UserError(
                    f"{where}:{node.lineno}: {name} of {SPACE} needs numbers, and a module constant {name} = NUMBER"
                )
        return space
    raise UserError(f'{where} declares no space: add {SPACE} = {{"TILE": (64, 128)}} for the constants that may vary')


def _assignments(source: str) -> Iterator[ast.Assign]:
    return (node for node in ast.parse(source).body if isinstance(node, ast.Assign))


def sort_by_hash(texts: Iterable[str]) -> list[str]:
    """Sort texts by their hash: an order that is independent of the settings, the same on every machine."""
    return sorted(texts, key=lambda text: hashlib.sha256(text.encode()).hexdigest())
