"""Modules that torch itself wraps or cannot trace: compiled ones, weights with a norm, one_hot."""

from __future__ import annotations

import re

import pytest

from workbench import problems
from workbench.errors import ProblemError
from workbench.problems import inspection
from workbench.proposers.recognition import mutations
from workbench.records import Facts

COMPILED = """import torch
import torch.nn as nn


@torch.compile(dynamic=True)
def scaled(x):
    return x * 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.compile(nn.RMSNorm(256))

    def forward(self, x):
        return scaled(self.norm(x))


def get_inputs():
    return [torch.randn(64, 256)]
"""
WEIGHT_NORM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.utils.weight_norm(nn.Conv1d(8, 16, 3, padding=1))

    def forward(self, x):
        return torch.relu(self.conv(x))


def get_inputs():
    return [torch.randn(2, 8, 200)]
"""
ONE_HOT = """import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, logits, labels):
        return (logits * F.one_hot(labels, num_classes=10)).sum(-1)


def get_inputs():
    return [torch.randn(300, 10), torch.randint(0, 10, (300,))]
"""


def opened(text: str) -> Facts:
    return inspection.inspect(problems.load(text))


def test_torch_compile_is_left_out_and_said() -> None:
    facts = opened(COMPILED)
    assert {op.target.split(".")[1] for op in facts.graph if "." in op.target} >= {"mul", "rsqrt"}
    assert any("torch.compile" in note for note in facts.notes)


@pytest.mark.parametrize("text", [WEIGHT_NORM, ONE_HOT])
def test_what_torch_cannot_copy_or_trace_opens_with_sizes_that_vary(text: str) -> None:
    facts = opened(text)
    assert facts.graph and any(size.varied and size.value >= 200 for size in facts.sizes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ONE_HOT + "\n\nModel = torch.nn.Sequential(torch.nn.ReLU())\n", "an instance of Sequential, not a class"),
        (ONE_HOT.replace("return [torch", "yield [torch"), "get_inputs() yields"),
    ],
)
def test_a_model_or_inputs_of_another_kind_are_named(text: str, said: str) -> None:
    with pytest.raises(ProblemError, match=re.escape(said)):
        opened(text)


def test_a_shift_of_a_buffer_does_not_write_to_it() -> None:
    text = """import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("q", torch.randint(0, 256, (128, 64), dtype=torch.uint8))

    def forward(self, x):
        return x @ (self.q >> 4).float()


def get_inputs():
    return [torch.randn(64, 128)]
"""
    assert mutations.why_not(opened(text)) is None
