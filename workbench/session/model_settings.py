"""The settings and the cost of a session's language model. They are stored with the session; the key never is."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping

from workbench import search, trust
from workbench.errors import UserError
from workbench.proposers.llm.budget import Budget, Prices
from workbench.proposers.llm.client import ChatClient
from workbench.proposers.llm.prompts import own_files
from workbench.proposers.llm.settings import KEY_NAMES, Key, Settings, key_from_environment, why_no_model
from workbench.protocols import ModelAccess, Tools
from workbench.records import Event, Spent
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
CHOICES = {
    "language": ("cute", "mucutlass"),
    "feedback": ("directives", "tools", "raw", "none"),
    "rules": ("on", "off"),
}
NAMES = ("base_url", "model", *CHOICES, *NUMBERS)
_KEYS: dict[str, Key] = {}  # endpoint -> key that the user typed; only for this process


class ModelSettings:
    """The model settings of one session, its client and its tools."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._client: ChatClient | None = None
        self._prompts_noted = False

    @property
    def values(self) -> dict[str, ModelValue]:
        """The stored settings, without a key."""
        return self._log.meta.get("llm", {})

    def change(self, **values: ModelValue) -> dict[str, ModelValue]:
        """Change settings by name (NAMES). Returns all. Raises `UserError` for an unknown name or a wrong value."""
        if values:
            checked = check_values(values)
            trust.trust_address(str(checked.get("base_url") or ""))
            self._log.store.set_meta({"llm": {**self.values, **checked}})
            self._client = None
        return self.values

    @property
    def feedback(self) -> str:
        """What a model is shown of the profile: directives, tools, raw or none."""
        return str(self.values.get("feedback") or CHOICES["feedback"][0])

    @property
    def shows_rules(self) -> bool:
        """Whether a model is shown rules on recorded times."""
        return str(self.values.get("rules") or CHOICES["rules"][0]) == "on"

    def why_not(self) -> str | None:
        """None if a model is set, else a sentence that says what to set."""
        return None if self.values.get("base_url") or _KEYS else why_no_model()

    def set_key(self, value: str) -> None:
        """Use a key for the session's endpoint until the process ends."""
        _KEYS[self.client().settings.base_url] = Key(value)
        self._client = None

    @property
    def spent(self) -> Spent | None:
        """Tokens and dollars of all calls of this session's model; None before the first."""
        return self._log.meta.get("spent")

    def store_spent(self) -> None:
        """Store the cost of all calls so far, also of failed and stopped ones, so that a budget survives reopening."""
        if self._client is not None:
            self._log.store.set_meta({"spent": self._client.budget.spent()})

    def client(self) -> ChatClient:
        """The client of the model. Its budget includes everything that this session has spent."""
        if self._client is None:
            self._client = make_client(self.values, self.spent)
        return self._client

    def access(self) -> ModelAccess:
        """The model, tools and prompt settings for a proposer.

        Raises `UserError` if no model is set, or if its address is only in the log and a key would be sent there.
        """
        if why := self.why_not() or why_no_key(self.values):
            raise UserError(why)
        self._note_prompts()
        return ModelAccess(
            client=self.client(),
            tools=Tools(specifications=tuple(search.tool_specs()), call=search.call_tool),
            templates=self._log.folder / "prompts",
            language=str(self.values.get("language") or "cute"),
        )

    def _note_prompts(self) -> None:
        """Say once in the log whose prompts are used, if the session's folder has some."""
        folder = self._log.folder / "prompts"
        if (found := own_files(folder)) and not self._prompts_noted:
            self._prompts_noted = True
            message = f"prompts of the session's own folder {folder} are used: {', '.join(found)}"
            self._log.add_event(Event(kind="note", message=message))


def why_no_key(values: Mapping[str, ModelValue]) -> str | None:
    """Why the environment's key is not sent to the address in a session's log; None if it is, or if there is none.

    The key goes to an address that the user named here (`trust.trust_address`), to that in the environment, and to the
    default one.
    """
    address = str(values.get("base_url") or "")
    if not address or address in _KEYS or _may_have_key(address) or key_from_environment() is None:
        return None
    return (
        f"{' or '.join(KEY_NAMES)} is not sent to {address}: that address is from the session's log and was not named "
        f"here; if you want it, name it: %cutegen model --base-url {address} (cutegen run: --base-url {address})"
    )


def _may_have_key(address: str) -> bool:
    return address in (os.environ.get("OPENAI_BASE_URL"), Settings().base_url) or trust.is_address_trusted(address)


def check_values(values: Mapping[str, ModelValue]) -> dict[str, ModelValue]:
    """The settings, converted to their types. Raises `UserError` for an unknown name or a wrong value."""
    made: dict[str, ModelValue] = {}
    for name, value in values.items():
        if name not in NAMES:
            raise UserError(f"no model setting is called {name!r}; there are: {', '.join(NAMES)}")
        if name in CHOICES and value not in CHOICES[name]:
            raise UserError(f"model setting {name}={value!r}; legal: {', '.join(CHOICES[name])}")
        made[name] = value if name not in NUMBERS or value is None else _parse_number(name, value)
    return made


def _parse_number(name: str, value: str | float) -> float:
    try:
        number = NUMBERS[name](value)
    except ValueError:
        raise UserError(f"model setting {name}={value!r}: a number is needed") from None
    if number < 0:
        raise UserError(f"model setting {name}={value!r}: it cannot be negative")
    return number


def make_client(values: Mapping[str, ModelValue], spent: Spent | None) -> ChatClient:
    """A client whose budget includes `spent`. Endpoint and model default to the environment variables."""
    default = Settings()
    base = str(values.get("base_url") or os.environ.get("OPENAI_BASE_URL") or default.base_url)
    name = str(values.get("model") or os.environ.get("CUTEGEN_MODEL") or default.model)
    fields = {field.name for field in dataclasses.fields(Settings)}
    chosen = {key: value for key, value in values.items() if key in fields and value is not None}
    chosen |= {"base_url": base, "model": name}
    settings = Settings(**chosen)  # type: ignore[arg-type]  # `check_values` has checked them
    prices = Prices(input_usd=_float_or_none(values, "price_in"), output_usd=_float_or_none(values, "price_out"))
    tokens = _float_or_none(values, "budget_tokens")
    budget = Budget(None if tokens is None else int(tokens), _float_or_none(values, "budget_usd"), prices)
    if spent:
        budget.restore(spent)
    key = _KEYS.get(base) or (key_from_environment() if _may_have_key(base) else None)
    return ChatClient(settings, key, budget)


def _float_or_none(values: Mapping[str, ModelValue], name: str) -> float | None:
    value = values.get(name)
    return None if value is None else float(value)
