"""What the arguments name: a problem, a candidate, the state of L2. Imports no session, so that help is quick."""

from __future__ import annotations

import argparse
import os
import textwrap
from pathlib import Path
from typing import Protocol

from workbench import problems
from workbench.errors import UserError
from workbench.records import Problem, Version
from workbench.views.commands.validation import beside


class Editable(Protocol):
    """A session, as far as a candidate needs one."""

    cold_l2: bool

    def program(self, text: str, *, test: bool = True) -> Version:
        """A version written in muCUTLASS."""

    def edit(self, source: str, *, title: str = "", test: bool = True) -> Version:
        """A version from a file's text."""


def load_problem(arguments: argparse.Namespace, cell: str | None) -> Problem:
    """A problem from a cell, an expression with --inputs, a shipped name or a path."""
    options = {"settings": tuple(arguments.settings), "precision": arguments.precision, "mode": arguments.mode}
    inputs = getattr(arguments, "inputs", None)
    body = (cell or "").strip()
    if inputs:
        expression = body or arguments.spec
        if not expression:
            raise UserError('--inputs needs an expression, for example: "torch.relu(x)" --inputs "x: f32[1024, 1024]"')
        return problems.from_expression(expression, inputs, **options)
    if body:
        return problems.load(body + "\n", name=arguments.spec or "cell", **options)
    if not arguments.spec:
        raise UserError(f"which problem? a shipped name ({', '.join(problems.shipped())}), a file, or a cell")
    if not os.path.isfile(arguments.spec) and (said := beside(arguments.spec)):
        raise UserError(said)
    return problems.load(arguments.spec, **options)


def check_candidate(text: str) -> None:
    """Refuse what is neither a file nor looks like a program of muCUTLASS."""
    if not os.path.isfile(text) and "(" not in text:
        raise UserError(
            f"no candidate file at {textwrap.shorten(text, 200) or 'an empty name'}; give "
            f'a file with class ModelNew, or a muCUTLASS program: "softmax(x) '
            f'.threads_per_row(32)"'
        )


def candidate_version(session: Editable, text: str, *, test: bool) -> Version:
    """A version of a kernel's file, or of a program of muCUTLASS: its text, or a file that holds it."""
    if not os.path.isfile(text):
        return session.program(text, test=test)
    if Path(text).suffix != ".py" and "class " not in text_of(Path(text)):
        return session.program(text_of(Path(text)).strip(), test=test)
    return session.edit(text_of(Path(text)), title=Path(text).name, test=test)


def text_of(path: Path) -> str:
    """A file's text; raises `UserError` where it is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None


def choose_l2(session: Editable, arguments: argparse.Namespace) -> None:
    """Cold or warm, where the person said which."""
    if arguments.l2 is not None:
        session.cold_l2 = arguments.l2 == "cold"
