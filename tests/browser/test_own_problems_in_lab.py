"""A new user's own problems in JupyterLab: paste, card, run, accepted kernel, and a wrong one with its map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe import serious_violations
from lab import open_notebook, run_all, theme, write_notebook

FFN = """%%cutegen problem ffn --executor emulator
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up = nn.Linear(dim, hidden, dtype=torch.bfloat16)
        self.down = nn.Linear(hidden, dim, dtype=torch.bfloat16)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


def get_inputs():
    return [torch.randn(4096, 1024, dtype=torch.bfloat16)]


def get_init_inputs():
    return [1024, 4096]
"""
NORM = """%%cutegen problem norm --executor emulator
import torch
from torch import nn


class LlamaRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)


Model = LlamaRMSNorm


def get_inputs():
    return [torch.randn(2, 2048, 4096).half()]


def get_init_inputs():
    return [4096]
"""
MLP = """%%cutegen problem mlp --executor emulator
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))

    def forward(self, x):
        return self.net(x)


def get_inputs():
    return [torch.randn(8192, 784)]
"""
SOFTMAX = """%%cutegen problem softmax_middle --executor emulator
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(64, 512, 1024, dtype=torch.float16)]
"""
# what a person might get wrong at the last store
PRODUCT = ("total.to(mD.element_type)", "(total if column % 4 else total * 2.0).to(mD.element_type)")
ELEMENT = ("result[e] = compute_result(", "result[e] = 2 * compute_result(")
SUM = ("row_2_1_fragment_column).to(", "2 * row_2_1_fragment_column).to(")
OWN = {"ffn": (FFN, PRODUCT), "norm": (NORM, ELEMENT), "mlp": (MLP, PRODUCT), "softmax": (SOFTMAX, SUM)}
EDIT = """session = get_ipython().find_cell_magic("cutegen").__self__.session
before, after = session.version("v1").proposal.candidate.source.rsplit(OLD, 1)
get_ipython().run_cell_magic("cutegen", "edit a wrong store", before + NEW + after)"""


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_from_paste_to_an_accepted_kernel_and_a_refused_one(
    name: str, server: Any, browser_page: Any, artefacts: Path
) -> None:
    page, (problem, (old, new)) = browser_page, OWN[name]
    edit = EDIT.replace("OLD", repr(old)).replace("NEW", repr(new))
    path = f"own_{name}.ipynb"
    write_notebook(server.root / path, "%load_ext workbench", problem, "%cutegen generate", "%cutegen accept", edit)
    open_notebook(page, server.lab(path))
    run_all(page)
    card = page.locator(".jp-OutputArea-output .cutegen-card").first
    card.wait_for(timeout=90_000)
    refused = page.locator(".jp-OutputArea-output", has_text="not correct").last
    refused.locator("svg[aria-label='map of the wrong elements']").wait_for(timeout=100_000)
    assert "wrong result" in refused.inner_text()
    assert page.locator(".jp-OutputArea-output", has_text="CORRECT at shrunk").count()
    assert page.locator(".jp-OutputArea-output", has_text="accepted").count()
    for ground in ("Light", "Dark"):
        theme(page, f"JupyterLab {ground}")
        for part, shown in (("card", card), ("refused", refused)):
            shown.scroll_into_view_if_needed()
            shown.screenshot(path=str(artefacts / f"own-{name}-{part}-{ground.lower()}.png"))
        assert not serious_violations(page, ".jp-OutputArea-output")
