"""Which language model a session asks: its settings are kept with the session, the key never is."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from workbench.errors import UserError

NUMBERS = {"max_tokens": int, "temperature": float, "budget_tokens": int, "budget_usd": float, "price_in": float, "price_out": float, "first_s": float, "silence_s": float, "total_s": float, "retries": int}
LANGUAGES = ("cute", "mucutlass")
NAMES = ("base_url", "model", "language", *NUMBERS)
_KEYS: dict[str, Any] = {}  # endpoint -> key given at a prompt; for this process only


def checked(values: dict[str, Any]) -> dict[str, Any]:
    """The settings with their types; raises `UserError` for an unknown name or a value that is no number."""
    made = {}
    for name, value in values.items():
        if name not in NAMES:
            raise UserError(f"no model setting is called {name!r}; there are: {', '.join(NAMES)}")
        if name == "language" and value not in LANGUAGES:
            raise UserError(f"model setting language={value!r}; legal: {', '.join(LANGUAGES)}")
        try:
            made[name] = NUMBERS[name](value) if name in NUMBERS and value is not None else value
        except ValueError:
            raise UserError(f"model setting {name}={value!r}: a number is needed") from None
        if name in NUMBERS and made[name] is not None and made[name] < 0:
            raise UserError(f"model setting {name}={value!r}: it cannot be negative")
    return made


def keep_key(base_url: str, value: str) -> None:
    """Use this key for an endpoint until the process ends."""
    from workbench.proposers.llm.client import Key

    _KEYS[base_url] = Key(value)


def is_set(values: dict[str, Any]) -> bool:
    """Whether the session knows an address, or a key was given at a prompt."""
    return bool(values.get("base_url") or _KEYS)


def client(values: dict[str, Any], spent: dict[str, Any]) -> Any:
    """A `ChatClient` for the settings, whose budget already counts what this session has spent (`Budget.kept`)."""
    from workbench.proposers.llm.budget import Budget, Prices
    from workbench.proposers.llm.client import ChatClient, Settings, key_from_environment

    base = values.get("base_url") or os.environ.get("OPENAI_BASE_URL") or Settings().base_url
    chosen = {field.name: values[field.name] for field in dataclasses.fields(Settings) if values.get(field.name) is not None}
    settings = Settings(**{**chosen, "base_url": base, "model": values.get("model") or os.environ.get("CUTEGEN_MODEL") or Settings().model})
    budget = Budget(values.get("budget_tokens"), values.get("budget_usd"), Prices(input_usd=values.get("price_in"), output_usd=values.get("price_out")))
    if spent:
        budget.restore(spent)
    return ChatClient(settings, _KEYS.get(base) or key_from_environment(), budget)
