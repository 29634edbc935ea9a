"""The protocol of the notebook state that command handlers use."""

from __future__ import annotations

from typing import Protocol

from workbench.session import Session


class Notebook(Protocol):
    """The state that the magics keep between cells."""

    current: Session | None
    last_note: str

    @property
    def session(self) -> Session:
        """The current session. Raises `UserError` if there is none."""

    def use(self, session: Session) -> None:
        """Make a session the current one."""

    def drop_session(self) -> None:
        """Close the session of an earlier problem, so that no command is for it."""
