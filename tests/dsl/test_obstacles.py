"""The refusal of a problem names the first call that no kernel takes, and its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import problems
from workbench.problems import expressions, inspection
from workbench.proposers import obstacles
from workbench.proposers.obstacles import recognise_whole
from workbench.proposers.recognition import Computation, Unrecognised, recognise
from workbench.records import Facts

FILE = """import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)

    def forward(self, x):
        x = self.norm(self.linear(x))
        {body}

def get_inputs():
    return [torch.rand(64, 32)]
"""


def facts_of(body: str, folder: Path) -> Facts:
    path = folder / "problem.py"
    path.write_text(FILE.replace("{body}", body.replace("\n", "\n        ")))
    return inspection.inspect(problems.load(str(path)))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("y = torch.relu(x @ x.T)\nreturn y.sort(-1)[0].sum(-1)", "sort in line 14"),
        ("return F.softmax(torch.linalg.inv(x.T @ x), -1)", "inv in line 13"),
        (
            "y = x[None, None]\ny = F.interpolate(y, scale_factor=2, mode='bicubic')\nreturn y + 1",
            "(bicubic) in line 14",
        ),
        ("y = torch.fft.rfft(x)\nreturn y.abs() * 2", "fft of complex numbers in line 13"),
        ("y = torch.cumsum(x, 0)\nreturn y * torch.rand(3, 5).sum() + y.mean()", "rand in line 14"),
        ("y = F.relu(x) * torch.tensor([1.0, 2.0]).sum()\nreturn y", "a tensor of constants in line 13"),
    ],
)
def test_the_first_call_without_a_kernel_is_named(body: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(Unrecognised) as refused:
        recognise_whole(facts_of(body, tmp_path))
    assert f"{said};" in str(refused.value) and "->" not in str(refused.value)
    assert "linear" not in str(refused.value) and "%%cutegen edit" in str(refused.value)


def test_of_calls_that_only_together_have_no_kernel_those_up_to_the_first_are_named(tmp_path: Path) -> None:
    body = "y = x.view(-1, 32, 4).transpose(1, 2)\ny = self.linear(y)\nreturn torch.relu(y) * 2"
    with pytest.raises(Unrecognised) as refused:
        recognise_whole(facts_of(body, tmp_path))
    assert " -> matmul in line 14;" in str(refused.value) and "relu" not in str(refused.value), refused.value


def test_a_deep_module_is_not_looked_at_as_a_whole_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts_of("for _ in range(16):\n    x = torch.relu(x) * 2 + 1\nreturn x.sort(-1)[0]", tmp_path)
    seen: list[int] = []

    def count(facts: Facts) -> Computation:
        seen.append(len(facts.graph))
        return recognise(facts)

    monkeypatch.setattr(obstacles, "recognise", count)
    with pytest.raises(Unrecognised, match="no kernel for sort in line 15;"):
        obstacles.recognise_whole(found)
    assert seen[0] == len(found.graph) > 45 and max(seen[1:]) < 40 and len(seen) < 60


def test_a_line_of_an_own_module_names_the_module(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(
        "import torch\n\n\nclass Order(torch.nn.Module):\n    def forward(self, x):\n"
        "        x = x + 1\n        return torch.sort(x, -1)[0]\n"
    )
    path = tmp_path / "problem.py"
    path.write_text(
        FILE.replace("{body}", "return Order()(x)").replace(
            "import torch\n", "import torch\nfrom layers import Order\n", 1
        )
    )
    facts = inspection.inspect(problems.load(str(path)))
    assert dict(facts.places)["add"] == "line 6 of layers"
    with pytest.raises(Unrecognised, match="no kernel for sort in line 7 of layers;"):
        recognise_whole(facts)


def test_an_expression_has_no_lines() -> None:
    facts = inspection.inspect(expressions.from_expression("torch.sort(x, -1)[0]", "x: f32[64, 32]"))
    with pytest.raises(Unrecognised, match="no kernel for sort;"):
        recognise_whole(facts)
