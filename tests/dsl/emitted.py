"""Helpers: run programs on an emulated Hopper GPU, and recognise the body of a forward."""

from __future__ import annotations

from typing import Any

import torch
from running import launched

from workbench.problems.inspection import inspect
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.records import Problem

PROBLEM = """
import math
import torch
import torch.nn as nn
{full}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{init}
    def forward(self, {names}):
        return {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def run_on(
    text: str, arguments: tuple[torch.Tensor, ...], names: tuple[str, ...], arch: str = "sm_90a"
) -> torch.Tensor:
    """Return the result of a program; an error found by the emulator fails the test."""
    result, emulation = launched(text, arguments, names, arch=arch)
    assert not [item for item in emulation.findings if item.severity == "error"]
    return result


def found(body: str, *, full: str = "", init: str = "", facts: bool = False, **inputs: str) -> Any:
    """Return what the planner recognises in `return body`, or None; with `facts` also the problem's facts.

    An input is a shape, or an expression if it contains a parenthesis.
    """
    made = ", ".join(shape if "(" in shape else f"torch.randn({shape})" for shape in inputs.values())
    known = inspect(
        Problem(name="it", source=PROBLEM.format(full=full, init=init, names=", ".join(inputs), body=body, inputs=made))
    )
    try:
        computation = recognise(known)
    except Unrecognised:
        computation = None
    return (computation, known) if facts else computation
