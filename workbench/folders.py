"""The folders outside of sessions: what is kept for the user, and what can be made again. Files that never change."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """The folder for what can be made again: $CUTEGEN_CACHE, else cutegen in the user's cache folder."""
    named = os.environ.get("CUTEGEN_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cutegen"


def trusted_folder() -> Path:
    """The folder of what the user trusts: $CUTEGEN_TRUST, else cutegen/trusted in $XDG_CONFIG_HOME or ~/.config."""
    named = os.environ.get("CUTEGEN_TRUST")
    if named:
        return Path(named)
    settings = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (settings if settings.is_absolute() else Path.home() / ".config") / "cutegen" / "trusted"


def write_once(path: Path, text: str) -> None:
    """Write a read-only file atomically: write and sync a temporary file, then rename it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(temporary, 0o444)
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
