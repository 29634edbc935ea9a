"""Convolutions whose epilogue reduces the filters of each position."""

from __future__ import annotations

import pytest
import torch
from emitted import run_on
from torch.nn import functional as F

from workbench.language import check, parse

HALO, PINGPONG = ".mma(tf32) .tile(256, 32, 8) .schedule(halo)", ".mma(tf32) .tile(128, 64, 16) .schedule(pingpong)"
COOPERATIVE = ".mma(tf32) .tile(256, 32, 16) .schedule(cooperative) .cluster(2)"


def convolve(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, **how: int) -> torch.Tensor:
    return F.conv2d(x.double(), w.double(), bias.double(), **how)


@pytest.mark.parametrize("settings", [HALO, PINGPONG, COOPERATIVE])
@pytest.mark.parametrize(("name", "reduce"), [("rowmin", torch.amin), ("rowmax", torch.amax), ("rowmean", torch.mean)])
def test_filters_are_reduced_in_the_epilogue(settings: str, name: str, reduce: object) -> None:
    torch.manual_seed(0)
    x, w, bias = torch.randn(2, 5, 11, 13), torch.randn(20, 5, 3, 3), torch.randn(20)
    program = f"conv(x, w, padding=1) .arch(sm_90a) {settings} >> bias() >> {name}(keepdim=1) >> tanh() >> mul(2.0)"
    result = run_on(program, (x, w, bias), ("x", "w", "bias"))
    expected = 2 * torch.tanh(reduce(convolve(x, w, bias, padding=1), 1, keepdim=True))  # type: ignore[operator]
    assert result.shape == (2, 1, 11, 13)
    torch.testing.assert_close(result.double(), expected, rtol=2e-2, atol=2e-2)


def test_a_transposed_convolution_with_three_extents_sums_its_filters() -> None:
    x, w = torch.randn(2, 4, 3, 5, 4), torch.randn(4, 9, 3, 3, 3)
    program = "convtranspose(x, w, stride=2) .arch(sm_90a) .mma(tf32) .tile(128, 16, 16) .schedule(cooperative)"
    result = run_on(f"{program} >> map(square(value())) >> rowsum(keepdim=1)", (x, w), ("x", "w"))
    expected = F.conv_transpose3d(x.double(), w.double(), stride=2).square().sum(1, keepdim=True)
    torch.testing.assert_close(result.double(), expected, rtol=2e-2, atol=0.3)


def test_nan_of_a_filter_is_the_result() -> None:
    x, w, bias = torch.randn(1, 3, 6, 6), torch.randn(8, 3, 3, 3), torch.zeros(8)
    bias[5] = torch.nan
    result = run_on(f"conv(x, w) .arch(sm_90a) {HALO} >> bias() >> rowmax(keepdim=1)", (x, w, bias), ("x", "w", "bias"))
    assert result.isnan().all()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("conv(x, w) .arch(sm_90a) .mma(tf32) .schedule(patch) >> rowmin(keepdim=1)", "through shared memory"),
        ("conv(x, w) .threads(128) >> rowmin(keepdim=1)", "only kernels with a schedule"),
        ("conv(x, w, groups=2) .arch(sm_90a) .mma(tf32) .schedule(pingpong) >> rowmin(keepdim=1)", "several groups"),
        ("conv(x, w) .arch(sm_90a) .mma(tf32) .schedule(pingpong) >> rowmin()", "the channels stay, as 1"),
        (
            "conv(x, w) .arch(sm_90a) .mma(tf32) .schedule(halo) >> residual() >> rowsum(keepdim=1)",
            "of the result's shape is not read",
        ),
        ("conv(x, w) .arch(sm_90a) .mma(tf32) .schedule(halo) >> colsum(keepdim=1)", ""),
    ],
)
def test_what_cannot_be_reduced_is_refused(program: str, reason: str) -> None:
    found = check(parse(program))
    assert found and reason in found[0].reason


def test_more_filters_than_a_tile_holds_are_refused_by_the_host() -> None:
    x, w = torch.randn(1, 3, 6, 6), torch.randn(40, 3, 3, 3)
    with pytest.raises(ValueError, match="40 filters are reduced in a tile of 32"):
        run_on(f"conv(x, w) .arch(sm_90a) {HALO} >> rowmin(keepdim=1)", (x, w), ("x", "w"))
