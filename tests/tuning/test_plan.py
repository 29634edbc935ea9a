"""Plans of tuning runs: pipelines of several stages vary the stage with the most work."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.language import parse
from workbench.tuning.plan import TuningProblem, plan_problem

MLP = """
import torch
from torch import nn




class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 64)

    def forward(self, x):
        return torch.softmax(self.down(torch.sigmoid(self.up(x))), dim=1)


def get_inputs():
    return [torch.rand(512, 256)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
def test_a_pipeline_varies_its_heaviest_stage(tmp_path: Path) -> None:
    path = tmp_path / "mlp.py"
    path.write_text(MLP)
    plan = plan_problem(TuningProblem("mlp", str(path), "tf32", most=40))
    assert not isinstance(plan, str) and len(plan.programs) > 12
    stages = [parse(program).stages for program in plan.programs]
    assert {found[-1].operation.name for found in stages} == {"softmax"} and {len(found) for found in stages} <= {3, 4}
    heaviest = {str(found[0].settings) for found in stages if found[0].operation.name == "gemm"}
    others = {str(found[-1].settings) for found in stages}
    assert len(heaviest) > 3 * len(others)
