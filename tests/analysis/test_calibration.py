"""Calibrations are kept whole, read back, laid over the data sheet, and refused in a line when they are broken."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from workbench.analysis import calibration, devices, speed_of_light
from workbench.analysis.calibration import Calibration, Rate
from workbench.errors import UserError
from workbench.records import Work

MEMORY = Work(case="full", flops=10**9, least_bytes=40 * 10**9, dtype="float32", tensor_cores=False)
PRODUCT = Work(case="full", flops=10**15, least_bytes=10**6, dtype="bfloat16", tensor_cores=True)
FOUND = Calibration(
    device="A100",
    date="2026-11-21T10:00:00+00:00",
    gpu="NVIDIA A100-SXM4-80GB",
    driver="580.1",
    versions=(("torch", "2.11"),),
    rates=(
        Rate(name="copy", value=1.7e12, low=1.69e12, high=1.71e12, unit="B/s", by="torch copy_"),
        Rate(name="l2", value=4e12, unit="B/s"),
        Rate(name="shared", value=18e12, unit="B/s"),
        Rate(name="matmul bfloat16", value=250e12, unit="FLOP/s", by="torch.matmul, 8192"),
    ),
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_the_bound_says_which_ceilings_it_used() -> None:
    before = devices.find("A100")
    assert (
        before.rates == "data sheet"
        and before.copy_bandwidth is None
        and speed_of_light.bound(MEMORY, before).attainable_s is None
    )
    path = calibration.save(FOUND)
    after = devices.find("NVIDIA A100-SXM4-80GB")
    assert (
        path.parent == calibration.user_folder()
        and after.l2_bandwidth == 4e12
        and after.shared_bandwidth == 18e12
        and after.measured_on == "2026-11-21, driver 580.1, torch 2.11"
    )
    made = speed_of_light.bound(MEMORY, after)
    assert made.rates == "data sheet; attainable: measured 2026-11-21" and made.attainable_s == pytest.approx(
        40e9 / 1.7e12
    )
    assert (
        made.bound_s == speed_of_light.bound(MEMORY, before).bound_s
        and made.floor_s == speed_of_light.bound(MEMORY, before).floor_s
    )  # what is refused never hangs on a measurement
    assert speed_of_light.bound(PRODUCT, after).attainable_s == pytest.approx(10**15 / 250e12)


def test_this_machines_own_goes_over_what_is_shipped() -> None:
    assert devices.find("H200").copy_bandwidth == calibration.load(calibration.SHIPPED / "h200.json").rate("copy")
    calibration.save(Calibration(device="H200", date="2027-01-01", rates=(Rate(name="copy", value=9e12, unit="B/s"),)))
    device = devices.find("H200")
    assert (
        device.copy_bandwidth == device.bandwidth and device.measured == () and device.measured_on == "2027-01-01"
    )  # no copy is faster than the data sheet


def test_a_file_that_changes_is_read_again_and_none_is_left_half_written() -> None:
    path = calibration.save(FOUND)
    first = calibration.find("A100")
    calibration.save(Calibration(device="A100", date="2027-02-02", rates=()), path)
    os.utime(path, ns=(1, 1))
    again = calibration.find("A100")
    assert (
        first == FOUND
        and again is not None
        and again.date == "2027-02-02"
        and [item.name for item in path.parent.iterdir()] == ["a100.json"]
    )
    assert next(iter(calibration.load_all()))[1].device == "A100"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": 99, "calibration": {}}', '{"schema": 1, "calibration": {"device": 3}}']
)
def test_a_broken_file_is_refused_in_a_line(text: str) -> None:
    path = calibration.user_folder() / "a100.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(UserError, match=r"a100.json is no calibration .*cutegen calibrate") as error:
        devices.find("A100")
    assert "\n" not in str(error.value)


def test_what_is_shipped_has_units_and_names() -> None:
    for path in calibration.SHIPPED.glob("*.json"):
        found = calibration.load(path)
        assert devices.find(found.device).name == found.device and calibration.file_name(found.device) == path.name
        assert all(rate.value > 0 and rate.unit in ("B/s", "FLOP/s", "op/s", "s") and rate.by for rate in found.rates)
        assert json.loads(path.read_text())["schema"] == calibration.SCHEMA
