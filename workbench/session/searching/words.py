"""What a person's words ask of one program: its settings replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from workbench.language import OPERATIONS, Call, Stage, format_program, parse


def write_as_asked(program: str, wanted: Sequence[Call]) -> str | None:
    """The program with the wanted settings, in each stage that knows them; None if no stage knows one. It may be
    illegal.
    """
    parsed = parse(program)
    stages = tuple(_put(stage, wanted) for stage in parsed.stages)
    if all(stage is None for stage in stages):
        return None
    changed = tuple(new or old for new, old in zip(stages, parsed.stages, strict=True))
    return format_program(dataclasses.replace(parsed, stages=changed))


def _put(stage: Stage, wanted: Sequence[Call]) -> Stage | None:
    known = {item.name for item in OPERATIONS[stage.operation.name].settings}
    written = {call.name for call in stage.settings}
    own = [dataclasses.replace(call, name=_name_here(call.name, written)) for call in wanted]
    own = [call for call in own if call.name in known]
    if not own:
        return None
    replaced = {call.name for call in own}
    kept = [call for call in stage.settings if call.name not in replaced]
    return dataclasses.replace(stage, settings=(*kept, *own))


def _name_here(name: str, written: set[str]) -> str:
    """The setting that a word means in a stage: its threads are those of a row where it writes only those."""
    return "threads_per_row" if name == "threads" and "threads_per_row" in written and name not in written else name
