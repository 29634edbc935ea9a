"""Settings in a problem's text: what counts as one, splicing that keeps lines, and refusals in one line."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import problems
from workbench.errors import ProblemError
from workbench.problems import inspection, loading
from workbench.problems.settings import check_settings, find_assignments, module_scalars, with_settings
from workbench.records import Problem

SOURCE = '''"""é"""
N = 2048 * 2
M, K = 4, 1 << 5
shape = (64, 32)
big = (3 +
   4)
half = N // 2
text = "é"; eps = 1e-5
flag = True
count: int = 7
low = -1
N2 = N * 2
'''


def run(source: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(source, names)
    return {name: value for name, value in names.items() if not name.startswith("__")}


def test_expressions_tuples_and_annotations_are_settings_and_derived_names_are_not() -> None:
    assert module_scalars(SOURCE) == {
        "N": 4096,
        "M": 4,
        "K": 32,
        "shape[0]": 64,
        "shape[1]": 32,
        "big": 7,
        "eps": 1e-5,
        "flag": True,
        "count": 7,
        "low": -1,
    }
    assert {item.name: item.value for item in find_assignments(SOURCE) if item.derived} == {"half": 2048, "N2": 8192}


@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.integers(1, 10**6)
            for name in ("N", "M", "K", "shape[0]", "shape[1]", "big", "half", "count", "low")
        },
    )
)
def test_new_values_arrive_and_everything_else_stays(values: dict[str, int]) -> None:
    made = with_settings(SOURCE, tuple(values.items()))
    assert made.count("\n") == SOURCE.count("\n")
    old, new = run(SOURCE), run(made)
    scalars = {item.name: item.value for item in find_assignments(made)}
    for name, value in values.items():
        assert scalars[name] == value
    for name in old:
        touched = (
            name in values
            or any(key.startswith(f"{name}[") for key in values)
            or (name in ("half", "N2") and "N" in values)
        )
        assert touched or new[name] == old[name]
    assert new["half"] == values.get("half", values.get("N", 4096) // 2)


def test_lines_stay_where_they_are() -> None:
    made = with_settings(SOURCE, (("N", 5), ("big", 1)))
    places = [
        [
            getattr(node.targets[0], "id", "")
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign) and node.lineno >= 7
        ]
        for text in (SOURCE, made)
    ]
    lines = [[node.lineno for node in ast.parse(text).body] for text in (SOURCE, made)]
    assert places[0] == places[1] and lines[0] == lines[1]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (("nope", 3), "it has: N, M, K"),
        (("flag", 3), "flag is a bool"),
        (("N", True), "not a bool"),
        (("N", 2.5), "is an integer"),
        (("N", "x"), "is not a number"),
    ],
)
def test_a_bad_setting_is_one_line(setting: tuple[str, bool | int | float | str], said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        check_settings(SOURCE, (setting,))
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "inputs", "said"),
    [
        ("torch.relu(y)", "x: f32[4]", "uses 'y'"),
        ("x", "x: f32[M]", "dimension 'M' has no value; give it by --set M=4096"),
        ("x +", "x: f32[4]", "not Python"),
        ("x", "x: f32[4], x: f32[4]", "declared twice"),
        ("x", "x: f32[a-b]", "no dimension"),
        ("x", "torch: f32[3]", "rename it"),
    ],
)
def test_a_bad_expression_is_one_line(expression: str, inputs: str, said: str) -> None:
    with pytest.raises(ProblemError) as caught:
        problems.from_expression(expression, inputs)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [-4, 0, 2.5, True])
def test_a_dimension_that_is_no_size_is_named_with_its_value(value: bool | int | float) -> None:
    with pytest.raises(ProblemError) as caught:
        problems.from_expression("x + 1", "x: f32[M, 4]", settings=(("M", value),))
    assert str(caught.value) == f"setting M={value!r}: no size of x; legal: whole numbers from 1 on"


def test_dimension_names_are_settings_of_the_made_problem() -> None:
    problem = problems.from_expression(
        "F.relu(x) + sum(w[i] for i in range(2))", "x: f32[M, N], w: f32[N]", settings=(("M", 6), ("N", 4))
    )
    assert module_scalars(problem.source) == {"M": 6, "N": 4}
    module = loading.load_module(problem, (("N", 8),))
    assert [tuple(value.shape) for value in module.get_inputs()] == [(6, 8), (8,)]
    assert module.Model()(*module.get_inputs()).shape == (6, 8)
    with pytest.raises(ProblemError, match="no input has a dimension 'Q'"):
        problems.from_expression("x", "x: f32[4]", settings=(("Q", 1),))


def test_a_problem_that_breaks_at_import_names_its_own_line_with_settings_applied() -> None:
    source = "import torch\nbig = (1 +\n 2)\nn = 4\nraise_here = [][n]\n"
    with pytest.raises(ProblemError, match=r"cell:5: IndexError: list index"):
        loading.load_module(Problem(name="p", source=source), (("big", 7),))


def test_a_problem_may_define_dataclasses() -> None:
    source = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: "
        "'int' = 3\nvalue = A().x\n"
    )
    assert loading.load_module(Problem(name="p", source=source)).value == 3


def test_two_candidates_of_one_shape_are_not_guessed() -> None:
    import torch

    class A(torch.nn.Module):
        def __init__(self, names: str) -> None:
            super().__init__()
            for name in names:
                self.register_parameter(name, torch.nn.Parameter(torch.full((3,), float(ord(name)))))

    one, two = A("ab"), A("cd")
    assert len(loading.copy_parameters(one, two)) == 4 and float(two.c.detach()[0]) == ord("c")
    three = A("ax")
    assert loading.copy_parameters(one, three) == () and float(three.x.detach()[0]) == ord("b")


LITERALS = """import torch
B = 8
class Model(torch.nn.Module):
    def __init__(self, hidden, widths):
        super().__init__()
    def forward(self, x, target, y):
        return x
