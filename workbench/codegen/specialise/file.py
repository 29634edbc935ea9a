"""Launches of a checked program -> a candidate in KernelBench's form: imports, constants, functions, `ModelNew`."""

from __future__ import annotations

import ast
import functools
import subprocess
import textwrap

from workbench.codegen.specialise.builder import Builder
from workbench.codegen.specialise.inline import inline_forwards
from workbench.codegen.specialise.library import SpecialiseError

LINE_LENGTH = "120"
# imports: unused, unsorted, aliased; returns of nothing; unpacked, not read; parentheses
RULES = "F401,I001,PLR0402,PLR1711,RET501,RUF059,UP034"


def write_module(builder: Builder, *, title: str, imports: list[str], constants: str, model: str) -> str:
    """The whole file, formatted."""
    needed = dict.fromkeys([*imports, *builder.imports])
    definitions, model = inline_forwards(builder.definitions, model)
    parts = [
        f'"""{title}"""',
        "\n".join(needed),
        constants.strip("\n"),
        "\n".join([*builder.constant_lines(), *(text.strip("\n") for text in builder.values)]),
        "\n\n\n".join(text.strip("\n") for text in definitions),
        model.strip("\n"),
    ]
    return format_source("\n\n\n".join(part for part in parts if part) + "\n")


@functools.lru_cache(maxsize=256)
def format_source(source: str) -> str:
    """The source as ruff formats it, with sorted imports and none too many; as it is on a machine without ruff."""
    if _find_ruff() is None:
        try:
            ast.parse(source)
        except SyntaxError as error:
            raise SpecialiseError(f"the written file is no Python: {error}") from None
        return source
    checked = _run_ruff(["check", "--isolated", "--fix-only", "--unsafe-fixes", "--quiet", "--select", RULES], source)
    return _run_ruff(["format", "--isolated", "--quiet"], checked)


@functools.cache
def _find_ruff() -> str | None:
    """The path of ruff's program, None if it is not installed."""
    try:
        from ruff.__main__ import find_ruff_bin

        return str(find_ruff_bin())
    except (ImportError, FileNotFoundError):
        return None


def _run_ruff(command: list[str], source: str) -> str:
    arguments = [
        _find_ruff() or "ruff",
        *command,
        "--line-length",
        LINE_LENGTH,
        "--stdin-filename",
        "candidate.py",
        "-",
    ]
    done = subprocess.run(arguments, input=source, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SpecialiseError(f"the written file is no Python: {textwrap.shorten(done.stderr, 300)}")
    return done.stdout
