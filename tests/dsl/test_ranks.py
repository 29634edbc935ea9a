"""Axes that a problem's tensor does not have are rejected with one line before code is emitted, and no others."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path

import pytest
import torch
from running import run

from workbench import problems
from workbench.codegen import compile_program
from workbench.errors import ProgramError
from workbench.language import Binding
from workbench.problems.inspection import inspect
from workbench.proposers.binding import candidate_of
from workbench.records import Facts, Problem
from workbench.session import Session

INIT = "def __init__(self):\n    super().__init__()\n"
TWO = Binding(init_source=INIT, forward_arguments=("x", "y"), axes=(("x", 2),))
THREE = Binding(init_source=INIT, forward_arguments=("x", "y"), axes=(("x", 3), ("y", 3)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "reduce(x, axis=7)",
            r"axis=7: x has 2 axes in this problem; legal: last, first, all, 0 to 1, last\(n\) for n up to 2, "
            r"over\(i, j\) and but\(i\) of axes up to 1$",
        ),
        ("reduce(x, axis=middle)", "axis=middle: x has 2 axes"),
        (
            "softmax(x, axis=middle)",
            r"axis=middle: x has 2 axes in this problem, and middle is the second of three; legal: last, "
            r"first, all, 0 to 1, last\(n\)",
        ),
        ("reduce(x, op=prod, axis=middle, keepdim=1)", "axis=middle: x has 2 axes"),
        ("rowwise(div(x, sum(x)), axis=middle) .split(4)", "axis=middle: x has 2 axes"),
        ("reduce(x, axis=over(1, 2)) .unroll(1)", r"axis=over\(1, 2\): x has 2 axes"),
        ("softmax(x, axis=last(3)) .unroll(1)", r"axis=last\(3\)"),
        ("layernorm(abs(x), axis=but(2), affine=0) .parts(2)", r"axis=but\(2\)"),
        ("rowwise(div(x, sum(x)), axis=2)", "axis=2: x has 2 axes"),
        ("scan(x, axis=2)", "axis=2: x has 2 axes in this problem; legal: last, 0 to 1"),
        ("gather(x, y, axis=2)", "legal: 0 to 1"),
        ("scatter_add(x, y, x, axis=5)", "axis=5"),
        ("scatter_max(x, y, x, axis=5)", "axis=5"),
        (
            "h = reduce(x, axis=1) |> softmax(h, axis=1)",
            "axis=1: h has 1 axis in this problem; legal: last, first, all, 0",
        ),
        ("h = gemm(x, x) >> relu() |> softmax(h, axis=2)", "axis=2: h has 2 axes"),
        ("h = reduce(x, axis=all) |> softmax(h)", "axis=last: h has 0 axes in this problem; legal: all"),
        ("h = rowwise(sub(x, max(x)), axis=0) |> reduce(h, axis=2)", "axis=2: h has 2 axes"),
    ],
)
def test_an_axis_that_there_is_not(text: str, said: str) -> None:
    with pytest.raises(ProgramError, match=said) as caught:
        compile_program(text, TWO)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "reduce(x, axis=middle)",
        "softmax(x, axis=middle)",
        "rowwise(div(x, sum(x)), axis=middle)",
        "reduce(x, axis=2)",
        "softmax(x, axis=last(3)) .unroll(1)",
        "rowwise(sum(mul(x, y)), axis=over(0, 2))",
        "h = reduce(x, axis=1, keepdim=1) |> softmax(h, axis=2)",
        "h = reduce(x, axis=but(2)) .parts(2) |> softmax(h)",
        "scan(x, axis=2)",
        "gather(x, y, axis=2)",
        "h = view(x, flatten=(0, 1)) |> reduce(h, axis=1)",
    ],
)
def test_axes_that_there_are_and_tensors_of_which_it_is_not_known(text: str) -> None:
    assert "class ModelNew" in compile_program(text, THREE)
    assert compile_program(text, dataclasses.replace(THREE, axes=())) == compile_program(text, THREE)


def test_there_is_no_middle_of_four_axes() -> None:
    """Four axes have two in the middle, so the program must name one by number."""
    with pytest.raises(
        ProgramError,
        match=r"axis=middle: x has 4 axes in this problem, and middle is the second of three; legal: last, first, "
        r"all, 0 to 3",
    ):
        compile_program("softmax(x, axis=middle)", dataclasses.replace(TWO, axes=(("x", 4),)))


def test_where_it_is_not_known_how_many_axes_there_are_the_kernel_says_it() -> None:
    """Of two axes the second is the last, so none is in the middle."""
    with pytest.raises(ValueError, match=r"x has the shape \(4, 8\); this kernel wants 3 axes or more"):
        run("softmax(x, axis=middle)", (torch.randn(4, 8),), ("x",))


@cache
def seen(name: str) -> tuple[Problem, Facts]:
    problem = problems.load(name)
    return problem, inspect(problem)


def test_the_problem_says_how_many_axes_its_tensors_have() -> None:
    with pytest.raises(ProgramError, match="axis=7: x has 2 axes in this problem"):
        candidate_of(*seen("row_sum"), "sm_80", "reduce(x, axis=7)")
    with pytest.raises(
        ProgramError, match=r"axis=3: x has 3 axes in this problem; legal: last, first, middle, all, 0 to 2"
    ):
        candidate_of(*seen("sum_middle_axis"), "sm_80", "reduce(x, axis=3)")
    with pytest.raises(ProgramError, match="axis=1: bias has 1 axis"):
        candidate_of(*seen("matmul_bias_gelu"), "sm_80", "reduce(bias, axis=1)")


def test_a_session_refuses_it_and_makes_no_version(tmp_path: Path) -> None:
    problem, facts = seen("row_sum")
    with Session.create(problem, root=tmp_path, executor="emulator", facts=facts) as session:
        with pytest.raises(ProgramError, match="axis=7: x has 2 axes"):
            session.program("reduce(x, axis=7)")
        assert not session.versions
