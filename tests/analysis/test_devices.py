"""Which device a GPU is: by the driver's name, and by its attributes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from workbench.analysis import devices
from workbench.analysis.device_attributes import GpuAttributes, describe_device
from workbench.errors import UserError

# as CUDA's driver gave them on 2026-11-26
H100 = GpuAttributes(
    name="NVIDIA H100 80GB HBM3", major=9, minor=0, sms=132, clock_hz=1.98e9, memory_clock_hz=2.619e9, bus_bits=5120,
    memory_bytes=85_017_624_576, l2_bytes=50 << 20, shared_bytes_per_sm=233_472, shared_bytes_per_block=232_448,
    registers_per_sm=65_536, threads_per_sm=2048, blocks_per_sm=32,
)  # fmt: skip


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA GeForce RTX 5090", "RTX5090"),
        ("rtx4090", "RTX4090"),
        ("NVIDIA B300 SXM6", "B300"),
    ],
)
def test_a_drivers_name_is_the_device_that_it_names(driver: str, name: str) -> None:
    assert devices.find(driver).name == name


@pytest.mark.parametrize(
    "driver",
    [
        "NVIDIA RTX A1000",
        "NVIDIA A100-PCIE-40GB",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA A10G",
        "NVIDIA T4",
        "A",
    ],
)
def test_a_name_that_only_resembles_a_device_is_none(driver: str) -> None:
    with pytest.raises(UserError, match="there are: A100"):
        devices.find(driver)


def test_every_device_of_the_table_is_found_by_its_own_name() -> None:
    assert [devices.find(name).name for name in devices.names()] == list(devices.names())


def test_attributes_that_agree_with_the_table_give_its_row() -> None:
    found = describe_device(H100)
    assert found.name == "H100" and found.source == "data sheet" and abs(found.bandwidth / H100.bandwidth - 1) < 0.01


def test_an_unknown_gpu_has_rates_from_its_clocks_and_widths() -> None:
    unknown = dataclasses.replace(
        H100,
        name="NVIDIA RTX 4000 Ada Generation",
        major=8,
        minor=9,
        sms=48,
        clock_hz=2.175e9,
        memory_clock_hz=9.001e9,
        bus_bits=160,
        memory_bytes=20 << 30,
        shared_bytes_per_sm=102_400,
        shared_bytes_per_block=101_376,
    )
    found = describe_device(unknown)
    assert (found.name, found.arch, found.sms) == ("RTX 4000 Ada Generation", "sm_89", 48)
    # its data sheet: 26.7 TFLOP/s, 360 GB/s
    assert abs(found.fp32 / 26.7e12 - 1) < 0.01 and abs(found.bandwidth / 360e9 - 1) < 0.01
    assert "computed" in found.source and "computed" in found.rates


def test_computed_rates_are_near_the_data_sheets_of_known_ones() -> None:
    """Without its name, an H100 gets from its attributes what its data sheet says, within a few percent."""
    found, known = describe_device(dataclasses.replace(H100, name="NVIDIA Someone")), devices.find("H100")
    for rate in ("fp64", "fp32", "tf32", "fp16", "fp8", "int8", "half_vector", "bandwidth"):
        assert abs(getattr(found, rate) / getattr(known, rate) - 1) < 0.1, rate


def test_a_cut_down_gpu_is_not_taken_for_the_whole_one() -> None:
    small = dataclasses.replace(H100, name="NVIDIA A100-SXM4-40GB", major=8, sms=108, memory_bytes=40 << 30)
    assert describe_device(small).name == "A100-SXM4-40GB"


def test_an_unknown_gpu_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(devices, "_HERE", {})
    found = describe_device(dataclasses.replace(H100, name="NVIDIA Someone 5"))
    devices.remember(found)
    devices._HERE.clear()  # another process
    assert devices.find("Someone 5") == found
