"""Which class of a text is Model, what its __init__ consists of, and which numbers are no sizes."""

from __future__ import annotations

import ast

import pytest

from workbench import problems
from workbench.errors import ProblemError
from workbench.problems import inspection, model_class

HEAD = "import torch\nimport torch.nn as nn\n\n\n"
TAIL = "\n\ndef get_inputs():\n    return [torch.randn(64, 48)]\n"
NORM = """class Norm(nn.Module):
    def __init__(self, dim=48, eps=1e-6):
        super(Norm, self).__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))
        self._fill(0.5)

    def _fill(self, value):
        nn.init.constant_(self.weight, value)

    def forward(self, x, scale=None):
        return x * self.weight
"""


def test_model_may_be_another_name_of_a_class() -> None:
    opened = inspection.open_problem(problems.load(f"{HEAD}{NORM}\n\nModel = Norm\n{TAIL}"))
    assert [{size.name, *size.tied} for size in opened.facts.sizes if size.value == 48] == [{"x_1", "dim"}]


def test_what_init_calls_comes_with_it_and_super_names_no_class() -> None:
    source = f"{HEAD}{NORM}\n\nModel = Norm\n{TAIL}"
    methods = ast.parse(model_class.init_source(source)).body
    assert [node.name for node in methods if isinstance(node, ast.FunctionDef)] == ["__init__", "_fill"]


def test_an_inherited_init_is_that_of_the_base_class() -> None:
    source = f"{HEAD}{NORM}\n\nclass Model(Norm):\n    pass\n{TAIL}"
    assert "self.eps = eps" in model_class.init_source(source)
    assert model_class.init_source(f"{HEAD}class Model(nn.Module):\n    pass\n") == model_class.PLAIN_INIT


def test_arguments_keep_the_defaults_that_are_constants() -> None:
    assert model_class.signature_of(f"{HEAD}{NORM}\n\nModel = Norm\n") == "x, scale=None"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("x: torch.Tensor, *, scale: float = 2.0, bias", "x, *, scale=2.0, bias"),
        ("x, /, dim=-1, dtype=torch.float32", "x, /, dim=-1, dtype=None"),
        ("*parts, **options", "*parts, **options"),
    ],
)
def test_the_signature_of_forward_has_neither_annotations_nor_names_of_the_text(given: str, wanted: str) -> None:
    text = f"class Model(nn.Module):\n    def forward(self, {given}):\n        return x\n"
    assert model_class.signature_of(HEAD + text) == wanted


def test_a_text_without_model_is_refused() -> None:
    with pytest.raises(ProblemError, match="defines no Model"):
        problems.load(f"{HEAD}{NORM}{TAIL}")


HEADS = """class Model(nn.Module):
    def __init__(self, dim=48, heads=6):
        super().__init__()
        self.heads = heads
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return (x * self.weight).view(x.shape[0], self.heads, -1).transpose(0, 1)
"""


def test_a_number_that_no_tensor_has_as_an_extent_stays_in_every_case() -> None:
    facts = inspection.open_problem(problems.load(f"{HEAD}{HEADS}{TAIL}")).facts
    assert {case.outputs[0].shape[0] for case in facts.cases} == {6}
    assert len({case.outputs[0].shape[2] for case in facts.cases}) > 1
