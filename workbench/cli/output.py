"""Exit statuses, and printing: standard output stays free for --json, and no control character reaches a terminal."""

from __future__ import annotations

import json
import re
import sys

OK, NOT_CORRECT, USAGE, DOUBTFUL, INTERRUPTED = 0, 1, 2, 3, 130
# C0 but tab and newline, DEL, C1, and what reorders a line (Unicode's embeddings, overrides and isolates)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_json = False


def make_printable(text: str) -> str:
    """The text with every control character but tab and newline as an escape such as \\x1b.

    Titles, messages and outputs are a candidate's or a file's: as they are, they could steer the terminal.
    """
    return CONTROL.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))


def echo(text: str) -> None:
    """Print text for the user; with --json it goes to standard error."""
    print(make_printable(text), file=sys.stderr if _json else sys.stdout, flush=True)


def print_text(text: str) -> None:
    """Print the text that a command is for to standard output."""
    print(make_printable(text))


def print_error(text: str) -> None:
    """Print one line to standard error."""
    print(make_printable(text), file=sys.stderr)


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
