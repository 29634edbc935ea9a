"""Candidates, proposals and calls of a language model."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from workbench.records.base import LATER, record

HUMAN = "human"


@record
class Candidate:
    """A Python file that defines `ModelNew`. `program` is the muCUTLASS text that it was generated from, if any."""

    source: str
    program: str | None = None


@record
class Proposal:
    """A candidate with the reason for it. `predicted_gain` is a modelled speed-up over the parent (1.0 = none)."""

    candidate: Candidate
    title: str
    reason: str
    by: str  # the proposer's name; HUMAN for a version that the user wrote
    parent: int | None = None  # version number
    instruction: str = ""
    predicted_gain: float | None = None
    depth: int = 0  # optimisation steps after the first version; a repair does not change it
    repairs: int | None = None  # the version whose failure this one repairs
    exchanges: tuple[int, ...] = ()  # numbers in the session's log of the model calls that led to it
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None  # None with tokens = unknown
    advice: str = field(default="", metadata=LATER)  # the probe on whose advice it was made; "" for none


@record
class Exchange:
    """One call of a language model: messages and reply verbatim, tokens, cost and time."""

    purpose: Literal["synthesis", "optimise", "diagnosis", "patch", "ask"]
    model: str
    messages: tuple[tuple[str, str], ...]  # (role, text) as sent, without tool traffic
    reply: str
    finish: str = "stop"  # why it ended: stop, length, ...
    tools: tuple[tuple[str, str, str], ...] = ()  # (name, arguments, result) of the tool calls in between
    tokens_in: int = 0
    tokens_out: int = 0
    estimated: bool = False  # tokens are upper bounds because the server stated none
    cost_usd: float | None = None  # None = unknown
    seconds: float = 0.0
    unusable: str = ""  # why the reply could not be used
