"""Canonical program texts: settings ordered by name, without those that do not change the compiled code."""

from __future__ import annotations

import dataclasses
import functools

from workbench.codegen.emitters import LOWERINGS
from workbench.errors import ProgramError
from workbench.language.checks import check
from workbench.language.ir import Binding, Program, Stage
from workbench.language.memoise import memoise
from workbench.language.parser import format_program, parse

NOWHERE = Binding(init_source="", forward_arguments=())


@functools.lru_cache(maxsize=1 << 15)
def canonical(text: str) -> str:
    """Return a canonical text of a program: equal texts have equal code, and equal code rarely has two texts.

    `arch` always stays, because it selects the target of the compilation. Raises `ProgramError` for an invalid program.
    """
    program = _ordered(parse(text))
    if rejections := check(program):
        raise ProgramError("the program is rejected: " + " | ".join(map(str, rejections)), rejections)
    code = _code(program)
    for at, stage in enumerate(program.stages):
        for call in stage.settings:
            fewer = _with_stage(
                program,
                at,
                dataclasses.replace(
                    stage, settings=tuple(other for other in program.stages[at].settings if other.name != call.name)
                ),
            )
            if call.name != "arch" and not check(fewer) and _code(fewer) == code:
                program = fewer
    return format_program(program)


@functools.lru_cache(maxsize=1 << 15)
def code(text: str) -> str:
    """Return the target architectures and the code of a program's text, without the title."""
    program = parse(text)
    arches = [call.positional for stage in program.stages for call in stage.settings if call.name == "arch"]
    return f"{arches}\n{_code(program)}"


def equal_code(one: str, other: str) -> bool:
    """Whether two programs have the same code, apart from the architecture that they are compiled for."""
    return _code(parse(one)) == _code(parse(other))


def _ordered(program: Program) -> Program:
    return Program(
        stages=tuple(
            dataclasses.replace(
                stage, settings=tuple(sorted(stage.settings, key=lambda call: (call.name != "arch", call.name)))
            )
            for stage in program.stages
        )
    )


def _with_stage(program: Program, at: int, stage: Stage) -> Program:
    return Program(stages=(*program.stages[:at], stage, *program.stages[at + 1 :]))


def _code(program: Program) -> str:
    """Return a text that is equal for programs with equal code: the launches of their stages."""
    return f"[{', '.join(map(_stage_code, program.stages))}]"


@memoise
def _stage_code(stage: Stage) -> str:
    return repr(LOWERINGS[stage.operation.name](stage, NOWHERE))
