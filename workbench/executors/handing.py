"""Orders handed to a GPU process one at a time, so that no input and no choice of what is checked can be known ahead.

On a GPU the inputs (gigabytes) are drawn on the device in the candidate's process from a seed, and again in the checking process. The parent writes the seed of a call only when that call is due, and
says whether its output is to be handed over only when the call is done. An order is also the token of alternating rounds: whoever has none waits. Files, because nothing else crosses the confinement:
`given/order-N.json` from the parent, `scratch/reply-N.json` from the process, each renamed into place.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

POLLS = ((0.02, 5e-5), (1.0, 5e-4), (30.0, 5e-3), (float("inf"), 0.03))  # (seconds of waiting up to which, seconds between looks)
ANSWER_LIMIT_S = 600.0
REPLY_BYTES = 1 << 20
SEED_BITS = 48


class Ended(Exception):
    """The process on the line ended, or answered nothing that can be read; the message says which."""


class Line(Protocol):
    """What a run is conducted over: one reply for each order."""

    def post(self, order: dict[str, Any]) -> None:
        """Hand out an order without waiting."""

    def collect(self) -> dict[str, Any]:
        """Wait until every order is replied to; the last reply. Raises `Ended`."""

    def tell(self, order: dict[str, Any]) -> dict[str, Any]:
        """Both."""


class FileLine:
    """The parent's side of a process that works in `folder`. `alive` is asked now and then while a reply is awaited: it raises what ends the wait, or returns False when the process is gone."""

    def __init__(self, folder: Path, alive: Callable[[], bool]) -> None:
        self.folder, self.alive = folder, alive
        self.told = self.heard = 0
        self.last: dict[str, Any] = {}

    def post(self, order: dict[str, Any]) -> None:
        """Hand out the next order."""
        self.told += 1
        put(self.folder / "given" / f"order-{self.told}.json", json.dumps(order))

    def collect(self) -> dict[str, Any]:
        """The reply to the last order, once all are there."""
        while self.heard < self.told:
            number = self.heard + 1
            path = self.folder / "scratch" / f"reply-{number}.json"
            self.last = self._hear(path)
            self.heard = number
            for used in (path, self.folder / "given" / f"order-{number}.json"):
                used.unlink(missing_ok=True)
        return self.last

    def tell(self, order: dict[str, Any]) -> dict[str, Any]:
        """Hand out the next order and wait for its reply."""
        self.post(order)
        return self.collect()

    def _hear(self, path: Path) -> dict[str, Any]:
        checked = time.monotonic()
        for _ in waiting():
            if os.path.lexists(path):
                return _read(path)
            if time.monotonic() - checked > 0.05:
                checked = time.monotonic()
                if not self.alive() and not os.path.lexists(path):
                    raise Ended("the process ended before it answered")
        raise Ended("no answer came")


def orders(folder: Path, idle_limit_s: float = ANSWER_LIMIT_S) -> Iterator[tuple[dict[str, Any], Callable[[dict[str, Any]], None]]]:
    """The process's side: each order with the function that replies to it; ends when none comes within the limit."""
    number = 0
    while True:
        number += 1
        path = folder / "given" / f"order-{number}.json"
        for _ in waiting(idle_limit_s):
            if path.exists():
                break
        else:
            return
        yield json.loads(path.read_text()), lambda said, n=number: put(folder / "scratch" / f"reply-{n}.json", json.dumps(said))  # type: ignore[misc]


def waiting(limit_s: float = ANSWER_LIMIT_S) -> Iterator[None]:
    """Turns of a polling loop: dense at first, sparser later; ends at the limit."""
    start = time.monotonic()
    while (spent := time.monotonic() - start) < limit_s:
        yield
        time.sleep(next(pause for until, pause in POLLS if spent < until))


def seed() -> int:
    """A secret seed."""
    return secrets.randbits(SEED_BITS)


def derived(first: int, call: int) -> int:
    """The seed of one of several calls that an order asks for at once (a CUDA graph's)."""
    return (first + call * 0x9E3779B97F4B) & ((1 << SEED_BITS) - 1)


def put(path: Path, text: str) -> None:
    """A file that is there as a whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def _read(path: Path) -> dict[str, Any]:
    """A reply from a process that is not trusted: a plain file of bounded size that holds a JSON object."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ValueError("not a plain file")
            said = json.loads(file.read(REPLY_BYTES))
    except (OSError, ValueError) as error:
        raise Ended(f"its answer cannot be read: {error}") from error
    if not isinstance(said, dict):
        raise Ended("its answer is no JSON object")
    return said
