"""Modules that calculate with numbers made of their sizes: such a size is not shrunk, or the planner says that it has
no kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import problems
from workbench.language import Call
from workbench.problems import cases, degenerate, inspection
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.records import Facts

FILE = """
import math
import torch
import torch.nn as nn

n = 4096
d = 1024


class Model(nn.Module):
    def forward(self, {arguments}):
        return {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
PRODUCT = {"arguments": "x, w", "inputs": "torch.randn(n, d), torch.randn(d, n)"}


def facts(tmp_path: Path, body: str, arguments: str = "x", inputs: str = "torch.randn(n, d)") -> Facts:
    path = tmp_path / "problem.py"
    path.write_text(FILE.format(body=body, arguments=arguments, inputs=inputs))
    return inspection.inspect(problems.load(str(path)))


def test_a_size_that_a_number_is_made_of_stays(tmp_path: Path) -> None:
    found = facts(tmp_path, "(x @ w) * (1.0 / math.sqrt(x.shape[-1]))", **PRODUCT)
    shrunk = next(case for case in found.cases if case.name == "shrunk")
    assert shrunk.inputs[0].shape[1] == 1024 and shrunk.inputs[0].shape[0] < 256 and not found.full_graph
    assert any("d stays 1024" in note for note in found.notes)
    scale = next(call for call in recognise(found).epilogues if call.name in ("scale", "mul"))
    assert float(str(scale.positional[0])) == pytest.approx(1 / 32)


EMBEDDED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, words=5000, width=128):
        super().__init__()
        self.table = nn.Embedding(words, width)

    def forward(self, words):
        return self.table(words) * {factor}


def get_inputs():
    return [torch.randint(0, 5000, (8, 64))]
"""


@pytest.mark.parametrize("factor, stays", [("self.table.embedding_dim ** 0.5", True), ("0.5", False)])
def test_a_size_that_is_not_shrunk_stays_too_if_a_number_is_made_of_it(
    tmp_path: Path, factor: str, stays: bool
) -> None:
    (tmp_path / "problem.py").write_text(EMBEDDED.format(factor=factor))
    found = inspection.inspect(problems.load(str(tmp_path / "problem.py")))
    assert any(op.operands[-1] == f"{128**0.5 if stays else 0.5}" for op in found.graph)
    widths = {case.outputs[0].shape[-1] for case in found.cases if case.name != "empty"}
    assert (widths == {128}) == stays
    assert any("width stays 128: forward calculates" in note for note in found.notes) == stays


def test_a_tensor_of_values_that_nobody_knows_keeps_no_size(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.w = torch.randn(128, 128)\n\n    def forward(self, x):\n        return torch.relu(x @ self.w)\n"
        "\n\ndef get_inputs():\n    return [torch.randn(256, 128)]\n"
    )
    found = inspection.inspect(problems.load(str(tmp_path / "problem.py")))
    assert all(size.varied for size in found.sizes) and len(found.sizes) == 2


LOSS = {"arguments": "x, y", "inputs": "torch.randn(n, d), torch.randint(0, d, (n,))"}


def test_the_smoothing_of_a_loss_is_no_number_made_of_a_size(tmp_path: Path) -> None:
    found = facts(tmp_path, "nn.functional.cross_entropy(x, y, label_smoothing=0.1)", **LOSS)
    assert len({case.inputs[0].shape[1] for case in found.cases}) > 2 and not found.full_graph
    assert dict(recognise(found).operation.named)["smoothing"] == pytest.approx(0.1)
    found = facts(tmp_path, "nn.functional.cross_entropy(x, y, label_smoothing=0.1) * (1 / x.shape[1])", **LOSS)
    assert {case.inputs[0].shape[1] for case in found.cases} == {1024}


def test_no_case_but_the_empty_one_has_an_empty_result(tmp_path: Path) -> None:
    body = "nn.functional.conv_transpose1d(x.reshape(16, 4, -1), torch.ones(4, 4, 5), padding=3)"
    found = facts(tmp_path, body, inputs="torch.randn(64, 256)")
    assert all(0 not in spec.shape for case in found.cases if case.name != "empty" for spec in case.outputs)


def test_where_no_size_can_stay_the_planner_says_so(tmp_path: Path) -> None:
    found = facts(tmp_path, "(x @ w) * (1.0 / (x.shape[0] * x.shape[1]))", **PRODUCT)
    assert found.full_graph and [op.name for op in found.full_graph] == [op.name for op in found.graph]
    with pytest.raises(Unrecognised, match="something else at full size"):
        recognise(found)


@pytest.mark.parametrize(
    "body",
    [
        "x.mean(1)",
        "torch.softmax(x, 1) * 3.0",
        "nn.functional.layer_norm(x, (x.shape[1],))",
        "x.reshape(-1, x.shape[1]) * 2",
    ],
)
def test_sizes_that_say_only_how_far_a_call_goes_are_shrunk(tmp_path: Path, body: str) -> None:
    found = facts(tmp_path, body)
    assert not found.full_graph and all(case.inputs[0].shape[1] < 1024 for case in found.cases if case.name == "shrunk")
    recognise(found)


def test_attention_has_its_own_scale_at_every_size(tmp_path: Path) -> None:
    found = facts(
        tmp_path,
        "nn.functional.scaled_dot_product_attention(q, k, v)",
        "q, k, v",
        "*(torch.randn(4, 8, n // 8, d // 8) for _ in range(3))",
    )
    assert recognise(found).operation.name == "attention"


@pytest.mark.parametrize(
    "body",
    [
        "torch.relu(x[:, :512])",
        "torch.tanh(x) if x.shape[0] > 512 and x.shape[1] > 512 else torch.relu(x)",
        "nn.functional.scaled_dot_product_attention(x, x, x, is_causal=x.numel() > 1_000_000)",
    ],
)
def test_what_is_another_computation_at_full_size_is_not_planned(tmp_path: Path, body: str) -> None:
    found = facts(tmp_path, body)
    assert found.full_graph
    with pytest.raises(Unrecognised, match=r"something else at full size|no kernel for"):
        recognise(found)


def test_a_branch_that_one_size_decides_keeps_that_size(tmp_path: Path) -> None:
    found = facts(tmp_path, "torch.tanh(x) if x.shape[0] > 512 else torch.relu(x)")
    assert not found.full_graph and recognise(found).operation.positional[0].name == "tanh"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("state", "body", "said"),
    [
        ("self.layer = nn.Linear(d, d)", "self.layer(x)", "reads d of the problem's file"),
        ("self.register_buffer('seen', torch.zeros(()))", "x * self.seen.uniform_()", "writes to its own seen"),
    ],
)
def test_what_is_told_of_a_modules_own_state(tmp_path: Path, state: str, body: str, said: str) -> None:
    path = tmp_path / "problem.py"
    init = f"class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {state}\n"
    path.write_text(
        FILE.format(body=body, arguments="x", inputs="torch.randn(n, d)")
        .replace("class Model(nn.Module):\n", init)
        .replace("return []", "return list(())")  # no list that could have more
    )
    with pytest.raises(Unrecognised, match=said):
        recognise(inspection.inspect(problems.load(str(path))))


@pytest.mark.parametrize(
    ("body", "times"), [("torch.relu(x[:, :512])", 1), ("torch.softmax(x * (x.shape[0] * x.shape[1]), -1)", 3)]
)
def test_no_more_is_looked_at_than_can_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, times: int
) -> None:
    seen = {"shrink": 0, "find_degeneracies": 0}
    for module, name in ((cases, "shrink"), (degenerate, "find_degeneracies")):
        real = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *given, name=name, real=real: (seen.update({name: seen[name] + 1}), real(*given))[1]
        )
    assert facts(tmp_path, body).full_graph
    assert seen == {
        "shrink": times,
        "find_degeneracies": 1,
    }  # a size that is kept is tried once each; what else there is to know of a problem is found out once


CONVOLUTION = """
import torch
import torch.nn as nn

