"""What a language model is sent and answers."""

from __future__ import annotations

from typing import TypedDict

from workbench.records.base import record

Message = dict[str, object]  # one message of a chat completion request: `role`, `content` and what belongs to tools


class Spent(TypedDict):
    """Tokens and dollars (None = unknown) of all calls of a session's model, as the store keeps them."""

    tokens_in: int
    tokens_out: int
    usd: float | None
    estimated: bool  # some of it is an upper bound, because the server stated no usage


@record
class ToolCall:
    """A call that the model asks for; `arguments` is the JSON text that it wrote."""

    id: str
    name: str
    arguments: str


@record
class Reply:
    """One answer of a model.

    Tokens and cost are of all attempts together: the server's figures, or upper bounds where it states none
    (`estimated`).
    """

    text: str
    finish: str  # stop, length, tool_calls, content_filter, ...
    tool_calls: tuple[ToolCall, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    estimated: bool = False
    cost_usd: float | None = None
    seconds: float = 0.0
    retries: int = 0
