"""A number of layers is no size: every case has all layers, which a kernel may have written one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.problems import inspection, load
from workbench.session import Session

SOURCE = """
import torch
import torch.nn as nn
WIDTH = 256
{constant}
class Model(nn.Module):
    def __init__(self{argument}):
        super().__init__()
        self.first = nn.Linear(96, WIDTH, bias=False)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range({depth}))
    def forward(self, x):
        x = torch.relu(self.first(x))
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x

def get_inputs():
    return [torch.randn(128, 96)]

def get_init_inputs():
    return [{given}]
"""
FORMS = {
    "constant": SOURCE.format(constant="LAYERS = 6", argument="", depth="LAYERS", given=""),
    "literal": SOURCE.format(constant="", argument="", depth="6", given=""),
    "default": SOURCE.format(constant="", argument=", layers=6", depth="layers", given=""),
    "given": SOURCE.format(constant="LAYERS = 6", argument=", layers", depth="layers", given="LAYERS"),
    "given as a literal": SOURCE.format(constant="", argument=", layers", depth="layers", given="6"),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_case_has_all_layers(form: str) -> None:
    facts = inspection.inspect(load(FORMS[form]))
    assert {size.value for size in facts.sizes if size.varied} >= {256, 128}
    for case in facts.cases[:-1]:
        assert not [name for name, value in case.settings if "layers" in name.lower() and value != 6]


@pytest.mark.few(1)
@pytest.mark.parametrize("form", ["constant", "literal"])
def test_the_planners_kernels_are_right_at_every_size(form: str, tmp_path: Path) -> None:
    with Session.create(load(FORMS[form].replace("6", "3")), root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None and version.trials[-1].verdict.correct
