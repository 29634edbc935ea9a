"""Address, options and key of a language model. Addresses are checked, and the key is never shown."""

from __future__ import annotations

import os
from typing import NoReturn
from urllib.parse import urlsplit

from workbench.errors import LlmError
from workbench.records import record

KEY_NAMES = ("OPENAI_API_KEY",)


class Key:
    """A secret that repr, format, pickle and copy do not reveal."""

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
    """Address and options of a model. Times are in seconds, chosen for a person who waits."""

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


def check_address(base_url: str) -> str:
    """The address for messages, as given.

    Raises `LlmError` for one that cannot be used, or that holds a password (settings are kept and shown).
    """
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise LlmError(
            f"{base_url.rpartition('@')[2]!r} is no address of a model; give one such as http://localhost:8000/v1 "
            "with %cutegen model --base-url"
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        raise LlmError(
            f"the address {shown} was given with a password or a query, and addresses are kept and shown; "
            "give it without, and the key with %cutegen model --ask-key"
        )
    return base_url


def key_from_environment() -> Key | None:
    """The key that the environment holds, if any."""
    return next((Key(os.environ[name]) for name in KEY_NAMES if os.environ.get(name)), None)


def why_no_model() -> str | None:
    """None if the environment names an endpoint or holds a key, else a sentence that says what to set."""
    if key_from_environment() is None and not os.environ.get("OPENAI_BASE_URL"):
        return (
            "no model is set: %cutegen model --base-url ADDRESS --model NAME, or set OPENAI_BASE_URL or OPENAI_API_KEY"
        )
    return None
