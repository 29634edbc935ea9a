"""Chat completions from any OpenAI-compatible endpoint, streamed, through the `openai` package (imported on first use).

`ChatClient.stream` is a generator: it yields pieces of text as they arrive and None at least every `TICK_S` while nothing does, so that
whoever iterates can stop it at any time by closing it; the connection is then shut down at once. It returns a `Reply`.

The key lives in this process only, inside `Key`, which shows itself nowhere; workers get an environment without it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn
from urllib.parse import urlsplit, urlunsplit

from workbench.errors import UserError
from workbench.proposers.llm.budget import Budget
from workbench.records import record

TICK_S = 0.1
KEY_NAMES = ("OPENAI_API_KEY",)
RETRIED = (408, 409, 429, 500, 502, 503, 504)


class LlmError(UserError):
    """A call that failed for good: one line with what, where and what to do."""


class Key:
    """A secret that no repr, format, pickle or copy gives away."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

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
    silence_s: float = 120.0  # without any byte, first one included
    total_s: float = 900.0
    retries: int = 4
    tools: bool | None = None  # None = offered until the server refuses them


@record
class ToolCall:
    """A call that the model asks for; `arguments` is the JSON text that it wrote."""

    id: str
    name: str
    arguments: str


@record
class Reply:
    """What came back. Tokens are the server's figures, or upper bounds where it states none (`estimated`)."""

    text: str
    finish: str  # stop, length, tool_calls, content_filter, ...
    tool_calls: tuple[ToolCall, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    estimated: bool = False
    cost_usd: float | None = None
    seconds: float = 0.0
    retries: int = 0


class _Dropped(Exception):
    """The connection ended in the middle of a reply."""


class ChatClient:
    """One model at one endpoint, with a budget. Not for use from two threads at once."""

    def __init__(self, settings: Settings, key: Key | None = None, budget: Budget | None = None) -> None:
        self.settings, self.key, self.budget = settings, key, budget or Budget()
        self.tools_refused = settings.tools is False
        self._openai: Any = None
        self._begun = False

    @property
    def place(self) -> str:
        """The endpoint without credentials or query, for messages."""
        parts = urlsplit(self.settings.base_url)
        return urlunsplit((parts.scheme, parts.hostname + (f":{parts.port}" if parts.port else "") if parts.hostname else "", parts.path, "", ""))

    def _client(self) -> Any:
        if self._openai is None:
            import openai

            timeout = openai.Timeout(self.settings.silence_s, connect=self.settings.connect_s)
            # a server of one's own needs no key, but the package insists on one
            self._openai = openai.OpenAI(base_url=self.settings.base_url, api_key=self.key.reveal() if self.key else "none", timeout=timeout, max_retries=0)
        return self._openai

    def stream(self, messages: list[dict[str, Any]], *, tools: list[dict[str, Any]] | None = None) -> Iterator[str | None]:
        """Yield text as it arrives (None while nothing does); return the `Reply`. Raises `BudgetExceeded` before, `LlmError` after a failure."""
        start, attempt = time.monotonic(), 0
        while True:
            offered = None if self.tools_refused else tools
            self.budget.reserve(messages, self.settings.max_tokens)
            self._begun = False
            try:
                text, finish, calls, usage = yield from self._once(messages, offered, start)
                break
            except GeneratorExit:
                self._lost(messages)
                raise
            except Exception as error:
                self._lost(messages)
                if offered and _refuses_tools(error):
                    self.tools_refused = True
                    continue
                wait = self._wait(error, attempt)
                attempt += 1
                yield f"\n[{self._clean(str(error)) or 'the call failed'}; asking again in {wait:.1f} s]\n"
                until = time.monotonic() + wait
                while time.monotonic() < until:
                    yield None
                    time.sleep(min(TICK_S, max(until - time.monotonic(), 0.0)))
        spent_in, spent_out, cost = self.budget.settle(messages, self.settings.max_tokens, *usage)
        return Reply(  # type: ignore[return-value]
            text=text, finish=finish, tool_calls=calls, tokens_in=spent_in, tokens_out=spent_out, estimated=None in usage, cost_usd=cost,
            seconds=time.monotonic() - start, retries=attempt,
        )  # fmt: skip

    def _lost(self, messages: list[dict[str, Any]]) -> None:
        """A call that ended early has cost something too: count its upper bound, once any of its reply was there."""
        if self._begun:
            self.budget.settle(messages, self.settings.max_tokens, None, None)

    def _once(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, start: float) -> Any:
        """One request; the reader thread fills a queue, so that a silent server cannot hold us."""
        items: queue.Queue[Any] = queue.Queue()
        holder: dict[str, Any] = {}
        threading.Thread(target=self._read, args=(messages, tools, items, holder), name="cutegen-llm", daemon=True).start()
        text: list[str] = []
        calls: dict[int, list[str]] = {}
        finish = ""
        usage: tuple[int | None, int | None] = (None, None)
        try:
            while True:
                try:
                    item = items.get(timeout=TICK_S)
                except queue.Empty:
                    if time.monotonic() - start > self.settings.total_s:
                        raise LlmError(f"no complete reply from {self.place} within {self.settings.total_s:g} s; raise the limit, or use a faster model") from None
                    yield None
                    continue
                if isinstance(item, BaseException):
                    raise item
                if item is None:
                    break
                self._begun = True
                usage = _usage(item) or usage
                for choice in getattr(item, "choices", None) or []:
                    finish = choice.finish_reason or finish
                    delta = choice.delta
                    for call in getattr(delta, "tool_calls", None) or []:
                        _merge(calls, call)
                    piece = getattr(delta, "content", None) or getattr(delta, "refusal", None)
                    if piece:
                        text.append(piece)
                        yield piece
        finally:
            _shut(holder)
        if not finish and not text and not calls:
            raise _Dropped("the connection ended before a reply")
        if not finish:
            raise _Dropped("the connection ended in the middle of a reply")
        made = tuple(ToolCall(id=parts[0], name=parts[1], arguments=parts[2]) for _, parts in sorted(calls.items()))
        return "".join(text).encode("utf-8", "replace").decode("utf-8", "replace"), finish, made, usage

    def _read(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, items: queue.Queue[Any], holder: dict[str, Any]) -> None:
        options: dict[str, Any] = {"model": self.settings.model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": self.settings.max_tokens}
        if self.settings.temperature is not None:
            options["temperature"] = self.settings.temperature
        if tools:
            options["tools"] = tools
        try:
            with self._client().chat.completions.create(**options) as stream:
                holder["stream"] = stream
                for chunk in stream:
                    if holder.get("closed"):
                        return
                    items.put(chunk)
            items.put(None)
        except BaseException as error:
            items.put(error)

    def _wait(self, error: Exception, attempt: int) -> float:
        """Seconds to wait before the next attempt; raises `LlmError` when there is none."""
        import openai

        if isinstance(error, LlmError):
            raise error
        status = getattr(error, "status_code", None)
        dropped = isinstance(error, (_Dropped, openai.APIConnectionError)) or type(error).__module__.startswith(("httpx", "httpcore"))
        if not (dropped or status in RETRIED) or attempt >= self.settings.retries or isinstance(error, openai.APITimeoutError) or _refused(error):
            raise LlmError(self._said(error, status, attempt)) from None
        asked = _retry_after(error)
        if asked is not None and asked > self.settings.total_s:
            raise LlmError(f"{self.place} asks to wait {asked:g} s before the next call; try later") from None
        return asked if asked is not None else min(0.5 * 2**attempt, 20.0) * random.uniform(0.8, 1.2)

    def _said(self, error: Exception, status: int | None, attempt: int) -> str:
        import openai

        tries = f" after {attempt + 1} tries" if attempt else ""
        detail = self._clean(str(getattr(error, "message", "") or error))
        if status in (401, 403):
            return f"{self.place} refuses the key ({status}); set OPENAI_API_KEY, or give another with %cutegen model --ask-key"
        if status == 404:
            return f"{self.place} knows no model {self.settings.model!r}, or the address is wrong (404); check %cutegen model"
        if status == 429:
            return f"{self.place} limits the rate{tries} (429): {detail}; wait, or use another model"
        if status is not None and status >= 500:
            return f"{self.place} failed{tries} ({status}): {detail}; try later, or use another endpoint"
        if status is not None:
            return f"{self.place} refuses the request ({status}): {detail}"
        if isinstance(error, openai.APITimeoutError):
            return f"{self.place} said nothing for {self.settings.silence_s:g} s; try again, or raise the limit"
        if _refused(error):
            return f"nothing answers at {self.place}; start the server, or set the address with %cutegen model --base-url"
        if isinstance(error, (UnicodeDecodeError, ValueError)):
            return f"{self.place} sent what is not the OpenAI protocol ({detail}); use another server, or try again"
        return f"the connection to {self.place} was lost{tries}: {detail}; try again"

    def _clean(self, text: str) -> str:
        """One short line without the key."""
        line = " ".join(text.split())[:300]
        return line.replace(self.key.reveal(), "***") if self.key and self.key.reveal() else line


def _refuses_tools(error: Exception) -> bool:
    return getattr(error, "status_code", None) in (400, 404, 422, 501) and "tool" in str(error).lower()


def _refused(error: BaseException | None) -> bool:
    """Whether nobody listens there, which no retry changes."""
    while error is not None:
        if isinstance(error, (ConnectionRefusedError, socket.gaierror)) or "refused" in str(error).lower() or "name or service not known" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def _retry_after(error: Exception) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", {})
    with contextlib.suppress(KeyError, ValueError):
        return max(float(headers["retry-after"]), 0.0)
    return None


def _usage(chunk: Any) -> tuple[int | None, int | None] | None:
    usage = getattr(chunk, "usage", None)
    if usage is None:
        return None
    return getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None)


def _merge(calls: dict[int, list[str]], piece: Any) -> None:
    """Tool calls arrive in pieces; the index says to which a piece belongs."""
    parts = calls.setdefault(piece.index, ["", "", ""])
    parts[0] = piece.id or parts[0]
    if piece.function is not None:
        parts[1] += piece.function.name or ""
        parts[2] += piece.function.arguments or ""


def _shut(holder: dict[str, Any]) -> None:
    """End the connection so that the reader thread ends too, even while it waits for bytes."""
    holder["closed"] = True
    stream = holder.get("stream")
    if stream is None:
        return
    with contextlib.suppress(Exception):
        connection = stream.response.extensions["network_stream"].get_extra_info("socket")
        connection.shutdown(socket.SHUT_RDWR)


def key_from_environment() -> Key | None:
    """The key that the environment holds, if any."""
    return next((Key(os.environ[name]) for name in KEY_NAMES if os.environ.get(name)), None)
