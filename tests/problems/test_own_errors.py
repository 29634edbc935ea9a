"""What is said of problems that cannot run, or give no numbers: the place, the cause, and what to change."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from workbench import problems
from workbench.errors import ProblemError
from workbench.problems import inspection
from workbench.proposers.coverage import find_coverage

PROBLEM = """import torch
from torch import nn
{imports}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(64))
        {init}

    def forward(self, x):
        return {forward}


def get_inputs():
    return [{inputs}]
"""


def write(folder: Path, *, imports: str = "", init: str = "", forward: str = "x", inputs: str = "X") -> str:
    path = folder / "own.py"
    made = inputs.replace("X", "torch.randn(16, 64)")
    path.write_text(PROBLEM.format(imports=imports, init=init, forward=forward, inputs=made))
    return str(path)


def refusal(path: str) -> str:
    with pytest.raises(ProblemError) as found:
        inspection.open_problem(problems.load(path))
    return str(found.value)


@pytest.mark.parametrize(
    ("name", "text", "imports", "forward", "inputs", "place"),
    [
        ("helper.py", "def scale(x):\n    return x @ x\n", "import helper", "helper.scale(x)", "X", "helper.py:2"),
        (
            "parts/norm.py",
            "\ndef scale(x, w):\n    return x * w[:50]\n",
            "import parts.norm",
            "parts.norm.scale(x, self.w)",
            "X",
            "parts/norm.py:3",
        ),
        ("broken.py", "import torch\n\nLAYER = torch.nn.Linearr\n", "import broken", "x", "X", "broken.py:3"),
        (
            "made.py",
            "import torch\ndef get():\n    return torch.ones(3) @ 4\n",
            "import made",
            "x",
            "made.get()",
            "made.py:3",
        ),
    ],
)
def test_an_error_in_a_module_beside_the_problem_names_its_line(
    tmp_path: Path, name: str, text: str, imports: str, forward: str, inputs: str, place: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    said = refusal(write(tmp_path, imports=imports, forward=forward, inputs=inputs))
    assert said.startswith(f"{tmp_path / place} (from {tmp_path / 'own.py'}:")
    assert "\n" not in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="of machines without a GPU")
@pytest.mark.parametrize(
    "parts",
    [
        {"inputs": "X.cuda()"},
        {"inputs": "X.to('cuda')"},
        {"init": "self.to('cuda')"},
        {"forward": "x + torch.zeros(64, device='cuda')"},
    ],
)
def test_a_module_for_cuda_alone_is_told_what_to_change(tmp_path: Path, parts: dict[str, str]) -> None:
    said = refusal(write(tmp_path, **parts))
    assert "leave out .cuda()" in said and "device=x.device" in said


@pytest.mark.parametrize(
    ("init", "forward", "cause"),
    [
        ("", "torch.log(x)", ": log gives NaN, of values from -"),
        ("", "(x * 200).exp()", ": exp gives infinity, of values from -"),
        ("self.w.data[3] = float('nan')", "x * self.w", ": the parameter or buffer w has NaN before the call"),
        ("", "x.masked_fill(x > -9, float('-inf')).softmax(-1)", ": _softmax gives NaN, of values from -inf to -inf"),
    ],
)
def test_a_warning_of_nan_has_its_cause(tmp_path: Path, init: str, forward: str, cause: str) -> None:
    opened = inspection.open_problem(problems.load(write(tmp_path, init=init, forward=forward)))
    (found,) = [one.message for one in opened.facts.degeneracies if one.kind == "not_finite"]
    assert cause in found


ROTARY = """import torch


class Model(torch.nn.Module):
    def forward(self, x, freqs):
        y = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(y * freqs[:, None]).flatten(3)


def get_inputs():
    t = torch.outer(torch.arange(512).float(), 1.0 / (10000.0 ** (torch.arange(0, 128, 2).float() / 128)))
    return [torch.randn(2, 512, 16, 128), torch.polar(torch.ones_like(t), t)]
"""
PAIRS = """import torch


class Model(torch.nn.Module):
    def forward(self, x, w):
        return torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(w))


def get_inputs():
    return [torch.randn(1024, 512, 2), torch.randn(512, 2)]
"""


@pytest.mark.parametrize(
    ("text", "sizes", "flops"),
    [
        (ROTARY, {"t_n0": 512, "t_n1": 128, "x_0": 2, "x_2": 16}, 6 * 2 * 512 * 16 * 64),
        (PAIRS, {"x_0": 1024, "x_1": 512}, 6 * 1024 * 512),
    ],
)
def test_complex_numbers_are_counted_and_their_parts_are_no_size(text: str, sizes: dict[str, int], flops: int) -> None:
    facts = inspection.open_problem(problems.load(text)).facts
    assert {size.name: size.value for size in facts.sizes} == sizes
    assert facts.work[-1].flops == flops
    assert facts.work[-1].dtype == "float32"


def test_products_of_complex_numbers_have_no_kernel() -> None:
    opened = inspection.open_problem(
        problems.load(
            PAIRS.replace("torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(w))", "x @ w").replace(
                "torch.randn(1024, 512, 2), torch.randn(512, 2)", "torch.randn(64, 32) + 0j, torch.randn(32, 16) + 0j"
            )
        )
    )
    found = find_coverage(opened.problem, opened.facts, arch="sm_80", device="H200")
    assert not found.program
    assert "of complex numbers" in found.reason
    assert opened.facts.work[-1].flops == 8 * 64 * 32 * 16


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        ("x * 2 if x.max().item() > 3 else x", "forward reads a value out of a tensor here"),
        ("x * float(x.sum())", "pass the number as an argument of forward"),
        ("x[x > 0]", r"the shape of this result depends on values \(aten.nonzero"),
        ("torch.repeat_interleave(x.int()[0])", r"say how many come out: .*output_size="),
        ("x.unique()", r"keep the shape \(torch.where"),
    ],
)
def test_what_depends_on_values_is_named_with_its_line(tmp_path: Path, forward: str, said: str) -> None:
    path = write(tmp_path, forward=forward)
    with pytest.raises(ProblemError, match=said) as refused:
        inspection.open_problem(problems.load(path))
    assert str(refused.value).startswith(f"{path}:12: ")


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ("X, X", r"get_inputs\(\) returns 2 values, but forward takes \(x, \*, w\)"),
        ("X", "returns 1 value, but .* by name, as w has to be"),
        ("[X, X], {'w': X}", r"returns 2 values, but forward takes \(x, \*, w\)"),
    ],
)
def test_inputs_that_forward_does_not_take_are_told_how_to_be_given(tmp_path: Path, inputs: str, said: str) -> None:
    path = Path(write(tmp_path, forward="x * w", inputs=inputs))
    path.write_text(path.read_text().replace("forward(self, x)", "forward(self, x, *, w)"))
    with pytest.raises(ProblemError, match=said):
        inspection.open_problem(problems.load(str(path)))
