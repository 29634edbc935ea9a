"""The index: SQLite FTS5, built once for each set of installed versions, in the user's cache folder; two processes may build at once."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from workbench.errors import UserError
from workbench.search import corpus

FORMAT = 5
UNUSED_DAYS = 30  # an index of other versions may be another environment's, still in use
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z])(?=[0-9]{2})")
_NAME = re.compile(r"[A-Za-z_]\w+")


def folder() -> Path:
    """Where indexes are kept: $XDG_CACHE_HOME/cutegen, else ~/.cache/cutegen (a relative XDG_CACHE_HOME counts for nothing, as its specification has it)."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "cutegen"


def split(text: str) -> str:
    """CamelCase and snake_case as separate words."""
    return _CAMEL.sub(" ", text).replace("_", " ")


def exact(name: str) -> str:
    """An identifier as one token, whatever the tokenizer splits at."""
    return name.lower().replace("_", "zq")


def path() -> Path:
    """The index for what is installed now."""
    return folder() / f"search-{_key()}.sqlite"


@functools.cache
def _key() -> str:
    key = repr((FORMAT, sorted(corpus.versions().items()), _ours()))
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _ours() -> tuple[tuple[str, str], ...]:
    return tuple(
        (file.path, hashlib.sha256(file.place.read_bytes()).hexdigest())
        for file in corpus.files()
        if file.distribution == corpus.OURS
    )


def connect(progress: Callable[[float], None] | None = None) -> sqlite3.Connection:
    """The index, opened for reading; built first where it is missing or damaged. UserError where it cannot be kept."""
    place = path()
    try:
        if not place.exists():
            build(place, progress)
        db = _open(place)
        if db is None:
            build(place, progress)
            db = _open(place)
    except OSError as error:
        raise UserError(
            f"the search index cannot be kept in {folder()} ({error.strerror}); set XDG_CACHE_HOME to a folder that can be written"
        ) from None
    if db is None:
        raise UserError(f"the search index {place} cannot be read; remove it and search again")
    with contextlib.suppress(OSError):
        os.utime(place)
    return db


def _open(place: Path) -> sqlite3.Connection | None:
    """The index, or None where the file is no index."""
    try:
        db = sqlite3.connect(f"{place.as_uri()}?mode=ro", uri=True)
    except sqlite3.Error:
        return None
    try:
        db.execute("SELECT rowid FROM words WHERE words MATCH 'layout' LIMIT 1").fetchone()
        return db
    except sqlite3.Error:
        db.close()
        return None


def build(place: Path, progress: Callable[[float], None] | None = None) -> None:
    """Build the index beside its place and rename it there, so that no one ever sees half of it; what nobody uses any more is removed."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=place.parent, suffix=".building")
    os.close(handle)
    try:
        _fill(Path(temporary), progress or (lambda fraction: None))
        os.replace(temporary, place)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _tidy(place)


def _tidy(keep: Path) -> None:
    for pattern, days in (("search-*.sqlite", float(UNUSED_DAYS)), ("*.building", 1 / 24)):
        for old in keep.parent.glob(pattern):
            with contextlib.suppress(OSError):  # another process may have removed it
                if old != keep and time.time() - old.stat().st_mtime > days * 86_400:
                    old.unlink()


def _fill(place: Path, progress: Callable[[float], None]) -> None:
    db = sqlite3.connect(place)
    db.executescript(
        """
        PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;
        CREATE TABLE piece (id INTEGER PRIMARY KEY, distribution TEXT, path TEXT, first INTEGER, last INTEGER);
        CREATE VIRTUAL TABLE words USING fts5(path, symbols, headings, body, names, content='', tokenize='porter unicode61');
        """
    )
    everything = list(corpus.files())
    number = 0
    for done, file in enumerate(everything, 1):
        for piece in corpus.pieces(corpus.text_of(file), file.place.suffix):
            number += 1
            db.execute(
                "INSERT INTO piece VALUES (?, ?, ?, ?, ?)",
                (number, file.distribution, file.path, piece.first, piece.last),
            )
            names = " ".join(
                exact(name)
                for name in dict.fromkeys(_NAME.findall(piece.text))
                if "_" in name or any(c.isupper() for c in name[1:])
            )
            db.execute(
                "INSERT INTO words(rowid, path, symbols, headings, body, names) VALUES (?, ?, ?, ?, ?, ?)",
                (number, split(file.path), split(piece.symbols), split(piece.headings), split(piece.text), names),
            )
        progress(done / len(everything))
    db.execute("INSERT INTO words(words) VALUES ('optimize')")
    db.commit()
    db.close()
