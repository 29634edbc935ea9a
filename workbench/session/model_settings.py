"""Which language model a session asks and what it has cost: kept with the session, but the key never is."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping

from workbench import search
from workbench.errors import UserError
from workbench.proposers.llm.budget import Budget, Prices
from workbench.proposers.llm.client import ChatClient
from workbench.proposers.llm.settings import Key, Settings, key_from_environment, why_no_model
from workbench.protocols import ModelAccess, Tools
from workbench.records import Spent
from workbench.session.log import SessionLog
from workbench.store import ModelValue

NUMBERS: dict[str, Callable[[str | float], int | float]] = {
    "max_tokens": int,
    "temperature": float,
    "budget_tokens": int,
    "budget_usd": float,
    "price_in": float,
    "price_out": float,
    "first_s": float,
    "silence_s": float,
    "total_s": float,
    "retries": int,
}
LANGUAGES = ("cute", "mucutlass")
NAMES = ("base_url", "model", "language", *NUMBERS)
_KEYS: dict[str, Key] = {}  # endpoint -> key given at a prompt; for this process only


class ModelSettings:
    """The model settings of one session, its client and its tools."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._client: ChatClient | None = None

    @property
    def values(self) -> dict[str, ModelValue]:
        """The settings that the session holds. No key is among them."""
        return self._log.meta.get("llm", {})

    def change(self, **values: ModelValue) -> dict[str, ModelValue]:
        """Change settings by name (NAMES); returns all. Raises `UserError` for what cannot be set."""
        if values:
            self._log.store.set_meta({"llm": {**self.values, **check_values(values)}})
            self._client = None
        return self.values

    def set_key(self, value: str) -> None:
        """Use a key for the session's endpoint until the process ends."""
        _KEYS[self.client().settings.base_url] = Key(value)
        self._client = None

    @property
    def spent(self) -> Spent | None:
        """Tokens and dollars of all calls of this session's model; None before the first."""
        return self._log.meta.get("spent")

    def keep_spent(self) -> None:
        """Store what calls have cost so far, failed and stopped ones included: a budget holds across reopening."""
        if self._client is not None:
            self._log.store.set_meta({"spent": self._client.budget.spent()})

    def client(self) -> ChatClient:
        """The client of the model; its budget counts everything that this session has spent."""
        if self._client is None:
            self._client = make_client(self.values, self.spent)
        return self._client

    def access(self) -> ModelAccess:
        """What a proposer is given. Raises `UserError` where no model is set."""
        why = None if self.values.get("base_url") or _KEYS else why_no_model()
        if why:
            raise UserError(why)
        return ModelAccess(
            client=self.client(),
            tools=Tools(specifications=tuple(search.tool_specs()), call=search.call_tool),
            templates=self._log.folder / "prompts",
            language=str(self.values.get("language") or "cute"),
        )


def check_values(values: Mapping[str, ModelValue]) -> dict[str, ModelValue]:
    """The settings with their types; raises `UserError` for an unknown name or a value that is no number."""
    made: dict[str, ModelValue] = {}
    for name, value in values.items():
        if name not in NAMES:
            raise UserError(f"no model setting is called {name!r}; there are: {', '.join(NAMES)}")
        if name == "language" and value not in LANGUAGES:
            raise UserError(f"model setting language={value!r}; legal: {', '.join(LANGUAGES)}")
        made[name] = value if name not in NUMBERS or value is None else _number(name, value)
    return made


def _number(name: str, value: str | float) -> float:
    try:
        number = NUMBERS[name](value)
    except ValueError:
        raise UserError(f"model setting {name}={value!r}: a number is needed") from None
    if number < 0:
        raise UserError(f"model setting {name}={value!r}: it cannot be negative")
    return number


def make_client(values: Mapping[str, ModelValue], spent: Spent | None) -> ChatClient:
    """A client for the settings whose budget already counts `spent`. Without a setting the environment decides."""
    default = Settings()
    base = str(values.get("base_url") or os.environ.get("OPENAI_BASE_URL") or default.base_url)
    name = str(values.get("model") or os.environ.get("CUTEGEN_MODEL") or default.model)
    fields = {field.name for field in dataclasses.fields(Settings)}
    chosen = {key: value for key, value in values.items() if key in fields and value is not None}
    chosen |= {"base_url": base, "model": name}
    settings = Settings(**chosen)  # type: ignore[arg-type]  # `checked` has checked them
    prices = Prices(input_usd=_amount(values, "price_in"), output_usd=_amount(values, "price_out"))
    tokens = _amount(values, "budget_tokens")
    budget = Budget(None if tokens is None else int(tokens), _amount(values, "budget_usd"), prices)
    if spent:
        budget.restore(spent)
    return ChatClient(settings, _KEYS.get(base) or key_from_environment(), budget)


def _amount(values: Mapping[str, ModelValue], name: str) -> float | None:
    value = values.get(name)
    return None if value is None else float(value)
