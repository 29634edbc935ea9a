"""Means of a group norm's channels: against torch on the emulator, recognition, rejections."""

from __future__ import annotations

import pytest
import torch
from running import launched
from test_conv_planner import asked

from workbench.emulator.hook import Emulation
from workbench.language import check, parse
from workbench.proposers.binding import plain_program
from workbench.proposers.recognition import recognise

CASES = [
    ("", (3, 6, 5, 7), torch.float32),
    (".threads_per_row(64) .vector(4) .unroll(2)", (2, 8, 4, 8), torch.float32),
    (".threads_per_row(64) .cluster(2)", (2, 4, 9, 3, 5), torch.float16),
    (".threads_per_row(1)", (2, 4, 33), torch.float32),
]


def means(how: str, x: torch.Tensor, affine: bool, keepdim: bool = False) -> tuple[torch.Tensor, Emulation]:
    """Return the means of the program and its emulation."""
    arch = ".arch(sm_90a)" if "cluster" in how else ""
    weight = torch.linspace(-1, 2, x.shape[1], dtype=x.dtype)
    bias = torch.linspace(3, 1, x.shape[1], dtype=x.dtype)
    text = f"groupnorm_means(x, groups=2, eps=0.001, affine={int(affine)}, keepdim={int(keepdim)}) {arch} {how}"
    names = ("x", "weight", "bias") if affine else ("x",)
    return launched(text, (x, weight, bias)[: len(names)], names)


@pytest.mark.few(2)
@pytest.mark.parametrize(("how", "shape", "dtype"), CASES)
def test_means_are_those_of_torch(how: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x = (torch.randn(shape) * 3 + torch.randn(*shape[:2], *[1] * (len(shape) - 2)) + 100).to(dtype)
    got, emulation = means(how, x, affine=True)
    weight = torch.linspace(-1, 2, shape[1], dtype=dtype).double()
    bias = torch.linspace(3, 1, shape[1], dtype=dtype).double()
    want = torch.nn.functional.group_norm(x.double(), 2, weight, bias, 0.001).flatten(2).mean(-1)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-3
    torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)
    assert got.dtype == dtype and not [item for item in emulation.findings if item.severity == "error"]
    # x is read once, and results and moments alone are written
    assert sum(launch.total.global_write_bytes for launch in emulation.launches) <= 12 * got.numel()


def test_weights_may_be_missing_and_axes_kept() -> None:
    x = torch.randn(2, 4, 6, 5)
    got, _ = means("", x, affine=False, keepdim=True)
    want = torch.nn.functional.group_norm(x, 2, eps=0.001).mean((2, 3), keepdim=True)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    empty, _ = means("", torch.randn(0, 4, 6, 5), affine=False)
    assert empty.shape == (0, 4)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("init", "forward", "program"),
    [
        (
            "n = nn.GroupNorm(4, channels)",
            "torch.tanh(self.n(x).mean([2, 3]))",
            "h1 = groupnorm_means(x, groups=4, eps=1e-05) |> elementwise(tanh(h1))",
        ),
        (
            "n = nn.GroupNorm(4, channels, affine=False); p = nn.AdaptiveAvgPool2d(1)",
            "self.p(self.n(x))",
            "groupnorm_means(x, groups=4, eps=1e-05, affine=0, keepdim=1)",
        ),
        (
            "n = nn.GroupNorm(4, channels)",
            "self.n(x).mean(dim=[1, 2, 3])",
            "means = groupnorm_means(x, groups=4, eps=1e-05) |> reduce(means, op=mean, axis=last)",
        ),
        (
            "n = nn.GroupNorm(4, channels)",
            "self.n(x).mean([1, 2])",
            "h1 = groupnorm(x, groups=4, eps=1e-05) |> reduce(h1, op=mean, axis=over(1, 2))",
        ),
    ],
)
def test_recognised(init: str, forward: str, program: str) -> None:
    assert plain_program(recognise(asked(init, forward).facts)) == program


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("groupnorm_means(x)", "groups"),
        ("groupnorm_means(x, groups=2) .parts(4)", "parts"),
        ("groupnorm_means(x, groups=2, keepdim=2)", "keepdim"),
    ],
)
def test_rejections(text: str, field: str) -> None:
    assert [item.field for item in check(parse(text))] == [field]
