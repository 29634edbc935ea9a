"""sddmm and segment_softmax against torch on the emulator: heads, odd sizes, empty and long rows, rejections."""

from __future__ import annotations

import pytest
import torch
from emitted import run_on
from test_aggregate import make_graph

from workbench.language import check, parse

NAMES = ("q", "k", "indptr", "indices")


def rows_of(indptr: torch.Tensor) -> torch.Tensor:
    """The row of each index."""
    return torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())


def softmax_rows(scores: torch.Tensor, indptr: torch.Tensor) -> torch.Tensor:
    """What segment_softmax computes, in float64."""
    parts = scores.double().split(indptr.diff().tolist())
    return torch.cat([part.softmax(0) for part in parts]).to(scores.dtype)


@pytest.mark.few(1)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((24,), ""),
        ((3, 10), ".threads_per_row(4) .split(2) .rows(4) .unroll(2)"),
        ((2, 65), ".threads_per_row(32) .split(1) .rows(4) .unroll(1)"),
        ((1, 7), ".threads_per_row(1) .split(32) .rows(1) .vector(1)"),
    ],
)
def test_products(arch: str, shape: tuple[int, ...], settings: str) -> None:
    indptr, indices = make_graph()
    q, k = torch.randn(len(indptr) - 1, *shape), torch.randn(40, *shape)
    result = run_on(f"sddmm(q, k, indptr, indices) {settings}", (q, k, indptr, indices), NAMES, arch=arch)
    torch.testing.assert_close(result, (q[rows_of(indptr)] * k[indices]).sum(-1))


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums(dtype: torch.dtype) -> None:
    indptr, indices = make_graph()
    for shape in ((8,), (3,), (), (2, 5)):
        q, k = torch.randn(len(indptr) - 1, *shape).to(dtype), torch.randn(40, *shape).to(dtype)
        result = run_on("sddmm(q, k, indptr, indices, op=add)", (q, k, indptr.int(), indices.int()), NAMES)
        assert torch.equal(result, q[rows_of(indptr)] + k[indices])


@pytest.mark.few(3)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("heads", [(), (1,), (3,), (8,), (40,)])
@pytest.mark.parametrize("settings", ["", ".threads_per_row(8) .split(4) .unroll(4)"])
def test_softmax(arch: str, heads: tuple[int, ...], settings: str) -> None:
    indptr, indices = make_graph()
    scores = torch.randn(len(indices), *heads) * 10
    result = run_on(f"segment_softmax(scores, indptr) {settings}", (scores, indptr), ("scores", "indptr"), arch=arch)
    torch.testing.assert_close(result, softmax_rows(scores, indptr))


def test_softmax_of_narrow_types_and_infinities() -> None:
    indptr, indices = make_graph()
    scores = torch.randn(len(indices)).half()
    result = run_on("segment_softmax(scores, indptr)", (scores, indptr), ("scores", "indptr"))
    torch.testing.assert_close(result, softmax_rows(scores, indptr))
    scores[10:12] = float("-inf")  # among others of a row
    scores[:1] = float("-inf")  # a row of its own
    result = run_on("segment_softmax(scores, indptr)", (scores, indptr), ("scores", "indptr"))
    torch.testing.assert_close(result, softmax_rows(scores, indptr), equal_nan=True)


def test_operands_of_the_wrong_shape() -> None:
    indptr, indices = make_graph()
    with pytest.raises(ValueError, match=r"q has the shape \(10, 8\); this kernel wants \(11, 8\)"):
        run_on("sddmm(q, k, indptr, indices)", (torch.randn(10, 8), torch.randn(40, 8), indptr, indices), NAMES)
    with pytest.raises(ValueError, match=r"scores has the shape .* wants 1 to 2 axes"):
        run_on("segment_softmax(scores, indptr)", (torch.randn(len(indices), 2, 2), indptr), ("scores", "indptr"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sddmm(q, k, indptr)", "takes 4"),
        ("sddmm(q, k, indptr, indices, op=mul)", "op=mul"),
        ("sddmm(q, k, indptr, indices) .threads_per_row(64)", "threads_per_row=64"),
        ("segment_softmax(scores, indptr) .rows(1) .threads_per_row(8)", "is 8 threads"),
        ("segment_softmax(scores, indptr) .vector(4)", "no such setting"),
    ],
)
def test_rejections(text: str, reason: str) -> None:
    assert any(reason in str(item) for item in check(parse(text)))
