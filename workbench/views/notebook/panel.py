"""The panel: an anywidget for the whole loop of a session.

The widget works only with a running kernel. The diffs of decided versions and the roofline are separate outputs of the
same cell, so a reopened notebook shows them without a kernel. The front end is in extensions/panel.
"""

from __future__ import annotations

import contextlib
import shlex
import sqlite3
import threading
import uuid
from collections import deque
from pathlib import Path

import anywidget
import traitlets

from workbench.errors import WorkbenchError
from workbench.plugins import DEFAULTS
from workbench.session import Session
from workbench.views.notebook import decision_record, labcomm
from workbench.views.notebook.controller import SessionController, get_controller

STATIC = Path(__file__).parent / "static"
RECEIVED = 256  # ids of the last messages, which the page sends again until they are confirmed
SHOWN = ("state", "live", "search")  # what the page shows
SEND_DELAY_S = 0.1  # changes within this time are sent together


class Panel(anywidget.AnyWidget):  # type: ignore[misc]
    """Step buttons, version tree, diff with a checkbox per hunk, tree of the search, roofline, profile, log and cost of
    one session.
    """

    _esm = STATIC / "panel.js"
    _css = STATIC / "panel.css"
    state = traitlets.Dict().tag(sync=True)
    live = traitlets.Dict().tag(sync=True)
    search = traitlets.Dict().tag(sync=True)
    widget_id = traitlets.Unicode().tag(sync=True)  # by which the page finds this widget in ipywidgets' manager

    def __init__(self, session: Session, *, by: str = DEFAULTS.proposer, **options: object) -> None:
        """Create the panel. Generate, Refine and Run use the proposer `by` with `options`.

        Example of an option: `sources=[...]` for the proposer "scripted".
        """
        self.controller: SessionController = get_controller(session)
        self.controller.proposer = (by, options)
        self._name, self._folder = str(session.name), session.log.folder
        self._loop, self._thread_id = labcomm.kernel_loop(), threading.get_ident()
        self._waiting: set[str] = set()
        self._waiting_lock = threading.Lock()
        self._received: deque[object] = deque(maxlen=RECEIVED)
        self._record: decision_record.DecisionRecord | None = None
        self._is_closed = False
        self._opened: Session | None = None  # by "Open again" without the magics, which would hold it
        widget_id = uuid.uuid4().hex
        super().__init__(
            model_id=widget_id,
            widget_id=widget_id,
            state=self.controller.state(),
            live=self.controller.live_state(),
            search=self.controller.search_state(),
        )
        self.on_msg(self._on_message)
        self._remove_listener = self.controller.add_listener(self._on_change)

    def __repr__(self) -> str:
        return f"<Panel of session {self._name}>"

    def _repr_mimebundle_(self, **kwargs: object) -> tuple[dict[str, object], dict[str, object]]:
        """The widget's bundle with a text/plain that does not change between runs."""
        shown = super()._repr_mimebundle_(**kwargs)
        data, metadata = shown if isinstance(shown, tuple) else (shown or {}, {})
        return {**data, "text/plain": repr(self)}, metadata

    def _ipython_display_(self) -> None:
        """Display the panel, and below it the record of its decisions."""
        from IPython.display import display

        labcomm.show_session(self.controller.session)
        data, metadata = self._repr_mimebundle_()
        display(data, metadata=metadata, raw=True)
        self._record = decision_record.DecisionRecord(self.controller.session)

    # ---- from the browser ----

    def _on_message(self, _widget: object, content: object, _buffers: object) -> None:
        if isinstance(content, dict) and self._is_new(content.get("id")):
            if content.get("command") == "open":
                self._open_again()
                return
            if content.get("command") == "hello":
                self._send_all()
            self.controller.handle_command(content)

    def _is_new(self, key: object) -> bool:
        """Confirm a message to the page; whether it did not come before."""
        if key is None:
            return True
        self.send({"received": key})
        with self._waiting_lock:
            known = key in self._received
            self._received.append(key)
        return not known

    def _open_again(self) -> None:
        """Open the closed session again, as the notebook's session if the magics are loaded, and show it."""
        from IPython import get_ipython
        from IPython.core.error import UsageError

        shell = get_ipython()
        try:
            session = self._find_opened(shell.user_ns.get("session") if shell is not None else None)
            if session is None and shell is not None and "cutegen" in shell.magics_manager.magics["line"]:
                shell.run_line_magic("cutegen", f"open {shlex.quote(str(self._folder))}")
                session = shell.user_ns["session"]
            elif session is None:
                session = self._opened = Session.open(self._folder)
        except (WorkbenchError, UsageError) as error:
            self.controller.set_error(str(error))
            self._push({"closed"})
            return
        self._remove_listener()
        self._is_closed = False
        controller = get_controller(session)
        controller.proposer = self.controller.proposer
        self.controller, self._remove_listener = controller, controller.add_listener(self._on_change)
        self._push({*SHOWN})

    def _find_opened(self, current: object) -> Session | None:
        """The notebook's session, if it is this panel's, which a cell has opened again."""
        if isinstance(current, Session) and current.log.folder == self._folder:
            with contextlib.suppress(sqlite3.ProgrammingError):  # it is closed too
                current.events()
                return current
        return None

    # ---- to the browser ----

    def _on_change(self, what: str) -> None:
        """Listener of the controller, called on any thread. It sends on the event loop of the kernel."""
        self._is_closed |= what == "closed"
        kinds = {"state": {"state", "live"}, "decided": {"decided", "state"}, "search": {"search", "live"}}.get(
            what, {what}
        )
        if self._loop is None or self._loop.is_closed() or threading.get_ident() == self._thread_id:
            self._push(kinds)
            return
        with self._waiting_lock:
            scheduled = bool(self._waiting)
            self._waiting |= kinds
        if not scheduled:
            with contextlib.suppress(RuntimeError):  # the loop was closed: the kernel is shutting down
                self._loop.call_soon_threadsafe(self._loop.call_later, SEND_DELAY_S, self._flush)

    def _send_all(self) -> None:
        """Send the page everything once, also what has not changed: it may have lost that."""
        before = {name: getattr(self, name) for name in SHOWN}
        self._push({*SHOWN})  # which sends what has changed
        if unchanged := [name for name in SHOWN if getattr(self, name) == before[name]]:
            self.send_state(unchanged)

    def _flush(self) -> None:
        with self._waiting_lock:
            kinds, self._waiting = self._waiting, set()
        self._push(kinds)

    def _push(self, kinds: set[str]) -> None:
        if "closed" in kinds:
            with contextlib.suppress(WorkbenchError, sqlite3.Error):
                self.state = self.controller.state()  # as it was left
        if "closed" in kinds or self._is_closed:  # a page may say hello after that
            self.live = {**self.controller.live_state(), "busy": "", "closed": True}
            return
        try:
            if "state" in kinds:
                self.state = self.controller.state()
            if "search" in kinds:
                self.search = self.controller.search_state()
            if "decided" in kinds and self._record is not None:
                self._record.add_decision(self.controller.session, *self.controller.last_decision())
        except Exception as error:  # an error in a view must not end the loop
            self.controller.set_error(f"cannot show session {self._name}: {error}")
        self.live = self.controller.live_state()

    def close(self) -> None:
        """Close the widget. The session and the record of decisions stay."""
        self._remove_listener()
        super().close()
