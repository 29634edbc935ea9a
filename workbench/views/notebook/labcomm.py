"""The kernel side of the lab extension's comm: it receives commands and sends the outline of a session.

The kernel opens a comm with target "cutegen" when the extension is loaded. A page that connects later finds it by a
comm-info request and sends "hello". Commands go to the controller of the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from typing import TypedDict

from IPython.core.interactiveshell import InteractiveShell

from workbench.errors import WorkbenchError
from workbench.session import Session
from workbench.views.notebook.controller import SessionController, get_controller

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


def kernel_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of the Jupyter kernel, which sends messages to the browser; None in plain Python."""
    import IPython

    if getattr(IPython.get_ipython(), "kernel", None) is None:
        return None
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class CommContent(TypedDict):
    """The content of a message from a page."""

    data: dict[str, object]


class CommMessage(TypedDict):
    """The part of a comm message of Jupyter that is used here."""

    content: CommContent


class Link:
    """A comm to all pages that show the notebook of this kernel."""

    def __init__(self) -> None:
        from comm import create_comm

        self._controller: SessionController | None = None
        self._remove_listener: Callable[[], None] = lambda: None
        self._loop, self._thread_id = kernel_loop(), threading.get_ident()
        self._waiting = False
        self._comm = create_comm(target_name=TARGET, data={"kind": "open"})
        self._comm.on_msg(self._on_message)

    def show_session(self, session: Session | None) -> None:
        """Show a session, and send commands to its controller; None: show that there is none."""
        self._remove_listener()
        self._controller, self._remove_listener = None, lambda: None
        if session is not None:
            self._controller = get_controller(session)
            self._remove_listener = self._controller.add_listener(self._on_change)
        self._send()

    def _on_message(self, message: CommMessage) -> None:
        data = message["content"]["data"]
        command = data.get("command")
        if command not in ALLOWED or command == "hello" or self._controller is None:
            self._send()
        else:
            self._controller.handle_command(data)

    def _on_change(self, _what: str) -> None:
        if self._loop is None or self._loop.is_closed() or threading.get_ident() == self._thread_id:
            self._send()
        elif not self._waiting:
            self._waiting = True
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._loop.call_later, 0.1, self._send)

    def _send(self) -> None:
        self._waiting = False
        payload: dict[str, object] = {
            "kind": "state"
        }  # no None: nbclient takes a "state" for a widget's and updates by it
        if self._controller is not None:
            try:
                live = self._controller.live_state()
                selected = self._controller.selected_version()
                live.pop("log")
                payload["state"] = {
                    **self._controller.outline(),
                    **live,
                    "shown": selected.number if selected else None,
                }
            except (WorkbenchError, sqlite3.ProgrammingError) as error:
                payload["error"] = f"session {self._controller.name} is closed ({error}); open it again"
        self._comm.send(payload)

    def close(self) -> None:
        """Close the comm. Pages then show that no session is open."""
        self._remove_listener()
        self._comm.close()


_link: Link | None = None


def load(ipython: InteractiveShell) -> None:
    """Open the comm if IPython runs in a Jupyter kernel and it is not open yet."""
    global _link
    if _link is None and getattr(ipython, "kernel", None) is not None:
        _link = Link()


def unload(_ipython: InteractiveShell | None = None) -> None:
    """Close the comm."""
    global _link
    if _link is not None:
        _link.close()
        _link = None


def show_session(session: Session | None) -> None:
    """Show a session, or that there is none, in the lab extension, if the comm is open."""
    if _link is not None:
        _link.show_session(session)
