"""Runs a problem's text without torch.compile. Used in workers only: it imports torch."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def without_compile() -> Iterator[None]:
    """Inside, `torch.compile` and `Module.compile` leave what they are given as it is: the reference is torch eager,
    and torch.compile is measured beside it.
    """
    before = torch.compile, torch.nn.Module.compile
    torch.compile = lambda model=None, **_: model if model is not None else lambda function: function
    torch.nn.Module.compile = lambda self, *_, **__: None
    try:
        yield
    finally:
        torch.compile, torch.nn.Module.compile = before


def note_compile(source: str) -> tuple[str, ...]:
    """What to say of a text that calls torch.compile."""
    if not re.search(r"\btorch\.compile\b|^from torch import .*\bcompile\b", source, re.MULTILINE):
        return ()
    return (
        "torch.compile in the file is left out: the reference is torch eager, and torch.compile is timed beside it",
    )
