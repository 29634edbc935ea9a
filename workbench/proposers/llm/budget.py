"""A budget in tokens or money that no call can exceed: each call first reserves its largest possible cost.

The upper bound of a prompt is its length in UTF-8 bytes, including tools and schema (no tokenizer in use makes more
than one token of a byte), plus 16 for each message and 256 for the model's chat template (both inferred). The upper
bound of a reply is its `max_tokens`. After the call, the usage that the server states replaces the reservation. Without
such a statement the reservation stays.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from workbench.errors import BudgetExceeded
from workbench.records import Message, Spent, record

MESSAGE_OVERHEAD = 16
TEMPLATE_OVERHEAD = 256


@record
class Prices:
    """US dollars per million tokens; None = unknown."""

    input_usd: float | None = None
    output_usd: float | None = None

    def cost(self, tokens_in: int, tokens_out: int) -> float | None:
        """Dollars for these tokens, None when a price is unknown."""
        if self.input_usd is None or self.output_usd is None:
            return None
        return (tokens_in * self.input_usd + tokens_out * self.output_usd) / 1e6


def upper_bound(messages: Sequence[Message], offered: object = None) -> int:
    """The largest possible number of tokens of a prompt. `offered` is sent beside the messages (tools, a schema)."""
    texts = [
        str(message.get(name) or "") if name == "content" else _to_json(message.get(name))
        for message in messages
        for name in ("content", "tool_calls", "tool_call_id")
    ]
    return (
        sum(len(text.encode("utf-8", "replace")) for text in [*texts, _to_json(offered)])
        + MESSAGE_OVERHEAD * len(messages)
        + TEMPLATE_OVERHEAD
    )


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) if value else ""


class Budget:
    """Counts tokens and dollars of one session; limits of None are no limits."""

    def __init__(self, tokens: int | None = None, usd: float | None = None, prices: Prices | None = None) -> None:
        self.limit_tokens, self.limit_usd, self.prices = tokens, usd, prices or Prices()
        self.tokens_in = self.tokens_out = 0
        self.usd: float | None = 0.0
        self.estimated = False

    def reserve(self, messages: Sequence[Message], max_tokens: int, offered: object = None) -> None:
        """Raise `BudgetExceeded` if the call could exceed a limit; then it must not be made."""
        most_in = upper_bound(messages, offered)
        used = self.tokens_in + self.tokens_out
        if self.limit_tokens is not None and used + most_in + max_tokens > self.limit_tokens:
            raise BudgetExceeded(
                f"the next call could take {most_in + max_tokens} tokens, but {self.limit_tokens - used} of "
                f"{self.limit_tokens} are left; raise the budget, or lower max_tokens"
            )
        if self.limit_usd is not None:
            most = self.prices.cost(most_in, max_tokens)
            if most is None or self.usd is None:
                raise BudgetExceeded("a budget in money needs the model's prices; give them, or set a budget in tokens")
            if self.usd + most > self.limit_usd:
                raise BudgetExceeded(
                    f"the next call could cost {most:.4f} USD, but {self.limit_usd - self.usd:.4f} of "
                    f"{self.limit_usd:.4f} are left; raise the budget, or lower max_tokens"
                )

    def settle(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        tokens_in: int | None,
        tokens_out: int | None,
        offered: object = None,
    ) -> tuple[int, int, float | None]:
        """Count a call: (tokens in, tokens out, dollars or None). Without the server's figures upper bounds count."""
        self.estimated = self.estimated or tokens_in is None or tokens_out is None
        spent_in = upper_bound(messages, offered) if tokens_in is None else tokens_in
        spent_out = max_tokens if tokens_out is None else tokens_out
        self.tokens_in += spent_in
        self.tokens_out += spent_out
        cost = self.prices.cost(spent_in, spent_out)
        self.usd = None if cost is None or self.usd is None else self.usd + cost
        return spent_in, spent_out, cost

    def spent(self) -> Spent:
        """The spent tokens and dollars, to be stored. `restore` reads them."""
        return {
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "usd": self.usd,
            "estimated": self.estimated,
        }

    def restore(self, spent: Spent) -> None:
        """Continue from the result of `spent`."""
        self.tokens_in, self.tokens_out = spent["tokens_in"], spent["tokens_out"]
        self.usd, self.estimated = spent["usd"], spent["estimated"]

    def describe(self) -> str:
        """One line for a person, which names an unknown cost as such."""
        cost = "cost unknown" if self.usd is None or self.prices.input_usd is None else f"{self.usd:.4f} USD"
        limit = f" of {self.limit_tokens}" if self.limit_tokens is not None else ""
        estimated = ", partly estimated" if self.estimated else ""
        total = self.tokens_in + self.tokens_out
        return f"{total}{limit} tokens ({self.tokens_in} in, {self.tokens_out} out{estimated}), {cost}"
