"""Epilogues of group and instance norms, and means of group norms: against torch, recognition, rejections."""

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
    ("norm", "how", "shape"),
    [
        ("groupnorm(x, groups=2)", ".threads_per_row(64) .vector(4) .kept()", (2, 8, 4, 8)),
        ("groupnorm(x, groups=2)", ".threads_per_row(32) .parts(3)", (2, 6, 300)),
        ("instancenorm(x)", ".threads_per_row(32)", (2, 6, 7, 5)),
        ("groupnorm(x, groups=2)", "", (5, 12)),
    ],
)
def test_epilogues_of_norms(norm: str, how: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    channels = shape[1]
    x, (weight, bias, c, d) = torch.randn(shape), torch.randn(4, channels)
    text = f"{norm} {how} >> clamp(-1, 2) >> mul(c, along=n) >> map(mul(value(), sigmoid(sub(value(), spread(d)))))"
    got, emulation = launched(text, (x, weight, bias, c, d), ("x", "weight", "bias", "c", "d"))
    by_channel = (-1, *[1] * (len(shape) - 2))
    want = torch.nn.functional.group_norm(x, channels if "instance" in norm else 2, weight, bias)
    want = want.clamp(-1, 2) * c.view(by_channel)
    want = want * torch.sigmoid(want - d.view(by_channel))
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert not [item for item in emulation.findings if item.severity == "error"]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("init", "forward", "program"),
    [
        (
            "n = nn.GroupNorm(4, channels); s = nn.Parameter(torch.randn(channels, 1, 1))",
            "F.hardswish(self.n(x) + self.s)",
            "groupnorm(x, groups=4, eps=1e-05) >> add(t1, along=n) >> hardswish()",
        ),
        (
            "n = nn.InstanceNorm2d(channels)",
            "(lambda h: h * torch.tanh(h))(self.n(x) / 2.0)",
            "instancenorm(x, eps=1e-05, affine=0) >> scale(0.5) >> map(mul(value(), tanh(value())))",
        ),
        (
            "n = nn.GroupNorm(4, channels)",
            "torch.relu(self.n(x).mean([2, 3], keepdim=True) * self.n(x))",
            "groupnorm_means(x, groups=4, eps=1e-05, keepdim=1)",
        ),
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
    assert program in plain_program(recognise(asked(init, forward).facts))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("groupnorm_means(x)", "groups"),
        ("groupnorm(x, groups=2) >> mul(t)", "mul"),
        ("groupnorm(x, groups=2) >> map(mul(value(), t))", "map"),
        ("instancenorm(x) >> cast(f16)", "epilogue"),
        ("groupnorm(x, groups=2, scale=s)", "scale"),
        ("groupnorm_means(x, groups=2) .parts(4)", "parts"),
        ("groupnorm_means(x, groups=2, keepdim=2)", "keepdim"),
    ],
)
def test_rejections(text: str, field: str) -> None:
    assert [item.field for item in check(parse(text))] == [field]
