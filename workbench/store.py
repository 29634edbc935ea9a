"""The database of a session: SQLite in WAL mode. It is append-only, and every write is one transaction."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO, TypedDict, TypeVar, cast

from workbench import hash_chain
from workbench.errors import UserError, WorkbenchError
from workbench.folders import take_lock, write_once
from workbench.hash_chain import INTERRUPTED, Damage
from workbench.records import (
    Decision,
    Energy,
    Event,
    Exchange,
    Facts,
    Outcome,
    Problem,
    Profile,
    Proposal,
    Spent,
    StoredProfile,
    TorchCompile,
    Trial,
    Version,
)
from workbench.records.search import SearchEvent
from workbench.store_schema import MIGRATIONS, find_foreign, migrate
from workbench.wire import content_hash, dumps, loads

T = TypeVar("T")
ModelValue = str | int | float | None
Columns = dict[str, str | int | None]


class Meta(TypedDict, total=False):
    """The named values of a session; the first three are always set."""

    arch: str
    device: str
    executor: str  # the executor that created the session
    constraints: list[str]
    cold_l2: bool
    allow_torch: bool
    torch_compile: TorchCompile
    llm: dict[str, ModelValue]  # settings of the language model
    spent: Spent
    accept_rule: str  # by which versions are accepted (policies.accept_rules); "" and absent are the default


LEFTOVER = re.compile(r"v\d{3,}_[0-9a-f]{8}\.py|\.v\d{3,}_[0-9a-f]{8}\.py\.\d+")


class Store:
    """One session's database. It can have many readers, but only one writer at a time."""

    def __init__(self, path: Path, *, write: bool = True) -> None:
        path = path.absolute()  # a notebook may change its working directory
        self.path = path
        self.lock = threading.RLock()
        self.write = write
        self.refusal = ""  # why nothing may be written, if there is more to say than that it was opened for reading
        self._lock_file: TextIO | None = None
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock_file = take_lock(path.with_suffix(".lock"), f"session {path.parent.name!r}")
        elif not path.exists():
            raise UserError(f"no session is stored at {path}")
        self.db = sqlite3.connect(
            path if write else f"{path.as_uri()}?mode=ro", uri=not write, check_same_thread=False, isolation_level=None
        )
        self.damage: tuple[Damage, ...] = ()
        try:
            self._prepare()
            if hash_chain.has_chain(self.db):
                self.damage = (*hash_chain.find_damage(self.db), *find_foreign(self.db))
        except BaseException as error:
            self.close()
            if not write:
                hash_chain.refuse_half_made(path)
            if isinstance(error, sqlite3.DatabaseError):
                raise UserError(
                    f"{path} cannot be used as a session: {error}; restore it from a copy, or remove its folder"
                ) from error
            raise

    def _prepare(self) -> None:
        done = self.db.execute("PRAGMA user_version").fetchone()[0]
        if done > len(MIGRATIONS):
            raise WorkbenchError(f"{self.path} was written by a newer workbench: upgrade it")
        if self.write:
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute("PRAGMA synchronous=FULL")
            self.db.execute("PRAGMA foreign_keys=ON")
            migrate(self.db, done)
            self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Remove the files of a killed writer: temporary files, and version files without a row."""
        known = {row[0] for row in self._select("SELECT path FROM version")}
        for path in self.path.parent.iterdir():
            if LEFTOVER.fullmatch(path.name) and path.name not in known:
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if not self.write:
            raise UserError(
                self.refusal or f"session {self.path.parent.name!r} was opened for reading only; open it for writing"
            )
        with self.lock:
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield self.db
                self.db.execute("COMMIT")
            except BaseException as error:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    raise WorkbenchError(
                        f"{self.path} cannot be written: {error}; nothing of this step was kept"
                    ) from error
                raise

    def _select(self, query: str, *values: str | int) -> list[tuple[Any, ...]]:  # columns as SQLite types them
        with self.lock:
            return self.db.execute(query, values).fetchall()

    @staticmethod
    def _insert(db: sqlite3.Connection, table: str, columns: Columns) -> int:
        """Insert a row and its entry in the chain; returns its number."""
        marks = ", ".join("?" for _ in columns)
        made = db.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values()))
        hash_chain.append(db, table, int(made.lastrowid or 0))
        return int(made.lastrowid or 0)

    def _is_believed(self, kind: str, row: int, version: int) -> bool:
        """Whether a row that belongs to a version, and that version, are as they were written."""
        return not any((one.kind, one.row) in ((kind, row), ("version", version)) for one in self.damage)

    def head(self) -> str:
        """The hash of the log's last entry; "" if an old workbench wrote the log."""
        with self.lock:
            return hash_chain.read_head(self.db) if hash_chain.has_chain(self.db) else ""

    def count_entries(self) -> int:
        """The number of entries of the hash chain."""
        with self.lock:
            return hash_chain.count_entries(self.db) if hash_chain.has_chain(self.db) else 0

    def holds_head(self, head: str) -> bool:
        """Whether the log contains what it had when its head was, or began with, this hash."""
        with self.lock:
            return hash_chain.has_chain(self.db) and hash_chain.holds_head(self.db, head)

    def set_meta(self, values: Meta) -> None:
        """Append named JSON values. The last of each name holds."""
        with self._transaction() as db:
            self._insert_values(db, values)

    def _insert_values(self, db: sqlite3.Connection, values: Meta) -> None:
        for key, value in values.items():
            self._insert(db, "setting", {"key": key, "value": json.dumps(value)})

    def meta(self) -> Meta:
        """All named values."""
        table = "setting ORDER BY id" if self._has_table("setting") else "meta"
        return cast(Meta, {key: json.loads(value) for key, value in self._select(f"SELECT key, value FROM {table}")})

    def begin(self, values: Meta, problem: Problem, facts: Facts, note: Callable[[str], object]) -> None:
        """Write what a session begins with, all of it or nothing. `note` gets the log's head before that is kept."""
        with self._transaction() as db:
            self._insert_values(db, values)
            self._insert(db, "problem", {"record": dumps(problem), "facts": dumps(facts)})
            note(hash_chain.read_head(db))

    def problem(self) -> tuple[Problem, Facts]:
        """The latest problem and its facts. Raises `WorkbenchError` for a session whose creation was interrupted."""
        query = "SELECT record, facts FROM problem ORDER BY id DESC LIMIT 1"
        rows = self._select(query) if self._has_table("problem") else []
        if not rows:
            raise WorkbenchError(INTERRUPTED.format(self.path))
        return loads(rows[0][0], Problem), loads(rows[0][1], Facts)

    def add_version(self, proposal: Proposal, at: str) -> Version:
        """Append a version: first its file (complete, synced, read-only), then its row."""
        source = proposal.candidate.source
        digest = content_hash(source)
        with self._transaction() as db:
            number = db.execute("SELECT COALESCE(MAX(number), 0) + 1 FROM version").fetchone()[0]
            path = self.path.parent / f"v{number:03}_{digest[:8]}.py"
            write_once(path, source)
            columns: Columns = {
                "number": number,
                "parent": proposal.parent,
                "proposal": dumps(proposal),
                "source_hash": digest,
            }
            self._insert(db, "version", {**columns, "path": path.name, "at": at})
        return Version(
            number=number, parent=proposal.parent, proposal=proposal, source_hash=digest, path=str(path), at=at
        )

    def add_trial(self, version: int, job_hash: str, trial: Trial) -> None:
        """Append one evaluation of a version."""
        with self._transaction() as db:
            columns: Columns = {"version": version, "job_hash": job_hash, "record": dumps(trial), "at": trial.at}
            self._insert(db, "trial", columns)

    def add_decisions(self, decisions: Iterable[Decision], events: Iterable[Event], at: str) -> None:
        """Append decisions and their events, all of them or none; when this returns, they are on disk."""
        with self._transaction() as db:
            for decision in decisions:
                columns: Columns = {"version": decision.version, "record": dumps(decision), "at": decision.at}
                self._insert(db, "decision", columns)
            for event in events:
                self._insert(db, "event", {"record": dumps(event), "at": at})

    def add_event(self, record: object, at: str) -> None:
        """Append an event."""
        with self._transaction() as db:
            self._insert(db, "event", {"record": dumps(record), "at": at})

    def add_exchange(self, exchange: Exchange, at: str) -> int:
        """Append a call of a language model; returns its number."""
        with self._transaction() as db:
            return self._insert(db, "exchange", {"record": dumps(exchange), "at": at})

    def exchanges(self) -> dict[int, Exchange]:
        """All calls of language models by number; none in an old database that lacks their table."""
        if not self._has_table("exchange"):
            return {}
        return {row: loads(text, Exchange) for row, text in self._select("SELECT id, record FROM exchange ORDER BY id")}

    def add_profile(self, stored: StoredProfile) -> None:
        """Append a profile of a version. Its energy is also a column of its own, without samples (`Version.energy`)."""
        found = stored.profile
        energy = dataclasses.replace(found.energy, samples=(), marks=()) if found.energy is not None else None
        columns: Columns = {
            "version": stored.version,
            "source_hash": stored.source_hash,
            "profiler": found.by,
            "device": found.device,
            "options": json.dumps(stored.options),
            "record": dumps(found),
            "energy": dumps(energy) if energy is not None else None,
            "at": stored.at,
        }
        with self._transaction() as db:
            self._insert(db, "profile", columns)

    def profiles(self, version: int) -> tuple[StoredProfile, ...]:
        """The profiles of a version, oldest first, that are as they were written."""
        query = "SELECT id, source_hash, options, record, at FROM profile WHERE version = ? ORDER BY id"
        return tuple(
            StoredProfile(
                version=version,
                source_hash=digest,
                options=tuple((str(name), str(value)) for name, value in json.loads(options)),
                profile=loads(text, Profile),
                at=at,
            )
            for row, digest, options, text, at in (self._select(query, version) if self._has_table("profile") else ())
            if self._is_believed("profile", row, version)
        )

    def _energies(self) -> dict[int, Energy]:
        """Version number -> the energy that was measured last."""
        query = "SELECT id, version, energy FROM profile WHERE energy IS NOT NULL ORDER BY id"
        return {
            number: loads(text, Energy)
            for row, number, text in (self._select(query) if self._has_table("profile") else ())
            if self._is_believed("profile", row, number)
        }

    def _has_table(self, name: str) -> bool:
        """Whether the database has a table; an old one that is opened for reading lacks those that came later."""
        return bool(self._select("SELECT 1 FROM sqlite_master WHERE name = ?", name))

    def events(self, kind: type[T]) -> list[T]:
        """All events of the log."""
        return [loads(row[0], kind) for row in self._select("SELECT record FROM event ORDER BY id")]

    def add_search_event(self, search: int, event: SearchEvent) -> None:
        """Append an event of one of the session's searches; when this returns, it is on disk."""
        columns: Columns = {"search": search, "record": dumps(event), "at": event.at}
        with self._transaction() as db:
            self._insert(db, "search", columns)

    def searches(self) -> dict[int, bool]:
        """Number of each search of the session, from 1 -> whether all its events are as they were written."""
        rows = self._select("SELECT search, id FROM search ORDER BY id") if self._has_table("search") else []
        lost = {search for search, row in rows if not self._is_believed("search", row, 0)}
        return {search: search not in lost for search in dict(rows)}

    def search_events(self, search: int, start: int = 0) -> tuple[SearchEvent, ...]:
        """The events of a search from number `start` on."""
        rows = self._select("SELECT record FROM search WHERE search = ? ORDER BY id LIMIT -1 OFFSET ?", search, start)
        return tuple(loads(text, SearchEvent) for (text,) in rows)

    def decisions(self) -> list[Decision]:
        """All decisions in order that are as they were written."""
        return [
            loads(text, Decision)
            for row, version, text in self._select("SELECT id, version, record FROM decision ORDER BY id")
            if self._is_believed("decision", row, version)
        ]

    def outcome(self, job_hash: str) -> Outcome | None:
        """The latest outcome recorded for a job."""
        rows = self._select("SELECT id, version, record FROM trial WHERE job_hash = ? ORDER BY id DESC", job_hash)
        believed = (text for row, version, text in rows if self._is_believed("trial", row, version))
        text = next(believed, None)
        return loads(text, Trial).outcome if text is not None else None

    def versions(self) -> tuple[Version, ...]:
        """All versions with their trials and the decisions that hold (see `standing_decisions`).

        Trials and decisions that are not as they were written are left out; `damage` names them.
        """
        trials: dict[int, list[Trial]] = {}
        for row, number, text in self._select("SELECT id, version, record FROM trial ORDER BY id"):
            if self._is_believed("trial", row, number):
                trials.setdefault(number, []).append(loads(text, Trial))
        standing, energies = standing_decisions(self.decisions()), self._energies()
        return tuple(
            Version(
                number=number,
                parent=parent,
                proposal=loads(proposal, Proposal),
                source_hash=digest,
                path=str(self.path.parent / Path(name).name),
                trials=tuple(trials.get(number, ())),
                decision=standing.get(number),
                at=at,
                energy=energies.get(number),
            )
            for number, parent, proposal, digest, name, at in self._select(
                "SELECT number, parent, proposal, source_hash, path, at FROM version ORDER BY number"
            )
        )

    def close(self) -> None:
        """Close the database and release the lock of the session."""
        with self.lock:
            self.db.close()
            if self._lock_file is not None:
                self._lock_file.close()
                self._lock_file = None


def standing_decisions(decisions: list[Decision]) -> dict[int, Decision]:
    """Version number -> the decision that holds. An undo takes back the last decision of its version."""
    stacks: dict[int, list[Decision]] = {}
    for decision in decisions:
        stack = stacks.setdefault(decision.version, [])
        if decision.kind != "undo":
            stack.append(decision)
        elif stack:
            stack.pop()
    return {number: stack[-1] for number, stack in stacks.items() if stack}
