"""Distances between rows: torch.cdist, differences and squares that forward writes itself, and their kernels."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from emitted import run_on
from test_row_recognition import computes, problem, proposed

from workbench import Session
from workbench.language import check, parse
from workbench.problems.inspection import inspect
from workbench.proposers.recognition import Unrecognised, recognise

FEW, MANY = (20, 24), (40, 24)
PAIR = ("torch.randn(n, d)", "torch.randn(n + 3, d)")
SQUARES = "x.pow(2).sum(1, keepdim=True) + (y ** 2).sum(1)"


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("settings", ["", ".tile(32, 32, 16) .thread_tile(2, 2)"])
def test_metrics_of_gemm(p: float, settings: str) -> None:
    """Rows and columns that no tile divides, and a NaN, which the largest difference does not see."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 35, 19), torch.randn(2, 21, 19)
    x[0, 3, 5] = torch.nan
    metric = {1.0: "l1", 2.0: "l2", math.inf: "linf"}[p]
    root = ">> sqrt()" if p == 2 else ""
    got = run_on(f"gemm(a, b, metric={metric}) {settings} {root}", (x, y.mT), ("a", "b"))
    wanted = torch.cdist(x, y, p=p, compute_mode="donot_use_mm_for_euclid_dist")
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("forward", "inputs", "sizes", "said"),
    [
        ("torch.exp(-(x[:, None] - y).pow(2).sum(-1) / 8)", PAIR, FEW, "gemm(a, b, metric=l2) .arch(sm_80) .layout("),
        (
            f"{SQUARES} - 2 * x @ y.t()",
            PAIR,
            FEW,
            ">> scale(2.0) >> map(sub(spread(h3), value()), along=m) >> bias(h2)",
        ),
        ("torch.cdist(x, y, p=1)", ("torch.randn(2, n, d)",) * 2, FEW, "gemm(a, b, metric=l1)"),
        ("(y[None] - x[:, None]).norm(dim=-1)", PAIR, FEW, "metric=l2) .arch(sm_80) .layout(b=column) >> sqrt()"),
        ("(x.unsqueeze(2) - y.unsqueeze(1)).abs().sum(-1)", ("torch.randn(2, n, d)",) * 2, FEW, "metric=l1"),
    ],
    ids=["kernel", "squares", "cdist", "norm", "batches"],
)
def test_they_are_products_and_differences(
    forward: str, inputs: tuple[str, ...], sizes: tuple[int, int], said: str
) -> None:
    assert said in computes(problem(forward, inputs, sizes=sizes), "sm_80")


def test_more_rows_are_multiplied_as_torch_does() -> None:
    """Also where the emulated sizes have few rows, and not where forward forbids it."""
    many, few = (problem("torch.cdist(x, y)", PAIR, sizes=sizes) for sizes in (MANY, FEW))
    without = problem("torch.cdist(x, y, compute_mode='donot_use_mm_for_euclid_dist')", PAIR, sizes=MANY)
    assert ">> scale(-2.0) >> add(h3, along=m) >> bias(h2) >> max(0.0) >> sqrt()" in proposed(many)[0]
    assert all("metric=l2" in proposed(one)[0] for one in (few, without))


def test_distances_of_rows_to_themselves_are_right(tmp_path: Path) -> None:
    """The diagonal is what a product leaves of zero."""
    with Session.create(
        problem("torch.cdist(x, x)", ("torch.randn(n, d)",), sizes=(28, 8)),
        root=tmp_path,
        executor="emulator",
        arch="sm_80",
    ) as session:
        version = session.generate()
        assert version is not None and ">> add(h3, along=m)" in str(version.proposal.candidate.program)
        verdict = version.trials[-1].verdict
        assert verdict.correct and not verdict.doubts, verdict


@pytest.mark.parametrize(
    ("forward", "inputs", "reason"),
    [
        ("torch.cdist(x, y, p=3)", PAIR, "p=3.0; it has p=1, p=2 and p=inf"),
        ("torch.cdist(x, y)", ("torch.randn(64, n, d)", "torch.randn(1, n, d)"), "unequal batch axes: flatten them"),
    ],
)
def test_other_distances_are_refused(forward: str, inputs: tuple[str, ...], reason: str) -> None:
    with pytest.raises(Unrecognised, match=reason):
        recognise(inspect(problem(forward, inputs, sizes=(64, 48))))


def test_tensor_cores_compute_no_distances() -> None:
    found = check(parse("gemm(a, b, metric=l2) .tile(64, 64, 32) .mma(bf16)"))
    assert [item.field for item in found] == ["mma"]
