"""Chat completions from any OpenAI-compatible endpoint, streamed, through the `openai` package (imported on first use).

`ChatClient.stream` is a generator: it yields pieces of text as they arrive and None at least every `TICK_S` while there is none (a silent
server, a model that thinks), so that whoever iterates can stop it at any time by closing it; the connection is then shut down at once, so
that the server stops too. It returns a `Reply`.

What a server takes is found out by the first call: an option that it refuses by name (tools, a JSON schema, usage in the stream, the older
name of the limit) is left out from then on.

The key lives in this process only, inside `Key`, which shows itself nowhere; workers get an environment without it.
"""

from __future__ import annotations

import codecs
import contextlib
import email.utils
import os
import queue
import random
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn
from urllib.parse import urlsplit

from workbench.errors import UserError
from workbench.proposers.llm.budget import Budget
from workbench.proposers.llm.replies import Reply as Reply
from workbench.proposers.llm.replies import ToolCall as ToolCall
from workbench.proposers.llm.replies import ToolPieces, usage_of, writable
from workbench.records import record

TICK_S = 0.1
KEY_NAMES = ("OPENAI_API_KEY",)
RETRIED = (408, 409, 429, 500, 502, 503, 504)
MOST_CHARACTERS = 16_000_000  # of one reply; more is a server that does not end
TOO_LONG = re.compile(r"context (length|window|size)|context_length|too long|too large|maximum (context|number of tokens)|n_ctx")
SCHEMA_WORDS = ("response_format", "json_schema", "schema", "grammar", "guided")
END = re.compile(rb"[\r\n]data: ?\[DONE\]")
HERE = threading.local()  # .call: the request that this thread reads


class LlmError(UserError):
    """A call that failed for good: one line with what, where and what to do."""


class Key:
    """A secret that no repr, format, pickle or copy gives away."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value.strip()  # a line break, as many files end with, cannot be sent

    def reveal(self) -> str:
        """The secret itself, for the request's header only."""
        return self._value

    def __repr__(self) -> str:
        return "Key(hidden)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not written down")


@record
class Settings:
    """Where the model is and how to ask it. Times in seconds, fit for a person who waits."""

    base_url: str = "https://api.openai.com/v1"
    model: str = "gpt-5"
    temperature: float | None = None  # None = the server's own
    max_tokens: int = 32_000  # of one reply
    connect_s: float = 10.0
    first_s: float = 300.0  # until the first byte of a reply: a model may think in silence
    silence_s: float = 120.0  # without any byte after that
    total_s: float = 900.0
    retries: int = 4
    tools: bool | None = None  # None = offered until the server refuses them


class _Dropped(Exception):
    """The connection ended before or in the middle of a reply."""


