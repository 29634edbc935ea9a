"""torch's own attention modules: programs with attention in one kernel, and kernels that are right at every case."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import Session, problems
from workbench.problems import inspection
from workbench.proposers.recognition import recognise

FILE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.layer = nn.{layer}

    def forward(self, {arguments}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
FIRST = "MultiheadAttention(width, heads, batch_first=True)"
X, MEMORY = "torch.randn(4, 48, 64)", "torch.randn(4, 80, 64)"
ENCODER = "TransformerEncoderLayer(width, heads, 96, dropout=0.0"
CASES = {
    # the layer, what forward takes, what it returns, the inputs, the products, rows and attentions of the program
    "itself": (FIRST, "x", "self.layer(x, x, x)[0]", X, ["gemm", "attention", "gemm"]),
    "without weights": (FIRST, "x", "self.layer(x, x, x, need_weights=False)[0]", X, ["gemm", "attention", "gemm"]),
    "the sequence first": (
        "MultiheadAttention(width, heads)",
        "x",
        "self.layer(x, x, x)[0]",
        "torch.randn(48, 4, 64)",
        ["gemm", "attention", "gemm"],
    ),
    "memory": (
        FIRST,
        "x, memory",
        "self.layer(x, memory, memory)[0]",
        f"{X}, {MEMORY}",
        ["gemm", "gemm", "gemm", "attention", "gemm"],
    ),
    "memory without bias, the sequence first": (
        "MultiheadAttention(width, heads, bias=False)",
        "x, memory",
        "self.layer(x, memory, memory, need_weights=False)[0]",
        "torch.randn(48, 4, 64), torch.randn(80, 4, 64)",
        ["gemm", "gemm", "gemm", "attention", "gemm"],
    ),
    "other keys and values": (
        "MultiheadAttention(width, heads, kdim=32, vdim=96, batch_first=True)",
        "x, k, v",
        "self.layer(x, k, v)[0]",
        f"{X}, torch.randn(4, 80, 32), torch.randn(4, 80, 96)",
        ["gemm", "gemm", "gemm", "attention", "gemm"],
    ),
    "padding": (
        FIRST,
        "x, padding",
        "self.layer(x, x, x, key_padding_mask=padding, need_weights=False)[0]",
        f"{X}, torch.rand(4, 48) > 0.7",
        ["gemm", "attention", "gemm"],
    ),
    "a mask": (
        FIRST,
        "x, mask",
        "self.layer(x, x, x, attn_mask=mask, need_weights=False)[0]",
        f"{X}, torch.randn(48, 48)",
        ["gemm", "attention", "gemm"],
    ),
    "an encoder's layer": (
        f"{ENCODER}, batch_first=True)",
        "x",
        "self.layer(x)",
        X,
        ["gemm", "attention", "gemm", "layernorm", "gemm", "gemm", "layernorm"],
    ),
    "norms first": (
        f"{ENCODER}, batch_first=True, norm_first=True, activation='gelu')",
        "x",
        "self.layer(x)",
        X,
        ["layernorm", "gemm", "attention", "gemm", "layernorm", "gemm", "gemm"],
    ),
    "a decoder's layer": (
        "TransformerDecoderLayer(width, heads, 96, dropout=0.0, batch_first=True)",
        "x, memory",
        "self.layer(x, memory)",
        f"{X}, {MEMORY}",
        [
            *("gemm", "attention", "gemm", "layernorm"),
            *("gemm", "gemm", "gemm", "attention", "gemm", "layernorm"),
            *("gemm", "gemm", "layernorm"),
        ],
    ),
}
MAIN = ("gemm", "attention", "layernorm")


def text_of(name: str) -> str:
    layer, arguments, forward, inputs, _ = CASES[name]
    return FILE.format(layer=layer, arguments=arguments, forward=forward, inputs=inputs)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", CASES)
def test_attention_is_one_kernel(name: str) -> None:
    found = recognise(inspection.open_problem(problems.load(text_of(name))).facts)
    assert [piece.named.operation.name for piece in found.pieces if piece.named.operation.name in MAIN] == CASES[name][
        -1
    ]


@pytest.mark.few(3)
@pytest.mark.parametrize("name", CASES)
def test_the_first_kernel_is_right_at_every_case(name: str, tmp_path: Path) -> None:
    # sums of large scores and large masks in bfloat16 choose another key now and then, in torch too
    problem = problems.load(text_of(name), precision="fp32" if name == "a mask" else "bf16")
    with Session.create(problem, root=tmp_path, executor="emulator", arch="sm_90a") as session:
        version = session.generate()
        assert version is not None
        assert version.trials[-1].verdict.correct, version.trials[-1].verdict
