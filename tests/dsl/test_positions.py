"""Positions along an axis (`torch.arange` in forward): the planner's program and its result."""

from __future__ import annotations

import pytest
from test_row_recognition import computes, problem

from workbench.problems.inspection import inspect
from workbench.proposers.recognition import Unrecognised, recognise

SCORES = ("torch.randn(2, n, n)",)
ROW, COLUMN = "torch.arange(x.shape[-1])[:, None]", "torch.arange(x.shape[-1])[None]"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("forward", "inputs", "said"),
    [
        (  # attention with a sliding window
            f"x.masked_fill(~(({ROW} >= {COLUMN}) & ({ROW} - {COLUMN} < 3)), float('-inf')).softmax(-1)",
            SCORES,
            "h1 = view(x, index=2) |> h2 = view(x, index=1) |> rowwise(",
        ),
        (f"(x - ({ROW} - {COLUMN}).abs().float() * 0.1).softmax(-1)", SCORES, "mul(abs(sub(spread("),  # ALiBi
        (f"torch.where({ROW} - {COLUMN} < 2, x.half(), -1.0)", SCORES, "elementwise(where(lt(sub(spread("),
        (
            "x * torch.cos(torch.arange(1, 2 * x.shape[0], 2, dtype=torch.float32)[:, None] * 0.1)",
            ("torch.randn(n, d)",),
            "cos(mul(add(mul(spread(h1), 2.0), 1.0), 0.1))",
        ),
        (
            f"((x @ y.transpose(1, 2)) * 0.3).masked_fill({ROW.replace('x.', 'y.').replace('-1', '1')} < "
            f"{COLUMN.replace('x.', 'y.').replace('-1', '1')}, -1e4).softmax(-1) @ y",
            ("torch.randn(2, n, d)",) * 2,
            "gemm(",
        ),
    ],
    ids=["window", "alibi", "half", "steps", "attention"],
)
def test_positions_are_numbers_of_an_axis(forward: str, inputs: tuple[str, ...], said: str) -> None:
    assert said in computes(problem(forward, inputs), "sm_90a")


def test_integers_that_float32_does_not_hold_are_left() -> None:
    with pytest.raises(Unrecognised):
        recognise(inspect(problem("x + (torch.arange(x.shape[-1]) * 70000 * 70001)", ("torch.randn(n, d)",))))


@pytest.mark.parametrize("rows", [1 << 22, 1 << 24])
def test_positions_that_float32_does_not_hold_are_left(rows: int) -> None:
    mask = "x.masked_fill(torch.arange(x.shape[0])[:, None] - torch.arange(x.shape[1])[None] < 3, 0.0)"
    facts = inspect(problem(mask, ("torch.randn(n, d)",), sizes=(rows, 32)))
    if rows < 1 << 24:
        assert recognise(facts).kind == "elementwise"
    else:
        with pytest.raises(Unrecognised):
            recognise(facts)
