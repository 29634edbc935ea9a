"""The hash chain of a session's log. Each entry holds the hash of the one before, so that a later edit shows.

An entry names a row by its table and number, and holds a digest of its columns. Whoever may write the file can make the
whole chain anew; that shows only against a head that was noted elsewhere (in a report, or in a CI's log).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.records import record

START = "0" * 64  # the hash before the first entry
CHAINED = ("problem", "version", "trial", "decision", "event", "exchange", "profile", "search", "setting")
INTERRUPTED = "{} holds no problem: the session was interrupted while it was made; remove its folder"
TABLE = """
    CREATE TABLE chain (
        position INTEGER PRIMARY KEY, kind TEXT NOT NULL, row INTEGER NOT NULL, digest TEXT NOT NULL,
        hash TEXT NOT NULL);
"""


@record
class Damage:
    """A row of the log that is not as it was written. `version` is None if it belongs to none, or is gone."""

    kind: str  # its table
    row: int
    version: int | None
    message: str  # what happened to it, and what is lost


def refuse_half_made(path: Path) -> None:
    """Raise `WorkbenchError` for a database whose process was killed before it kept its log in the WAL, which is before
    it held anything.
    """
    if path.with_name(f"{path.name}-journal").exists():
        raise WorkbenchError(INTERRUPTED.format(path)) from None


def has_chain(db: sqlite3.Connection) -> bool:
    """Whether the log has a chain; one that was written by an old workbench has none until it is opened for writing."""
    return bool(db.execute("SELECT 1 FROM sqlite_master WHERE name = 'chain' AND type = 'table'").fetchone())


def append(db: sqlite3.Connection, kind: str, row: int) -> None:
    """Append the entry of a row that was just inserted, in its transaction."""
    digest = _row_digest(db, kind, row)
    head = _link(read_head(db), kind, row, digest)
    db.execute("INSERT INTO chain (kind, row, digest, hash) VALUES (?, ?, ?, ?)", (kind, row, digest, head))


def append_all(db: sqlite3.Connection) -> None:
    """Append the entries of the rows that a log without a chain has."""
    for kind in _list_tables(db):
        for (row,) in db.execute(f"SELECT rowid FROM {kind} ORDER BY rowid").fetchall():
            append(db, kind, row)


def _list_tables(db: sqlite3.Connection) -> tuple[str, ...]:
    """The tables of the chain that a log has; one of an older workbench lacks those that came later."""
    known = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return tuple(kind for kind in CHAINED if kind in known)


def read_head(db: sqlite3.Connection) -> str:
    """The hash of the last entry, in hex."""
    last = db.execute("SELECT hash FROM chain ORDER BY position DESC LIMIT 1").fetchone()
    return str(last[0]) if last else START


def count_entries(db: sqlite3.Connection) -> int:
    """The number of entries."""
    return int(db.execute("SELECT COUNT(*) FROM chain").fetchone()[0])


def holds_head(db: sqlite3.Connection, head: str) -> bool:
    """Whether an entry has this hash, or a hash that begins so: the log then contains what was there at that time."""
    found = db.execute("SELECT 1 FROM chain WHERE substr(hash, 1, ?) = ?", (len(head), head)).fetchone()
    return bool(found) or START.startswith(head)


def find_damage(db: sqlite3.Connection) -> tuple[Damage, ...]:
    """Every row that was changed, removed or inserted behind the workbench's back, and every missing guard."""
    return (*_find_broken_entries(db), *_find_unchained(db), *_find_missing_triggers(db))


def _find_broken_entries(db: sqlite3.Connection) -> Iterator[Damage]:
    head, expected, tables = START, 1, _list_tables(db)
    for position, kind, row, digest, found in db.execute("SELECT * FROM chain ORDER BY position").fetchall():
        if position != expected:
            yield Damage(kind="chain", row=expected, version=None, message=f"entries before entry {position} are gone")
        expected, link = position + 1, _link(head, kind, row, digest)
        head = found  # so that one edit is named once
        now = _row_digest(db, kind, row) if kind in tables else ""
        if not now:
            yield _describe(db, kind, row, "is gone")
        elif now != digest:
            yield _describe(db, kind, row, "was changed after it was written")
        elif link != found:
            yield _describe(db, kind, row, "has an entry in the chain that was changed")


def _find_unchained(db: sqlite3.Connection) -> Iterator[Damage]:
    for kind in _list_tables(db):
        query = f"SELECT rowid FROM {kind} WHERE rowid NOT IN (SELECT row FROM chain WHERE kind = ?) ORDER BY rowid"
        for (row,) in db.execute(query, (kind,)).fetchall():
            yield _describe(db, kind, row, "was inserted by another program")


def _find_missing_triggers(db: sqlite3.Connection) -> Iterator[Damage]:
    known = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
    for kind in (*_list_tables(db), "chain"):
        missing = [verb for verb in ("update", "delete") if f"{kind}_{verb}" not in known]
        if missing:
            message = f"the trigger against {' and '.join(missing)} of the table {kind} is gone"
            yield Damage(kind="trigger", row=0, version=None, message=message)


def _describe(db: sqlite3.Connection, kind: str, row: int, what: str) -> Damage:
    version, of = None, ""
    if kind == "version":
        version = row
    elif kind in OF_VERSION and kind in _list_tables(db):
        found = db.execute(f"SELECT version FROM {kind} WHERE rowid = ?", (row,)).fetchone()
        version = int(found[0]) if found else None
        of = f" of v{version}" if version is not None else ""
    name = f"v{row}" if kind == "version" else f"{kind} {row}{of}"
    return Damage(kind=kind, row=row, version=version, message=f"{name} {what}{LOST.get(kind, '')}")


OF_VERSION = ("trial", "decision", "profile")  # tables whose rows belong to a version
LOST = {
    "version": "; its trials and decisions are not believed",
    "trial": "; it is not believed, test the version again",
    "decision": "; it does not count, decide again",
    "profile": "; it is not shown, profile the version again",
    "search": "; its search is not shown, start another one",
    "setting": "; nothing of the session is run",
}


def _row_digest(db: sqlite3.Connection, kind: str, row: int) -> str:
    """A digest of the columns of a row; "" if it is gone."""
    values = db.execute(f"SELECT * FROM {kind} WHERE rowid = ?", (row,)).fetchone()
    return hashlib.sha256(json.dumps(values).encode()).hexdigest() if values is not None else ""


def _link(head: str, kind: str, row: int, digest: str) -> str:
    return hashlib.sha256(f"{head} {kind} {row} {digest}".encode()).hexdigest()
