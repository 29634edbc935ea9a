"""Opens stored sessions: the user's own, those that they trust, and any other to read, of which nothing is run."""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from workbench import trust
from workbench.errors import UserError
from workbench.hash_chain import refuse_half_made
from workbench.records import record
from workbench.store import Store

DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError, sqlite3.Error, UnicodeError)
MOST_BYTES = 1 << 30  # of a log that is not the user's own, which is read into memory


def open_store(folder: Path, *, write: bool, given: bool) -> tuple[Store, str]:
    """A stored session's database, and the line that refuses work on it ("" for one's own).

    One that is not the user's own is opened for reading, unless they trust it: by `given`, or by an answer.
    """
    own = _is_own(folder, given=given, ask=write)
    if not own:
        check_files(folder)
    store = _open(folder, write=write and own)
    if store.write:
        trust.trust(folder, store.head(), growing=True)
    if not own:
        store.refusal = why_not_run(folder)
        return store, store.refusal
    changed = [one.message for one in store.damage if one.kind in ("problem", "setting", "schema")]
    return store, f"{folder.name}: {changed[0]}; nothing of it is run, restore it from a copy" if changed else ""


def check_files(folder: Path) -> None:
    """Raise `UserError` for files that no session has: links, which could lead anywhere, pipes, a log without end."""
    for path in folder.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            kind = "a link" if path.is_symlink() else "neither a file nor a folder"
            raise UserError(f"{path} is {kind}, which a session that is not trusted cannot have; remove it")
    if (folder / trust.DATABASE).stat().st_size > MOST_BYTES:
        raise UserError(f"{folder} has a log of more than {MOST_BYTES >> 20} MiB, the limit of one that is not trusted")
    _check_tables(folder / trust.DATABASE)


def _check_tables(path: Path) -> None:
    """Raise `UserError` for a log with views or computed columns: what they compute may never end."""
    with _naming(path), contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        names = db.execute("SELECT name, type, rootpage FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        for name, kind, page in names:
            columns = db.execute("SELECT hidden FROM pragma_table_xinfo(?)", (name,)).fetchall() if page else []
            if kind == "view" or not page or any(hidden for (hidden,) in columns):
                raise ValueError(f"{name!r} computes what it holds")


@contextlib.contextmanager
def reading(store: Store) -> Iterator[None]:
    """Close a session's database if what it holds cannot be read, and say so in one line (`UserError`)."""
    try:
        with _naming(store.path):
            yield
    except BaseException:
        store.close()
        raise


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGED as error:
        refuse_half_made(path)
        text = next(iter(str(error).splitlines()), "")
        raise UserError(f"{path} cannot be used as a session: {type(error).__name__}: {text}") from None


def _open(folder: Path, *, write: bool) -> Store:
    path = folder / trust.DATABASE
    with _naming(path):
        return Store(path, write=write)


def close_store(store: Store) -> None:
    """Close a session's database. What it holds now is the user's own."""
    if store.write:
        with contextlib.suppress(sqlite3.ProgrammingError):  # it is closed already
            trust.trust(store.path.parent, store.head())
    store.close()


def _is_own(folder: Path, *, given: bool, ask: bool) -> bool:
    """Whether the user trusts a session, or says so now: by `given`, or by an answer if they can be asked."""
    if trust.is_session_trusted(folder):
        return True
    question = "It is not your own. Trust it, and work on it? (no: it is opened for reading)"
    if given or (ask and trust.ask(f"{describe(folder)}\n{question}")):
        trust_session(folder)
        return True
    return False


def trust_session(folder: Path) -> bool:
    """Trust a stored session as it is now. Returns whether that could be stored for later processes."""
    check_files(folder)
    return trust.trust(folder, trust.session_head(folder))


def describe(folder: Path) -> str:
    """What a stored session is and what would run if it were worked on, in one line. Nothing of it is run."""
    check_files(folder)
    store = _open(folder, write=False)
    with reading(store):
        problem, _ = store.problem()
        versions, meta = store.versions(), store.meta()
    store.close()
    prompts = sorted(path.name for path in (folder / "prompts").glob("*"))
    address = meta.get("llm", {}).get("base_url")
    lines = [
        f"{folder} is a session with {len(versions)} versions of the problem {problem.name}",
        f"working on it runs the problem's code ({len(problem.source.splitlines())} lines, "
        f"{len(problem.modules)} further modules) and that of its versions",
        f"prompts in its folder: {', '.join(prompts)}" if prompts else "",
        f"the language model in its log is at {address}" if address else "",
    ]
    return " ".join("; ".join(filter(None, lines)).split())


@record
class Outline:
    """A stored session in a list: `best_s` is the time of the accepted version with the least one."""

    name: str
    problem: str
    versions: int
    best_s: float | None
    provenance: str
    used: datetime.datetime


def outline(folder: Path) -> Outline:
    """What a stored session is, for a list. Nothing of it is run. Raises `UserError` where it cannot be read."""
    check_files(folder)
    store = _open(folder, write=False)
    with reading(store):
        problem, _ = store.problem()
        versions = store.versions()
    store.close()
    written = problem.source.partition("\n")[0].strip('"') if problem.origin == "expression" else problem.name
    accepted = [v.trials[-1].verdict for v in versions if v.trials and v.decision and v.decision.kind == "accept"]
    timed = [(verdict.time_s, verdict.time_provenance or "") for verdict in accepted if verdict.time_s is not None]
    best_s, provenance = min(timed, default=(None, ""))
    return Outline(
        name=folder.name,
        problem=", ".join([written, problem.precision, *(f"{name}={value}" for name, value in problem.settings)]),
        versions=len(versions),
        best_s=best_s,
        provenance=provenance,
        used=datetime.datetime.fromtimestamp(_find_last_write(folder), datetime.UTC),
    )


def _find_last_write(folder: Path) -> float:
    """The time of the last write: while a session is open, its newest rows are in the file beside its database."""
    files = folder / trust.DATABASE, folder / f"{trust.DATABASE}-wal"
    return max(file.stat().st_mtime for file in files if file.is_file() and file.stat().st_size)


def why_not_run(folder: Path) -> str:
    """The line that refuses work on a session that is not trusted."""
    return trust.refuse(folder, f"{folder.name} is somebody else's session, opened for reading")
