"""The folders outside of sessions: what is kept for the user, and what can be made again. Files that never change, and
files that one process holds."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO

from workbench.errors import UserError

LONGEST_OWNER = 200  # characters of the line that says who holds a file


def cache_root() -> Path:
    """The folder for what can be made again: $CUTEGEN_CACHE, else cutegen in the user's cache folder."""
    named = os.environ.get("CUTEGEN_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cutegen"


def sessions_root() -> Path:
    """The folder of sessions: $CUTEGEN_ROOT, else .cutegen in the current folder."""
    return Path(os.environ.get("CUTEGEN_ROOT", ".cutegen"))


def lessons_file() -> Path:
    """The file of what the user's sessions taught: $CUTEGEN_LESSONS, else lessons.jsonl beside the sessions where
    $CUTEGEN_ROOT names their folder, else cutegen/lessons.jsonl in $XDG_DATA_HOME or ~/.local/share, for all folders.
    """
    if named := os.environ.get("CUTEGEN_LESSONS"):
        return Path(named)
    if os.environ.get("CUTEGEN_ROOT"):
        return sessions_root() / "lessons.jsonl"
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (data if data.is_absolute() else Path.home() / ".local" / "share") / "cutegen" / "lessons.jsonl"


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


def take_lock(path: Path, what: str) -> TextIO:
    """A file that this process holds until it is closed; it says who that is. Raises `UserError` if another does."""
    import fcntl

    if path.is_symlink():
        raise UserError(f"{path} is a link, so it could overwrite any file; remove it")
    file = open(path, "a+", encoding="utf-8", errors="replace")  # noqa: SIM115 - held until it is closed
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        owner = " ".join(file.read(LONGEST_OWNER).split())
        file.close()
        raise UserError(
            f"{what} is open in process {owner or '?'}; close it there (a notebook: session.close(), or shut down its "
            "kernel), or open another session"
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}, {describe_process()}"[:LONGEST_OWNER])
    file.flush()
    return file


def describe_process() -> str:
    """What this process is, for a person who looks for it: a notebook, or a program with its first argument."""
    notebook = os.environ.get("JPY_SESSION_NAME")  # which Jupyter's servers tell their kernels
    if notebook:
        return f"the notebook {notebook}"
    if "ipykernel" in sys.modules:
        return f"the kernel of a notebook in {Path.cwd()}"
    program = Path(sys.argv[0] if sys.argv else sys.executable)
    name = f"python -m {program.parent.name}" if program.name == "__main__.py" else program.name or "python"
    return " ".join(["the program", name, *sys.argv[1:2]])
