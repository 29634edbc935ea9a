"""What the handlers of the commands see of a notebook."""

from __future__ import annotations

from typing import Protocol

from workbench.session import Session


class Notebook(Protocol):
    """What the magics hold between cells."""

    current: Session | None
    last_note: str

    @property
    def session(self) -> Session:
        """The session in use; raises `UserError` when there is none."""

    def use(self, session: Session) -> None:
        """Make a session the current one."""
