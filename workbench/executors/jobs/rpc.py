"""Remote calls to a GPU process, one at a time, so that no input and no choice of what is checked is known ahead.

On a GPU the inputs (gigabytes) are drawn on the device in the candidate's process from a seed, and again in the process
that checks. The parent sends the seed of a call only when that call is due, and asks for its output only when the call
is done. A request is also the token of alternating rounds: a process without one waits. The transport is files, which
cross the confinement: `given/request-N.json` from the parent, `scratch/reply-N.json` from the process, each renamed
into place.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

from workbench.wire import Json

# (seconds of waiting up to which, seconds between looks)
POLLS = ((0.02, 5e-5), (1.0, 5e-4), (30.0, 5e-3), (float("inf"), 0.03))
ANSWER_LIMIT_S = 600.0
REPLY_BYTES = 1 << 20
SEED_BITS = 48


class Ended(Exception):
    """The process at the other end ended, or answered nothing that can be read; the message says which."""


class Channel(Protocol):
    """Where requests go to one process: one reply for each."""

    def send(self, request: Json) -> None:
        """Send a request without waiting."""

    def recv(self) -> Json:
        """Wait until every request is replied to; the last reply. Raises `Ended`."""

    def call(self, request: Json) -> Json:
        """Send a request and wait for its reply. Raises `Ended`."""


class FileChannel:
    """The parent's side of a process that works in `folder`.

    `alive` is asked now and then while a reply is awaited: it raises what ends the wait, or returns False when the
    process is gone.
    """

    def __init__(self, folder: Path, alive: Callable[[], bool]) -> None:
        self.folder, self.alive = folder, alive
        self.sent = self.received = 0
        self.last: Json = {}

    def send(self, request: Json) -> None:
        """Write the next request."""
        self.sent += 1
        replace_file(self.folder / "given" / f"request-{self.sent}.json", json.dumps(request))

    def recv(self) -> Json:
        """The reply to the last request, once all are there."""
        while self.received < self.sent:
            number = self.received + 1
            path = self.folder / "scratch" / f"reply-{number}.json"
            self.last = self._wait_for(path)
            self.received = number
            for used in (path, self.folder / "given" / f"request-{number}.json"):
                used.unlink(missing_ok=True)
        return self.last

    def call(self, request: Json) -> Json:
        """Write the next request and wait for its reply."""
        self.send(request)
        return self.recv()

    def _wait_for(self, path: Path) -> Json:
        checked = time.monotonic()
        for _ in poll():
            if os.path.lexists(path):
                return _read(path)
            if time.monotonic() - checked > 0.05:
                checked = time.monotonic()
                if not self.alive() and not os.path.lexists(path):
                    raise Ended("the process ended before it answered")
        raise Ended("no answer came")


def requests(folder: Path, idle_limit_s: float = ANSWER_LIMIT_S) -> Iterator[tuple[Json, Callable[[Json], None]]]:
    """The process's side: each request with the function that replies to it; ends when none comes within the limit."""
    for number in itertools.count(1):
        path = folder / "given" / f"request-{number}.json"
        for _ in poll(idle_limit_s):
            if path.exists():
                break
        else:
            return
        yield json.loads(path.read_text()), partial(_reply, folder / "scratch" / f"reply-{number}.json")


def _reply(path: Path, reply: Json) -> None:
    replace_file(path, json.dumps(reply))


def poll(limit_s: float = ANSWER_LIMIT_S) -> Iterator[None]:
    """Turns of a polling loop: dense at first, sparser later; ends at the limit."""
    start = time.monotonic()
    while (spent := time.monotonic() - start) < limit_s:
        yield
        time.sleep(next(pause for until, pause in POLLS if spent < until))


def draw_seed() -> int:
    """A secret seed."""
    return secrets.randbits(SEED_BITS)


def derive_seed(first: int, call: int) -> int:
    """The seed of one of several calls that a request asks for at once (a CUDA graph's)."""
    return (first + call * 0x9E3779B97F4B) & ((1 << SEED_BITS) - 1)


def replace_file(path: Path, text: str) -> None:
    """Write a file so that it is there as a whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def _read(path: Path) -> Json:
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
