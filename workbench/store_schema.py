"""The tables of a session's database, as the migrations that made them. A migration is never changed."""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3

from workbench import hash_chain
from workbench.hash_chain import Damage

# values by name, of which the last of each name holds. Older workbenches kept them in `meta`, outside of the chain
SETTINGS = """
    CREATE TABLE setting (id INTEGER PRIMARY KEY, key TEXT NOT NULL, value TEXT NOT NULL);
    INSERT INTO setting (key, value) SELECT key, value FROM meta ORDER BY key;
    """
MIGRATIONS = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE problem (id INTEGER PRIMARY KEY, record TEXT NOT NULL, facts TEXT NOT NULL);
    CREATE TABLE version (
        number INTEGER PRIMARY KEY, parent INTEGER REFERENCES version(number), proposal TEXT NOT NULL,
        source_hash TEXT NOT NULL, path TEXT NOT NULL, at TEXT NOT NULL);
    CREATE TABLE trial (
        id INTEGER PRIMARY KEY, version INTEGER NOT NULL REFERENCES version(number), job_hash TEXT NOT NULL,
        record TEXT NOT NULL, at TEXT NOT NULL);
    CREATE TABLE decision (
        id INTEGER PRIMARY KEY, version INTEGER NOT NULL REFERENCES version(number), record TEXT NOT NULL,
        at TEXT NOT NULL);
    CREATE TABLE event (id INTEGER PRIMARY KEY, record TEXT NOT NULL, at TEXT NOT NULL);
    CREATE INDEX trial_version ON trial(version);
    CREATE INDEX trial_job ON trial(job_hash);
    """,
    """
    CREATE TABLE exchange (id INTEGER PRIMARY KEY, record TEXT NOT NULL, at TEXT NOT NULL);
    """,
    hash_chain.TABLE,
    """
    CREATE TABLE profile (
        id INTEGER PRIMARY KEY, version INTEGER NOT NULL REFERENCES version(number), source_hash TEXT NOT NULL,
        profiler TEXT NOT NULL, device TEXT NOT NULL, options TEXT NOT NULL, record TEXT NOT NULL, energy TEXT,
        at TEXT NOT NULL);
    CREATE INDEX profile_version ON profile(version);
    """,
    """
    CREATE TABLE search (
        id INTEGER PRIMARY KEY, search INTEGER NOT NULL, record TEXT NOT NULL, at TEXT NOT NULL);
    CREATE INDEX search_number ON search(search);
    """,
    SETTINGS,
)
TABLES = (*hash_chain.CHAINED, "chain")


def migrate(db: sqlite3.Connection, done: int = 0) -> None:
    """Run the migrations after number `done`, each in a transaction."""
    for number, script in enumerate(MIGRATIONS[done:], done + 1):
        made = [table for table in TABLES if f"CREATE TABLE {table} " in script]
        guards = "".join(
            f"CREATE TRIGGER {table}_{verb.lower()} BEFORE {verb} ON {table} "
            "BEGIN SELECT RAISE(ABORT, 'append-only'); END;"
            for table in made
            for verb in ("UPDATE", "DELETE")
        )
        db.executescript(f"BEGIN IMMEDIATE; {script} {guards}")
        if script is hash_chain.TABLE:
            hash_chain.append_all(db)
        if script is SETTINGS:
            for (row,) in db.execute("SELECT id FROM setting ORDER BY id").fetchall():
                hash_chain.append(db, "setting", row)
        db.execute(f"PRAGMA user_version={number}")
        db.execute("COMMIT")


@functools.cache
def _statements() -> dict[str, str]:
    """The statement of each table, index and trigger, by name."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db)
        found = db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        return {name: _join_lines(statement) for name, statement in found}


def _join_lines(statement: str) -> str:
    """A statement without its line breaks, which other versions had elsewhere."""
    return re.sub(r"\s*([(),])\s*", r"\1", " ".join(statement.split()))


def find_foreign(db: sqlite3.Connection) -> tuple[Damage, ...]:
    """What stands in a log beside the workbench's tables, or in their place: a trigger changes rows as they are
    written, before the chain has their digest.
    """
    found = db.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    return tuple(
        Damage(
            kind="schema",
            row=0,
            version=None,
            message=f"the {kind} {name} was {'changed' if name in _statements() else 'added'} by another program, "
            "and could change what is written",
        )
        for kind, name, statement in found
        if _statements().get(name) != _join_lines(statement)
    )
