"""Integers made of floats: a value near the boundary of two may become either; no other integer passes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from workbench.executors.workers.correctness import compare
from workbench.executors.workers.tolerance import measure_tolerances
from workbench.problems.reference import run_reference
from workbench.problems.results import spec_of

Function = Callable[[torch.Tensor], torch.Tensor]
BF16, FP32 = torch.bfloat16, torch.float32
PRECISIONS = {BF16: "bf16", FP32: "fp32"}


class Called(torch.nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x / (x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127)


def quantise(x: torch.Tensor) -> torch.Tensor:
    return scaled(x).round().clamp(-128, 127).to(torch.int8)


def multiply(x: torch.Tensor) -> torch.Tensor:
    """The same with one product in place of each quotient, in float32."""
    return (x.float() * (127 / x.float().abs().amax(-1, keepdim=True))).round().clamp(-128, 127).to(torch.int8)


def passes(reference: Function, candidate: Function, dtype: torch.dtype) -> bool:
    torch.manual_seed(0)
    x = torch.randn(256, 1024).to(dtype)
    found = run_reference(Called(reference), [x], PRECISIONS[dtype], seed=0)  # type: ignore[arg-type]
    (exact,) = found.exact
    specs = [spec_of("q", exact)]
    return bool(compare(candidate(x), exact, measure_tolerances(found, specs)[0])["passed"])


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize("candidate", [quantise, multiply])
def test_another_order_of_rounding_passes(candidate: Function, dtype: torch.dtype) -> None:
    exact = quantise(torch.randn(256, 1024, generator=torch.Generator().manual_seed(0)).to(dtype).double())
    torch.manual_seed(0)
    assert not torch.equal(exact, candidate(torch.randn(256, 1024).to(dtype))) or dtype == FP32
    assert passes(quantise, candidate, dtype)


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: scaled(x).clamp(-128, 127).to(torch.int8),
        lambda x: scaled(x).floor().clamp(-128, 127).to(torch.int8),
        lambda x: scaled(x).ceil().clamp(-128, 127).to(torch.int8),
        lambda x: scaled(x).round().clamp(-120, 120).to(torch.int8),
        lambda x: quantise(x) + 1,
        lambda x: quantise(x).roll(1, -1),
        lambda x: quantise(x) * 0,
    ],
    ids=["truncates", "floor", "ceil", "clamp", "one more", "moved", "zeros"],
)
def test_another_computation_is_wrong(wrong: Function, dtype: torch.dtype) -> None:
    assert not passes(quantise, wrong, dtype)


def test_integers_that_no_rounding_made_are_exact() -> None:
    count: Function = lambda x: (x > 0).sum(-1)  # noqa: E731
    assert passes(count, count, BF16) and not passes(count, lambda x: count(x) + 1, BF16)


def test_a_conversion_and_a_rounding_in_place_count_too() -> None:
    truncate: Function = lambda x: (x * 10 / 3).int()  # noqa: E731
    assert passes(truncate, truncate, BF16) and not passes(truncate, lambda x: (x * 10 / 3).round().int(), BF16)

    def in_place(x: torch.Tensor) -> torch.Tensor:
        return scaled(x).round_().clamp_(-128, 127).to(torch.int8)

    assert passes(in_place, in_place, BF16) and not passes(in_place, lambda x: scaled(x).trunc().to(torch.int8), BF16)
