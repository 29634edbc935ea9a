"""Makes the calls of a model for one proposal, serves its tools, and reports an unusable answer to the model once.

Every call is yielded as an `Exchange`, verbatim, before its result. So no call that was paid for is lost if a later one
fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from typing import Literal, TypeVar

from workbench.errors import NoUsableReply
from workbench.proposers.llm.replies import Unusable
from workbench.protocols import ModelAccess
from workbench.records import Event, Exchange, Message, Reply, ToolCall, record

TRIES = 2  # answers: the first, and one more if that is unusable, with the reason
TOOL_ROUNDS = 6
Purpose = Literal["synthesis", "optimise", "diagnosis", "patch", "ask"]
T = TypeVar("T")


@record
class Answer:
    """A reply, and the tool calls that led to it: (name, arguments, result)."""

    reply: Reply
    served: tuple[tuple[str, str, str], ...] = ()


class Conversation:
    """Talks to one model; `exchanges` holds the calls made so far."""

    def __init__(self, access: ModelAccess) -> None:
        self.client, self.tools = access.client, access.tools
        self.exchanges: list[Exchange] = []

    def ask(self, purpose: Purpose, messages: list[Message]) -> Generator[Event | Exchange, None, Reply]:
        """Ask for one answer, without a check of it."""
        answer = yield from self._call(purpose, messages, None)
        yield self._make_exchange(purpose, messages, answer)
        return answer.reply

    def ask_until_usable(
        self,
        purpose: Purpose,
        messages: list[Message],
        read: Callable[[Reply], T],
        *,
        what: str = "answer",
        schema: Mapping[str, object] | None = None,
    ) -> Generator[Event | Exchange, None, T]:
        """Ask for an answer and return the result of `read`. If `read` raises `Unusable`, the model is asked once more.

        `schema` is the JSON schema of the answer, for endpoints that support one. Raises `NoUsableReply`.
        """
        for left in reversed(range(TRIES)):
            answer = yield from self._call(purpose, messages, schema)
            try:
                made = read(answer.reply)
            except Unusable as unusable:
                reason = str(unusable)
            else:
                yield self._make_exchange(purpose, messages, answer)
                return made
            yield self._make_exchange(purpose, messages, answer, reason)
            if left:
                message = f"the {what} could not be used ({reason}); the model is told and asked again"
                yield Event(kind="note", message=message)
                order = f"That {what} could not be used: {reason}. Answer again in the form that was asked for."
                messages = [
                    *messages,
                    {"role": "assistant", "content": answer.reply.text},
                    {"role": "user", "content": order},
                ]
        raise NoUsableReply(f"the model's {what} could not be used: {reason}; ask again, or edit by hand")

    def _call(
        self, purpose: Purpose, messages: list[Message], schema: Mapping[str, object] | None
    ) -> Generator[Event, None, Answer]:
        """One answer; text is streamed as `token` events."""
        yield Event(kind="note", message=f"{purpose}: asking {self.client.model_name}")
        talk, served = list(messages), list[tuple[str, str, str]]()
        for turn in range(TOOL_ROUNDS + 1):
            tools = self.tools.specifications if turn < TOOL_ROUNDS else None
            reply = yield from _show_tokens(self.client.stream(talk, tools=tools, schema=schema))
            if not reply.tool_calls:
                break
            talk.append(_assistant_message(reply))
            for call in reply.tool_calls:
                result = self.tools.call(call.name, call.arguments)
                served.append((call.name, call.arguments, result))
                yield Event(kind="note", message=f"{call.name} {_shorten(call)}")
                talk.append({"role": "tool", "tool_call_id": call.id, "content": result})
        return Answer(reply=reply, served=tuple(served))

    def _make_exchange(self, purpose: Purpose, messages: list[Message], answer: Answer, unusable: str = "") -> Exchange:
        reply = answer.reply
        exchange = Exchange(
            purpose=purpose,
            model=self.client.model_name,
            messages=tuple((str(message["role"]), str(message["content"])) for message in messages),
            reply=reply.text,
            finish=reply.finish,
            tools=answer.served,
            tokens_in=reply.tokens_in,
            tokens_out=reply.tokens_out,
            estimated=reply.estimated,
            cost_usd=reply.cost_usd,
            seconds=reply.seconds,
            unusable=unusable,
        )
        self.exchanges.append(exchange)
        return exchange


def _show_tokens(stream: Generator[str | None, None, Reply]) -> Generator[Event, None, Reply]:
    """The stream's text as events, empty ones while it is silent, so that the session can stop; returns its reply."""
    try:
        while True:
            yield Event(kind="token", message=next(stream) or "")
    except StopIteration as end:
        reply: Reply = end.value
        return reply
    finally:
        stream.close()


def _assistant_message(reply: Reply) -> Message:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.tool_calls
    ]
    return {"role": "assistant", "content": reply.text or None, "tool_calls": calls}


def _shorten(call: ToolCall) -> str:
    try:
        values = json.loads(call.arguments)
    except ValueError:
        return call.arguments[:120]
    return (" ".join(map(str, values.values())) if isinstance(values, dict) else call.arguments)[:120]
