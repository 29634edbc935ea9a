"""Where the command line prints, and its exit statuses."""

from __future__ import annotations

import sys

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
