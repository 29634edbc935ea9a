"""Scan kernels, run directly from the library on the emulator and compared with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from workbench.emulator import emulated
from workbench.kernels.scan.config import ScanConfig


def prefixes(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x.cumsum(-1), (1, 0))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, lambda x: x.cumsum(-1)),
        ({"lookback": True, "op": "max"}, lambda x: x.cummax(-1).values),
        ({"lookback": True, "exclusive": True, "append_total": True}, prefixes),
        ({"exclusive": True, "reverse": True}, lambda x: x.flip(-1).cumsum(-1).flip(-1) - x),
        ({"axis": 1}, lambda x: x.cumsum(1)),
    ],
)
def test_scan(settings: dict[str, Any], expected: Callable[[torch.Tensor], torch.Tensor]) -> None:
    from workbench.kernels.scan.host import scan_last_axis, scan_other_axis

    x = torch.randint(-3, 4, (2, 2, 517)).float()  # sums are exact
    scan = scan_other_axis if "axis" in settings else scan_last_axis
    with emulated(device="H200") as emulation:
        y = scan(ScanConfig(threads=64, per_thread=8, **settings), ("x",), (x,))
    assert torch.equal(y, expected(x))
    assert not [finding for finding in emulation.findings if finding.severity == "error"]


@pytest.mark.slow
def test_scan_of_a_function_of_two_inputs_and_of_int32() -> None:
    from workbench.kernels.scan.host import launch_lookback, scan_last_axis

    x, mask = torch.randint(-3, 4, (4, 640)).float(), torch.rand(4, 640) > 0.5
    config = ScanConfig(threads=64, per_thread=8, value=lambda a, b: a * b)
    large = torch.full((1, 1300), 2**30, dtype=torch.int32)
    with emulated(device="H200"):
        y, wrapped = scan_last_axis(config, ("x", "mask"), (x, mask)), torch.empty_like(large)
        launch_lookback(ScanConfig(threads=64, accumulator="i32", lookback=True), (large,), wrapped)
    assert torch.equal(y, (x * mask).cumsum(-1))
    assert torch.equal(wrapped, large.cumsum(-1, dtype=torch.int32))
