"""An exported file refuses a number with which the version was not tested."""

from __future__ import annotations

import ast

import pytest

from workbench import problems
from workbench.codegen import exports
from workbench.problems import inspection
from workbench.records import Facts

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
