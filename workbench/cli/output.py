"""Where the command line prints, and its exit statuses."""

from __future__ import annotations

import sys
from pathlib import Path

from workbench.errors import UserError

OK, NOT_CORRECT, USAGE, INTERRUPTED = 0, 1, 2, 130
_json = False


def say(text: str) -> None:
    """What a person reads, on standard error when --json owns standard output."""
    print(text, file=sys.stderr if _json else sys.stdout, flush=True)


def as_json() -> bool:
    """Whether standard output holds one JSON document."""
    return _json


def choose_json(wanted: bool) -> None:
    """From now on in this process."""
    global _json
    _json = wanted


def text_of(path: Path) -> str:
    """A file's text; raises `UserError` where it is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
