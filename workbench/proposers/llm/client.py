"""Chat completions from any OpenAI-compatible endpoint, streamed.

`ChatClient.stream` is a generator that returns a `Reply`. It yields pieces of text as they arrive, and None at least
every `TICK_S` if there is none (a silent server, a model that thinks). The caller can close it at any time. The
connection is then shut down at once, so that the server stops too.

The first call finds out which options a server supports. An option that the server refuses by name (tools, a JSON
schema, usage in the stream, the older name of the limit) is left out from then on.
"""

from __future__ import annotations

import queue
import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from workbench.errors import LlmError
from workbench.proposers.llm.budget import Budget
from workbench.proposers.llm.endpoint import TOO_LONG, Endpoint, http_status
from workbench.proposers.llm.replies import ReplyParts, Usage
from workbench.proposers.llm.request import Dropped, NotStreamed, Request
from workbench.proposers.llm.settings import Key, Settings
from workbench.records import Message, Reply, ToolCall, record
from workbench.wire import replace_surrogates

TICK_S = 0.1
MOST_CHARACTERS = 16_000_000  # a longer reply is taken as one that never ends
SCHEMA_WORDS = ("response_format", "json_schema", "schema", "grammar", "guided")
Offered = dict[str, object]  # what is sent beside the messages and can be left out


@record
class Heard:
    """A complete reply as the server sent it."""

    text: str
    finish: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage


