"""`cutegen test` as the gate of a CI: its exit status is 0 only for a result that is right and leaves no doubt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.cli import main

GOOD = (Path(__file__).parent.parent / "corpus" / "good_relu.py").read_text()
Judge = Callable[..., tuple[int, dict[str, Any]]]
PROBLEM = """
import torch
from torch import nn
SIZE = 2048
class Model(nn.Module):
    def forward(self, x, y):
        return {}
def get_inputs():
    return [torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)]
"""
FIG_LEAF = (
    GOOD.split("class ModelNew")[0]
    + """
class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        leaf = x[:1, :64].contiguous()
        if leaf.numel():
            relu(tensor(leaf), tensor(torch.empty_like(leaf)), leaf.numel())
        return {}
"""
)


@pytest.fixture
def judge(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Tests a candidate of a problem. Returns the exit status and the document."""
    monkeypatch.chdir(tmp_path)

    def run(problem: str, candidate: str, *options: str) -> tuple[int, dict[str, Any]]:
        Path("problem.py").write_text(PROBLEM.format(problem))
        Path("candidate.py").write_text(candidate)
        capfd.readouterr()
        status = main(["test", "problem.py", "candidate.py", "--executor", "emulator", "--json", *options])
        return status, json.loads(capfd.readouterr().out)

    return run


def test_a_time_below_the_floor_is_refused_also_if_it_is_modelled(judge: Judge) -> None:
    status, said = judge("x @ y", FIG_LEAF.format("x @ y"), "--lenient")
    assert status == 1 and said["correct"] and "faster than the device" in said["refused"]
    assert "impossible_time" in said["doubt_codes"]


def test_torch_in_place_of_a_kernel_is_refused_also_behind_one_that_does_little(judge: Judge) -> None:
    plain = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x, y):\n        return x + y\n"
    for candidate in (plain, FIG_LEAF.format("x + y")):
        status, said = judge("x + y", candidate, "--lenient")
        assert status == 1 and said["correct"] and "torch_share" in said["doubt_codes"]
        assert "torch did 100% of the problem's FLOPs" in "".join(said["suspect"]) and said["refused"]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("problem", "candidate", "code"),
    [
        (
            "x.sigmoid()[:, :8]",
            "class ModelNew(torch.nn.Module):\n    def forward(self, x, y):\n"
            "        return torch.from_numpy(1 / (1 + numpy.exp(-x[:, :8].numpy())))\n",
            "no_kernel",
        ),
        ("x * 1.0", "class ModelNew(torch.nn.Module):\n    def forward(self, x, y):\n        return x.clone()\n", ""),
    ],
)
def test_a_doubt_has_a_status_of_its_own_and_a_code(judge: Judge, problem: str, candidate: str, code: str) -> None:
    status, said = judge(problem, "import numpy\nimport torch\n" + candidate)
    assert said["correct"] and not said["refused"], said
    assert status == 3 and (code or "degenerate_task") in said["doubt_codes"]
    assert judge(problem, "import numpy\nimport torch\n" + candidate, "--lenient")[0] == 0


@pytest.mark.slow
def test_torch_may_do_the_work_if_it_is_allowed(judge: Judge) -> None:
    status, said = judge("x.sigmoid()", FIG_LEAF.format("x.sigmoid()"), "--allow", "torch")
    assert status == 3 and said["correct"] and not said["refused"] and said["doubt_codes"] == ["torch_share"]


RELU_THEN = (
    FIG_LEAF.split("class ModelNew")[0]
    + """
class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        z = torch.empty_like(x)
        relu(tensor(x), tensor(z), x.numel())
        return {}
"""
)


@pytest.mark.slow
def test_glue_by_torch_is_free_and_a_smaller_part_is_said(judge: Judge) -> None:
    _, said = judge("torch.relu(x)", RELU_THEN.format("z.t().contiguous().t().to(y.dtype)"))
    assert said["correct"] and not said["suspect"] and not said["refused"]
    status, said = judge("torch.relu(x) + y", RELU_THEN.format("z + y"))  # half of the FLOPs, all of the bytes
    assert status == 3 and not said["refused"] and "torch_share" in said["doubt_codes"]
    assert said["suspect"] == ["torch moved 100% of the problem's bytes in forward (case shrunk): add"]