def get_inputs(length=128):
    n, k = 64, 2 * 32
    x = torch.randn(B, n, 4096).half() * 2
    torch.manual_seed(1234)
    return [x, torch.randint(0, 1000, (B, 4096)), torch.rand(k, length, 32).transpose(1, 2)]
def get_init_inputs():
    return [4096, [16, 3]]
"""


def test_numbers_inside_functions_are_settings_with_names() -> None:
    found = {item.name: item.value for item in find_assignments(LITERALS)}
    assert found == {
        "B": 8,
        "length": 128,
        "n": 64,
        "k": 64,
        "x_2": 4096,
        "target_n0": 1000,
        "target_1": 4096,
        "y_n0": 32,
        "hidden": 4096,
        "widths_0": 16,
        "widths_1": 3,
    }
    assert [item.name for item in find_assignments(LITERALS) if item.bounds_values] == ["target_n0"]
    made = with_settings(LITERALS, (("x_2", 5), ("hidden", 6), ("length", 7), ("widths_1", 9)))
    assert "torch.randn(B, n, 5)" in made and "[6, [16, 9]]" in made and "length=7" in made


def test_a_text_that_names_no_dtype_is_fp32_at_once() -> None:
    assert problems.load("softmax").precision == "fp32"
    assert problems.load(LITERALS).precision == "declared"
    assert problems.load(LITERALS, precision="bf16").precision == "bf16"
    assert problems.from_expression("x + 1", "x: f8e4m3[8]").precision == "declared"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tie": (("n", "nope"),)}, "--tie nope: no such size"),
        ({"tie": (("n", "x_2"),)}, "tied sizes have one value, but n is 64, x_2 is 4096"),
        ({"keep": ("n",), "vary": ("n",)}, "cannot both vary and be kept"),
    ],
)
def test_sizes_that_cannot_be_tied_or_kept_are_one_line(options: dict[str, tuple[str, ...]], said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        problems.load(LITERALS, **options)  # type: ignore[arg-type]


LINEAR = """import torch
class Model(torch.nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.fc = torch.nn.Linear(d, 32)
    def forward(self, x, other):
        return self.fc(x), other
def get_inputs():
    return [torch.randn(16, 64), torch.randn(64)]
"""


def test_a_size_that_the_reference_ties_cannot_vary_alone() -> None:
    """`--vary` breaks a tie that is the person's, and none that the reference needs."""
    opened = inspection.open_problem(problems.load(LINEAR, tie=(("x_1", "other_0"),), vary=("other_0", "x_1")))
    assert opened.problem.tie == (("x_1", "d"),)
    assert {case.inputs[0].shape[1] for case in opened.facts.cases} > {64}
