"""Stores machine code on disk by content, in $XDG_CACHE_HOME/cutegen/emulator (else ~/.cache/cutegen/emulator). Every
failure counts as "not there".

A file is a SHA-256 of the rest, then parts of object code, each after its length. A wrong digest, a short file or one
that another user may write is not used. A confined worker has its own scratch folder as home, so files of an untrusted
program end with its job.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

LIMIT_BYTES = 256 << 20  # limit of all files together; beyond it the least recently used are deleted
DIGEST, SIZE = 32, 8


def cache_folder() -> Path:
    """The folder of the code (a relative XDG_CACHE_HOME is ignored, as its specification demands)."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "cutegen" / "emulator"


def make_key(*parts: str) -> str:
    """A file name for these parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode() + part.encode())
    return digest.hexdigest()


def load(name: str) -> list[bytes] | None:
    """The object code of a key, in parts; None if there is none that can be trusted."""
    try:
        path = cache_folder() / name
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or status.st_mode & 0o022:
                return None
            data = file.read(LIMIT_BYTES)
        if hashlib.sha256(data[DIGEST:]).digest() != data[:DIGEST]:
            return None
        os.utime(path)
        return _read_parts(data[DIGEST:])
    except (OSError, RuntimeError):
        return None


def _read_parts(data: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + SIZE], "little")
        parts.append(data[at + SIZE : at + SIZE + size])
        at += SIZE + size
    return parts


def save(name: str, parts: list[bytes]) -> None:
    """Store object code under a key, atomically."""
    code = b"".join(len(part).to_bytes(SIZE, "little") + part for part in parts)
    with contextlib.suppress(OSError, RuntimeError):
        place = cache_folder()
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=place, prefix="new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.replace(temporary, place / name)
        except OSError:
            os.unlink(temporary)
            raise
        _trim(place)


def _trim(place: Path) -> None:
    files = sorted(((path.stat().st_mtime, path.stat().st_size, path) for path in place.iterdir()), reverse=True)
    total = 0
    for _, size, path in files:
        total += size
        if total > LIMIT_BYTES:
            path.unlink(missing_ok=True)
