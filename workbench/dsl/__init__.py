"""muCUTLASS: text -> program -> checks -> CuTe DSL source that a person can read and edit."""

from __future__ import annotations

from workbench.dsl.checks import check, configurations, unbound
from workbench.dsl.emit import emit
from workbench.dsl.ir import Binding, Call, Program, Rejection, Stage
from workbench.dsl.limits import unfit
from workbench.dsl.ranks import beyond
from workbench.dsl.registry import OPERATIONS
from workbench.dsl.text import format_program, grammar_text, parse
from workbench.errors import ProgramError

__all__ = ["OPERATIONS", "Binding", "Call", "Program", "Rejection", "Stage", "check", "compile_program", "configurations", "emit", "format_program", "grammar_text", "parse"]


def compile_program(text: str, binding: Binding) -> str:
    """Program text -> candidate file; raises `ProgramError` listing every rejection."""
    program = parse(text)
    rejections = check(program)
    rejections = rejections or unbound(program, binding) or beyond(program, binding) or unfit(program, binding)
    if rejections:
        raise ProgramError("the program is rejected: " + " | ".join(map(str, rejections)), rejections)
    return emit(program, binding)
