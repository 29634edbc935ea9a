"""Joins the pieces of a pipeline into one program: no two pieces use one name for different tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from workbench.language import OPERATIONS, Call, Program, Stage, check
from workbench.language.expressions.expressions import rename_tensors
from workbench.language.operation import READERS, epilogue_operands
from workbench.proposers.recognition.graph import Computation, Piece, Unrecognised
from workbench.records import Facts


def rename_pieces(pieces: list[tuple[str, Computation, Facts, int]], arguments: tuple[str, ...]) -> tuple[Piece, ...]:
    """The pieces (name of the result, computation, facts, work) with names of their own.

    Raises `Unrecognised` if they do not fit together into one program.
    """
    results = {name for name, _, _, _ in pieces}
    known = {*arguments, *results}  # they go by their own names
    taken: dict[str, str] = {name: name for name in known}
    made = []
    for name, found, facts, work in pieces:
        names = {
            role: expression if expression in known else _find_name(role, expression, taken)
            for role, expression in found.operands
        }
        result = None if name == pieces[-1][0] else name
        made.append(
            Piece(alone=found, named=_rename_computation(found, names, known, name, result), facts=facts, work=work)
        )
    rejections = check(Program(stages=tuple(stage for piece in made for stage in list_stages(piece.named))))
    if any(item.field in ("result", "operands") for item in rejections):  # ladders choose all other fields
        raise Unrecognised("the pieces do not fit together")
    return tuple(made)


def list_stages(found: Computation, settings: tuple[Call, ...] = (), arch: tuple[Call, ...] = ()) -> tuple[Stage, ...]:
    """The stages of one computation, with these settings in its main stage."""
    layout = (Call(name="layout", named=found.layout),) if found.layout else ()
    main = Stage(
        operation=found.operation, settings=(*arch, *layout, *settings), epilogues=found.epilogues, result=found.result
    )
    return (*found.before, main, *found.after)


def _find_name(role: str, expression: str, taken: dict[str, str]) -> str:
    """A name that stands for this expression, or for nothing yet."""
    name = next(name for name in _candidates(role) if taken.get(name, expression) == expression)
    taken[name] = expression
    return name


def _candidates(role: str) -> Iterator[str]:
    yield role
    yield from (f"{role}_{n}" for n in range(2, 1000))


def _rename_computation(
    found: Computation, names: dict[str, str], known: set[str], prefix: str, result: str | None
) -> Computation:
    inner = [stage.result for stage in list_stages(found) if stage.result is not None]
    names = {**names, **{old: f"{prefix}_{n}" for n, old in enumerate(dict.fromkeys(inner), 1)}}
    whole = [_rename_stage(stage, names) for stage in list_stages(found)]
    whole[-1] = dataclasses.replace(whole[-1], result=result)
    place = len(found.before)
    return dataclasses.replace(
        found,
        operation=whole[place].operation,
        epilogues=whole[place].epilogues,
        result=whole[place].result,
        before=tuple(whole[:place]),
        after=tuple(whole[place + 1 :]),
        operands=tuple((names[role], expression) for role, expression in found.operands if expression not in known),
        unfused=None if found.unfused is None else _rename_computation(found.unfused, names, known, prefix, result),
    )


def _rename_stage(stage: Stage, names: dict[str, str]) -> Stage:
    """The stage with other names for its tensors."""
    operation, own = OPERATIONS[stage.operation.name], dict(stage.operation.named)
    for role in operation.implied(stage):
        if role not in epilogue_operands(stage) and names.get(str(own.get(role, role)), role) != role:
            own[role] = names[str(own.get(role, role))]
    main = dataclasses.replace(
        stage.operation,
        positional=tuple(rename_tensors(value, names) for value in stage.operation.positional),
        named=tuple(own.items()),
    )
    return dataclasses.replace(
        stage,
        operation=main,
        epilogues=tuple(_rename_epilogue(call, names) for call in stage.epilogues),
        result=names.get(stage.result, stage.result) if stage.result else None,
    )


def _rename_epilogue(call: Call, names: dict[str, str]) -> Call:
    if call.name == "cast":
        return call
    if call.name in READERS and not call.positional and names.get(call.name, call.name) != call.name:
        return dataclasses.replace(call, positional=(names[call.name],))
    return dataclasses.replace(call, positional=tuple(rename_tensors(value, names) for value in call.positional))
