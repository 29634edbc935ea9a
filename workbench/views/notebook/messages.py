"""Messages between the browser and the controller: entries of the log, and values of commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from workbench.errors import StaleDecision, UserError
from workbench.session import Session

Message = Mapping[str, object]  # a command from the browser, as plain JSON


class LogEntry(TypedDict):
    """One entry of the log."""

    kind: str
    message: str
    version: int | None


def read_number(value: object) -> int:
    """A whole number from the browser. Raises `TypeError` or `ValueError` for anything else."""
    if isinstance(value, (int, float, str)):
        return int(value)
    raise TypeError(f"a number is needed, not {value!r}")


def read_count(message: Message, default: int, most: int) -> int:
    """How many steps a command asks for. Raises `UserError` for a number that cannot be."""
    given = message.get("steps")
    try:
        count = default if given is None else read_number(given)
    except (TypeError, ValueError):
        count = 0
    if not 1 <= count <= most:
        raise UserError(f"give a whole number from 1 to {most}")
    return count


def read_indices(value: object) -> tuple[int, ...] | None:
    """Hunk numbers from the browser; None stands for all. Raises `UserError` if they are not a list."""
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise UserError(f"hunks are a list of numbers, not {value!r}")
    return tuple(read_number(index) for index in value)


def read_reference(value: object) -> int | str | None:
    """The version named by the browser, or None."""
    return value if isinstance(value, (int, str)) and value else None


def check_decision(session: Session, message: Message) -> int:
    """The number of the version to decide on. Raises if session, version or source are not those on display."""
    if message.get("session") != session.name:
        raise StaleDecision(
            f"this decision is for session {message.get('session')!r}, but {session.name!r} is open; "
            "nothing was changed"
        )
    try:
        number = read_number(message["version"])
    except (KeyError, TypeError, ValueError):
        raise UserError("a decision must name a version") from None
    version = session.version(number)
    if message.get("sourceHash") != version.source_hash:
        raise StaleDecision(f"v{number} is not the source that was shown; look at it again, then decide")
    return number
