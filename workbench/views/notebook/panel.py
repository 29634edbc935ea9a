"""The panel: one anywidget for the whole loop. Input: a `Session`. Output: a live view, and a record of every decision.

The widget is live only. What must last (the diffs of decided versions and the roofline) is displayed separately under
the same cell, so a notebook reopened with no kernel still shows it. Sources of the front end: extensions/panel.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import anywidget
import traitlets

from workbench.session import Session
from workbench.views.notebook import decision_record, labcomm
from workbench.views.notebook.controller import Desk, desk_of, kernel_loop

STATIC = Path(__file__).parent / "static"
SOON_S = 0.1  # changes within this time are sent together


class Panel(anywidget.AnyWidget):  # type: ignore[misc]
    """Step buttons, version tree, diff with a checkbox per hunk, roofline, profile, log and cost of one session."""

    _esm = STATIC / "panel.js"
    _css = STATIC / "panel.css"
    state = traitlets.Dict().tag(sync=True)
    live = traitlets.Dict().tag(sync=True)

    def __init__(self, session: Session, *, by: str = "planner", **options: object) -> None:
        """A panel whose Generate, Refine and Run ask the proposer `by`, with its options.

        An example of an option is `sources=[...]` for "scripted".
        """
        self.desk: Desk = desk_of(session)
        self.desk.proposer = (by, options)
        self._name = str(session.name)
        self._loop, self._home = kernel_loop(), threading.get_ident()
        self._waiting: set[str] = set()
        self._gate = threading.Lock()
        self._record: decision_record.Record | None = None
        super().__init__(state=self.desk.state(), live=self.desk.live())
        self.on_msg(self._on_message)
        self._forget = self.desk.listen(self._changed)

    def __repr__(self) -> str:
        return f"<Panel of session {self._name}>"

    def _repr_mimebundle_(self, **kwargs: object) -> tuple[dict[str, object], dict[str, object]]:
        """The widget view with a text/plain that is the same on every run."""
        shown = super()._repr_mimebundle_(**kwargs)
        data, metadata = shown if isinstance(shown, tuple) else (shown or {}, {})
        return {**data, "text/plain": repr(self)}, metadata

    def _ipython_display_(self) -> None:
        """Show the panel, and below it the outputs that its decisions are recorded in."""
        from IPython.display import display

        labcomm.follow(self.desk.session)
        data, metadata = self._repr_mimebundle_()
        display(data, metadata=metadata, raw=True)
        self._record = decision_record.Record(self.desk.session)

    # ---- from the browser ----

    def _on_message(self, _widget: object, content: object, _buffers: object) -> None:
        if isinstance(content, dict):
            if content.get("command") == "hello":
                self._push({"state", "live"})
            self.desk.command(content)

    # ---- to the browser ----

    def _changed(self, what: str) -> None:
        """A listener of the desk, called on any thread: what is sent goes through the kernel's own loop."""
        kinds = {"state": {"state", "live"}, "decided": {"decided", "state"}}.get(what, {what})
        if self._loop is None or self._loop.is_closed() or threading.get_ident() == self._home:
            self._push(kinds)
            return
        with self._gate:
            scheduled = bool(self._waiting)
            self._waiting |= kinds
        if not scheduled:
            with contextlib.suppress(RuntimeError):  # the loop closed meanwhile: the kernel is going down
                self._loop.call_soon_threadsafe(self._loop.call_later, SOON_S, self._flush)

    def _flush(self) -> None:
        with self._gate:
            kinds, self._waiting = self._waiting, set()
        self._push(kinds)

    def _push(self, kinds: set[str]) -> None:
        if "closed" in kinds:
            self.live = {**self.desk.live(), "closed": True}
            return
        try:
            if "state" in kinds:
                self.state = self.desk.state()
            if "decided" in kinds and self._record is not None:
                self._record.add_decision(self.desk.session, *self.desk.decided_pair())
        except Exception as error:  # a view must never take the loop down with it
            self.desk.fault(f"cannot show session {self._name}: {error}")
        self.live = self.desk.live()

    def close(self) -> None:
        """Take the widget away; the session and the static record stay."""
        self._forget()
        super().close()
