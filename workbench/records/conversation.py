"""Messages to a language model, its replies, and what they cost."""

from __future__ import annotations

from typing import TypedDict

from workbench.records.base import record

Message = dict[str, object]  # a message of a chat completion request: `role`, `content`, tool fields


class Spent(TypedDict):
    """Tokens and dollars (None = unknown) that a session's model has used. The store keeps it."""

    tokens_in: int
    tokens_out: int
    usd: float | None
    estimated: bool  # some figures are upper bounds, because the server stated no usage


@record
class ToolCall:
    """A tool call requested by the model. `arguments` is its JSON text."""

    id: str
    name: str
    arguments: str


@record
class Reply:
    """One answer of a model.

    Tokens and cost are totals over all attempts. They are upper bounds (`estimated`) if the server states none.
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
