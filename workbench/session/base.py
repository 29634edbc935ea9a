"""Making, finding and reading a session; its events and its one working thread."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

from workbench import evaluate, executors, landscapes, problems
from workbench.analysis import devices
from workbench.analysis import hunks as hunk_maths
from workbench.errors import Stopped, Unavailable, UserError
from workbench.executors.inspector import WorkerInspector
from workbench.records import Decision, Event, Facts, Problem, Version
from workbench.store import Store

P = ParamSpec("P")
R = TypeVar("R")
Reference = int | str
DATABASE = "session.sqlite"


def default_root() -> Path:
    """Where sessions live: $CUTEGEN_ROOT, else .cutegen in the current folder."""
    return Path(os.environ.get("CUTEGEN_ROOT", ".cutegen"))


def owned(method: Callable[P, R]) -> Callable[P, R]:
    """Run a method on the session's one working thread; Ctrl-C stops the work and leaves the session whole."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        session: Any = args[0]
        if threading.current_thread() is session._thread:
            return method(*args, **kwargs)
        future = session._pool.submit(session._enter, method, args, kwargs)
        try:
            return future.result()  # type: ignore[no-any-return]
        except KeyboardInterrupt:
            session.stop()
            with contextlib.suppress(Stopped, CancelledError):
                future.cancel()
                future.result()
            raise Stopped("stopped; everything finished is kept") from None

    return call


