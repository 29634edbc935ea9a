"""Text that a terminal shows and does not obey."""

from __future__ import annotations

import re

# C0 but tab and newline, DEL, C1, and what reorders a line (Unicode's embeddings, overrides and isolates)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def make_printable(text: str) -> str:
    """The text with every control character but tab and newline as an escape such as \\x1b.

    Titles, messages and outputs are a candidate's or a file's: as they are, they could steer the terminal.
    """
    return CONTROL.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))
