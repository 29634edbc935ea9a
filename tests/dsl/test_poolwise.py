"""Pools by windows side by side, also with their planes reduced in the same kernel: torch, recognition, rejections."""

from __future__ import annotations

import pytest
import torch
from running import launched
from test_conv_planner import asked

from workbench.language import check, parse
from workbench.proposers.binding import plain_program
from workbench.proposers.recognition import recognise

CASES = [
    ("max", (2, 2), (2, 3, 10, 12), "", torch.float32),
    ("max", (2, 2, 2), (2, 2, 7, 9, 10), ".threads(128) .unroll(2)", torch.float32),
    ("avg", (3, 2), (3, 2, 11, 7), ".threads(64) .unroll(4)", torch.float16),
    ("avg", (4,), (2, 5, 3000), ".threads(64)", torch.float32),
    ("max", (1, 6), (1, 2, 5, 20), "", torch.float32),
]


def pooled(x: torch.Tensor, op: str, window: tuple[int, ...]) -> torch.Tensor:
    """Return the pooled tensor in float64."""
    function = getattr(torch.nn.functional, f"{op}_pool{len(window)}d")
    result: torch.Tensor = function(x.double(), window)
    return result


@pytest.mark.few(2)
@pytest.mark.parametrize(("op", "window", "shape", "how", "dtype"), CASES)
def test_planes_are_those_of_torch(
    op: str, window: tuple[int, ...], shape: tuple[int, ...], how: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(3)
    x = torch.randn(shape, dtype=dtype)
    size = f"size({', '.join(map(str, window))})" if len(window) > 1 else str(window[0])
    text = f"poolwise(tanh(mean(min(max(x, -1), 1))), op={op}, window={size}) {how}"
    got, emulation = launched(text, (x,), ("x",))
    want = torch.tanh(pooled(x, op, window).clamp(-1, 1).flatten(2).mean(-1))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-3
    torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance)
    assert got.dtype == dtype and not [item for item in emulation.findings if item.severity == "error"]
    assert len(emulation.launches) == 1


@pytest.mark.few(2)
@pytest.mark.parametrize(("op", "window", "shape", "how", "dtype"), CASES)
def test_cells_are_those_of_torch(
    op: str, window: tuple[int, ...], shape: tuple[int, ...], how: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(4)
    x = torch.randn(shape, dtype=dtype)
    x[0, 0, 0] = float("nan")
    size = f"size({', '.join(map(str, window))})" if len(window) > 1 else str(window[0])
    got, emulation = launched(f"pool(x, op={op}, window={size}) .threads(64) .schedule(cells) .rows(2)", (x,), ("x",))
    want = pooled(x, op, window)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-3
    torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert not [item for item in emulation.findings if item.severity == "error"]


def test_variances_kept_axes_and_not_a_number() -> None:
    x = torch.randn(2, 3, 8, 8) + 50
    x[1, 2, 3, 3] = float("nan")
    text = "poolwise(add(var(x), max(x)), op=max, window=size(2, 2), keepdim=1)"
    got, _ = launched(text, (x,), ("x",))
    planes = pooled(x, "max", (2, 2)).flatten(2)
    want = (planes.var(-1, correction=0) + planes.amax(-1)).reshape(2, 3, 1, 1)
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5, equal_nan=True)
    empty, _ = launched(text, (torch.randn(0, 3, 8, 8),), ("x",))
    assert empty.shape == (0, 3, 1, 1)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("forward", "program"),
    [
        (
            "torch.tanh(F.hardtanh(F.max_pool2d(x, 2)).mean((2, 3), keepdim=True))",
            "poolwise(tanh(mean(min(max(x, -1), 1))), op=max, window=size(2, 2), keepdim=1)",
        ),
        (
            "torch.sigmoid(F.avg_pool2d(x, 4)).sum(dim=[1, 2, 3])",
            "planes = poolwise(sum(sigmoid(x)), op=avg, window=size(4, 4)) |> reduce(planes, op=sum, axis=last)",
        ),
        (
            "F.max_pool2d(x, 2).amax((2, 3)) * 2.0",
            "poolwise(mul(max(x), 2), op=max, window=size(2, 2))",
        ),
        ("F.max_pool2d(x, 3, 2).mean((2, 3))", "|> reduce(h1, op=mean, axis=last(2))"),
        ("torch.softmax(F.max_pool2d(x, 2).flatten(2), -1)", "pool(x, op=max, window=size(2, 2)) |> "),
        ("F.max_pool2d(x, 2).mean((2, 3)) + x.mean((2, 3))", "poolwise(mean(x), op=max, window=size(2, 2))"),
    ],
)
def test_recognised(forward: str, program: str) -> None:
    assert program in plain_program(recognise(asked("c = nn.ReLU()", forward).facts))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("poolwise(x, window=2)", "poolwise"),
        ("poolwise(sum(exp(sub(x, max(x)))), window=2)", "poolwise"),
        ("poolwise(argmax(x), window=2)", "poolwise"),
        ("poolwise(sum(mul(x, y)), window=2)", "poolwise"),
        ("poolwise(sum(x), window=all)", "window"),
        ("poolwise(sum(x), window=size(5, 5, 5))", "window"),
        ("poolwise(sum(x), window=2, stride=1)", "stride"),
        ("poolwise(total(x), window=2)", "function"),
        ("pool(x, window=3, stride=2) .schedule(cells)", "schedule"),
        ("pool(x, window=size(2, 2), ceil=1) .schedule(cells) .rows(1)", "schedule"),
        ("pool(x, window=size(2, 2, 2)) .schedule(cells) .rows(8)", "rows"),
    ],
)
def test_rejections(text: str, field: str) -> None:
    assert [item.field for item in check(parse(text))] == [field]