class Base:
    """The log behind a session, its one working thread, and what can be looked up in it."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self.folder = folder
        self.name = folder.name
        self.problem, self.facts = store.problem()
        meta = store.meta()
        self.arch: str = meta["arch"]
        self.device: str = meta["device"]
        self.executor_name: str = meta["executor"]
        self.constraints: tuple[str, ...] = tuple(meta.get("constraints", ()))
        self._executor = self._choose()
        self._stop = threading.Event()
        self._executor.stop = self._stop
        self._callbacks: list[Callable[[Event], None]] = []
        self._lock = threading.RLock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cutegen-session")
        self._thread: threading.Thread | None = None
        self._versions = store.versions()
        self._client: Any = None

    # ---- making and finding -----------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, problem: Problem | str, *, root: str | Path | None = None, name: str | None = None, executor: str = "auto", arch: str = "", device: str | None = None, facts: Facts | None = None,
    ) -> Self:  # fmt: skip
        """A new session for a problem (a record, a shipped name, a path or source text); inspects the problem first."""
        found = problems.load(problem) if isinstance(problem, str) else problem
        chosen = executors.choose(executor)
        _fitting(device or "H200", arch)
        if chosen.name == "replay":
            _recorded_on(device or "H200", found)
        facts = facts or WorkerInspector().inspect(found)
        executors.admit(chosen, facts)
        base = Path(root) if root is not None else default_root()
        folder = _new_folder(base, name or re.sub(r"\W+", "-", found.name))
        store = Store(folder / DATABASE)
        store.set_meta({"arch": arch or ("sm_90a" if chosen.name in ("gpu", "replay") else "sm_80"), "device": device or "H200", "executor": chosen.name})
        store.add_problem(found, facts)
        return cls._over(store, folder)

    def _choose(self) -> Any:
        """The executor that the session was made with, or, where that cannot run, the one at hand (a session from a GPU opens on a laptop)."""
        try:
            return executors.choose(self.executor_name)
        except Unavailable:
            chosen = executors.choose("auto")
            self.executor_name = chosen.name
            return chosen

    @classmethod
    def open(cls, path: str | Path, *, root: str | Path | None = None, write: bool = True) -> Self:
        """Reopen a session by name or folder; whatever was accepted is there. With `write=False` another process may go on writing."""
        folder = Path(path)
        if not (folder / DATABASE).exists():
            folder = (Path(root) if root is not None else default_root()) / str(path)
        if not (folder / DATABASE).exists():
            known = ", ".join(cls.names(root)) or "none"
            raise UserError(f"no session is called {str(path)!r}; there are: {known}")
        return cls._over(Store(folder / DATABASE, write=write), folder)

    @classmethod
    def _over(cls, store: Store, folder: Path) -> Self:
        try:
            return cls(store, folder)
        except BaseException:
            store.close()
            raise

    @staticmethod
    def names(root: str | Path | None = None) -> tuple[str, ...]:
        """Names of the sessions under `root`."""
        base = Path(root) if root is not None else default_root()
        return tuple(sorted(path.parent.name for path in base.glob(f"*/{DATABASE}"))) if base.is_dir() else ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self.name}: {len(self.versions)} versions, {self.executor_name}, {self.arch}>"

    def close(self) -> None:
        """Stop running work and give the session free."""
        self.stop()
        self._pool.shutdown(wait=True)
        self._store.close()

    # ---- looking ----------------------------------------------------------------------------------------------------

    @property
    def versions(self) -> tuple[Version, ...]:
        """All versions, oldest first."""
        return self._versions

    @property
    def baseline(self) -> Version | None:
        """The version accepted last; the next proposal starts from it."""
        accepted = {version.number: version for version in self._versions if version.decision and version.decision.kind == "accept"}
        order = [decision.version for decision in self._store.decisions() if decision.kind == "accept" and decision.version in accepted]
        return accepted[order[-1]] if order else None

    @property
    def best(self) -> Version | None:
        """The fastest correct version that was accepted and whose time can be true."""
        timed = [v for v in self._versions if v.decision and v.decision.kind == "accept" and v.trials and v.trials[-1].verdict.correct and v.trials[-1].verdict.time_s and not v.trials[-1].verdict.refused]
        timed = [v for v in timed if v.trials[-1].verdict.time_provenance == "measured"] or timed  # never a modelled time against a measured one
        return min(timed, key=lambda v: v.trials[-1].verdict.time_s or 0.0, default=self.baseline)

    @property
    def pending(self) -> Version | None:
        """The latest version that waits for a decision."""
        return next((version for version in reversed(self._versions) if version.decision is None), None)

    def version(self, reference: Reference = "latest") -> Version:
        """A version by number, "v3", "latest", "pending", "best" or "baseline"."""
        text = str(reference).strip()
        named = {"latest": self._versions[-1] if self._versions else None, "best": self.best, "baseline": self.baseline, "pending": self.pending}
        if text in named:
            found = named[text]
            if found is None:
                raise UserError(f"there is no {text} version yet" + ("" if self._versions else "; make one with generate or edit"))
            return found
        digits = text.removeprefix("v")
        match = next((version for version in self._versions if digits.isdigit() and version.number == int(digits)), None)
        if match is None:
            raise UserError(f"no version {text!r}; there are: {', '.join(f'v{v.number}' for v in self._versions) or 'none'}")
        return match

    def diff(self, old: Reference, new: Reference) -> tuple[hunk_maths.Hunk, ...]:
        """Hunks between the sources of two versions, numbered from 1."""
        return hunk_maths.hunks(self.version(old).proposal.candidate.source, self.version(new).proposal.candidate.source)

    def events(self) -> tuple[Event, ...]:
        """Everything that was said in this session."""
        return tuple(self._store.events(Event))

    def decisions(self) -> tuple[Decision, ...]:
        """Every decision, undone ones included."""
        return tuple(self._store.decisions())

    # ---- events and threads -----------------------------------------------------------------------------------------

    def subscribe(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call `callback` with every event, from whatever thread works; returns a function that ends it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def _say(self, event: Event, *, keep: bool = True) -> None:
        if keep:
            self._store.add_event(event, evaluate.now())
        for callback in tuple(self._callbacks):
            try:
                callback(event)
            except Exception:  # a view that fails must not take the work with it
                logging.getLogger(__name__).exception("a subscriber of session %s failed", self.name)

    def _progress(self, event: Event) -> None:
        self._say(event, keep=False)

    def _enter(self, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._thread = threading.current_thread()
        self._stop.clear()
        try:
            return method(*args, **kwargs)
        except Stopped:
            self._say(Event(kind="stopped", message="stopped; everything finished is kept"))
            raise

    def stop(self) -> None:
        """End the running work within a second; from any thread."""
        self._stop.set()

    def _reload(self) -> None:
        with self._lock:  # or an older list, read by another thread, could replace a newer one
            self._versions = self._store.versions()


def _fitting(device: str, arch: str) -> None:
    """Refuse an unknown device, and code that it cannot run: sm_90a is for Hopper alone, the others run on what is as new or newer."""
    found = devices.find(device)
    number = int(re.sub(r"\D", "", found.arch))
    wanted = int(re.sub(r"\D", "", arch) or 0)
    if (arch.endswith("a") and arch != found.arch) or wanted > number:
        raise UserError(f"--arch {arch} is not for the {found.name}, which is {found.arch}: leave --arch out, or name a device that has it")


def _recorded_on(device: str, problem: Problem) -> None:
    """Refuse to judge what was recorded on one device as if it were another's."""
    place, name = landscapes.find(problem), devices.find(device).name
    if place is not None and name not in str(place.runs[-1]["device"]):
        raise UserError(f"--device {name}: {problem.name} was recorded on an {place.runs[-1]['device']}; leave --device out, or use the emulator")


def _new_folder(root: Path, name: str) -> Path:
    """ROOT/NAME, or NAME-2, NAME-3, ... when taken."""
    root.mkdir(parents=True, exist_ok=True)
    for number in range(1, 10_000):
        folder = root / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise UserError(f"too many sessions are called {name}; remove some from {root}")
