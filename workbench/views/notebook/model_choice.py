"""The panel's choice of a language model: address, name, and the name of the variable that holds the key.

The key itself is read here, from the kernel's environment. It is never sent to the browser, shown or stored.
"""

from __future__ import annotations

import functools
import os
import re
from typing import TypedDict

from workbench import plugins
from workbench.errors import UserError
from workbench.plugins import DEFAULTS
from workbench.proposers.llm.settings import Settings, check_address
from workbench.session import Session
from workbench.views.notebook.messages import Message

KNOWN = (Settings().base_url, "http://localhost:8000/v1")  # addresses that the form proposes; others can be typed
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*(KEY|TOKEN)")  # names of secrets; a key that was typed by mistake is none


class ModelView(TypedDict):
    """The model of a session. `key` says whether there is one, and is never the key. `known` are addresses to choose
    from.
    """

    name: str
    address: str
    key: str
    known: tuple[str, ...]


@functools.lru_cache(maxsize=32)
def needs_model(proposer: str) -> bool:
    """Whether a proposer needs a language model; False for an unknown name."""
    return proposer in plugins.names("proposer") and plugins.load("proposer", proposer, check=False).needs_model


def say_unread(message: Message, by: str, note: str) -> str:
    """What a proposer that is no model noted of the words of "refine" that it was given; "" if it read them."""
    is_given = message.get("command") == "refine" and message.get("text")
    return f"{note}; " if note and is_given and not needs_model(by) else ""


def model_view(session: Session) -> ModelView:
    """What the panel shows of the session's model; empty texts without one."""
    if not session.has_model:
        return {"name": "", "address": "", "key": "", "known": KNOWN}
    client = session.client()
    key = "key set" if client.key is not None else "no key"
    return {"name": client.model_name, "address": client.endpoint.address, "key": key, "known": KNOWN}


def choose_proposer(session: Session, name: str, message: Message) -> tuple[str, tuple[str, dict[str, object]]]:
    """The line to show, and the proposer with its options, for the command "model" or "planner"."""
    if name == "planner":
        return "the planner makes the proposals now", (DEFAULTS.proposer, {})
    return set_model(session, message), (DEFAULTS.model_proposer, {})


def set_model(session: Session, message: Message) -> str:
    """Set the model that a message names. Returns the line to show.

    Raises `UserError` for a message without address or name, and for a variable that is none or is not set. An error
    does not repeat what stands in the field of the variable, and nothing is changed.
    """
    address, name, variable = (str(message.get(part) or "").strip() for part in ("address", "name", "variable"))
    if not address or not name:
        raise UserError("a model needs an address, such as http://localhost:8000/v1, and a name")
    if variable and not VARIABLE.fullmatch(variable):
        raise UserError(
            "the key's field takes the name of an environment variable that ends in KEY or TOKEN, such as "
            "OPENAI_API_KEY, and never the key itself"
        )
    key = os.environ.get(variable, "").strip()
    if variable and not key:
        raise UserError(f"{variable} is not set where the kernel runs; set it before JupyterLab starts")
    check_address(address)
    session.model(base_url=address, model=name)
    if key:
        session.set_key(key)
    return (
        f"{name} at {address} makes the proposals now; {f'its key is from {variable}' if key else 'no key was named'}"
    )
