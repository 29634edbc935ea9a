"""Kernel side of the lab extension's comm. Input: commands of the side panel. Output: the outline of a session.

The kernel opens a comm on target "cutegen" when the extension is loaded; a page that (re)connects later finds it with a
comm-info request and says hello. Nothing here runs a step itself: commands go to the session's desk.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from typing import TypedDict

from IPython.core.interactiveshell import InteractiveShell

from workbench.errors import WorkbenchError
from workbench.session import Session
from workbench.views.notebook.controller import Desk, desk_of, kernel_loop

TARGET = "cutegen"
ALLOWED = (
    "hello",
    "generate",
    "test",
    "profile",
    "refine",
    "run",
    "stop",
    "accept",
    "reject",
    "undo",
    "select",
    "next",
)


class CommContent(TypedDict):
    """What a page sent."""

    data: dict[str, object]


class CommMessage(TypedDict):
    """A message of Jupyter's comm protocol, as far as it is read here."""

    content: CommContent


class Link:
    """One comm to every page that shows this kernel's notebook."""

    def __init__(self) -> None:
        from comm import create_comm

        self._desk: Desk | None = None
        self._forget: Callable[[], None] = lambda: None
        self._loop, self._home = kernel_loop(), threading.get_ident()
        self._waiting = False
        self._comm = create_comm(target_name=TARGET, data={"kind": "open"})
        self._comm.on_msg(self._on_message)

    def follow(self, session: Session) -> None:
        """Show this session from now on, and send commands to it."""
        self._forget()
        self._desk = desk_of(session)
        self._forget = self._desk.listen(self._changed)
        self._send()

    def _on_message(self, message: CommMessage) -> None:
        data = message["content"]["data"]
        command = data.get("command")
        if command not in ALLOWED or command == "hello" or self._desk is None:
            self._send()
        else:
            self._desk.command(data)

    def _changed(self, _what: str) -> None:
        if self._loop is None or self._loop.is_closed() or threading.get_ident() == self._home:
            self._send()
        elif not self._waiting:
            self._waiting = True
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._loop.call_later, 0.1, self._send)

    def _send(self) -> None:
        self._waiting = False
        payload: dict[str, object] = {"kind": "state", "state": None}
        if self._desk is not None:
            try:
                live = self._desk.live()
                selected = self._desk.selected()
                live.pop("log")
                payload["state"] = {**self._desk.outline(), **live, "shown": selected.number if selected else None}
            except (WorkbenchError, sqlite3.ProgrammingError) as error:
                payload["error"] = f"session {self._desk.name} is closed ({error}); open it again"
        self._comm.send(payload)

    def close(self) -> None:
        """Close the comm; pages show that no session is open."""
        self._forget()
        self._comm.close()


_link: Link | None = None


def load(ipython: InteractiveShell) -> None:
    """Open the comm, once, when IPython runs in a Jupyter kernel; in a plain terminal there is nothing to talk to."""
    global _link
    if _link is None and getattr(ipython, "kernel", None) is not None:
        _link = Link()


def unload(_ipython: InteractiveShell | None = None) -> None:
    """Close the comm."""
    global _link
    if _link is not None:
        _link.close()
        _link = None


def follow(session: Session) -> None:
    """Make this the session that the lab extension shows; does nothing when the comm is not open."""
    if _link is not None:
        _link.follow(session)
