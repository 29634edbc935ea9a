"""Loading, shrinking, tracing: every shipped problem, and bad input in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from workbench import problems
from workbench.errors import ProblemError
from workbench.problems import inspection, loading
from workbench.proposers.binding import plain_program
from workbench.proposers.recognition import recognise
from workbench.records import Problem


@pytest.mark.few(2)
@pytest.mark.parametrize("name", problems.shipped())
def test_shipped_problem_is_inspected(name: str) -> None:
    facts = inspection.inspect(problems.load(name))
    cases = {case.name: case for case in facts.cases}
    without = {"empty"} if "cross_entropy" in str(name) else set()  # the mean loss of no rows is NaN
    assert {"shrunk", "odd", "tiny", "over", "long", "empty", "full"} - without <= set(cases)
    floats = [spec for spec in cases["odd"].inputs if spec.dtype == "float32"]  # offsets are one more than rows
    assert all(extent % 2 for spec in floats for extent in spec.shape if extent > 1)
    small = sum(torch.Size(spec.shape).numel() for spec in cases["shrunk"].inputs)
    assert small <= 2 * inspection.ELEMENT_BUDGET < sum(torch.Size(spec.shape).numel() for spec in cases["full"].inputs)
    assert facts.kind != "other" and all(work.least_bytes > 0 and work.flops > 0 for work in facts.work)
    assert facts.graph[-1].name == "output"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("softmx", "did you mean 'softmax'"),
        ("def f(:\n    pass", ":1: not Python"),
        ("x = 1\ny = 2", "no Model"),
        ("/nowhere/file.py", "no problem or file"),
    ],
)
def test_bad_problem_is_one_line(spec: str, said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        problems.load(spec)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_no_text_names_no_line(tmp_path: Path) -> None:
    (tmp_path / "bytes.py").write_bytes(b"\0\1binary")
    with pytest.raises(ProblemError, match=r"bytes\.py: not Python"):
        problems.load(str(tmp_path / "bytes.py"))


def test_unknown_setting_lists_the_known_ones() -> None:
    with pytest.raises(ProblemError, match="batch_size, dim"):
        problems.load("softmax", settings=(("rows", 3),))


def test_settings_reach_derived_names() -> None:
    source = (
        "import torch\nn = 4\nm = n * 2\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        "
        "return x\ndef get_inputs():\n    return [torch.zeros(m)]\ndef get_init_inputs():\n    return []\n"
    )
    module = loading.load_module(Problem(name="p", source=source), (("n", 16),))
    assert module.m == 32


def test_expression_becomes_a_problem() -> None:
    problem = problems.from_expression("torch.softmax(x, -1) * w", "x: f32[64, 32], w: f16[32]")
    module = loading.load_module(problem)
    x, w = module.get_inputs()
    assert x.shape == (64, 32) and w.dtype == torch.float16
    with pytest.raises(ProblemError, match="no dtype"):
        problems.from_expression("x", "x: f8[3]")
    with pytest.raises(ProblemError, match="cannot be read"):
        problems.from_expression("x", "x f32")


def test_a_path_in_kernelbench_form(tmp_path: Path) -> None:
    path = tmp_path / "19_ReLU.py"
    path.write_text(problems.load("relu").source)
    assert problems.load(str(path)).name == "19_ReLU"


def test_integers_are_kept_and_floats_cast() -> None:
    problem = problems.load("cross_entropy", precision="bf16", settings=(("batch_size", 8), ("classes", 16)))
    logits, target = loading.make_inputs(loading.load_module(problem), problem, 1)
    assert logits.dtype == torch.bfloat16 and target.dtype == torch.int64


CALLED_AS_A_CALL = """
import torch
class Model(torch.nn.Module):
    def forward(self, relu, index):
        return torch.relu(relu[index])
N, M = 96, 160
def get_inputs(): return [torch.randn(N, 8), torch.randint(0, N, (M,))]
def get_init_inputs(): return []
"""


def test_an_argument_of_forward_may_have_the_name_of_a_call(tmp_path: Path) -> None:
    (tmp_path / "named.py").write_text(CALLED_AS_A_CALL)
    facts = inspection.inspect(problems.load(str(tmp_path / "named.py")))
    names = [op.name for op in facts.graph]
    assert not {"relu", "index"} & {*names} and len({*names}) == len(names)
    assert plain_program(recognise(facts)) == "h1 = gather(relu, index, axis=0, layers=1) |> elementwise(relu(h1))"


def test_the_planner_names_no_result_as_an_argument_of_forward(tmp_path: Path) -> None:
    text = CALLED_AS_A_CALL.replace("relu, index", "h, w").replace(
        "torch.relu(relu[index])", "torch.softmax(h @ w, -1)"
    )
    (tmp_path / "named.py").write_text(text.replace("torch.randint(0, N, (M,))", "torch.randn(8, M)"))
    program = plain_program(recognise(inspection.inspect(problems.load(str(tmp_path / "named.py")))))
    assert program.startswith("hidden = gemm(a, b) |> softmax(hidden)")


def test_parameters_map_by_name_then_by_shape() -> None:
    class A(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.b = torch.nn.Parameter(torch.ones(3, 2)), torch.nn.Parameter(torch.ones(5))

    class B(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.other, self.new = (torch.nn.Parameter(torch.zeros(s)) for s in ((3, 2), (5,), (7,)))

    made = B()
    said = loading.copy_parameters(A(), made)
    assert float(made.other.sum()) == 5 and float(made.w.sum()) == 6
    assert any("new (7,)" in line for line in said)


@pytest.mark.parametrize(
    ("body", "kind"),
    [("torch.zeros_like(x)", "zero"), ("torch.nn.functional.dropout(x, 0.5)", "random"), ("x * 0 + 3", "constant")],
)
def test_degenerate_tasks_are_said(body: str, kind: str) -> None:
    facts = inspection.inspect(problems.from_expression(body, "x: f32[64, 64]"))
    assert kind in {item.kind for item in facts.degeneracies}
