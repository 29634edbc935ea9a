"""Products written as einsum: plain products are planned and agree with torch, other contractions are left alone."""

from __future__ import annotations

import pytest
from test_row_recognition import computes, problem

from workbench.problems.inspection import inspect
from workbench.proposers.recognition import Unrecognised, recognise

MATRICES, BATCHES = ("torch.randn(n, d)", "torch.randn(d, 16)"), ("torch.randn(3, n, d)", "torch.randn(3, 8, d)")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("forward", "inputs", "arch", "starts"),
    [
        ("torch.einsum('ik,kj->ji', x, y)", MATRICES, "sm_80", "gemm(a, b) .arch(sm_80) .layout(a=column, b=column)"),
        ("torch.einsum('ik,kj->ij', x, y)", MATRICES, "sm_90a", "gemm(a, b)"),
        (
            "F.relu(torch.einsum('ki,jk->ij', x, y) + 1)",
            ("torch.randn(d, n)", "torch.randn(16, d)"),
            "sm_80",
            "gemm(a, b) .arch(sm_80) .layout(a=column, b=column)",
        ),
        (
            "torch.einsum('ik,jk->ij', x, y)",
            ("torch.randn(n, n)",) * 2,
            "sm_90a",
            "gemm(a, b) .arch(sm_90a) .layout(b=column)",
        ),
        ("torch.einsum('bik,bjk->bij', x, y)", BATCHES, "sm_90a", "gemm(a, b) .arch(sm_90a) .layout(b=column)"),
        (
            "torch.softmax(torch.einsum('bik,bjk->bij', x, y), -1)",
            BATCHES,
            "sm_80",
            "gemm(a, b) .arch(sm_80) .layout(b=column)",
        ),
    ],
)
def test_a_product_is_planned_as_one(forward: str, inputs: tuple[str, ...], arch: str, starts: str) -> None:
    text = computes(problem(forward, inputs), arch)
    assert text.removeprefix("h = ").removeprefix("h1 = ").startswith(starts) and "view(" not in text


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("torch.einsum('bik,bjk->ijb', x, y)", BATCHES),
        ("torch.einsum('ibk,jbk->bij', x, y)", ("torch.randn(n, 3, d)", "torch.randn(8, 3, d)")),
        ("torch.einsum('ik,ik->i', x, y)", ("torch.randn(n, d)",) * 2),
        ("torch.einsum('ij,jk->ik', x, y)", ("torch.randn(1, d)", "torch.randn(d, 1)")),
    ],
)
def test_other_contractions_are_left_or_right(forward: str, inputs: tuple[str, ...]) -> None:
    given = problem(forward, inputs)
    try:
        recognise(inspect(given))
    except Unrecognised as reason:
        assert "matmul" in str(reason)
    else:
        computes(given)
