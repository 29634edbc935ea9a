"""The controller of a session, which the panel and the lab extension share.

It takes commands (plain dicts from the browser) and gives `state()` and `live_state()` as plain JSON; it calls its
listeners after each change. Commands are queued: one thread runs the steps, another one the decisions about whole
versions, so accept, reject and stop work during a step.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from workbench import plugins
from workbench.errors import Stopped, UserError, WorkbenchError
from workbench.records import Decision, Event, Profile, Version
from workbench.session import Session
from workbench.views.notebook import advice_view, model_choice, search_view, view_model
from workbench.views.notebook.messages import (
    LogEntry,
    Message,
    check_decision,
    read_count,
    read_indices,
    read_number,
    read_reference,
)
from workbench.views.text import tables
from workbench.views.text.diagnosis import describe_wrong

STEPS = ("generate", "test", "profile", "refine", "run", "repair", "ask", "choices", "apply")
DECISIONS = ("accept", "reject", "undo", "model", "planner")
SAID = ("proposed", "judged", "decided", "stopped")  # events that the status region shows
LOG_LIMIT = 200  # log entries that the browser keeps
MAX_RUN, MAX_CHOICES = 50, 8  # steps per press of "Run", and proposals to choose from, at most

Listener = Callable[[str], None]
_controllers: weakref.WeakKeyDictionary[Session, SessionController] = weakref.WeakKeyDictionary()


def get_controller(session: Session) -> SessionController:
    """The controller of a session. Each session has exactly one."""
    found = _controllers.get(session)
    if found is None:
        found = _controllers[session] = SessionController(session)
    return found


class SessionController:
    """Controls all live views of a session. All methods may be called from any thread."""

    def __init__(self, session: Session) -> None:
        self._session = weakref.ref(session)
        self.name: str = session.name
        self._lock = threading.RLock()
        self._listeners: list[Listener] = []
        self._log: deque[LogEntry] = deque(maxlen=LOG_LIMIT)
        self._busy = self._note = ""
        self._progress: dict[str, object] = {"message": "", "fraction": None}
        self._message = {"kind": "info", "text": ""}
        self._answered = 0  # commands; an answer with the words of the one before is a change, which reaches the page
        self._shown: int | None = None
        self._against: int | None = None
        self.proposer: tuple[str, dict[str, object]] = (plugins.DEFAULTS.proposer, {})  # name and options
        self._profiles: dict[int, Profile] = {}
        self._steps = ThreadPoolExecutor(1, thread_name_prefix="cutegen-step")
        self._decisions = ThreadPoolExecutor(1, thread_name_prefix="cutegen-decide")
        self._decided: tuple[Version, Version | None, Decision | None] | None = None
        for event in session.events()[-LOG_LIMIT:]:
            self._log_event(event)
        self._unsubscribe = session.subscribe(self._on_event)

    @property
    def session(self) -> Session:
        """The session. Raises `UserError` if it was closed."""
        session = self._session()
        if session is None:
            raise UserError(f"session {self.name!r} is closed; open it again")
        return session

    # ---- states for the browser ----

    def state(self) -> dict[str, object]:
        """The state that changes with a version or a decision, with diff and roofline."""
        from workbench.views.plots import roofline as plots

        session = self.session
        versions: tuple[Version, ...] = session.versions
        shown, against = self._shown_pair(versions)
        bundle = plots.roofline(session)._repr_mimebundle_()
        old = against.proposal.candidate.source if against else ""
        nothing = {"rows": [], "kernels": [], "note": "no version yet"}
        return {
            **self.outline(versions),
            "shown": shown.number if shown else None,
            "against": against.number if against else None,
            "reason": shown.proposal.reason if shown else "",
            "diff": view_model.diff_blocks(old, shown.proposal.candidate.source) if shown else [],
            "choices": view_model.choice_rows(versions, shown) if shown else [],
            "profile": view_model.profile_table(shown, self._profiles.get(shown.number)) if shown else nothing,
            "advice": advice_view.advice_view(
                shown, session.known_diagnosis(shown.number) if shown else None, versions, has_model=session.has_model
            ),
            "roofline": bundle.get("image/svg+xml", ""),
            "rooflineText": bundle.get("text/plain", ""),
        }

    def outline(self, versions: tuple[Version, ...] | None = None) -> dict[str, object]:
        """The small part of the state: header, version tree, pending versions, cost."""
        session = self.session
        versions = session.versions if versions is None else versions
        pending = [version.number for version in versions if version.standing == "pending"]
        baseline = session.baseline
        best, last = session.best, session.log.last_decision
        return {
            "session": self.name,
            "problem": session.problem.name,
            "executor": session.executor_name,
            "arch": session.arch,
            "device": str(session.device),
            "versions": view_model.version_tree(versions),
            "pending": pending,
            "baseline": baseline.number if baseline else None,
            "best": best.number if best else None,
            "undo": {"version": last.version, "what": last.participle} if last is not None else None,
            "cost": session.spent() or view_model.total_cost(versions),
            "llm": model_choice.needs_model(self.proposer[0]),
            "model": model_choice.model_view(session),
        }

    def live_state(self) -> dict[str, object]:
        """The state that changes during a step."""
        with self._lock:
            return {
                "busy": self._busy,
                "progress": dict(self._progress),
                "message": dict(self._message),
                "answered": self._answered,
                "log": [entry.copy() for entry in self._log],  # copies, because tokens change the last entry
            }

    def search_state(self) -> search_view.SearchView:
        """The tree of the last search, which changes with each of its events."""
        return search_view.search_view(self.session)

    def _shown_pair(self, versions: tuple[Version, ...]) -> tuple[Version | None, Version | None]:
        """The version on display and the one it is compared with."""
        by_number = {version.number: version for version in versions}
        shown = by_number.get(self._shown or 0) or (versions[-1] if versions else None)
        if shown is None:
            return None, None
        against = by_number.get(self._against or 0) if self._against else by_number.get(shown.parent or 0)
        return shown, against

    def selected_version(self) -> Version | None:
        """The version on display."""
        return self._shown_pair(self.session.versions)[0]

    # ---- listeners ----

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener("state" | "live" | "search" | "decided" | "closed")` after each change, on any thread.

        Returns a function that removes it.
        """
        with self._lock:
            self._listeners.append(listener)

        def remove() -> None:
            with self._lock, contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return remove

    def _notify(self, what: str) -> None:
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(what)

    def _log_event(self, event: Event) -> None:
        if event.kind == "token" and self._log and self._log[-1]["kind"] == "token":
            self._log[-1]["message"] += event.message
        elif event.message:
            self._log.append({"kind": event.kind, "message": event.message, "version": event.version})

    def _on_event(self, event: Event) -> None:
        if event.kind == "closed":
            self._notify("closed")
            return
        with self._lock:
            if event.kind in ("running", "waiting"):
                self._progress = {"message": event.message, "fraction": event.fraction}
            else:
                self._log_event(event)
            self._note = event.message if event.kind == "note" else self._note
            if event.kind in SAID and not self._busy:  # of a cell's command; what the panel did is said after this
                self._message = {"kind": "info", "text": event.message}
        if event.kind in ("search", "decided"):  # its head says what was decided on the best
            self._notify("search")
        self._notify(
            "live" if event.kind in ("token", "running", "waiting", "proposing", "note", "search") else "state"
        )

    def set_message(self, text: str, kind: str = "info") -> None:
        """Show a line in the status region."""
        self._answer(kind, text)
        self._notify("live")

    def set_error(self, text: str) -> None:
        """Store an error line for the next `live_state()`. Listeners are not called, because one of them failed."""
        self._answer("error", text)

    def _answer(self, kind: str, text: str) -> None:
        with self._lock:
            self._message = {"kind": kind, "text": text}
            self._answered += 1

    def last_decision(self) -> tuple[Version, Version | None, Decision | None]:
        """The version of the last decision, the version it was compared with, and the decision that was taken back."""
        if self._decided is None:
            raise UserError("nothing was decided yet")
        return self._decided

    # ---- commands ----

    def handle_command(self, message: Message) -> None:
        """Check a command from a view and queue it. Errors are shown in the status region."""
        name = str(message.get("command", ""))
        try:
            if name == "stop":
                self._stop()
            elif name == "select":
                self._select(message)
            elif name == "next":
                self._select_next_pending()
            elif name == "search":
                self._enqueue(name, lambda: self._search(message))
            elif name in STEPS:
                self._enqueue(name, lambda: self._run_step(name, message))
            elif name == "steer":
                self._decisions.submit(self._run_guarded, name, lambda: search_view.steer(self.session, message))
            elif name in DECISIONS:
                if message.get("hunks") is None:
                    self._decisions.submit(self._run_guarded, name, lambda: self._decide(name, message))
                else:  # makes a version and tests it
                    self._enqueue(name, lambda: self._decide(name, message))
            elif name != "hello":
                raise UserError(f"unknown command {name!r}")
        except WorkbenchError as error:
            self.set_message(str(error), "error")
        except Exception as error:  # a page that gets no answer stays busy
            self.set_message(f"{name} failed inside the workbench: {type(error).__name__}: {error}", "error")

    def _stop(self) -> None:
        """Stop the running step. What came of it is said at its end, also if that is now."""
        with self._lock:
            self.session.stop()
            self._answer(**self._message)
            if self._busy:
                self._progress = {"message": "stopping; everything finished so far is kept", "fraction": None}
        self._notify("live")

    def _enqueue(self, name: str, work: Callable[[], str]) -> None:
        """Queue work that runs a version. Only one is in the queue, so the view is busy as soon as it is."""
        with self._lock:
            if self._busy:
                raise UserError(f"{self._busy} is still running; wait for it, or press Stop")
            self._steps.submit(self._run_guarded, name, self.session.queue(work), True)
            self._busy = name
            self._progress = {"message": f"{name} …", "fraction": None}
            self._message = {"kind": "info", "text": f"{name} started"}
        self._notify("live")

    def _run_guarded(self, name: str, work: Callable[[], str], step: bool = False) -> None:
        kind, text = "info", ""
        try:
            text = work()
        except Stopped:
            text = f"{name} stopped; everything finished so far is kept"
        except WorkbenchError as error:
            kind, text = "error", str(error)
        except (RuntimeError, sqlite3.ProgrammingError) as error:  # the session was closed
            kind = "error"
            text = f"{name}: session {self.name!r} is closed ({error}); open it again and run this cell again"
        except Exception as error:  # a bug of ours must not leave the view busy forever
            kind, text = "error", f"{name} failed inside the workbench: {type(error).__name__}: {error}"
        with self._lock:
            if step:
                self._busy = ""
                self._progress = {"message": "", "fraction": None}
            self._answer(kind, text)
        self._notify("state")

    def _run_step(self, name: str, message: Message) -> str:
        session = self.session
        by, options = self.proposer
        version: Version | None
        if name == "run":
            steps, before = read_count(message, 3, MAX_RUN), session.versions
            if model_choice.needs_model(by):  # by CuTeGen's chain, which repairs failures and shows each round
                depth = session.baseline.proposal.depth + steps if session.baseline is not None else steps
                made = session.run_chain(by, depth=str(depth))
            else:
                made = session.run(steps=steps, by=by, **options)
            self._shown = self._against = None
            return "; ".join((f"{len(made)} step(s) done", *tables.list_settled(session, before)))
        if name == "ask":
            if not str(message.get("text", "")).strip():
                raise UserError("type the question first, then press Ask")
            return session.ask(str(message["text"]), read_reference(message.get("version")), by)
        if name == "choices":
            made = session.choices(read_count(message, 3, MAX_CHOICES), by, str(message.get("text", "")), **options)
            if not made:
                return "the proposer has no further idea; the log says why"
            self._shown, self._against = made[0].number, None
            return f"{len(made)} versions to choose from: v{made[0].number} to v{made[-1].number}"
        if name == "repair":
            version = session.repair(read_reference(message.get("version")) or "latest", by, **options)
        elif name == "apply":
            chosen = read_reference(message.get("version")) or "latest"
            version = session.apply_advice(chosen, read_reference(message.get("advice")) or 1)
        elif name in ("test", "profile"):
            version = session.version(read_reference(message.get("version")) or "latest")
            if name == "profile":
                found = self._profiles[version.number] = session.profile(version.number)
                return f"{describe_wrong(version) or f'v{version.number}'}: {found.summary}"
            session.test(version.number)
        else:
            self._note = ""
            version = session.refine(str(message.get("text", "")) if name == "refine" else "", by, **options)
        if version is None:
            return "the proposer has no further idea; the log says why"
        self._shown, self._against = version.number, None
        unread = model_choice.say_unread(message, by, self._note)
        return f"{unread}v{version.number} {view_model.verdict_text(session.version(version.number))}"

    def _search(self, message: Message) -> str:
        self._shown = self._against = None
        return search_view.run_search(self.session, message, self.proposer[0])

    def _decide(self, name: str, message: Message) -> str:
        session = self.session
        if name in ("model", "planner"):
            said, self.proposer = model_choice.choose_proposer(session, name, message)
            return said
        if name == "undo":
            undone = session.undo()
            self._show_decided(session.version(undone.version), undone)
            return undone.taken_back
        number, reason = check_decision(session, message), str(message.get("reason", ""))
        if name == "accept":
            version = session.accept(
                number, hunks=read_indices(message.get("hunks")), source_hash=str(message["sourceHash"]), reason=reason
            )
        else:
            version = session.reject(number, reason=reason, source_hash=str(message["sourceHash"]))
        version = session.version(version.number)
        self._show_decided(version, None)
        following = view_model.next_pending(session.versions, number)
        waits = f"; v{following} is waiting for a decision (Alt+Shift+N shows it)" if following is not None else ""
        return f"v{version.number} {version.standing}{waits}"

    def _show_decided(self, version: Version, undone: Decision | None) -> None:
        """Stay at the version that was decided on (of one that was accepted in part, at what was made of it), so that
        the next key or click is about no other.
        """
        self._decided = (version, self.session.version(version.parent) if version.parent else None, undone)
        self._shown, self._against = version.number, None
        self._notify("decided")

    def _select(self, message: Message) -> None:
        self._shown = self.session.version(read_number(message["version"])).number
        against = message.get("against")
        self._against = self.session.version(read_number(against)).number if against else None
        self._answer(**self._message)
        self._notify("state")

    def _select_next_pending(self) -> None:
        shown = self.selected_version()
        following = view_model.next_pending(self.session.versions, shown.number if shown else 0)
        if following is None:
            self.set_message("no version is waiting for a decision")
            return
        self._shown, self._against = following, None
        self.set_message(f"v{following} is waiting for a decision")
        self._notify("state")

    def close(self) -> None:
        """End the threads and remove the listeners. The session stays open."""
        self._unsubscribe()
        self._notify("closed")
        with self._lock:
            self._listeners.clear()
        for pool in (self._steps, self._decisions):
            pool.shutdown(wait=False, cancel_futures=True)
