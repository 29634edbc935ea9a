"""A batch norm as its statistics and as part of the next kernel, against torch in float64 on the emulator."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from running import launched, run
from test_row_recognition import IMAGE, ONE, computes, problem, proposed

from workbench.language import check, parse

STATS = "h = batch_norm_stats(x, running=1, momentum=0.3{axis}) {how} |> m = view(h, item=0) |> s = view(h, item=1) |> "
APPLIED = "add(mul(mul(sub(x, spread(m)), spread(s)), spread(weight)), spread(bias))"
NAMES = ("x", "weight", "bias", "running_mean", "running_var", "batches")
PARTS = ".threads_per_row(32) .vector(4) .parts(3)"


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) * 2 + 3


@pytest.mark.parametrize(
    ("shape", "after"),
    [
        ((2, 5, 3, 7, 11), "rowwise(sub({0}, mean({0})), axis=last(3)) .threads_per_row(64) .vector(4) .kept()"),
        ((2, 5, 33, 31), "elementwise(relu({0})) .threads(32) .vector(4) .unroll(2)"),
        ((3, 4, 7, 8), "reduce({0}, op=mean, axis=last(2)) .threads_per_row(32) .vector(4) .unroll(2)"),
        ((4, 6, 40), "elementwise(mul({0}, 2)) .threads(32) .vector(4) .unroll(2)"),
        ((9, 132), "elementwise(gelu({0})) .threads(32) .vector(4) .unroll(4)"),
        ((9, 132), "rowwise(div(exp(sub({0}, max({0}))), sum(exp(sub({0}, max({0})))))) .threads_per_row(32) .kept()"),
    ],
)
def test_what_follows_applies_the_norm(shape: tuple[int, ...], after: str) -> None:
    channels, ones = shape[1], [1] * (len(shape) - 2)
    x, weight, bias = drawn(*shape), drawn(channels), drawn(channels) - 1
    kept, seen, batches = torch.zeros(channels), torch.ones(channels), torch.tensor(4)
    mean, variance = kept.double(), seen.double()
    norm = F.batch_norm(x.double(), mean, variance, weight.double(), bias.double(), training=True, momentum=0.3)
    wanted = {
        "rowwise(sub": lambda: norm - norm.mean((2, 3, 4), keepdim=True),
        "elementwise(relu": norm.relu,
        "reduce": lambda: norm.mean((2, 3)),
        "elementwise(mul": lambda: norm * 2,
        "elementwise(gelu": lambda: F.gelu(norm),
        "rowwise(div": lambda: norm.softmax(-1),
    }
    axis, how = (", axis=first", ".split(4) .vector(4) .parts(3)") if len(shape) == 2 else ("", PARTS)
    text = STATS.format(axis=axis, how=how) + after.format(APPLIED)
    tensors = (x, weight.view(-1, *ones), bias.view(-1, *ones), kept, seen, batches)
    got, emulation = launched(text, tensors, NAMES)
    right = next(make() for start, make in wanted.items() if after.startswith(start))
    torch.testing.assert_close(got.double(), right, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(kept.double(), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(seen.double(), variance, rtol=1e-5, atol=1e-6)
    assert int(batches) == 5 and {item.severity for item in emulation.findings} <= {"advice"}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_channel(value: float) -> None:
    x = drawn(3, 4, 10)
    x[1, 2, 3] = value
    text = (
        f"h = batch_norm_stats(x) {PARTS} |> m = view(h, item=0) |> s = view(h, item=1) |> "
        "elementwise(mul(sub(x, spread(m)), spread(s)))"
    )
    got, wanted = run(text, (x,), ("x",)), F.batch_norm(x.double(), None, None, training=True)
    torch.testing.assert_close(got.double(), wanted, rtol=2e-5, atol=2e-5, equal_nan=True)


def test_statistics_of_half_precision_are_in_float32() -> None:
    x = drawn(3, 4, 17).bfloat16()
    got = run(f"h = batch_norm_stats(x) {PARTS} |> view(h, item=0)", (x,), ("x",))
    assert got.dtype == torch.float32 and got.shape == (4, 1)
    torch.testing.assert_close(got.double().view(-1), x.double().mean((0, 2)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("forward", "inputs", "init", "said"),
    [
        (
            "torch.relu(self.m(x)) + x",
            IMAGE,
            "self.m = nn.BatchNorm2d(n)",
            ("batch_norm_stats(x", "elementwise(add(relu"),
        ),
        (
            "self.m(x).softmax(-1)",
            ONE,
            "self.m = nn.BatchNorm1d(d, affine=False)",
            ("axis=first", "rowwise(div(exp(sub("),
        ),
        (
            "self.m(x).mean((2, 3))",
            IMAGE,
            "self.m = nn.BatchNorm2d(n, track_running_stats=False)",
            ("stats(x, eps", "reduce("),
        ),
    ],
)
def test_the_planner_lets_the_next_stage_apply_a_norm(
    forward: str, inputs: tuple[str, ...], init: str, said: tuple[str, ...]
) -> None:
    text = computes(problem(forward, inputs, init))
    assert "batch_norm_stats" in text and all(part in text for part in said)


FILTERS = "self.c, self.m = nn.{0}(n, 6, 3), nn.{1}(6)"


@pytest.mark.parametrize(
    ("forward", "inputs", "init", "last"),
    [
        (
            "(lambda z: z - z.mean((2, 3, 4), keepdim=True))(self.m(self.c(x)))",
            ("torch.randn(2, n, 6, 5, 7)",),
            FILTERS.format("ConvTranspose3d", "BatchNorm3d"),
            "rowwise(sub(add(mul(mul(sub(h1, spread(h3)), spread(h4)), spread(m_weight)), spread(m_bias)), mean(",
        ),
        (
            "torch.relu(F.gelu(self.m(self.c(x))))",
            ("torch.randn(2, n)",),
            "self.c, self.m = nn.Linear(n, d), nn.BatchNorm1d(d)",
            "elementwise(relu(gelu(add(mul(mul(sub(h1, spread(h3)), spread(h4)), spread(m_weight)), spread(m_bias)))))",
        ),
        (
            "F.adaptive_avg_pool3d(self.m(self.c(x) * 2.0), 1)",
            ("torch.randn(2, n, 6, 5, 7)",),
            FILTERS.format("ConvTranspose3d", "BatchNorm3d"),
            "reduce(add(mul(mul(sub(h1, spread(h3)), spread(h4)), spread(m_weight)), spread(m_bias)), op=mean, ",
        ),
    ],
)
def test_norms_of_products_and_convolutions(forward: str, inputs: tuple[str, ...], init: str, last: str) -> None:
    """The forms of KernelBench's level 2, problems 15, 41 and 77."""
    stages = proposed(problem(forward, inputs, init))[0].split(" |> ")
    assert len(stages) == 5 and stages[1].startswith("h2 = batch_norm_stats(h1, ") and stages[-1].startswith(last)


@pytest.mark.parametrize(
    "forward", ["self.c(self.m(x))", "F.max_pool2d(self.m(x), 2)", "(lambda z: self.c(z) + z.sum())(self.m(x))"]
)
def test_a_norm_that_must_be_written_is_one_stage(forward: str) -> None:
    text = proposed(problem(forward, IMAGE, "self.c, self.m = nn.Conv2d(n, n, 1), nn.BatchNorm2d(n)"))[0]
    assert "batchnorm(x" in text and "batch_norm_stats" not in text


def test_it_takes_what_a_batch_norm_takes() -> None:
    assert [item.field for item in check(parse("batch_norm_stats(x)"))] == ["parts"]
    assert [item.field for item in check(parse("batch_norm_stats(x, affine=1) .parts(8)"))] == ["affine"]
