"""Loads the problem and the candidate of parsed arguments. It imports no session, so help is fast."""

from __future__ import annotations

import argparse
import os
import textwrap
from pathlib import Path
from typing import Protocol

from workbench import problems
from workbench.errors import UserError
from workbench.records import Problem, TorchCompile, Version
from workbench.views.commands.validation import hint_for_program


class Editable(Protocol):
    """The part of a session that `candidate_version` needs."""

    cold_l2: bool
    accept_rule: str
    allow_torch: bool
    torch_compile: TorchCompile

    def program(self, text: str, *, test: bool = True) -> Version:
        """Add a version from a muCUTLASS program."""

    def edit(self, source: str, *, title: str = "", test: bool = True) -> Version:
        """Add a version from the text of a file."""


def load_problem(arguments: argparse.Namespace, cell: str | None) -> Problem:
    """Load the problem of a cell, of an expression with --inputs, of the package by name, or of a file."""
    options = {
        "settings": tuple(arguments.settings),
        "precision": arguments.precision,
        "mode": arguments.mode,
        "tie": tuple(arguments.tie),
        "vary": tuple(arguments.vary),
        "keep": tuple(arguments.keep),
    }
    inputs = getattr(arguments, "inputs", None)
    body = (cell or "").strip()
    if inputs:
        expression = body or arguments.spec
        if not expression:
            raise UserError('--inputs needs an expression, for example: "torch.relu(x)" --inputs "x: f32[1024, 1024]"')
        if not body and (os.path.isfile(expression) or expression in problems.shipped()):
            raise UserError(f"--inputs is for an expression; {expression} makes its inputs itself, in get_inputs()")
        return problems.from_expression(expression, inputs, **options)
    if body:
        return problems.load(body + "\n", name=arguments.spec or "cell", **options)
    if not arguments.spec:
        raise UserError(f"which problem? a shipped name ({', '.join(problems.shipped())}), a file, or a cell")
    if not os.path.isfile(arguments.spec) and (hint := hint_for_program(arguments.spec)):
        raise UserError(hint)
    return problems.load(arguments.spec, **options)


def check_candidate(text: str) -> None:
    """Raise `UserError` for a text that is neither a file nor looks like a muCUTLASS program."""
    if not os.path.isfile(text) and "(" not in text:
        raise UserError(
            f"no candidate file at {textwrap.shorten(text, 200) or 'an empty name'}; give a file with class ModelNew, "
            'or a muCUTLASS program: "softmax(x) .threads_per_row(32)"'
        )


def candidate_version(session: Editable, text: str, *, test: bool) -> Version:
    """Add a version from a kernel's file, from the text of a muCUTLASS program, or from a file with one."""
    if not os.path.isfile(text):
        return session.program(text, test=test)
    if Path(text).suffix != ".py" and "class " not in read_source(Path(text)):
        return session.program(read_source(Path(text)).strip(), test=test)
    return session.edit(read_source(Path(text)), title=Path(text).name, test=test)


def read_source(path: Path) -> str:
    """The text of a file. Raises `UserError` if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None


def choose_gpu(arguments: argparse.Namespace) -> None:
    """Work on the GPU of --gpu from now on, if it was given.

    Raises `UserError` with the GPUs that there are, and for an executor that uses none.
    """
    asked = getattr(arguments, "gpu", None)
    if asked is None:
        return
    named = getattr(arguments, "executor", None)
    if named in ("emulator", "replay"):
        raise UserError(f"--gpu {asked}: --executor {named} uses no GPU; leave one of them out")
    from workbench.executors.gpu.presence import select

    select(asked)


def choose_rule(session: Editable, arguments: argparse.Namespace) -> None:
    """Set the rule by which versions are accepted if --accept was given."""
    if arguments.accept is not None:
        session.accept_rule = arguments.accept


def choose_testing(session: Editable, arguments: argparse.Namespace) -> None:
    """Set how versions are tested from now on, as far as --l2, --torch-compile and --allow were given."""
    if getattr(arguments, "l2", None) is not None:
        session.cold_l2 = arguments.l2 == "cold"
    if getattr(arguments, "torch_compile", None) is not None:
        session.torch_compile = arguments.torch_compile
    if getattr(arguments, "allow", None) is not None:
        session.allow_torch = arguments.allow == "torch"
