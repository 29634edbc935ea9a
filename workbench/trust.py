"""What a user trusts: files and sessions that the workbench made for them here, or that they said they trust.

A session, a recording or a problem holds code, so somebody else's is not run before the user was asked. What is trusted
is kept outside of its folder, one file per path with a content hash: in $CUTEGEN_TRUST, else in cutegen/trusted in the
user's folder of settings ($XDG_CONFIG_HOME, else ~/.config). A session's hash is the head of its log. While it is open
for writing its log grows; after a crash the head noted at its opening has to be in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from workbench import hash_chain
from workbench.errors import UserError
from workbench.records import record

DATABASE = "session.sqlite"
MOST_ENTRIES = 500  # then the entries of paths that are gone are removed

Question = Callable[[str], bool]  # shows a text to a person; returns whether the answer was yes


@record
class Entry:
    """A trusted path. `growing` is a session that is open for writing, or was when its process was killed."""

    path: str
    digest: str
    growing: bool = False


_given: dict[str, Entry] = {}  # path -> what was trusted in this process, for a user whose home cannot be written
_questions: list[Question] = []  # how to ask, if a person can answer


def ask_by(question: Question | None) -> None:
    """Set how a person is asked in this process; None: nobody can answer."""
    _questions[:] = [question] if question is not None else []


def trusted_folder() -> Path:
    """The folder of the entries."""
    named = os.environ.get("CUTEGEN_TRUST")
    settings = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (
        Path(named) if named else (settings if settings.is_absolute() else Path.home() / ".config") / "cutegen/trusted"
    )


def trust(path: Path, digest: str, *, growing: bool = False) -> bool:
    """Trust this content at this path. Returns whether that could be stored."""
    entry = _entry_path(path)
    _given[str(path.resolve())] = Entry(path=str(path.resolve()), digest=digest, growing=growing)
    document = {"path": str(path.resolve()), "digest": digest, "growing": growing}
    temporary = entry.with_suffix(f".{os.getpid()}")
    try:
        entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.write_text(json.dumps(document))
        os.replace(temporary, entry)
        _remove_gone(entry.parent)
    except OSError:
        return False
    return True


def is_trusted(path: Path, digest: str) -> bool:
    """Whether the user trusts this content at this path."""
    found = read_entry(path)
    return found is not None and found.digest == digest


def read_entry(path: Path) -> Entry | None:
    """What was noted of a path; None if it was not trusted."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        plain = json.loads(_entry_path(path).read_text())
        if plain["path"] == str(path.resolve()):
            return Entry(path=plain["path"], digest=str(plain["digest"]), growing=bool(plain["growing"]))
    return _given.get(str(path.resolve()))


def _entry_path(path: Path) -> Path:
    return trusted_folder() / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()}.json"


def _remove_gone(folder: Path) -> None:
    entries = list(folder.glob("*.json"))
    if len(entries) <= MOST_ENTRIES:
        return
    for entry in entries:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if not Path(json.loads(entry.read_text())["path"]).exists():
                entry.unlink(missing_ok=True)


def hash_file(path: Path) -> str:
    """Hex SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require(path: Path, digest: str, what: str, *, given: bool = False) -> None:
    """Return if the user trusts this content, or says so now (`given`, or by an answer), which is stored.

    `what` says what it is and what it would run. Raises `UserError` otherwise.
    """
    if is_trusted(path, digest):
        return
    if given or ask(f"{what}\nIt is not your own. Trust it, and run this code?"):
        trust(path, digest)
        return
    raise UserError(refuse(path, what))


def ask(question: str) -> bool:
    """Ask the person, if there is one. Returns whether the answer was yes."""
    return bool(_questions) and _questions[0](question)


def refuse(path: Path, what: str) -> str:
    """The line that refuses what is not trusted."""
    return f"{' '.join(what.split())}; it is not your own, so nothing of it is run: to trust it, cutegen trust {path}"


def session_head(folder: Path) -> str:
    """The head of a stored session's log; of a log without a chain the hash of its file. Raises `UserError`."""
    path = (folder / DATABASE).absolute()
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            return hash_chain.read_head(db) if hash_chain.has_chain(db) else hash_file(path)
    except (sqlite3.DatabaseError, OSError) as error:
        raise UserError(f"{path} cannot be used as a session: {error}; restore it from a copy") from None


def is_session_trusted(folder: Path) -> bool:
    """Whether a session was made or trusted by this user here, and is as it was left."""
    entry = read_entry(folder)
    if entry is None:
        return False
    if entry.digest == session_head(folder):
        return True
    path = (folder / DATABASE).absolute()
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        return entry.growing and hash_chain.has_chain(db) and hash_chain.holds_head(db, entry.digest)


def check_problem_file(path: Path) -> None:
    """Raise `UserError` for a problem's file in the folder of a session that is not trusted.

    Any other file that a person names is their own.
    """
    for folder in path.resolve().parents[:2]:
        if (folder / DATABASE).exists() and not is_session_trusted(folder):
            raise UserError(refuse(folder, f"{path} is a file of the session {folder.name}"))
