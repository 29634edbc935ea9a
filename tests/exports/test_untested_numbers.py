"""Exported files take other numbers for forward, or refuse a number with which the version was not tested."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from running_exports import load_text

from workbench import problems
from workbench.codegen import exports
from workbench.emulator import emulated
from workbench.problems import inspection
from workbench.records import Facts
from workbench.session import Session

PROBLEM = """import torch


class Model(torch.nn.Module):
    def forward(self, x, pos: int):
        return x * pos


def get_inputs():
    return [torch.randn(64, 64), 100]
"""


def facts_of(keep: tuple[str, ...]) -> Facts:
    return inspection.inspect(problems.load(PROBLEM, keep=keep))


@pytest.mark.parametrize(
    "forward",
    [
        "    def forward(self, values, place):\n        return values * 100\n",
        '    def forward(self, values, place):\n        """Scale."""\n        return values * 100\n',
        "    def forward(self, values, place): return values * 100\n",
    ],
)
def test_a_number_that_was_kept_is_checked(forward: str) -> None:
    source = f"import torch\n\n\nclass ModelNew(torch.nn.Module):\n{forward}"
    text = exports.add_checks(source, facts_of(("pos",)))
    ast.parse(text)
    names: dict[str, object] = {}
    exec(text, names)
    model = names["ModelNew"]()  # type: ignore[operator]
    assert model(2, 100) == 200
    with pytest.raises(ValueError, match="place was only tested at 100; leave this check out"):
        model(2, 3)
    assert exports.add_checks(source, facts_of(())) == source


@pytest.mark.parametrize("form", ["kernelbench", "custom-op"])
def test_an_exported_program_of_the_planner_takes_other_numbers(form: str, tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM.replace("x * pos", "torch.relu(x) - pos"))
    with Session.create(str(tmp_path / "problem.py"), root=tmp_path / "sessions", executor="emulator") as session:
        version = session.generate(test=False)
        assert version is not None
        session.export(version.number, tmp_path / "out.py", form=form)
    module, _ = load_text((tmp_path / "out.py").read_text())
    x = torch.randn(33, 65)
    with emulated(arch="sm_80", device="H100"), torch.no_grad():
        model = module.ModelNew()
        for pos in (100, 3, -7):
            torch.testing.assert_close(model(x, pos), torch.relu(x) - pos)
