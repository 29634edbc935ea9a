"""Numbers that are equal by chance: they vary apart, so that a kernel that takes one for the other is wrong."""

from __future__ import annotations

import pytest

from workbench import problems
from workbench.problems import inspection
from workbench.problems.inputs.init_arguments import fit_candidate

SCALED = """import torch


class Model(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(channels))

    def forward(self, x):
        return x * self.scale[None, :, None, None]


def get_inputs():
    return [torch.randn(4, 32, 32, 32)]


def get_init_inputs():
    return [32]
"""
HEADS = """import torch


class Model(torch.nn.Module):
    def forward(self, x, s):
        return x * s[None, :, None]


def get_inputs():
    return [torch.randn(2, 2, 128), torch.rand(2)]
"""
SQUARE = """import torch


class Model(torch.nn.Module):
    def forward(self, x, mask):
        return x * mask.unsqueeze(1)


def get_inputs():
    return [torch.randn(4, 16, 64, 64), torch.rand(4, 64, 64)]
"""
WARPED = """import torch


class Model(torch.nn.Module):
    def forward(self, x, flow):
        u, v = flow.unbind(1)
        return x * u.unsqueeze(1) + v.unsqueeze(1)


def get_inputs():
    return [torch.randn(2, 32, 64, 64), torch.randn(2, 2, 64, 64)]
"""
GROUPED = """import torch

GROUP = 64


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (256, 512), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(256, 512 // GROUP))

    def forward(self, x):
        w = (self.weight.view(256, -1, GROUP).float() * self.scale.unsqueeze(-1)).view(256, 512)
        return x @ w.t()


def get_inputs():
    return [torch.randn(64, 512)]
"""


@pytest.mark.parametrize(
    ("text", "ties", "apart"), [(SCALED, {"x_1": ("channels",)}, (1, 2, 3)), (HEADS, {"x_1": ("s_0",)}, (0, 1))]
)
def test_sizes_of_one_value_vary_apart(text: str, ties: dict[str, tuple[str, ...]], apart: tuple[int, ...]) -> None:
    facts = inspection.inspect(problems.load(text))
    assert {size.name: size.tied for size in facts.sizes if size.tied} == ties
    shapes = [case.inputs[0].shape for case in facts.cases]
    assert any(len({shape[axis] for axis in apart}) == len(apart) for shape in shapes)


def test_a_number_that_forward_reads_by_name_is_kept() -> None:
    """A kernel could not know it; the bounds of random numbers are no arguments either."""
    opened = inspection.open_problem(problems.load(GROUPED))
    assert opened.problem.source == problems.load(GROUPED).source
    assert {size.name: size.varied for size in opened.facts.sizes}["GROUP"] is False


def test_literals_of_a_candidate_stand_for_names_of_the_problem() -> None:
    text = SCALED.replace("return [32]", "return []").replace(", channels", "").replace("rand(channels)", "rand(C)")
    text = text.replace("32, 32, 32", "C, 7, 5").replace("import torch\n", "import torch\n\nC = 10\n", 1)
    problem = inspection.open_problem(problems.load(text)).problem
    own = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    own += "        self.w = torch.nn.Parameter(torch.rand(10))\n"
    fitted = fit_candidate(own, problem)
    assert "def __init__(self, *, C=10):" in fitted and "torch.rand(C)" in fitted
    assert fit_candidate(own.replace("10", "12"), problem) == own.replace("10", "12")


def test_the_sides_of_a_square_image_vary_apart() -> None:
    facts = inspection.inspect(problems.load(SQUARE))
    tied = {size.name: size.tied for size in facts.sizes}
    assert tied == {"x_0": ("mask_0",), "x_1": (), "x_2": ("mask_1",), "x_3": ("mask_2",)}
    assert all(size.varied for size in facts.sizes)


def test_a_batch_varies_beside_a_number_of_channels_that_equals_it_and_cannot() -> None:
    facts = inspection.inspect(problems.load(WARPED))
    tied = {size.name: size.tied for size in facts.sizes}
    assert tied["x_0"] == ("flow_0",) and {size.name for size in facts.sizes if size.varied} >= {"x_0", "x_2", "x_3"}
