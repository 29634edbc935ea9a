"""Advised moves of settings: programs that make them, measured in a landscape or written anew."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Sequence

from workbench.codegen.canonical import canonical
from workbench.errors import ProgramError
from workbench.landscapes import Landscape, Row
from workbench.landscapes.keys import KEPT, all_settings, distance, strip_settings
from workbench.language import OPERATIONS, Call, Program, Stage, format_program, parse
from workbench.language.operation import Setting
from workbench.records import Move, Version
from workbench.records.advice import Direction

Value = tuple[object, ...]
ABSENT: Value = ("absent",)
WAYS: tuple[Direction, ...] = ("more", "less")
Neighbour = tuple[Row, str, Value, Value]  # a measured row, the setting that differs, the program's value, the row's
Step = tuple[str, str]  # the programs before and after it
ARCH = re.compile(r"\.arch\(\w+\)")
TWO_GROUPS = ".schedule(cooperative)"  # share a tile
LARGEST = 128 * 128  # sums of a tile: 128 registers of 128 threads, half of what a thread has (chosen)


def find_neighbours(place: Landscape, program: str) -> tuple[Neighbour, ...]:
    """The measured rows that differ from a program in one setting, by a step that advice takes: (row, setting, the
    program's value, the row's), nearest values first. A setting that is not written has its default.
    """
    what, found = strip_settings(program), []
    for row in place.correct:
        if strip_settings(row.program) == what and (step := _find_change(program, row.program)) is not None:
            name, old, new = step
            if _skips(program, name, old, new):
                continue
            found.append((distance({name: old}, {name: new}), row.program, (row, name, old, new)))
    return tuple(item for _, _, item in sorted(found, key=lambda item: item[:2]))


def _skips(program: str, name: str, old: Value, new: Value) -> bool:
    """Whether a setting with one number has a value between two others, beyond 1, to which advice would go first."""
    setting, _, at = name.partition(" ")
    known = OPERATIONS[parse(program).stages[int(at or 1) - 1].operation.name].setting(setting)
    if known is None or max(len(old), len(new)) != 1:
        return False
    low, high = sorted(map(_size, (old, new)))
    return any(max(low, 1) < _size(value) < high for value in _list_values(known) if len(value) == 1)


def choose_moved(near: Iterable[Neighbour], wanted: Iterable[Move]) -> Row | None:
    """Of the neighbours of a program the one that makes the first move that any of them makes; of several the nearest
    one, or for a tile the one of most reuse.
    """
    near = tuple(near)
    for move in wanted:
        made = [
            (row, new) for row, name, old, new in near if name == move.setting and goes(move, old, new, row.program)
        ]
        if made:
            return min(made, key=lambda item: _miss(move, item[1]))[0]
    return None


@functools.lru_cache(maxsize=KEPT)
def _settings(program: str) -> dict[str, Value]:
    return all_settings(program)


def _differing(before: str, after: str) -> set[str]:
    """The settings that two programs write differently."""
    old, new = _settings(before), _settings(after)
    return {name for name in {*old, *new} if old.get(name) != new.get(name)}


def _changed(before: str, after: str) -> dict[str, tuple[Value, Value]]:
    """The settings that differ, with both values. One that is not written has its default."""
    found = {}
    for name in sorted(_differing(before, after)):
        old, new = (_value(text, name) for text in (before, after))
        if old != new:
            found[name] = (old, new)
    return found


def _value(program: str, name: str) -> Value:
    found = _settings(program).get(name)
    return find_default(program, name) if found is None else found


def goes(move: Move, old: Value, new: Value, program: str) -> bool:
    """Whether the step from one value of a setting to another, of `program`, is in the move's direction. Absent is the
    least, and one part, stage or CTA is not more; of values with several numbers the product counts, of a larger tile
    its reuse.
    """
    if move.direction == "other":
        return True
    if _is_reuse(move, old, new):
        fits = _area(new) <= max(LARGEST * (2 if TWO_GROUPS in program else 1), _area(old))
        return fits and measure_reuse(new) > measure_reuse(old)
    size = [_size(value) for value in (old, new)]
    if old == ABSENT and new and all(part == 1 for part in new) and move.direction == "more":
        return False
    return size[1] > size[0] if move.direction == "more" else size[1] < size[0]


def measure_reuse(tile: Value) -> float:
    """How often a tile (rows, columns, ...) of a product uses each element that it loads, but for a factor of 2."""
    rows, columns = (float(number) for number in tile[:2] if isinstance(number, int))
    return rows * columns / (rows + columns)


def _area(tile: Value) -> float:
    return _size(tile[:2])


def _is_reuse(move: Move, old: Value, new: Value) -> bool:
    return move.setting == "tile" and move.direction == "more" and min(len(old), len(new)) > 1


def _miss(move: Move, new: Value) -> float:
    """What a move takes the least of before the distance counts: of a larger tile the one of most reuse comes first."""
    return -measure_reuse(new) if _is_reuse(move, new, new) else 0.0


def is_made_by(moves: Iterable[Move], before: str, after: str) -> bool:
    """Whether two programs differ in settings alone, and each of these goes the way of one of the moves."""
    if strip_settings(before) != strip_settings(after):  # then stages of one number are not the same stage
        return False
    changed, wanted = _changed(before, after), tuple(moves)
    return bool(changed) and all(
        any(move.setting == name.partition(" ")[0] and goes(move, old, new, after) for move in wanted)
        for name, (old, new) in changed.items()
    )


def _size(value: Value) -> float:
    if value == ABSENT:
        return 0.0
    numbers = [part for part in value if isinstance(part, (int, float)) and not isinstance(part, bool)]
    product = 1.0
    for number in numbers:
        product *= number
    return product


def write_moved(
    program: str, wanted: Iterable[Move], groups: Sequence[Sequence[int]] | None = None
) -> Iterator[tuple[Move, str]]:
    """Legal programs that make one of the moves and change nothing else, nearest values first, of larger tiles
    those of most reuse. A setting that is not written has its default value. The other settings stay as they are
    written, also those that are the default.

    `groups` has the numbers of stages, from 0, that change together; otherwise each stage changes alone.
    """
    parsed = parse(program)
    for move in wanted:
        for text in _variants(parsed, move, groups or [(number,) for number in range(len(parsed.stages))]):
            yield move, text


def write_for(arch: str, program: str, wanted: Iterable[Move]) -> str:
    """The first legal program for another arch that makes one of the moves; "" if there is none, or for its own."""
    text = ARCH.sub(f".arch({arch})", program)
    if text == program or _key(text) is None:
        return ""
    return next((made for _, made in write_moved(text, wanted)), "")


def name_settings(program: str, wanted: Iterable[Move]) -> tuple[str, ...]:
    """The settings of the moves that some operation of a program has."""
    own = {item.name for stage in parse(program).stages for item in OPERATIONS[stage.operation.name].settings}
    return tuple(dict.fromkeys(move.setting for move in wanted if move.setting in own))


def describe_move(move: Move, before: str, after: str) -> str:
    """The change of one setting in words: "vector 2 instead of 1"."""
    old, new = (_values(text, move.setting) for text in (before, after))
    if not new:  # also a setting that has no value: it is written or not
        return move.setting if f".{move.setting}(" in after else f"without {move.setting}"
    return f"{move.setting} {new}" + (f" instead of {old}" if old and old != new else "")


def _values(program: str, setting: str) -> str:
    """The values of a setting in all stages of a program; "" if it is not set."""
    calls: list[Call] = [call for stage in parse(program).stages for call in stage.settings if call.name == setting]
    return ", ".join("x".join(map(str, call.positional)) for call in calls)


def list_failed_steps(versions: Iterable[Version]) -> tuple[Step, ...]:
    """The versions that changed one setting of their parent and were wrong or not faster: (parent, version) as
    programs.
    """
    versions = tuple(versions)
    programs = {version.number: version.proposal.candidate.program for version in versions}
    found = []
    for version in versions:
        verdict = version.trials[-1].verdict if version.trials else None
        before, after = programs.get(version.parent or 0), programs[version.number]
        if verdict is None or not before or not after:
            continue
        failed = not verdict.correct or (verdict.speedup is not None and verdict.speedup <= 1)
        if failed and _find_change(before, after) is not None:
            found.append((before, after))
    return tuple(found)


def extends_failed_step(steps: Iterable[Step], move: Move, program: str) -> bool:
    """Whether a program that makes a move goes on from the end of one of the steps in the same direction."""
    for before, after in steps:
        first, second = _find_change(before, after), _find_change(after, program)
        if first is None or second is None or first[0] != second[0] or first[0].partition(" ")[0] != move.setting:
            continue
        values = first[1], first[2], second[2]
        if move.direction != "other":
            ways = [move]
        else:  # a setting without a default has no direction
            ways = [] if ABSENT in values else [dataclasses.replace(move, direction=way) for way in WAYS]
        if any(goes(way, *values[:2], after) and goes(way, *values[1:], program) for way in ways):
            return True
    return False


def _find_change(before: str, after: str) -> tuple[str, Value, Value] | None:
    """The one setting in which two programs differ, with both values; None if they differ in more or in none."""
    if len(_differing(before, after)) != 1 or strip_settings(before) != strip_settings(after):
        return None
    return next(((name, old, new) for name, (old, new) in _changed(before, after).items()), None)


def map_programs(versions: Iterable[Version]) -> dict[str, Version]:
    """Canonical program -> the first version that has it."""
    found: dict[str, Version] = {}
    for version in versions:
        if version.proposal.candidate.program is not None:
            with contextlib.suppress(ProgramError):  # a check was added since
                found.setdefault(canonical(version.proposal.candidate.program), version)
    return found


def _variants(program: Program, move: Move, groups: Sequence[Sequence[int]]) -> list[str]:
    found: dict[str, tuple[float, float, float, int, str]] = {}  # by canonical text
    before = canonical(format_program(program))
    for group in groups:
        number, stage = group[0], program.stages[group[0]]
        setting = OPERATIONS[stage.operation.name].setting(move.setting)
        if setting is None:
            continue
        here = next((call.positional for call in stage.settings if call.name == move.setting), ABSENT)
        values = _list_values(setting)
        default = _find_default(_with(program, number, _stage_with(stage, move.setting, ABSENT)), number, move.setting)
        start = default if here == ABSENT else here
        for value in [*values, ABSENT]:
            if value == here or not goes(move, start, default if value == ABSENT else value, before):
                continue
            text = format_program(_with_all(program, group, move.setting, value))
            key = _key(text)
            if key is not None and key != before:
                size = _size(value) if start == ABSENT else 0.0  # from no value each is as far
                far = distance({"": start}, {"": value})
                found.setdefault(key, (_miss(move, value), far, size, -len(group), text))
    return [text for *_, text in sorted(found.values())]


def _with_all(program: Program, group: Iterable[int], name: str, value: Value) -> Program:
    for number in group:
        program = _with(program, number, _stage_with(program.stages[number], name, value))
    return program


def find_default(program: str, name: str) -> Value:
    """The value that a program has without a setting, which is named as in `all_settings`; ABSENT if it has none."""
    setting, _, at = name.partition(" ")
    parsed, number = parse(program), int(at or 1) - 1
    return _find_default(_with(parsed, number, _stage_with(parsed.stages[number], setting, ABSENT)), number, setting)


@functools.lru_cache(maxsize=KEPT)
def _find_default(program: Program, number: int, name: str) -> Value:
    """The one value of a setting with which a stage that lacks it gives the same code; ABSENT if there is none, or if
    several give it: then the setting changes nothing here.
    """
    stage = program.stages[number]
    setting = OPERATIONS[stage.operation.name].setting(name)
    without = _key(format_program(program))
    if setting is None or without is None:
        return ABSENT
    texts = {
        value: format_program(_with(program, number, _stage_with(stage, name, value)))
        for value in _list_values(setting)
    }
    same = [value for value, text in texts.items() if _key(text) == without]
    return same[0] if len(same) == 1 else ABSENT


def _list_values(setting: Setting) -> list[Value]:
    return [value if isinstance(value, tuple) else (value,) for value in setting.values]


def _key(text: str) -> str | None:
    """The canonical text of a program; None if it is not legal."""
    try:
        return canonical(text)
    except ProgramError:
        return None


def _with(program: Program, number: int, stage: Stage) -> Program:
    stages = list(program.stages)
    stages[number] = stage
    return Program(stages=tuple(stages))


def _stage_with(stage: Stage, name: str, value: Value) -> Stage:
    made = () if value == ABSENT else (Call(name=name, positional=value),)
    at = next((at for at, call in enumerate(stage.settings) if call.name == name), len(stage.settings))
    return dataclasses.replace(stage, settings=(*stage.settings[:at], *made, *stage.settings[at + 1 :]))
