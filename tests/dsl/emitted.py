"""Programs run on an emulated Hopper, and what the planner makes of a body of forward."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import torch

from workbench.dsl import Binding, compile_program
from workbench.emulator import emulated
from workbench.problems.inspection import inspect
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.records import Problem

INIT = "def __init__(self):\n    super().__init__()\n"
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
COUNT = itertools.count()


def run_on(folder: Path, text: str, arguments: tuple[torch.Tensor, ...], names: tuple[str, ...], arch: str = "sm_90a") -> torch.Tensor:
    """The result of a program; a finding of the emulator fails the test."""
    path = folder / f"candidate{next(COUNT)}.py"
    path.write_text(compile_program(text, Binding(init_source=INIT, forward_arguments=names)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with emulated(arch=arch, device="H200" if arch == "sm_90a" else "A100", source_file=str(path)) as emulation:
        result: torch.Tensor = module.ModelNew()(*arguments)
    assert not [item for item in emulation.findings if item.severity == "error"]
    return result


def found(body: str, *, full: str = "", init: str = "", facts: bool = False, **inputs: str) -> Any:
    """What is recognised of `return body`, or None; an input is a shape, or an expression that has a parenthesis. With `facts`, both."""
    made = ", ".join(shape if "(" in shape else f"torch.randn({shape})" for shape in inputs.values())
    known = inspect(Problem(name="it", source=PROBLEM.format(full=full, init=init, names=", ".join(inputs), body=body, inputs=made)))
    try:
        computation = recognise(known)
    except Unrecognised:
        computation = None
    return (computation, known) if facts else computation
