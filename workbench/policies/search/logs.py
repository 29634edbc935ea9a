"""Logs of searches: in memory, and in a file of JSON Lines that a killed process leaves whole but for its last line."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.records.search import SearchEvent
from workbench.wire import dumps, loads


class MemoryLog:
    """Events in a list."""

    def __init__(self, events: Iterable[SearchEvent] = ()) -> None:
        self._events = list(events)
        self._lock = threading.Lock()

    def events(self, start: int = 0) -> Sequence[SearchEvent]:
        """The events from number `start` on."""
        return self._events[start:]

    def append(self, event: SearchEvent) -> SearchEvent:
        """Keep an event under the next number."""
        with self._lock:
            kept = dataclasses.replace(event, number=len(self._events))
            self._events.append(kept)
        return kept


class FileLog:
    """Events in a file; each is on the disk before the search goes on. Another process may not write to it."""

    def __init__(self, path: Path) -> None:
        """Read what the file has. A last line that was cut off is removed from it.

        Raises `WorkbenchError` if another line cannot be read.
        """
        self.path = path
        raw = path.read_bytes() if path.exists() else b""
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):
            os.truncate(path, len(whole))
        self._memory = MemoryLog(_read(path, whole.decode(errors="replace")))
        self._lock = threading.Lock()

    def events(self, start: int = 0) -> Sequence[SearchEvent]:
        """The events from number `start` on."""
        return self._memory.events(start)

    def append(self, event: SearchEvent) -> SearchEvent:
        """Keep an event under the next number, with the time."""
        with self._lock:
            at = event.at or datetime.now(UTC).isoformat(timespec="milliseconds")
            kept = dataclasses.replace(event, number=len(self._memory.events()), at=at)
            with self.path.open("a") as out:
                out.write(dumps(kept) + "\n")
                out.flush()
                os.fsync(out.fileno())
            return self._memory.append(kept)


def _read(path: Path, text: str) -> list[SearchEvent]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found.append(loads(line, SearchEvent))
        except WorkbenchError as error:
            raise WorkbenchError(f"{path}, line {number}: {error}; remove the file to begin anew") from None
    return found
