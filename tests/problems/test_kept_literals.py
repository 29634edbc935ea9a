"""One number of `Model.__init__` that has to stay does not keep the others, and the reason why it stays is said."""

from __future__ import annotations

from workbench import problems
from workbench.problems import inspection
from workbench.problems.inputs.init_arguments import fit_candidate
from workbench.records import Facts, Opened

LORA = """import torch
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, in_features, out_features, r=16, lora_alpha=32):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features) * 0.02)
        self.lora_A = nn.Parameter(torch.randn(r, in_features))
        self.lora_B = nn.Parameter(torch.zeros(out_features, r))
        self.scaling = lora_alpha / r

    def forward(self, x):
        return x @ self.weight.T + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = LoRALinear(512, 384)

    def forward(self, x):
        return self.proj(x)


def get_inputs():
    return [torch.randn(64, 512)]
"""
GROUPS = """import torch
from torch import nn


def normalise(channels):
    return nn.GroupNorm(32, channels)


class Block(nn.Module):
    def __init__(self, channels, out_channels):
        super().__init__()
        self.norm = normalise(channels)
        self.conv = nn.Conv2d(channels, out_channels, 1)

    def forward(self, x):
        return self.conv(torch.relu(self.norm(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block(128, 256)

    def forward(self, x):
        return self.block(x)


def get_inputs():
    return [torch.randn(4, 128, 16, 16)]
"""
CONFIG = """import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    bias: bool = False
    heads: int = 6
    width: int = 384


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width, bias=config.bias)
        self.down = nn.Linear(4 * config.width, config.width, bias=config.bias)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        config = Config()
        self.mlp = MLP(config)
        self.heads = config.heads

    def forward(self, x):
        return x + self.mlp(x)


def get_inputs():
    return [torch.randn(64, 384)]
"""


def open_text(text: str) -> Opened:
    return inspection.open_problem(problems.load(text))


def why(facts: Facts, name: str) -> str:
    return next(size.why for size in facts.sizes if name in (size.name, *size.tied))


def varied(facts: Facts) -> set[str]:
    return {name for size in facts.sizes if size.varied for name in (size.name, *size.tied)}


def test_a_number_with_which_forward_calculates_keeps_no_other() -> None:
    facts = open_text(LORA).facts
    assert {"x_0", "x_1", "proj_n0", "proj_n1"} <= varied(facts)
    assert why(facts, "r") == "r stays 16: forward calculates with a number made of it"


def test_channels_in_groups_vary_by_whole_groups() -> None:
    facts = open_text(GROUPS).facts
    assert {"x_1", "block_n0", "block_n1"} <= varied(facts)
    assert {facts.size_values(case.name)["x_1"] % 32 for case in facts.cases} == {0}


def test_defaults_of_a_dataclass_that_init_makes_are_sizes() -> None:
    opened = open_text(CONFIG)
    assert {"x_1", "width"} <= varied(opened.facts)
    candidate = CONFIG.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
    assert "Config(width=width)" in fit_candidate(candidate, opened.problem)
    assert not {"bias", "heads"} & varied(opened.facts)


def test_the_reason_is_that_of_the_number_itself() -> None:
    scaled = CONFIG.replace("return x + self.mlp(x)", "return x + self.mlp(x) / math.sqrt(x.shape[-1] // self.heads)")
    facts = open_text(scaled).facts
    said = "x_1 stays 384: forward calculates with a number made of it"
    assert why(facts, "x_1") == said and said in facts.notes
    assert not any("does not run with half" in note for note in facts.notes)
