"""What `cutegen calibrate` runs, run on the emulator: its kernels and torch's products, every launch checked.

Only the clock is replaced, since there is none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

import workbench
from workbench.analysis.calibration import Calibration, Rate
from workbench.cli import profiling
from workbench.errors import UserError
from workbench.examples import bandwidth
from workbench.profilers import calibrate


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes for the emulator, and two samples of a clock: 1 and 2 ms a call."""

    def timed(call: Callable[[], Any], *, rested: bool = False) -> list[float]:
        call()
        return [1e-3, 2e-3]

    read_l2, read_shared = bandwidth.read_l2, bandwidth.read_shared
    for name, value in {
        "require_gpu": lambda: None,
        "time_calls": timed,
        "COPY_BYTES": 1 << 16,
        "L2_FRACTIONS": (0.01,),
        "MATRIX": 128,
        "HOST_CALLS": 2,
        "HOST_SAMPLES": 2,
        "OUR_TILES": {"bfloat16": ((128, 128, 64),)},
    }.items():
        monkeypatch.setattr(calibrate, name, value)
    monkeypatch.setattr(
        calibrate,
        "_describe",
        lambda rates, notes: Calibration(device="H200", date="2026-11-21", rates=rates, notes=notes),
    )
    monkeypatch.setattr(bandwidth, "read_l2", lambda x, passes, ctas: read_l2(x, 2, 3))
    monkeypatch.setattr(bandwidth, "read_shared", lambda x, passes, ctas: read_shared(x, 2, 2))


def test_every_ceiling_is_measured_and_named(small: None) -> None:
    seen: list[str] = []
    with workbench.emulated(device="H200") as emulation:
        found = calibrate.calibrate(
            lambda name, done, total: seen.append(name),
            only=("copy", "l2", "shared", "matmul bfloat16", "matmul int8", "launch cute"),
        )
        assert not [finding for finding in emulation.findings if finding.severity == "error"]
    assert (
        found.notes == ()
        and [rate.name for rate in found.rates]
        == ["copy", "l2", "shared", "matmul bfloat16", "matmul int8", "launch cute"]
        and seen[-1] == "done"
    )
    rates = {rate.name: rate for rate in found.rates}
    assert (
        rates["copy"].value == pytest.approx(2 * (1 << 16) * 750, rel=0.01)
        and rates["copy"].low is not None
        and rates["copy"].low <= rates["copy"].value
    )
    assert (
        rates["matmul bfloat16"].by.startswith(("torch.matmul", "gemm_hopper"))
        and rates["matmul int8"].unit == "op/s"
        and rates["launch cute"].unit == "s"
    )
    said = str(profiling.render_calibration(found))
    assert "95 % interval" in said and "H200 (2026-11-21), measured" in said and "torch._int_mm, 128" in said


def test_the_faster_of_two_is_the_ceiling() -> None:
    slow, fast = (
        calibrate.make_rate("matmul float16", 1e12, [2.0, 2.0], "FLOP/s", "torch.matmul"),
        calibrate.make_rate("matmul float16", 1e12, [1.0, 1.0], "FLOP/s", "gemm_hopper"),
    )
    assert calibrate.find_fastest((slow, fast)) is fast and calibrate.find_fastest(()) is None and fast.value == 1e12


def test_what_cannot_be_measured_is_a_note(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(call: Callable[[], Any]) -> list[float]:
        raise RuntimeError("not on this device\nand more")

    monkeypatch.setattr(calibrate, "time_calls", refuses)
    with workbench.emulated(device="H200"):
        found = calibrate.calibrate(lambda *_: None, only=("copy",))
    assert found.rates == () and found.notes == ("copy: not on this device",)
    with pytest.raises(UserError, match="nothing to measure is called warp; there are: copy, read, write, l2"):
        calibrate.calibrate(lambda *_: None, only=("warp",))


def test_a_part_goes_over_what_was_known() -> None:
    before = Calibration(
        device="H200",
        date="2026-01-01",
        rates=(Rate(name="copy", value=1.0, unit="B/s", by="a"), Rate(name="l2", value=2.0, unit="B/s", by="b")),
    )
    now = dataclasses.replace(before, date="2026-02-02", rates=(Rate(name="copy", value=3.0, unit="B/s", by="c"),))
    made = profiling._merge_calibrations(before, now)
    assert (
        made.rate("copy") == 3.0
        and made.rate("l2") == 2.0
        and made.date == "2026-02-02"
        and made.notes == ("of 2026-01-01: l2",)
    )