images = 64
channels = 16
length = 65536
stride = 3
dilation = 4


class Model(nn.Module):
    def __init__(self, channels, stride, dilation):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, stride=stride, dilation=dilation)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(images, channels, length)]


def get_init_inputs():
    return [channels, stride, dilation]
"""


def test_strides_and_dilations_are_no_sizes(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(CONVOLUTION)
    found = inspection.inspect(problems.load(str(path)))
    for case in found.cases:
        assert not {"stride", "dilation"} & {name for name, _ in case.settings}
        assert case.outputs[0].shape[2] == (case.inputs[0].shape[2] - 2 * 4 - 1) // 3 + 1


@pytest.mark.parametrize("name", ["hardshrink", "celu"])
def test_numbers_of_activations_made_of_sizes_count(tmp_path: Path, name: str) -> None:
    found = facts(tmp_path, f"torch.nn.functional.{name}(x, {'alpha=' if name == 'celu' else ''}x.shape[1] / 2048)")
    assert any("d stays 1024" in note for note in found.notes)


def test_a_constant_tensor_that_is_made_of_a_size_counts_as_such_a_number(tmp_path: Path) -> None:
    found = facts(tmp_path, "x * torch.tensor([1.0 / (x.shape[0] * x.shape[1]), 2.0]).sum()")
    assert found.full_graph
    with pytest.raises(Unrecognised):
        recognise(found)
    kept = facts(tmp_path, "x * torch.tensor(1.0 / x.shape[1])")
    assert any("d stays 1024" in note for note in kept.notes)
    assert recognise(kept).operation.positional[0] == Call(name="mul", positional=("x", 1 / 1024))
    same = facts(tmp_path, "x * torch.tensor(0.5)")
    assert not same.full_graph and not any("stays" in note for note in same.notes)


GROUPS = """
import torch
import torch.nn as nn

channels, groups, width, padding = 64, 16, 8, 4


class Model(nn.Module):
    def __init__(self, channels, groups, width, padding):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.pool = nn.MaxPool1d(width, padding=padding)

    def forward(self, x):
        return self.pool(self.norm(x))


def get_inputs():
    return [torch.randn(32, channels, 512)]


def get_init_inputs():
    return [channels, groups, width, padding]
"""


def test_groups_and_widths_of_pools_stay_and_channels_are_odd_multiples_of_them(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(GROUPS)
    found = inspection.inspect(problems.load(str(path)))
    assert not {name for case in found.cases for name, _ in case.settings} & {"groups", "width", "padding"}
    channels = {case.name: case.inputs[0].shape[1] for case in found.cases}
    assert all(value % 16 == 0 for value in channels.values())
    assert channels["odd"] // 16 % 2 == 1 and channels["odd"] != channels["shrunk"]
