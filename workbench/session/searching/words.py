"""What a person's words ask of one program: its settings replaced."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from workbench.language import OPERATIONS, Call, Stage, format_program, parse


def write_as_asked(program: str, wanted: Sequence[Call], words: str = "") -> str | None:
    """The program with the wanted settings, and those that `words` name as titles of nodes do ("unroll 4, passes 2"),
    in each stage that knows them, or in that of "in stage 4" alone; None if no stage knows one. It may be illegal.
    """
    parsed = parse(program)
    meant = {int(number) for number in re.findall(r"\bin stage (\d+)", words)}
    stages = tuple(
        _put(stage, wanted, words) if not meant or number in meant else None
        for number, stage in enumerate(parsed.stages, 1)
    )
    if all(stage is None for stage in stages):
        return None
    changed = tuple(new or old for new, old in zip(stages, parsed.stages, strict=True))
    return format_program(dataclasses.replace(parsed, stages=changed))


def _put(stage: Stage, wanted: Sequence[Call], words: str) -> Stage | None:
    known = {item.name for item in OPERATIONS[stage.operation.name].settings}
    written = {call.name for call in stage.settings}
    own = [dataclasses.replace(call, name=_name_here(call.name, written)) for call in wanted]
    own = [call for call in own if call.name in known]
    for name in sorted(known - {call.name for call in own}):
        if match := re.search(rf"(?<!\w){name}\s+(\d+)(?![\dx])", words):
            own.append(Call(name=name, positional=(int(match[1]),)))
    if not own:
        return None
    replaced = {call.name for call in own}
    kept = [call for call in stage.settings if call.name not in replaced]
    return dataclasses.replace(stage, settings=(*kept, *own))


def _name_here(name: str, written: set[str]) -> str:
    """The setting that a word means in a stage: its threads are those of a row where it writes only those."""
    return "threads_per_row" if name == "threads" and "threads_per_row" in written and name not in written else name
