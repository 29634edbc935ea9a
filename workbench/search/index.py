"""The search index: an SQLite FTS5 file in the user's cache folder, built once for each set of installed versions.

Two processes may build it at the same time.
"""

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


def cache_folder() -> Path:
    """The folder of indexes: $XDG_CACHE_HOME/cutegen, else ~/.cache/cutegen.

    A relative XDG_CACHE_HOME is ignored, as the XDG specification requires.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "cutegen"


def split_words(text: str) -> str:
    """Split CamelCase and snake_case names into words."""
    return _CAMEL.sub(" ", text).replace("_", " ")


def exact_token(name: str) -> str:
    """An identifier spelt so that the tokenizer keeps it as one token."""
    return name.lower().replace("_", "zq")


def index_path() -> Path:
    """The index file for the versions that are installed now."""
    return cache_folder() / f"search-{_index_key()}.sqlite"


@functools.cache
def _index_key() -> str:
    key = repr((FORMAT, sorted(corpus.installed_versions().items()), _own_file_hashes()))
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _own_file_hashes() -> tuple[tuple[str, str], ...]:
    return tuple(
        (file.path, hashlib.sha256(file.place.read_bytes()).hexdigest())
        for file in corpus.files()
        if file.distribution == corpus.OURS
    )


def connect(progress: Callable[[float], None] | None = None) -> sqlite3.Connection:
    """Open the index for reading; build it first if needed. Raises `UserError` if it cannot be written."""
    place = index_path()
    try:
        if not place.exists():
            build(place, progress)
        db = _open(place)
        if db is None:
            build(place, progress)
            db = _open(place)
    except OSError as error:
        raise UserError(
            f"the search index cannot be written to {cache_folder()} ({error.strerror}); "
            "set XDG_CACHE_HOME to a folder that can be written"
        ) from None
    if db is None:
        raise UserError(f"the search index {place} cannot be read; remove it and search again")
    with contextlib.suppress(OSError):
        os.utime(place)
    return db


def _open(place: Path) -> sqlite3.Connection | None:
    """The opened index; None if the file is not a usable index."""
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
    """Build the index in a temporary file, rename it to `place`, and remove old indexes.

    The rename is atomic, so no reader sees a partial index. `progress` gets the fraction that is done.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=place.parent, suffix=".building")
    os.close(handle)
    try:
        _fill(Path(temporary), progress or (lambda fraction: None))
        os.replace(temporary, place)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _remove_unused(place)


def _remove_unused(keep: Path) -> None:
    """Remove indexes that nobody opened for UNUSED_DAYS days, and unfinished ones older than an hour."""
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
        CREATE VIRTUAL TABLE words USING
            fts5(path, symbols, headings, body, names, content='', tokenize='porter unicode61');
        """
    )
    everything = list(corpus.files())
    number = 0
    for done, file in enumerate(everything, 1):
        for piece in corpus.split_pieces(corpus.read_text(file), file.place.suffix):
            number += 1
            db.execute(
                "INSERT INTO piece VALUES (?, ?, ?, ?, ?)",
                (number, file.distribution, file.path, piece.first, piece.last),
            )
            names = " ".join(
                exact_token(name)
                for name in dict.fromkeys(_NAME.findall(piece.text))
                if "_" in name or any(c.isupper() for c in name[1:])
            )
            db.execute(
                "INSERT INTO words(rowid, path, symbols, headings, body, names) VALUES (?, ?, ?, ?, ?, ?)",
                (number, *map(split_words, (file.path, piece.symbols, piece.headings, piece.text)), names),
            )
        progress(done / len(everything))
    db.execute("INSERT INTO words(words) VALUES ('optimize')")
    db.commit()
    db.close()
