"""Exit statuses, and printing that keeps standard output free for --json."""

from __future__ import annotations

import json
import sys

OK, NOT_CORRECT, USAGE, DOUBTFUL, INTERRUPTED = 0, 1, 2, 3, 130
_json = False


def echo(text: str) -> None:
    """Print text for the user; with --json it goes to standard error."""
    print(text, file=sys.stderr if _json else sys.stdout, flush=True)


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
