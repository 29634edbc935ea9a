"""The tables of a session's database, as the migrations that made them. A migration is never changed."""

from __future__ import annotations

from workbench import hash_chain

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
)
TABLES = (*hash_chain.CHAINED, "chain")
