"""One request in flight: a thread reads the reply into a queue, so that a silent server cannot block the caller.

The HTTP package calls the hooks of `http_hooks` on the reading thread. They find the request in a thread-local.
"""

from __future__ import annotations

import codecs
import contextlib
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from workbench.errors import LlmError

if TYPE_CHECKING:
    import httpx
    import openai
    from openai.types.chat import ChatCompletionChunk

MOST_LINE_BYTES, MOST_BYTES = 32 << 20, 1 << 30  # of a response; one of 16 million characters in one line is read
END = re.compile(rb"[\r\n]data: ?\[DONE\]")
_HERE = threading.local()  # .request: the request that this thread reads


class Dropped(Exception):
    """The connection ended before or in the middle of a reply."""


class NotStreamed(Exception):
    """The endpoint answered with a page or a plain document; the text is its beginning."""


class Request:
    """The chunks that the reading thread has received, and the means to end it from another thread."""

    def __init__(self) -> None:
        self.items: queue.Queue[ChatCompletionChunk | BaseException | None] = queue.Queue()  # None ends the reply
        self.sent = self.heard = self.ended = self.closed = False
        self.last_heard = time.monotonic()
        self._sockets: list[socket.socket] = []

    def start(self, connect: Callable[[], openai.OpenAI], options: dict[str, object]) -> None:
        """Send the request with these options of a chat completion, from a thread of its own."""
        threading.Thread(target=self._read, args=(connect, options), name="cutegen-llm", daemon=True).start()

    def _read(self, connect: Callable[[], openai.OpenAI], options: dict[str, object]) -> None:
        _HERE.request = self
        try:
            client = connect()
            if self.closed:
                return
            completions = client.chat.completions
            stream: openai.Stream[ChatCompletionChunk] = completions.create(**options)
            with stream:
                kind = stream.response.headers.get("content-type", "")
                if "html" in kind or "application/json" in kind:
                    raise NotStreamed(stream.response.read().decode())
                for chunk in stream:
                    if self.closed:
                        return
                    self.items.put(chunk)
            self.items.put(None)
        except BaseException as error:
            self.items.put(error)

    def trace(self, name: str, info: dict[str, Any]) -> None:
        """Note the socket, and that the request was sent. Called at each step of a request."""
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._sockets.append(info["return_value"].get_extra_info("socket"))
            if self.closed:
                self.close()
        elif "send_request_body" in name:
            self.sent = True

    def listen(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The bytes of a response with invalid UTF-8 replaced. Notes the time and the end mark of the stream.

        Raises `LlmError` for a response without end: what reads it keeps each line, and each document, whole.
        """
        decoder, tail = codecs.getincrementaldecoder("utf-8")("replace"), b""
        line = received = 0
        for piece in pieces:
            received += len(piece)
            line = line + len(piece) if b"\n" not in piece else len(piece) - piece.rindex(b"\n")
            if line > MOST_LINE_BYTES or received > MOST_BYTES:
                raise LlmError(f"the endpoint does not end its reply ({received >> 20} MiB); use another one")
            self.heard, self.last_heard = True, time.monotonic()
            self.ended = self.ended or END.search(tail := tail[-16:] + piece) is not None
            yield decoder.decode(piece).encode()
        yield decoder.decode(b"", final=True).encode()

    def close(self) -> None:
        """End the connection: the server stops, and the reading thread ends even while it waits for bytes."""
        self.closed = True
        for connection in self._sockets:
            with contextlib.suppress(Exception):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


def http_hooks() -> dict[str, list[Callable[..., object]]]:
    """Hooks for the HTTP client, through which a `Request` finds its socket and its bytes."""
    return {"request": [_trace], "response": [_listen]}


def _trace(request: httpx.Request) -> None:
    request.extensions = {**request.extensions, "trace": _HERE.request.trace}


def _listen(response: httpx.Response) -> None:
    whole, here = response.iter_bytes, _HERE.request
    response.iter_bytes = lambda *sizes, **named: here.listen(whole(*sizes, **named))  # type: ignore[method-assign]
