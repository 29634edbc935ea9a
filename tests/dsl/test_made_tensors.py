"""Modules with triangles, dropout, views of weights, and reductions after other stages: the planner's program."""

from __future__ import annotations

import re

import pytest
import torch
from running import run
from test_row_recognition import IMAGE, ONE, SHARES, TWO, computes, problem, proposed

from workbench.language import check, parse
from workbench.problems.inspection import inspect
from workbench.proposers.recognition import Unrecognised, recognise

WEIGHT = "self.w = nn.Parameter(torch.randn(n))"
BLOCK = "self.m = nn.Conv2d(n, 6, 3, padding=1)"
FOUR = ("torch.randn(3, n, 6, d)", "torch.randn(d, n)")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("forward", "inputs", "init", "said"),
    [
        ("torch.triu(x @ y.T)", TWO, "pass", "h2_1 = view(h1, index=0) |> h2_2 = view(h1, index=1) |> elementwise("),
        ("torch.tril(x, -1) + 1", ONE, "pass", "gt(spread(h2), add(spread(h1), -1))"),
        ("x.tril().softmax(-1)", IMAGE, "pass", "h1 = view(x, index=2) |> h2 = view(x, index=3) |> rowwise("),
        ("F.softmax(F.dropout(x @ y.T, 0.2), dim=1)", TWO, "pass", "view(h1, draw=0.8)"),
        ("F.dropout(torch.relu(x), 0.5) + x", ONE, "pass", "view(h1, draw=0.5)"),
        ("x.softmax(1) - self.w.view(1, -1, 1, 1)", IMAGE, WEIGHT, "spread(w)"),
        ("self.m(x).amin(1, keepdim=True).sum(2)", IMAGE, BLOCK, "h2_1 = reduce(h1, op=min, axis=1, keepdim=1)"),
        ("self.m(x).mean(2, keepdim=True).softmax(1)", IMAGE, BLOCK, "h2_1 = reduce(h1, op=mean, axis=2, keepdim=1)"),
        ("F.kl_div(torch.log(x), y, reduction='batchmean')", SHARES, "pass", "op=mean, axis=all"),
        ("torch.einsum('bijl,lk->bijk', x, y)", FOUR, "pass", "h2 = gemm(h1, y)"),
        (
            "torch.cat((torch.zeros_like(x[:, :1]), torch.cumsum(x[:, :-1], 1)), 1)",
            ONE,
            "pass",
            "scan(x, op=sum, axis=last, exclusive=1)",
        ),
    ],
)
def test_what_needs_indices_or_further_stages_is_computed(
    forward: str, inputs: tuple[str, ...], init: str, said: str
) -> None:
    assert said in computes(problem(forward, inputs, init), "sm_80")


@pytest.mark.parametrize(
    "forward",
    [
        "F.dropout(x, 0.5) + F.dropout(y, 0.2)",  # which is drawn first?
        "torch.triu(x, x.shape[1] // 4)",
        "F.dropout(x.T, 0.5)",  # drawn in the order of x
        "F.dropout1d(x, 0.5)",
    ],
)
def test_other_draws_and_diagonals_are_refused(forward: str) -> None:
    with pytest.raises(Unrecognised):
        recognise(inspect(problem(forward, TWO if "y" in forward else ONE, sizes=(64, 4096))))


def test_draws_that_follow_one_another_are_made_in_their_order() -> None:
    text = computes(problem("F.dropout(torch.relu(F.dropout(x, 0.2)), 0.5)"), "sm_80")
    assert text.index("draw=0.8") < text.index("draw=0.5")


def test_the_numbers_of_an_axis_have_one_element_on_the_axes_after_it() -> None:
    result = run("view(x, index=1)", (torch.zeros(2, 5, 3),), ("x",))
    assert result.shape == (5, 1) and result.flatten().tolist() == [0, 1, 2, 3, 4]
    assert [item.field for item in check(parse("view(x, draw=2)"))] == ["draw"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_stages_of_a_pipeline_begin_where_single_kernels_do(arch: str) -> None:
    whole = proposed(problem("(x.softmax(-1), (x * 2).sum(-1), x.std(0))"), arch)[0]
    alone = [proposed(problem(text), arch)[0] for text in ("x.softmax(-1)", "(x * 2).sum(-1)", "x.std(0)")]
    assert [re.sub(r"^h\d = ", "", stage) for stage in whole.split(" |> ")[:3]] == alone
