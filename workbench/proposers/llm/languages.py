"""Lets a model write muCUTLASS instead of CuTe DSL: makes the prompt with the grammar, and compiles the answer."""

from __future__ import annotations

from pathlib import Path

from workbench.codegen import compile_program
from workbench.errors import ProgramError
from workbench.language import OPERATIONS, Binding, format_program, grammar_text, parse
from workbench.proposers.binding import binding_of, plain_program
from workbench.proposers.llm import prompts
from workbench.proposers.llm.replies import Unusable, blocks
from workbench.proposers.obstacles import recognise_whole
from workbench.proposers.recognition import Unrecognised
from workbench.records import Ask, Message


def make_prompt(ask: Ask, folder: Path | None) -> tuple[list[Message], Binding]:
    """(the messages, the binding of the program's tensors to the module).

    Raises `ProgramError` if the language has no operation for the problem.
    """
    try:
        found = recognise_whole(ask.facts)
    except Unrecognised as reason:
        raise ProgramError(
            f"muCUTLASS has no operation for this problem ({reason}); "
            "let the model write CuTe DSL instead: %cutegen model --language cute"
        ) from None
    program = ask.baseline.proposal.candidate.program or "" if ask.baseline is not None else ""
    values: dict[str, object] = {
        "grammar": grammar_text(),
        "operations": OPERATIONS.values(),
        "start": plain_program(found),
        "program": program,
    }
    return prompts.messages("mucutlass", ask, folder, **values), binding_of(ask.problem, ask.facts, found)


def compile_reply(text: str, binding: Binding) -> tuple[str, str]:
    """(program, CuTe DSL source) of a reply. Raises `Unusable` with the reason, such as the checks' rejections."""
    found = [
        block.text.strip()
        for block in blocks(text)
        if block.closed and block.language in ("", "mucutlass", "ucutlass", "text")
    ]
    if not found:
        raise Unusable("the reply has no code block with a program")
    try:
        return format_program(parse(found[-1])), compile_program(found[-1], binding)
    except ProgramError as error:
        raise Unusable(str(error)) from None
