"""Names of operands in the messages of emitted checks."""

from __future__ import annotations

import re
from collections.abc import Mapping


def called(role: str, bound: Mapping[str, str]) -> str:
    """What a message calls an operand: its name in forward where it has one, else what the emitter calls it."""
    said = bound.get(role, role)
    return said if re.fullmatch(r"[\w.]+", said) else role
