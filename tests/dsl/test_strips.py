"""Reductions along a strided axis whose rows bulk copies bring to shared memory: `.through(shared)`."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from running import launched, run

from workbench import problems
from workbench.language import check, parse
from workbench.problems import inspection
from workbench.proposers.ladders import Context, ladder
from workbench.proposers.recognition import recognise

HOW = ".arch(sm_90a) .through(shared)"


@settings(max_examples=7, deadline=None)
@given(
    st.sampled_from([(1, 1, 1), (3, 9, 7), (2, 37, 404), (4, 8, 1025), (2, 17, 299), (1, 70, 64), (5, 3, 2)]),
    st.sampled_from(["float32", "float16", "bfloat16"]),
)
def test_the_least_of_each_column_at_any_size_and_alignment(shape: tuple[int, int, int], kind: str) -> None:
    torch.manual_seed(sum(shape))
    x = torch.randn(shape).to(getattr(torch, kind))
    assert torch.equal(run(f"reduce(x, op=min, axis=1) {HOW}", (x,), ("x",)), x.amin(1))


@pytest.mark.slow
def test_other_reductions_other_axes_and_several_tensors() -> None:
    torch.manual_seed(1)
    x, y = torch.randn(19, 135), torch.randn(2, 33, 5, 14)
    torch.testing.assert_close(
        run(f"reduce(x, op=var1, axis=first, keepdim=1) {HOW} .threads(32) .unroll(1)", (x,), ("x",)),
        x.var(0, keepdim=True),
    )
    assert torch.equal(
        run(f"reduce(x, op=argmax, axis=over(1, 2)) {HOW} .threads(64)", (y,), ("x",)), y.flatten(1, 2).argmax(1)
    )
    a, b = torch.rand(2, 33, 70), torch.rand(2, 33, 70)
    torch.testing.assert_close(
        run(f"rowwise(sqrt(sum(mul(a, b))), axis=1) {HOW}", (a, b), ("a", "b")), (a * b).sum(1).sqrt()
    )


def test_a_tensor_that_begins_anywhere() -> None:
    whole = torch.randn(1 + 3 * 21 * 90)
    x = whole[1:].view(3, 21, 90)
    assert torch.equal(run(f"reduce(x, op=max, axis=1) {HOW}", (x,), ("x",)), x.amax(1))


def test_nan_stays() -> None:
    x = torch.randn(2, 11, 40)
    x[1, 5, 7] = math.nan
    assert torch.equal(run(f"reduce(x, op=max, axis=1) {HOW}", (x,), ("x",)).isnan(), x.amax(1).isnan())


def test_fewer_sectors_where_rows_begin_anywhere() -> None:
    """With rows of 1023 floats, warps' loads share sectors; a bulk copy reads a strip with only a few bytes more."""
    x = torch.randn(1, 64, 1023)

    def counted(how: str) -> int:
        _, emulation = launched(f"reduce(x, op=min, axis=1) .arch(sm_90a) {how}", (x,), ("x",))
        return sum(launch.total.global_sectors for launch in emulation.launches)

    assert (
        x.numel() * 4 / 32 <= counted(".through(shared)") < 1.03 * x.numel() * 4 / 32 < counted(".vector(4) .split(4)")
    )


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("reduce(x, axis=last) .arch(sm_90a) .through(shared)", "through"),
        ("reduce(x, axis=1) .through(shared)", "arch"),
        ("reduce(x, axis=1) .arch(sm_90a) .through(registers)", "through"),
        ("softmax(x, axis=1) .arch(sm_90a) .through(shared)", "through"),
        ("reduce(x, axis=1) .arch(sm_90a) .through(shared) .split(4)", "split"),
        ("reduce(x, axis=1) .arch(sm_90a) .through(shared) .vector(4)", "vector"),
    ],
)
def test_what_does_not_go_with_it_is_told(text: str, field: str) -> None:
    assert field in {item.field for item in check(parse(text))}


def test_the_planner_tries_it_where_rows_begin_anywhere() -> None:
    odd = problems.load("tests/bench/problems/53_min_over_middle.py", precision="tf32")
    facts = inspection.inspect(odd)
    rungs = ladder(Context(found=recognise(facts), precision="tf32", arch="sm_90a", device="H200", facts=facts))
    assert any(call.name == "through" for rung in rungs[:4] for call in rung.settings)
