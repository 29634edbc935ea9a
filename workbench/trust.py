"""What a user trusts: files and sessions that the workbench made for them here, or that they said they trust.

A session, a recording or a problem holds code, so somebody else's is not run before the user was asked. What is trusted
is kept outside of its folder, one file per path with a content hash (`folders.trusted_folder`). A session's hash is
the head of its log. While it is open for writing its log grows; after a crash the head noted at its opening has to be
in it.

An older workbench noted nothing. What lay here while it was used, and was not changed since, is the user's own
(`was_here_before`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

from workbench.errors import UserError
from workbench.folders import cache_root, trusted_folder
from workbench.hash_chain import has_chain, holds_head, read_head, refuse_half_made
from workbench.records import record

DATABASE = "session.sqlite"
MOST_ENTRIES = 500  # then the entries of paths that are gone are removed
DAMAGED = (OSError, ValueError, KeyError, TypeError)  # what reading a damaged or absent entry raises

Question = Callable[[str], bool]  # shows a text to a person; returns whether the answer was yes


@record
class Entry:
    """A trusted path. `growing` is a session that is open for writing, or was when its process was killed."""

    path: str
    digest: str
    growing: bool = False


_given: dict[str, Entry] = {}  # path -> what was trusted in this process, for a user whose home cannot be written
_addresses: set[str] = set()  # addresses that were named in this process, for the same reason
_questions: list[Question] = []  # how to ask, if a person can answer


def ask_by(question: Question | None) -> None:
    """Set how a person is asked in this process; None: nobody can answer."""
    _questions[:] = [question] if question is not None else []


def ask(question: str) -> bool:
    """Ask the person, if there is one. Returns whether the answer was yes."""
    return bool(_questions) and _questions[0](question)


def trust(path: Path, digest: str, *, growing: bool = False) -> bool:
    """Trust this content at this path. Returns whether that could be stored."""
    entry = Entry(path=str(path.resolve()), digest=digest, growing=growing)
    _given[entry.path] = entry
    document = {"path": entry.path, "digest": digest, "growing": growing}
    stored = _store(_entry_path(path), json.dumps(document))
    if stored:
        _remove_gone()
    return stored


def is_trusted(path: Path, digest: str) -> bool:
    """Whether the user trusts this content at this path."""
    found = _read_entries(path)
    return any(entry.digest == digest for entry in found) if found else was_here_before(path)


def _read_entries(path: Path) -> list[Entry]:
    """What was noted of a path, by any process and by this one."""
    found = [entry for entry in [_given.get(str(path.resolve()))] if entry is not None]
    with contextlib.suppress(*DAMAGED):
        plain = json.loads(_entry_path(path).read_text())
        if plain["path"] == str(path.resolve()):
            found.append(Entry(path=plain["path"], digest=str(plain["digest"]), growing=bool(plain["growing"])))
    return found


def _entry_path(path: Path) -> Path:
    return trusted_folder() / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()}.json"


def _store(path: Path, text: str) -> bool:
    """Write a whole file of the trusted folder. Returns whether that was possible."""
    temporary = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.write_text(text)
        os.replace(temporary, path)
    except OSError:
        return False
    return True


def _remove_gone() -> None:
    entries = list(trusted_folder().glob("*.json"))
    if len(entries) <= MOST_ENTRIES:
        return
    for entry in entries:
        with contextlib.suppress(*DAMAGED):
            if not Path(json.loads(entry.read_text())["path"]).exists():
                entry.unlink(missing_ok=True)


def was_here_before(path: Path) -> bool:
    """Whether a file is the user's, and last changed while an older workbench was used, which noted nothing.

    The time is that of the inode (ctime): copying, unpacking and downloading set it, and no program can set it back.
    """
    with contextlib.suppress(OSError):
        found = path.lstat()
        own = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
        return own and found.st_ctime < _asking_since()
    return False


def _asking_since() -> float:
    """When this user's workbench began to ask, in seconds since 1970; 0 if no older one was used, or if unknown.

    It is noted once: the time at which this file was installed, if the cache then holds a file that is older.
    """
    path = trusted_folder() / "since"
    with contextlib.suppress(OSError, ValueError):
        return float(path.read_text())
    since = Path(__file__).stat().st_ctime
    older = any(found.is_file() and found.stat().st_ctime < since for found in cache_root().rglob("*"))
    return since if _store(path, str(since if older else 0.0)) and older else 0.0


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
    what = " ".join(what.split())  # its names cannot look like a question of their own
    if given or ask(f"{what}\nIt is not your own. Trust it, and run this code?"):
        trust(path, digest)
        return
    raise UserError(refuse(path, what))


def refuse(path: Path, what: str) -> str:
    """The line that refuses what is not trusted."""
    line = (
        f"{' '.join(what.split())}; it is not your own, or it was changed elsewhere, so nothing of it is run: "
        f"if you trust it, cutegen trust {shlex.quote(str(path))} (%cutegen trust in a notebook)"
    )
    return line if _can_store() else f"{line}; {cannot_store()}"


def _can_store() -> bool:
    folder = trusted_folder()
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def cannot_store() -> str:
    """The line for a user whose settings cannot be written."""
    return f"nothing can be kept in {trusted_folder()}: set CUTEGEN_TRUST to a folder that can be written"


def session_head(folder: Path) -> str:
    """The head of a stored session's log; of a log without a chain the hash of its file. Raises `UserError`."""
    path = (folder / DATABASE).absolute()
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            return read_head(db) if has_chain(db) else hash_file(path)
    except (sqlite3.DatabaseError, OSError) as error:
        refuse_half_made(path)
        raise UserError(f"{path} cannot be used as a session: {error}; restore it from a copy") from None


def is_session_trusted(folder: Path) -> bool:
    """Whether a session was made or trusted by this user here, and is as it was left."""
    entries = _read_entries(folder)
    if not entries:
        return was_here_before(folder / DATABASE)
    if any(entry.digest == session_head(folder) for entry in entries):
        return True
    path = (folder / DATABASE).absolute()
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        return has_chain(db) and any(entry.growing and holds_head(db, entry.digest) for entry in entries)


def check_problem_file(path: Path) -> None:
    """Raise `UserError` for a problem's file in the folder of a session that is not trusted.

    Any other file that a person names is their own.
    """
    for folder in path.resolve().parents[:2]:
        if (folder / DATABASE).exists() and not is_session_trusted(folder):
            raise UserError(refuse(folder, f"{path} is a file of the session {folder.name}"))


def trust_address(address: str) -> None:
    """Note that the user named a language model's address: the environment's key may be sent there."""
    if address and not is_address_trusted(address):
        _addresses.add(address)
        _store(trusted_folder() / "addresses", "\n".join(sorted({*_addresses, *_stored_addresses()})))


def is_address_trusted(address: str) -> bool:
    """Whether the user named this address here, now or earlier."""
    return address in _addresses or address in _stored_addresses()


def _stored_addresses() -> tuple[str, ...]:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return tuple((trusted_folder() / "addresses").read_text().splitlines())
    return ()