class ChatClient:
    """One model at one endpoint, with a budget. Two threads must not use it at once.

    Raises `LlmError` for an invalid address.
    """

    def __init__(self, settings: Settings, key: Key | None = None, budget: Budget | None = None) -> None:
        self.settings, self.key, self.budget = settings, key, budget or Budget()
        self.endpoint = Endpoint(settings, key)
        self.tools_refused, self.schema_refused, self._asks_usage = settings.tools is False, False, True
        is_openai = urlsplit(self.endpoint.address).hostname == "api.openai.com"
        self.limit_name = "max_completion_tokens" if is_openai else "max_tokens"

    @property
    def model_name(self) -> str:
        """The endpoint's name of the model."""
        return self.settings.model

    def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        schema: Mapping[str, object] | None = None,
    ) -> Generator[str | None, None, Reply]:
        """Yield text as it arrives (None while there is none); return the `Reply`.

        `schema` is a JSON schema for the reply, if the server supports one. Raises `BudgetExceeded` before a call,
        `LlmError` after a failure.
        """
        start, attempt, drops, most = time.monotonic(), 0, 0, self.settings.max_tokens
        spent: list[tuple[int, int, float | None]] = []
        while True:
            offered, request = self._offer(tools, schema), Request()
            self.budget.reserve(messages, most, offered)
            try:
                heard = yield from self._receive(messages, offered, request, start)
                break
            except BaseException as error:
                answered = http_status(error) is not None
                if request.sent and not answered:  # it may have cost something: count the upper bound
                    spent.append(self.budget.settle(messages, most, None, None, offered))
                if not isinstance(error, Exception):
                    raise
                if self._learn(error, offered):
                    continue
                broke = request.heard and not answered
                drops += broke
                elapsed_s = time.monotonic() - start
                wait_s = self.endpoint.wait_s(error, attempt=attempt, drops=drops, elapsed_s=elapsed_s)
                attempt += 1
                what = self.endpoint.clean(str(error)) or "the call failed"
                yield f"\n[{what}; asking again{' from the start' if broke else ''} in {wait_s:.1f} s]\n"
            yield from _sleep(wait_s)
        estimated = None in heard.usage or bool(spent)
        spent.append(self.budget.settle(messages, most, *heard.usage, offered))
        costs = [cost for _, _, cost in spent]
        return Reply(
            text=heard.text,
            finish=heard.finish,
            tool_calls=heard.tool_calls,
            tokens_in=sum(one[0] for one in spent),
            tokens_out=sum(one[1] for one in spent),
            estimated=estimated,
            cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
            seconds=time.monotonic() - start,
            retries=attempt,
        )

    def _offer(self, tools: Sequence[Mapping[str, object]] | None, schema: Mapping[str, object] | None) -> Offered:
        offered: Offered = {"tools": list(tools)} if tools and not self.tools_refused else {}
        if schema is not None and not self.schema_refused:
            named = {"name": "answer", "schema": schema, "strict": True}
            offered["response_format"] = {"type": "json_schema", "json_schema": named}
        return offered

    def _learn(self, error: Exception, offered: Offered) -> bool:
        """Whether the server refused an option by name. If so, the option is left out from now on."""
        status, text = http_status(error), str(error).lower()
        if status not in (400, 404, 422, 500, 501) or TOO_LONG.search(text):
            return False
        if self.limit_name == "max_tokens" and "max_completion_tokens" in text:
            self.limit_name = "max_completion_tokens"
        elif self._asks_usage and "stream_options" in text:
            self._asks_usage = False
        elif status == 500 and not re.search("require|support|enable", text):
            return False  # a failure that only mentions an option
        elif "response_format" in offered and any(word in text for word in SCHEMA_WORDS):
            self.schema_refused = True
        elif "tools" in offered and "tool" in text:
            self.tools_refused = True
        else:
            return False
        return True

    def _options(self, messages: Sequence[Message], offered: Offered) -> dict[str, object]:
        options: dict[str, object] = {
            "model": self.settings.model,
            "messages": list(messages),
            "stream": True,
            self.limit_name: self.settings.max_tokens,
            **offered,
        }
        if self._asks_usage:
            options["stream_options"] = {"include_usage": True}
        if self.settings.temperature is not None:
            options["temperature"] = self.settings.temperature
        return options

    def _receive(
        self, messages: Sequence[Message], offered: Offered, request: Request, start: float
    ) -> Generator[str | None, None, Heard]:
        """One request: yields its text as it arrives."""
        request.start(self.endpoint.client, self._options(messages, offered))
        parts = ReplyParts()
        try:
            while True:
                self._check_time(request, start)
                try:
                    item = request.items.get(timeout=TICK_S)
                except queue.Empty:
                    yield None
                    continue
                if isinstance(item, NotStreamed):
                    raise self._not_streamed(str(item))
                if isinstance(item, BaseException):
                    raise item
                if item is None:
                    break
                piece = parts.add(item)
                if parts.length > MOST_CHARACTERS:
                    place = self.endpoint.address
                    raise LlmError(f"{place} does not end its reply ({parts.length} characters); use another model")
                yield replace_surrogates(piece) or None
        finally:
            request.close()
        return _complete(parts, request)

    def _check_time(self, request: Request, start: float) -> None:
        now, place = time.monotonic(), self.endpoint.address
        limit = self.settings.silence_s if request.heard else self.settings.first_s
        if now - start > self.settings.total_s:
            total = self.settings.total_s
            raise LlmError(f"no complete reply from {place} within {total:g} s; raise the limit, or use a faster model")
        if request.items.empty() and now - request.last_heard > limit:
            raise LlmError(f"{place} said nothing for {limit:g} s; try again, or raise the limit")

    def _not_streamed(self, text: str) -> LlmError:
        return LlmError(
            f"{self.endpoint.address} does not answer as the OpenAI protocol does, but with "
            f"{self.endpoint.clean(text)[:100]!r}; check the address, which usually ends in /v1"
        )


def _complete(parts: ReplyParts, request: Request) -> Heard:
    """The reply from its parts. Raises `Dropped` if the connection ended before the reply did."""
    calls = parts.tools.calls()
    if not parts.finish and not request.ended:
        where = "in the middle of a reply" if parts.length or calls else "before a reply"
        raise Dropped(f"the connection ended {where}")
    finish = parts.finish or ("tool_calls" if calls else "stop")
    return Heard(text=replace_surrogates("".join(parts.text)), finish=finish, tool_calls=calls, usage=parts.usage)


def _sleep(seconds: float) -> Iterator[None]:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        yield None
        time.sleep(min(TICK_S, left))
