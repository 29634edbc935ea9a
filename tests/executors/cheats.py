"""Cheats and hostile candidates as short texts (tests/corpus/cheats.toml), and how each must end.

Each is its own kind. Together with the files of tests/corpus they are the corpus. The expected end is the kind of a
failure, or "refused" or "doubt" for a result that is right. `tests/bench/cheats_on_gpu.py` runs those of GPU on one.
tests/corpus/kinds.toml says which kind each is. `python tests/executors/cheats.py` counts them.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from workbench.records import record

CORPUS = Path(__file__).parent.parent / "corpus"
GOOD = (CORPUS / "good_relu.py").read_text()
FAST, EXACT = (
    "        y[i] = cute.arch.fmax(x[i], cutlass.Float32(0.0))\n",
    """        v = x[i]
        if v < cutlass.Float32(0.0):
            v = cutlass.Float32(0.0)
        y[i] = v
""",
)  # the one drops NaN, which is a doubt
assert FAST in GOOD
PROLOGUE = (
    GOOD.split("class ModelNew")[0].split("\n", 1)[1].replace(FAST, EXACT)
    + """
import os, sys, time, gc, ctypes, threading, signal, socket, resource, json, pathlib


def kernel(x):
    y = torch.empty_like(x)
    relu(tensor(x), tensor(y), x.numel())
    return y
"""
)


@record
class Cheat:
    """A candidate that must not be accepted without a doubt."""

    name: str
    ends: tuple[str, ...]  # kinds of failures, "refused" or "doubt": any of them is right
    forward: str  # the body, with the input `x`
    before: str = ""
    problem: str = "relu"
    own: bool = False  # an idea of this project

    @property
    def source(self) -> str:
        """The candidate's text."""
        body = "".join(f"        {line}\n" for line in self.forward.splitlines())
        return f"{PROLOGUE}\n{self.before}\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n{body}"


CONSTANT = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return {}
def get_inputs():
    return [torch.randn(31, 63)]
"""
PROBLEMS = {
    "zeros": CONSTANT.format("x * 0"),
    "identity": CONSTANT.format("x * 1"),
    "matmul": CONSTANT.format("x @ x.T"),
    "magnitude": CONSTANT.format("x.abs()"),
    "softmax": CONSTANT.format("x.softmax(1)"),
    "linear": CONSTANT.format("self.linear(x)").replace(
        "    def forward",
        "    def __init__(self):\n        super().__init__()\n"
        "        self.linear = nn.Linear(63, 8, bias=False)\n    def forward",
        1,
    ),
}
CHEATS = tuple(
    Cheat(**(entry | {"ends": tuple(entry["ends"])}))
    for entry in tomllib.loads((CORPUS / "cheats.toml").read_text())["cheat"]
)
KINDS = tomllib.loads((CORPUS / "kinds.toml").read_text())
FILES = tuple(path.stem for path in sorted(CORPUS.glob("*.py")) if path.stem != "good_relu")


def count_cases() -> dict[str, int]:
    """How many candidates the corpus has, without plain mistakes: cheats, those of this project's own, honest ones."""
    right = [*(CORPUS / "honest").glob("*.py"), *(CORPUS / "originals").glob("*.py")]
    cheats = {*FILES, *(one.name for one in CHEATS)} - set(KINDS["mistakes"]["cases"])
    return {"cheats": len(cheats), "own": sum(one.own for one in CHEATS), "honest": len(right)}


if __name__ == "__main__":
    print(count_cases())
