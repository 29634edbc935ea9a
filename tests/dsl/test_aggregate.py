"""aggregate against torch on the emulator: every reduction, odd sizes, empty and long rows; rejections."""

from __future__ import annotations

import itertools

import pytest
import torch
from emitted import run_on

from workbench.emulator import EmulationFault
from workbench.language import check, parse

NAMES = ("x", "indptr", "indices")
COUNTS = (0, 1, 5, 3, 70, 0, 2, 1, 9, 0, 0)  # neighbours of each row: none, one, some, many


def make_graph(nodes: int = 40, counts: tuple[int, ...] = COUNTS) -> tuple[torch.Tensor, torch.Tensor]:
    """Offsets and indices of rows with so many neighbours."""
    indptr = torch.tensor([0, *counts]).cumsum(0)
    return indptr, torch.randint(0, nodes, (int(indptr[-1]),), generator=torch.Generator().manual_seed(1))


def reduce_rows(
    x: torch.Tensor, indptr: torch.Tensor, indices: torch.Tensor, op: str, weight: torch.Tensor | None = None
) -> torch.Tensor:
    """What aggregate computes, row by row in float64."""
    taken = x.double()[indices] if weight is None else x.double()[indices] * weight.double()
    rows = [taken[begin:end] for begin, end in itertools.pairwise(indptr)]
    reduce = {"sum": lambda row: row.sum(0), "mean": lambda row: row.mean(0), "max": lambda row: row.amax(0)}[op]
    return torch.stack([reduce(row) if len(row) else torch.zeros_like(x[0]).double() for row in rows]).to(x.dtype)


@pytest.mark.few(3)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("op", "settings", "columns"),
    [
        ("sum", "", 32),
        ("mean", ".split(4) .threads_per_row(4) .rows(2) .unroll(2)", 13),
        ("max", ".rows(1) .threads_per_row(64) .split(2) .vector(8) .unroll(8)", 602),
        ("max", ".vector(1) .unroll(1)", 7),
        ("mean", ".rows(1) .split(32) .threads_per_row(32)", 6),
    ],
)
def test_reductions(arch: str, op: str, settings: str, columns: int) -> None:
    x, (indptr, indices) = torch.randn(40, columns), make_graph()
    result = run_on(f"aggregate(x, indptr, indices, op={op}) {settings}", (x, indptr, indices), NAMES, arch=arch)
    torch.testing.assert_close(result, reduce_rows(x, indptr, indices, op))


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_types_and_indices(dtype: torch.dtype) -> None:
    x, (indptr, indices) = torch.randn(40, 24).to(dtype), make_graph()
    text = "aggregate(x, indptr, indices) .vector(8) .threads_per_row(4) .split(2)"
    result = run_on(text, (x, indptr.int(), indices.int()), NAMES)
    assert result.dtype == dtype
    torch.testing.assert_close(result, reduce_rows(x, indptr, indices, "sum"))


def test_the_parts_of_a_long_row_are_added_in_a_fixed_order() -> None:
    x, (indptr, indices) = torch.randn(40, 8) * 1e4, make_graph(counts=(3000, 1, 0))
    text = "aggregate(x, indptr, indices) .rows(1) .threads_per_row(4) .split(16)"
    one, two = (run_on(text, (x, indptr, indices), NAMES) for _ in range(2))
    assert torch.equal(one, two)
    torch.testing.assert_close(one, reduce_rows(x, indptr, indices, "sum"), rtol=1e-5, atol=1.0)


def test_weights_of_neighbours_and_of_heads() -> None:
    x, (indptr, indices) = torch.randn(40, 3, 10), make_graph()
    one, each = torch.randn(len(indices)), torch.randn(len(indices), 3)
    for weight, factor in ((one, one[:, None, None]), (each, each[:, :, None]), (each[:, :1], None)):
        arguments = (x if factor is not None else x[:, :1], indptr, indices, weight)
        factor = each[:, :1, None] if factor is None else factor
        result = run_on("aggregate(x, indptr, indices, weighted=1)", arguments, (*NAMES, "weight"))
        torch.testing.assert_close(result, reduce_rows(arguments[0], indptr, indices, "sum", factor))
    with pytest.raises(ValueError, match=r"weight has the shape \(91, 2\); this kernel wants \(91, 3\)"):
        run_on("aggregate(x, indptr, indices, weighted=1)", (x, indptr, indices, each[:, :2]), (*NAMES, "weight"))


def test_rows_without_neighbours() -> None:
    x, (indptr, indices) = torch.randn(40, 8), make_graph()
    empty = torch.tensor(COUNTS) == 0
    for op, value in (("sum", 0.0), ("mean", float("nan")), ("max", float("-inf"))):
        for text, wanted in ((op, 0.0), (f"{op}, empty=identity", value)):
            result = run_on(f"aggregate(x, indptr, indices, op={text})", (x, indptr, indices), NAMES)[empty]
            torch.testing.assert_close(result, torch.full_like(result, wanted), equal_nan=True)
        nothing = run_on(f"aggregate(x, indptr, indices, op={op}, empty=identity)", (x, indptr * 0, indices[:0]), NAMES)
        torch.testing.assert_close(nothing, torch.full((11, 8), value), equal_nan=True)


def test_nan_stays_in_a_maximum() -> None:
    x, indptr = torch.tensor([[1.0], [float("nan")], [2.0]]), torch.tensor([0, 2, 3])
    result = run_on("aggregate(x, indptr, indices, op=max)", (x, indptr, torch.tensor([1, 0, 2])), NAMES)
    assert result[0].isnan() and result[1] == 2


@pytest.mark.few(1)
@pytest.mark.parametrize("wrong", [40, -1])
def test_an_index_out_of_range_is_a_finding(wrong: int) -> None:
    x, (indptr, indices) = torch.randn(40, 8), make_graph()
    with pytest.raises(EmulationFault, match="out of bounds"):
        run_on("aggregate(x, indptr, indices)", (x, indptr, torch.full_like(indices, wrong)), NAMES)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("aggregate(x, indptr)", "takes 3"),
        ("aggregate(x, indptr, indices, op=prod)", "op=prod"),
        ("aggregate(x, indptr, indices, op=max, weighted=1)", "op=max takes no weights"),
        ("aggregate(x, indptr, indices, empty=one)", "empty=one"),
        ("aggregate(x, indptr, indices) .rows(3)", "rows=3"),
        ("aggregate(x, indptr, indices) .rows(32) .threads_per_row(64)", "is 2048 threads"),
        ("aggregate(x, indptr, indices) .rows(1) .threads_per_row(8)", "is 8 threads"),
        ("aggregate(x, indptr, indices) .split(64)", "split=64"),
    ],
)
def test_rejections(text: str, reason: str) -> None:
    assert any(reason in str(item) for item in check(parse(text)))
