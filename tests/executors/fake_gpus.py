"""Machines with GPUs that are not there: NVIDIA's driver is a small C library (fake_driver.c)."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from workbench.executors.gpu import presence

H100 = "NVIDIA H100 80GB HBM3"
A, B, MIG = "a" * 32, "b" * 32, "c" * 32
GPU_A = "GPU-aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
GPU_B = "GPU-bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"
MIG_C = "MIG-cccccccc-cccc-cccc-cccc-cccccccccccc"


@functools.cache
def driver_folder() -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("the fake driver needs gcc")
    folder = Path(tempfile.mkdtemp(prefix="cutegen-fake-driver-"))
    source = Path(__file__).with_name("fake_driver.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", source], check=True)
    return folder


def plug_in(monkeypatch: pytest.MonkeyPatch, *gpus: tuple[str, str, str, str], visible: str | None = None) -> None:
    """Give this machine GPUs, each with (UUID, UUID of its MIG instance or the same, PCI bus id, name)."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver_folder()))
    monkeypatch.setenv("FAKE_GPUS", "\n".join(map(" ".join, gpus)))
    monkeypatch.setenv(presence.VISIBLE, "")  # whatever is chosen here is forgotten after the test
    monkeypatch.delenv(presence.VISIBLE)
    if visible is not None:
        monkeypatch.setenv(presence.VISIBLE, visible)
    presence.list_gpus.cache_clear()
    monkeypatch.setattr(presence, "_selected", [])


def two(monkeypatch: pytest.MonkeyPatch, visible: str | None = None) -> None:
    """Two H100s."""
    plug_in(monkeypatch, (A, A, "0000:1b:00.0", H100), (B, B, "0000:43:00.0", H100), visible=visible)