class _Call:
    """One request in flight: what its reader thread has heard, and how to end it from another thread."""

    def __init__(self) -> None:
        self.items: queue.Queue[Any] = queue.Queue()
        self.sent = self.heard = self.ended = self.closed = False
        self.last = time.monotonic()
        self._sockets: list[socket.socket] = []

    def trace(self, name: str, info: dict[str, Any]) -> None:
        """Called by the HTTP package at each step of a request: remembers the socket, and when the request went out."""
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._sockets.append(info["return_value"].get_extra_info("socket"))
            if self.closed:
                self.shut()
        elif "send_request_body" in name:
            self.sent = True

    def listen(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The bytes of a response, those that are no UTF-8 replaced; notes the time and the end mark of the stream."""
        decoder, tail = codecs.getincrementaldecoder("utf-8")("replace"), b""
        for piece in pieces:
            self.heard, self.last = True, time.monotonic()
            self.ended = self.ended or END.search(tail := tail[-16:] + piece) is not None
            yield decoder.decode(piece).encode()
        yield decoder.decode(b"", final=True).encode()

    def shut(self) -> None:
        """End the connection, so that the server stops and the reader thread ends, even while it waits for bytes."""
        self.closed = True
        for connection in self._sockets:
            with contextlib.suppress(Exception):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


class ChatClient:
    """One model at one endpoint, with a budget. Not for use from two threads at once. Raises `LlmError` for an address that cannot be one."""

    def __init__(self, settings: Settings, key: Key | None = None, budget: Budget | None = None) -> None:
        self.settings, self.key, self.budget = settings, key, budget or Budget()
        self.place = checked_address(settings.base_url)
        self.tools_refused, self.schema_refused, self._usage_asked = settings.tools is False, False, True
        self._limit = "max_completion_tokens" if urlsplit(self.place).hostname == "api.openai.com" else "max_tokens"
        self._openai: Any = None

    def _client(self) -> Any:
        if self._openai is None:
            import openai

            key = self.key.reveal() if self.key else ""
            if not (key.isascii() and key.isprintable()):
                raise LlmError("the key has characters that no key has (accents, line breaks); copy it again and give it with %cutegen model --ask-key")
            timeout = openai.Timeout(max(self.settings.first_s, self.settings.silence_s) + 5.0, connect=self.settings.connect_s)
            http = openai.DefaultHttpxClient(timeout=timeout, event_hooks={"request": [_traced], "response": [_listened]})
            # a server of one's own needs no key, but the package insists on one; a connection for each call, so that a cancelled one ends alone
            self._openai = openai.OpenAI(base_url=self.settings.base_url, api_key=key or "none", timeout=timeout, max_retries=0, http_client=http, default_headers={"Connection": "close"})
        return self._openai

    def stream(self, messages: list[dict[str, Any]], *, tools: list[dict[str, Any]] | None = None, schema: dict[str, Any] | None = None) -> Iterator[str | None]:
        """Yield text as it arrives (None while there is none); return the `Reply`. `schema`: JSON schema that the reply should follow, where the
        server takes one. Raises `BudgetExceeded` before a call, `LlmError` after a failure."""
        start, attempt, drops, most = time.monotonic(), 0, 0, self.settings.max_tokens
        spent: list[tuple[int, int, float | None]] = []
        while True:
            offered, call = self._offered(tools, schema), _Call()
            self.budget.reserve(messages, most, offered)
            try:
                text, finish, calls, usage = yield from self._once(messages, offered, call, start)
                break
            except BaseException as error:
                answered = getattr(error, "status_code", None) is not None
                if call.sent and not answered:  # it may have cost something: count the upper bound
                    spent.append(self.budget.settle(messages, most, None, None, offered))
                if not isinstance(error, Exception):
                    raise
                if self._learnt(error, offered):
                    continue
                broke = call.heard and not answered
                drops += broke
                wait = self._wait(error, attempt, drops, time.monotonic() - start)
                attempt += 1
                yield f"\n[{self._clean(str(error)) or 'the call failed'}; asking again{' from the start' if broke else ''} in {wait:.1f} s]\n"
            yield from _waited(wait)
        estimated = None in usage or bool(spent)
        spent.append(self.budget.settle(messages, most, usage[0], usage[1], offered))
        costs = [cost for _, _, cost in spent]
        return Reply(  # type: ignore[return-value]
            text=text, finish=finish, tool_calls=calls, tokens_in=sum(one[0] for one in spent), tokens_out=sum(one[1] for one in spent), estimated=estimated,
            cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs), seconds=time.monotonic() - start, retries=attempt,
        )  # fmt: skip

    def _offered(self, tools: list[dict[str, Any]] | None, schema: dict[str, Any] | None) -> dict[str, Any]:
        """What is sent beside the messages and can be left out."""
        offered: dict[str, Any] = {"tools": tools} if tools and not self.tools_refused else {}
        if schema is not None and not self.schema_refused:
            offered["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
        return offered

    def _learnt(self, error: Exception, offered: dict[str, Any]) -> bool:
        """Whether the server refused an option by name; it is left out from now on."""
        status, text = getattr(error, "status_code", None), str(error).lower()
        if status not in (400, 404, 422, 500, 501) or TOO_LONG.search(text):
            return False
        if self._limit == "max_tokens" and "max_completion_tokens" in text:
            self._limit = "max_completion_tokens"
        elif self._usage_asked and "stream_options" in text:
            self._usage_asked = False
        elif status == 500 and not re.search("require|support|enable", text):
            return False  # a failure that only mentions an option
        elif "response_format" in offered and any(word in text for word in SCHEMA_WORDS):
            self.schema_refused = True
        elif "tools" in offered and "tool" in text:
            self.tools_refused = True
        else:
            return False
        return True

    def _once(self, messages: list[dict[str, Any]], offered: dict[str, Any], call: _Call, start: float) -> Any:
        """One request; the reader thread fills a queue, so that a silent server cannot hold us."""
        threading.Thread(target=self._read, args=(messages, offered, call), name="cutegen-llm", daemon=True).start()
        text: list[str] = []
        tools, length, finish = ToolPieces(), 0, ""
        usage: tuple[int | None, int | None] = (None, None)
        try:
            while True:
                self._in_time(call, start)
                try:
                    item = call.items.get(timeout=TICK_S)
                except queue.Empty:
                    yield None
                    continue
                if isinstance(item, BaseException):
                    raise item
                if item is None:
                    break
                usage, said = usage_of(item) or usage, ""
                for choice in getattr(item, "choices", None) or []:
                    finish = choice.finish_reason or finish
                    for piece in getattr(choice.delta, "tool_calls", None) or []:
                        tools.add(piece)
                    said += getattr(choice.delta, "content", None) or getattr(choice.delta, "refusal", None) or ""
                text.append(said)
                length += len(said)
                if length > MOST_CHARACTERS:
                    raise LlmError(f"{self.place} does not end its reply ({length} characters); use another model")
                yield writable(said) or None
        finally:
            call.shut()
        made = tools.made()
        if not finish and not call.ended:
            raise _Dropped("the connection ended in the middle of a reply" if length or made else "the connection ended before a reply")
        return writable("".join(text)), finish or ("tool_calls" if made else "stop"), made, usage

    def _in_time(self, call: _Call, start: float) -> None:
        now, limit = time.monotonic(), self.settings.silence_s if call.heard else self.settings.first_s
        if now - start > self.settings.total_s:
            raise LlmError(f"no complete reply from {self.place} within {self.settings.total_s:g} s; raise the limit, or use a faster model")
        if call.items.empty() and now - call.last > limit:
            raise LlmError(f"{self.place} said nothing for {limit:g} s; try again, or raise the limit")

    def _read(self, messages: list[dict[str, Any]], offered: dict[str, Any], call: _Call) -> None:
        options: dict[str, Any] = {"model": self.settings.model, "messages": messages, "stream": True, self._limit: self.settings.max_tokens, **offered}
        if self._usage_asked:
            options["stream_options"] = {"include_usage": True}
        if self.settings.temperature is not None:
            options["temperature"] = self.settings.temperature
        HERE.call = call
        try:
            client = self._client()
            if call.closed:
                return
            with client.chat.completions.create(**options) as stream:
                kind = stream.response.headers.get("content-type", "")
                if "html" in kind or "application/json" in kind:
                    raise LlmError(f"{self.place} does not answer as the OpenAI protocol does, but with {self._clean(stream.response.read().decode())[:100]!r}; check the address, which usually ends in /v1")
                for chunk in stream:
                    if call.closed:
                        return
                    call.items.put(chunk)
            call.items.put(None)
        except BaseException as error:
            call.items.put(error)

    def _wait(self, error: Exception, attempt: int, drops: int, elapsed: float) -> float:
        """Seconds to wait before the next attempt; raises `LlmError` when there is none. A reply that breaks off is asked for once more only."""
        import openai

        if isinstance(error, LlmError):
            raise error
        status = getattr(error, "status_code", None)
        dropped = isinstance(error, (_Dropped, openai.APIConnectionError)) or type(error).__module__.startswith(("httpx", "httpcore"))
        hopeless = isinstance(error, openai.APITimeoutError) or _refused(error) or getattr(error, "code", None) == "insufficient_quota" or drops > 1
        if not (dropped or status in RETRIED) or attempt >= self.settings.retries or hopeless:
            raise LlmError(self._said(error, status, attempt)) from None
        asked = _retry_after(error)
        if asked is not None and elapsed + asked > self.settings.total_s:
            raise LlmError(f"{self.place} asks to wait {asked:g} s before the next call; try later") from None
        return asked if asked is not None else min(0.5 * 2**attempt, 20.0) * random.uniform(0.8, 1.2)

    def _said(self, error: Exception, status: int | None, attempt: int) -> str:
        import openai

        tries = f" after {attempt + 1} tries" if attempt else ""
        detail = self._clean(_detail(error))
        if status in (401, 403):
            what = "refuses the key" if self.key else "asks for a key"
            return f"{self.place} {what} ({status}); set OPENAI_API_KEY, or give {'another' if self.key else 'it'} with %cutegen model --ask-key"
        if status in (400, 413, 422, 500) and TOO_LONG.search(detail.lower()):
            return f"the prompt and {self.settings.max_tokens} tokens of reply do not fit the model at {self.place} ({status}): {detail}; lower max_tokens (%cutegen model --max-tokens), or use a model with a larger context"
        if status == 404:
            return f"{self.place} knows no model {self.settings.model!r}, or the address is wrong (404); check %cutegen model"
        if status == 429:
            what = "has no quota left for this key" if getattr(error, "code", None) == "insufficient_quota" else "limits the rate"
            return f"{self.place} {what}{tries} (429): {detail}; wait, or use another model"
        if status is not None and status >= 500:
            return f"{self.place} failed{tries} ({status}): {detail}; try later, or use another endpoint"
        if status is not None:
            return f"{self.place} refuses the request ({status}): {detail}; check %cutegen model"
        if isinstance(error, openai.APITimeoutError):
            return f"{self.place} cannot be reached within {self.settings.connect_s:g} s; check the address and the network"
        if _refused(error):
            return f"nothing answers at {self.place}; start the server, or set the address with %cutegen model --base-url"
        if isinstance(error, (ValueError, TypeError, AttributeError, LookupError)):
            return f"{self.place} sent what is not the OpenAI protocol ({detail}); use another server, or try again"
        if isinstance(error, openai.APIError) and not isinstance(error, openai.APIConnectionError):
            return f"{self.place} reports an error in its reply: {detail}; try again, or look at the server's log"
        return f"the connection to {self.place} was lost{tries}: {detail}; try again"

    def _clean(self, text: str) -> str:
        """One short line without the key."""
        key = self.key.reveal() if self.key else ""
        line = " ".join(text.split())
        return (line.replace(key, "***") if len(key) >= 8 else line)[:300]  # shorter ones, as servers at home take, are words


def _traced(request: Any) -> None:
    request.extensions = {**request.extensions, "trace": HERE.call.trace}


def _listened(response: Any) -> None:
    whole, call = response.iter_bytes, HERE.call
    response.iter_bytes = lambda *sizes, **named: call.listen(whole(*sizes, **named))


def _waited(seconds: float) -> Iterator[None]:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        yield None
        time.sleep(min(TICK_S, left))


def _refused(error: BaseException | None) -> bool:
    """Whether nobody listens there, which no retry changes."""
    while error is not None:
        if isinstance(error, (ConnectionRefusedError, socket.gaierror)) or "refused" in str(error).lower() or "name or service not known" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def _detail(error: Exception) -> str:
    """The server's own words, without what the package puts around them."""
    body = getattr(error, "body", None)
    said = body.get("message") if isinstance(body, dict) else body
    return said if isinstance(said, str) and said else str(getattr(error, "message", "") or error)


def _retry_after(error: Exception) -> float | None:
    """Seconds that the server asks to wait: a number, or a date."""
    text = getattr(getattr(error, "response", None), "headers", {}).get("retry-after", "")
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        seconds = float(text) if re.fullmatch(r"\s*[\d.]+\s*", text) else email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        return max(seconds, 0.0)
    return None


def checked_address(base_url: str) -> str:
    """The address for messages, as given; raises `LlmError` for one that cannot be used, or that holds a password (settings are kept and shown)."""
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise LlmError(f"{base_url.rpartition('@')[2]!r} is no address of a model; give one such as http://localhost:8000/v1 with %cutegen model --base-url")
    if "@" in parts.netloc or parts.query or parts.fragment:
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        raise LlmError(f"the address {shown} was given with a password or a query, and addresses are kept and shown; give it without, and the key with %cutegen model --ask-key")
    return base_url


def key_from_environment() -> Key | None:
    """The key that the environment holds, if any."""
    return next((Key(os.environ[name]) for name in KEY_NAMES if os.environ.get(name)), None)
