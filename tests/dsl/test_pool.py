"""pool: both schedules against torch on the emulator, one to three dimensions, all of torch's options.

Also recognition and rejections.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from emitted import found, run_on

from workbench.language import check, parse

CASES: list[tuple[str, tuple[int, ...], Any]] = [
    (
        "window=3, stride=2, ceil=1",
        (2, 2, 700),
        lambda x: F.max_pool1d(x, 3, 2, ceil_mode=True),
    ),  # several tiles of a row
    ("window=8, stride=1, padding=4, dilation=3", (3, 2, 90), lambda x: F.max_pool1d(x, 8, 1, 4, 3)),
    ("op=avg, window=8, stride=1, padding=4", (3, 2, 91), lambda x: F.avg_pool1d(x, 8, 1, 4)),
    ("window=size(4, 4), stride=1, padding=1", (2, 2, 17, 24), lambda x: F.max_pool2d(x, 4, 1, 1)),
    (
        "op=avg, window=size(3, 3), stride=2, padding=1, ceil=1, count_padding=0",
        (2, 1, 12, 15),
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    ),
    (
        "op=avg, window=size(3, 2), stride=size(2, 3), padding=1, ceil=1",
        (2, 1, 11, 13),
        lambda x: F.avg_pool2d(x, (3, 2), (2, 3), 1, ceil_mode=True),
    ),
    ("op=avg, window=size(3, 2), divisor=5", (3, 11, 20), lambda x: F.avg_pool2d(x, (3, 2), divisor_override=5)),
    (
        "window=size(2, 3, 3), stride=2, padding=1, dilation=size(2, 3, 1)",
        (1, 2, 6, 9, 12),
        lambda x: F.max_pool3d(x, (2, 3, 3), 2, 1, (2, 3, 1)),
    ),
    ("op=avg, window=size(2, 2, 2)", (1, 2, 5, 6, 8), lambda x: F.avg_pool3d(x, 2)),
]


@pytest.mark.few(3)
@pytest.mark.parametrize("schedule", ["direct", "strip"])
@pytest.mark.parametrize(("arguments", "shape", "reference"), CASES, ids=[case[0] for case in CASES])
def test_against_torch(schedule: str, arguments: str, shape: tuple[int, ...], reference: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    rows = " .rows(4)" if schedule == "strip" else ""
    torch.testing.assert_close(
        run_on(f"pool(x, {arguments}) .threads(64) .schedule({schedule}){rows}", (x,), ("x",)),
        reference(x),
        rtol=1e-5,
        atol=1e-6,
    )


def test_half_channels_last_and_whole_planes() -> None:
    x = torch.randn(2, 3, 10, 16)
    half = x.half().to(memory_format=torch.channels_last)
    torch.testing.assert_close(
        run_on("pool(x, window=size(2, 2)) .threads(64) .schedule(strip)", (half,), ("x",)),
        F.max_pool2d(half, 2),
        rtol=0,
        atol=0,
    )
    torch.testing.assert_close(
        run_on("pool(x, op=avg, window=all) .threads_per_row(32)", (x,), ("x",)), F.adaptive_avg_pool2d(x, 1)
    )
    torch.testing.assert_close(
        run_on("pool(x, window=all) .threads_per_row(32) .vector(4)", (x,), ("x",)), F.adaptive_max_pool2d(x, 1)
    )
    assert run_on("pool(x, window=size(2, 2))", (x[:0],), ("x",)).shape == (0, 3, 5, 8)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pool(x)", "window="),
        ("pool(x, window=0)", "1 and more"),
        ("pool(x, window=size(2, 2), stride=size(1, 1, 1))", "2 axes"),
        ("pool(x, window=4, padding=3)", "half a window"),
        ("pool(x, op=min, window=2)", "op=min"),
        ("pool(x, op=avg, window=2, dilation=2)", "means are of neighbours"),
        ("pool(x, window=all, stride=2)", "leave it out"),
        ("pool(x, window=size(8, 8, 8)) .schedule(strip)", "64 rows under the window"),
        ("pool(x, window=2) .rows(4)", "only with schedule(strip)"),
        ("pool(x, window=2, ceil=2)", "ceil=2"),
        ("pool(x, window=2) .vector(4)", "is for window=all"),
        ("pool(x, windows=2)", "no such argument"),
    ],
)
def test_rejections(text: str, reason: str) -> None:
    assert any(reason in str(item) for item in check(parse(text)))


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("body", "shape", "arguments"),
    [
        ("F.max_pool1d(x, 8, 1, 4, 3)", "4, 5, 40", "op=max, window=8, stride=1, padding=4, dilation=3"),
        ("F.max_pool2d(x, 3)", "4, 5, 20, 20", "op=max, window=size(3, 3)"),
        (
            "F.max_pool3d(x, 3, 2, 1, 3, True)",
            "2, 3, 12, 12, 12",
            "op=max, window=size(3, 3, 3), stride=size(2, 2, 2), padding=size(1, 1, 1), dilation=size(3, 3, 3), ceil=1",
        ),
        ("F.avg_pool1d(x, 3)", "4, 5, 40", "op=avg, window=3"),
        (
            "F.avg_pool2d(x, 3, 2, 1, count_include_pad=False, divisor_override=4)",
            "4, 5, 20, 20",
            "op=avg, window=size(3, 3), stride=size(2, 2), padding=size(1, 1), count_padding=0, divisor=4",
        ),
        ("F.adaptive_avg_pool2d(x, 1)", "4, 5, 20, 20", "op=avg, window=all"),
        ("F.adaptive_max_pool2d(x, 1)", "4, 5, 20, 20", "op=max, window=all"),
    ],
)
def test_recognised(body: str, shape: str, arguments: str) -> None:
    computation = found("F." + body.removeprefix("F."), full="import torch.nn.functional as F", x=shape)
    assert computation is not None and computation.kind == "pool"
    assert computation.operation == parse(f"pool(x, {arguments})").stages[0].operation


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "body",
    [
        "F.max_pool2d(x, 3, return_indices=True)[1]",
        "F.adaptive_avg_pool2d(x, 3)",
        "F.adaptive_max_pool2d(x, (1, 2))",
        "F.lp_pool2d(x, 2, 3)",
        "F.max_pool2d(-x, 3)",
        "x.mean((1, 2, 3), keepdim=True)",
    ],
)
def test_other_computations_are_not_taken_for_it(body: str) -> None:
    computation = found(body, full="import torch.nn.functional as F", x="4, 5, 20, 20")
    assert computation is None or computation.kind != "pool"
