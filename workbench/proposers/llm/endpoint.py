"""One endpoint: its connection through the `openai` package (imported on first use), and its failures.

A failure becomes seconds to wait before the next attempt, or an `LlmError` that says what happened and what to do.
"""

from __future__ import annotations

import contextlib
import email.utils
import random
import re
import socket
import time
from typing import TYPE_CHECKING

from workbench.errors import LlmError
from workbench.proposers.llm.request import Dropped, http_hooks
from workbench.proposers.llm.settings import Key, Settings, check_address

if TYPE_CHECKING:
    import openai

RETRIED = (408, 409, 429, 500, 502, 503, 504)
TOO_LONG = re.compile(
    r"context (length|window|size)|context_length|too long|too large|maximum (context|number of tokens)|n_ctx"
)
NOT_THE_PROTOCOL = (ValueError, TypeError, AttributeError, LookupError)  # the package's errors for invalid replies


class Endpoint:
    """The address of a model. Raises `LlmError` if it is invalid."""

    def __init__(self, settings: Settings, key: Key | None) -> None:
        self.settings, self.key = settings, key
        self.address = check_address(settings.base_url)
        self._client: openai.OpenAI | None = None

    def client(self) -> openai.OpenAI:
        """The package's client. Each call has its own connection, so that cancelling one call ends no other."""
        if self._client is None:
            import openai

            key = self.key.reveal() if self.key else ""
            if not (key.isascii() and key.isprintable()):
                raise LlmError(
                    "the key has characters that no key has (accents, line breaks); "
                    "copy it again and give it with %cutegen model --ask-key"
                )
            longest_s = max(self.settings.first_s, self.settings.silence_s) + 5.0
            timeout = openai.Timeout(longest_s, connect=self.settings.connect_s)
            self._client = openai.OpenAI(
                base_url=self.settings.base_url,
                api_key=key or "none",  # a server of one's own needs no key, but the package insists on one
                timeout=timeout,
                max_retries=0,
                http_client=openai.DefaultHttpxClient(timeout=timeout, event_hooks=http_hooks()),
                default_headers={"Connection": "close"},
            )
        return self._client

    def clean(self, text: str) -> str:
        """The text as one short line without the key."""
        key = self.key.reveal() if self.key else ""
        line = " ".join(text.split())
        hides = len(key) >= 8  # shorter ones, as servers at home take, are words
        return (line.replace(key, "***") if hides else line)[:300]

    def wait_s(self, error: Exception, *, attempt: int, drops: int, elapsed_s: float) -> float:
        """Seconds to wait before the next attempt. Raises `LlmError` if there is to be none.

        After a reply that broke off (`drops` counts these) there is only one more attempt.
        """
        import openai

        if isinstance(error, LlmError):
            raise error
        module = type(error).__module__
        dropped = isinstance(error, (Dropped, openai.APIConnectionError)) or module.startswith(("httpx", "httpcore"))
        hopeless = (
            isinstance(error, openai.APITimeoutError)
            or _is_refused(error)
            or getattr(error, "code", None) == "insufficient_quota"
            or drops > 1
        )
        retried = dropped or http_status(error) in RETRIED
        if not retried or hopeless or attempt >= self.settings.retries:
            raise LlmError(self.explain(error, attempt)) from None
        asked = _retry_after_s(error)
        if asked is None:
            return float(min(0.5 * 2**attempt, 20.0) * random.uniform(0.8, 1.2))
        if elapsed_s + asked > self.settings.total_s:
            raise LlmError(f"{self.address} asks to wait {asked:g} s before the next call; try later") from None
        return asked

    def explain(self, error: Exception, attempt: int) -> str:
        """A failed call in one line: what, where and what to do."""
        tries = f" after {attempt + 1} tries" if attempt else ""
        detail, status = self.clean(_detail(error)), http_status(error)
        if status is not None:
            return self._explain_status(error, status, detail, tries)
        return self._explain_connection(error, detail, tries)

    def _explain_status(self, error: Exception, status: int, detail: str, tries: str) -> str:
        place = self.address
        if status in (401, 403):
            what, other = ("refuses the key", "another") if self.key else ("asks for a key", "it")
            return f"{place} {what} ({status}); set OPENAI_API_KEY, or give {other} with %cutegen model --ask-key"
        if status in (400, 413, 422, 500) and TOO_LONG.search(detail.lower()):
            return (
                f"the prompt and {self.settings.max_tokens} tokens of reply do not fit the model at {place} "
                f"({status}): {detail}; lower max_tokens (%cutegen model --max-tokens), "
                "or use a model with a larger context"
            )
        if status == 404:
            return (
                f"{place} knows no model {self.settings.model!r}, or the address is wrong (404); check %cutegen model"
            )
        if status == 429:
            no_quota = getattr(error, "code", None) == "insufficient_quota"
            what = "has no quota left for this key" if no_quota else "limits the rate"
            return f"{place} {what}{tries} (429): {detail}; wait, or use another model"
        if status >= 500:
            return f"{place} failed{tries} ({status}): {detail}; try later, or use another endpoint"
        return f"{place} refuses the request ({status}): {detail}; check %cutegen model"

    def _explain_connection(self, error: Exception, detail: str, tries: str) -> str:
        import openai

        place = self.address
        if isinstance(error, openai.APITimeoutError):
            limit = self.settings.connect_s
            return f"{place} cannot be reached within {limit:g} s; check the address and the network"
        if _is_refused(error):
            return f"nothing answers at {place}; start the server, or set the address with %cutegen model --base-url"
        if isinstance(error, NOT_THE_PROTOCOL):
            return f"{place} sent what is not the OpenAI protocol ({detail}); use another server, or try again"
        if isinstance(error, openai.APIError) and not isinstance(error, openai.APIConnectionError):
            return f"{place} reports an error in its reply: {detail}; try again, or look at the server's log"
        return f"the connection to {place} was lost{tries}: {detail}; try again"


def http_status(error: BaseException) -> int | None:
    """The HTTP status of a failure; None if it has none."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _is_refused(error: BaseException | None) -> bool:
    """Whether the connection was refused, or the name is unknown: a retry does not help."""
    while error is not None:
        text = str(error).lower()
        if isinstance(error, (ConnectionRefusedError, socket.gaierror)):
            return True
        if "refused" in text or "name or service not known" in text:
            return True
        error = error.__cause__ or error.__context__
    return False


def _detail(error: Exception) -> str:
    """The server's own message, without the text that the package adds."""
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else body
    return message if isinstance(message, str) and message else str(getattr(error, "message", "") or error)


def _retry_after_s(error: Exception) -> float | None:
    """Seconds that the server asks to wait: a number, or a date."""
    text = getattr(getattr(error, "response", None), "headers", {}).get("retry-after", "")
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        if re.fullmatch(r"\s*[\d.]+\s*", text):
            return max(float(text), 0.0)
        return max(email.utils.parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    return None
