"""Exit statuses, and printing: standard output stays free for --json, and no control character reaches a terminal."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from workbench.errors import UserError
from workbench.printing import make_printable

OK, NOT_CORRECT, USAGE, DOUBTFUL, INTERRUPTED = 0, 1, 2, 3, 130
_json = False


def echo(text: str) -> None:
    """Print text for the user; with --json it goes to standard error."""
    print(make_printable(text), file=sys.stderr if _json else sys.stdout, flush=True)


def print_text(text: str) -> None:
    """Print the text that a command is for to standard output."""
    print(make_printable(text))


def print_error(text: str) -> None:
    """Print one line to standard error."""
    print(make_printable(text), file=sys.stderr)


def print_failure(text: str) -> None:
    """Print why a command did nothing: one line to standard error, and with --json a document with it."""
    print_error(f"cutegen: {text}")
    if _json:
        print_json({"error": text})


def check_writable(option: str, path: Path) -> None:
    """Raise `UserError` for a file that cannot be written, before the work whose result it is for."""
    if path.is_dir():
        raise UserError(f"{option} {path}: a folder; name a file")
    if not path.parent.is_dir():
        raise UserError(f"{option} {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UserError(f"{option} {path}: it may not be written")


def ask(question: str) -> bool:
    """Show a question on standard error, and read whether the answer is yes."""
    print_error(question)
    print("[y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def print_json(document: object) -> None:
    """Print the single JSON document of --json to standard output."""
    print(json.dumps(document))


def wants_json() -> bool:
    """Whether the command was called with --json."""
    return _json


def set_json(wanted: bool) -> None:
    """Switch --json on or off for this process."""
    global _json
    _json = wanted
