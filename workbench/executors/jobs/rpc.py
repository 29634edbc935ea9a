"""Remote calls to a GPU process over an inherited socket, one at a time.

On a GPU the inputs (gigabytes) are drawn on the device in the candidate's process from a seed, and again in the process
that checks. The parent sends the seed of a call only when that call is due, and asks for its output only when the call
is done, so a candidate knows neither ahead. A request is also the token of alternating rounds: a process without one
waits.

The transport is a socket pair. The worker server passes one end to the process when it forks it. It is the only
connection of a confined process to its parent. A message is a JSON object in UTF-8 behind its length in 4 bytes
(big-endian). Nothing is unpickled, and a reply of an untrusted process is bounded in size.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import select
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from workbench.wire import Json

INHERITED_HANDLE = 3  # file descriptor of the socket in a process that the worker server forked
HEADER_BYTES = 4
LOOK_S = 0.05  # seconds between two looks at whether the process still runs
ANSWER_LIMIT_S = 600.0
REPLY_BYTES = 1 << 20
SEED_BITS = 48


class Ended(Exception):
    """The process at the other end has ended, or its reply cannot be read. The message says which."""


class Gone(Ended):
    """The process at the other end has ended, or is about to: it has closed the connection."""


class Channel(Protocol):
    """Connection to one process, which sends one reply to each request."""

    def send(self, request: Json) -> None:
        """Send a request without waiting."""

    def recv(self) -> Json:
        """Wait for the replies to all requests and return the last one. Raises `Ended`."""

    def call(self, request: Json) -> Json:
        """Send a request and wait for its reply. Raises `Ended`."""


class SocketChannel:
    """The parent's end of the connection to a process.

    The channel calls `alive` every LOOK_S while it waits for a reply. `alive` returns False if the process is gone, and
    may raise to end the wait.
    """

    def __init__(self, connection: socket.socket, alive: Callable[[], bool], answer_limit_s: float = ANSWER_LIMIT_S):
        self.connection, self.alive, self.answer_limit_s = connection, alive, answer_limit_s
        self.sent = self.received = 0
        self.last: Json = {}

    def send(self, request: Json) -> None:
        """Send a request. If the process is gone, the next `recv` says so."""
        self.sent += 1
        self.connection.settimeout(self.answer_limit_s)
        with contextlib.suppress(OSError):
            self.connection.sendall(encode_message(request))

    def recv(self) -> Json:
        """Wait for the replies to all requests and return the last one."""
        while self.received < self.sent:
            self.last = self._receive()
            self.received += 1
        return self.last

    def wait(self) -> None:
        """Wait until the first reply that was not read is there, at least its beginning, or the process is gone."""
        deadline, there = time.monotonic() + self.answer_limit_s, select.poll()
        there.register(self.connection, select.POLLIN)
        while time.monotonic() < deadline and not there.poll(1000 * LOOK_S):
            if not self.alive():
                return

    def call(self, request: Json) -> Json:
        """Send a request and wait for its reply."""
        self.send(request)
        return self.recv()

    def close(self) -> None:
        """Close the connection. The process then gets no further request and ends."""
        self.connection.close()

    def _receive(self) -> Json:
        """The next reply, from a process that is not trusted."""
        deadline = time.monotonic() + self.answer_limit_s
        size = int.from_bytes(self._read(HEADER_BYTES, deadline), "big")
        if size > REPLY_BYTES:
            raise Ended(f"its answer cannot be read: it has {size} bytes, more than {REPLY_BYTES}")
        try:
            reply = json.loads(self._read(size, deadline))
        except (ValueError, RecursionError) as error:
            raise Ended(f"its answer cannot be read: {error}") from error
        if not isinstance(reply, dict):
            raise Ended("its answer is no JSON object")
        return reply

    def _read(self, count: int, deadline: float) -> bytes:
        """So many bytes. A process may send them slowly, so the clock is checked after every piece."""
        data = bytearray()
        self.connection.settimeout(LOOK_S)
        looked = time.monotonic()
        while len(data) < count:
            piece: bytes | None
            try:
                piece = self.connection.recv(count - len(data))
            except TimeoutError:
                piece = None
            except OSError:
                piece = b""
            if piece == b"":
                raise Gone("the process ended before it answered")
            data += piece or b""
            now = time.monotonic()
            if now > deadline:
                raise Ended("no answer came")
            if now - looked > LOOK_S:
                looked = now
                if not self.alive() and piece is None:
                    raise Gone("the process ended before it answered")
        return bytes(data)


def requests(
    connection: socket.socket, idle_limit_s: float = ANSWER_LIMIT_S
) -> Iterator[tuple[Json, Callable[[Json], None]]]:
    """The process's end: each request with the function that replies to it.

    Ends if the parent closes the connection, or if no request comes within the limit.
    """
    connection.settimeout(idle_limit_s)
    with contextlib.suppress(TimeoutError):
        while header := _read_exactly(connection, HEADER_BYTES):
            text = _read_exactly(connection, int.from_bytes(header, "big"))
            yield json.loads(text), partial(_reply, connection)


def _read_exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes from the parent; b"" if it closed the connection."""
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            return b""
        data += piece
    return data


def _reply(connection: socket.socket, reply: Json) -> None:
    connection.sendall(encode_message(reply))


def encode_message(content: Json) -> bytes:
    """A message: the length of the JSON text, then the text."""
    text = json.dumps(content).encode()
    return len(text).to_bytes(HEADER_BYTES, "big") + text


def open_inherited() -> socket.socket:
    """The socket that this process inherited from the worker server."""
    return socket.socket(fileno=INHERITED_HANDLE)


def draw_seed() -> int:
    """A secret seed."""
    return secrets.randbits(SEED_BITS)


def derive_seed(first: int, call: int) -> int:
    """The seed of one of several calls that one request asks for (those of a CUDA graph)."""
    return (first + call * 0x9E3779B97F4B) & ((1 << SEED_BITS) - 1)
