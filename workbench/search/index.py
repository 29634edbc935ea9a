"""The index: SQLite FTS5, built once for each set of installed versions, in the user's cache folder; two processes may build at once."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from workbench.search import corpus

FORMAT = 3
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z])(?=[0-9]{2})")
_NAME = re.compile(r"[A-Za-z_]\w+")


def folder() -> Path:
    """Where indexes are kept: $XDG_CACHE_HOME/cutegen, else ~/.cache/cutegen."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cutegen"


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


def _ours() -> tuple[tuple[str, int], ...]:
    return tuple((file.path, file.place.stat().st_size) for file in corpus.files() if file.distribution == corpus.OURS)


def connect(progress: Callable[[float], None] | None = None) -> sqlite3.Connection:
    """The index, opened for reading; built first where it is missing."""
    place = path()
    if not place.exists():
        build(place, progress)
    return sqlite3.connect(f"{place.as_uri()}?mode=ro", uri=True)


def build(place: Path, progress: Callable[[float], None] | None = None) -> None:
    """Build the index beside its place and rename it there, so that no one ever sees half of it; older ones are removed."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=place.parent, suffix=".building")
    os.close(handle)
    try:
        _fill(Path(temporary), progress or (lambda fraction: None))
        os.replace(temporary, place)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    for old in place.parent.glob("search-*.sqlite"):
        if old != place:
            old.unlink(missing_ok=True)


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
            db.execute("INSERT INTO piece VALUES (?, ?, ?, ?, ?)", (number, file.distribution, file.path, piece.first, piece.last))
            names = " ".join(exact(name) for name in dict.fromkeys(_NAME.findall(piece.text)) if "_" in name or any(c.isupper() for c in name[1:]))
            db.execute("INSERT INTO words(rowid, path, symbols, headings, body, names) VALUES (?, ?, ?, ?, ?, ?)", (number, split(file.path), split(piece.symbols), split(piece.headings), split(piece.text), names))
        progress(done / len(everything))
    db.execute("INSERT INTO words(words) VALUES ('optimize')")
    db.commit()
    db.close()
