"""Parses and applies line patches: replace, delete, insert by line number (CuTeGen, section 3).

They are applied from the bottom up, so that the line numbers that the model saw stay valid.
"""

from __future__ import annotations

from typing import Literal

from workbench.proposers.llm.replies import Unusable
from workbench.records import record

ACTIONS = ("replace", "delete", "insert")
_FIELDS = {
    "action": {"type": "string", "enum": list(ACTIONS)},
    "line_number": {"type": "integer"},
    "num_lines": {"type": "integer"},
    "new_code": {"type": "string"},
}
_LIST = {
    "type": "array",
    "items": {"type": "object", "properties": _FIELDS, "required": list(_FIELDS), "additionalProperties": False},
}
_ANSWER = {"change": {"type": "string"}, "why": {"type": "string"}, "patches": _LIST}
# for endpoints that enforce a schema
SCHEMA = {"type": "object", "properties": _ANSWER, "required": list(_ANSWER), "additionalProperties": False}


@record
class Patch:
    """`replace` and `delete` act on `num_lines` lines from `line_number` (1-based).

    `insert` puts `lines` before that line; the number of lines plus 1 is the end.
    """

    action: Literal["replace", "delete", "insert"]
    line_number: int
    num_lines: int = 1
    lines: tuple[str, ...] = ()


def parse_patches(value: object) -> tuple[Patch, ...]:
    """Patches from JSON: a list, or an object with a list under `patches`. Raises `Unusable`, which names the entry."""
    items = value.get("patches") if isinstance(value, dict) else value
    if not isinstance(items, list) or not items:
        raise Unusable("expected a non-empty JSON list of patches")
    return tuple(_parse_patch(number, item) for number, item in enumerate(items, 1))


def _parse_patch(number: int, item: object) -> Patch:
    if not isinstance(item, dict):
        raise Unusable(f"patch {number} is not an object")
    action, line, count, new = (
        item.get("action"),
        item.get("line_number"),
        item.get("num_lines", 1),
        item.get("new_code", ""),
    )
    if action not in ACTIONS:
        raise Unusable(f"patch {number}: action {action!r} is not one of {', '.join(ACTIONS)}")
    if (
        not isinstance(line, int)
        or isinstance(line, bool)
        or not isinstance(count, int)
        or isinstance(count, bool)
        or line < 1
        or count < 1
    ):
        raise Unusable(f"patch {number}: line_number and num_lines must be integers from 1")
    if isinstance(new, list) and all(isinstance(part, str) for part in new):
        lines = tuple(line for part in new for line in part.split("\n"))
    elif isinstance(new, str):
        lines = tuple(new.removesuffix("\n").split("\n"))
    else:
        raise Unusable(f"patch {number}: new_code must be a string or a list of strings")
    if action == "delete":
        lines = ()
    elif "new_code" not in item:
        raise Unusable(f"patch {number}: {action} needs new_code")
    return Patch(action=action, line_number=line, num_lines=1 if action == "insert" else count, lines=lines)


def apply_patches(source: str, patches: tuple[Patch, ...]) -> str:
    """The patched source. Raises `Unusable` if a patch is outside the file, two overlap, or nothing changes."""
    lines = source.removesuffix("\n").split("\n")
    taken: dict[int, int] = {}
    for number, patch in enumerate(patches, 1):
        last = len(lines) + 1 if patch.action == "insert" else len(lines)
        end = patch.line_number + (0 if patch.action == "insert" else patch.num_lines - 1)
        if patch.line_number > last or end > last:
            raise Unusable(f"patch {number}: line {end} is outside the file, which has {len(lines)} lines")
        if patch.action != "insert":
            for line in range(patch.line_number, end + 1):
                if line in taken:
                    raise Unusable(f"patches {taken[line]} and {number} both change line {line}")
                taken[line] = number
    for number, patch in enumerate(patches, 1):
        before, here = taken.get(patch.line_number - 1), taken.get(patch.line_number)
        if patch.action == "insert" and here is not None and here == before:
            raise Unusable(f"patch {number} inserts inside the lines that patch {here} changes")
    # from the bottom up; at one line, insertions come last, so they end up before the line in the given order
    for _, patch in sorted(
        enumerate(patches), key=lambda item: (-item[1].line_number, item[1].action == "insert", -item[0])
    ):
        start = patch.line_number - 1
        lines[start : start + (0 if patch.action == "insert" else patch.num_lines)] = patch.lines
    result = "\n".join(lines) + "\n"
    if result == source:
        raise Unusable("the patches change nothing")
    return result


def number_lines(source: str) -> str:
    """The source with line numbers, as prompts show it."""
    return "\n".join(f"{number:4d}| {line}" for number, line in enumerate(source.removesuffix("\n").split("\n"), 1))
