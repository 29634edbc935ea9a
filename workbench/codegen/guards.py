"""Names of operands in the messages of emitted checks."""

from __future__ import annotations

import re
from collections.abc import Mapping


def called(role: str, bound: Mapping[str, str]) -> str:
    """Return the name of an operand in messages: its name in forward if it has one, otherwise its role."""
    said = bound.get(role, role)
    return said if re.fullmatch(r"[\w.]+", said) else role
