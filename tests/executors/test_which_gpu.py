"""Which GPU is used: the visible ones, --gpu, and that workers, NVML and tuning get the same one."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.executors.fake_gpus import GPU_A, GPU_B, H100, MIG, MIG_C, A, B, plug_in, two
from workbench.analysis import devices
from workbench.cli import main
from workbench.errors import Unavailable, UserError
from workbench.executors.gpu import presence, telemetry
from workbench.executors.gpu.executor import GpuExecutor
from workbench.executors.jobs import sandbox
from workbench.executors.workers import worker
from workbench.views.commands.problems import choose_gpu


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    presence.list_gpus.cache_clear()
    yield
    presence.list_gpus.cache_clear()


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        (None, [GPU_A, GPU_B]),
        ("1", [GPU_B]),
        ("1,0", [GPU_B, GPU_A]),
        (GPU_B, [GPU_B]),
        ("GPU-bbbb,0", [GPU_B, GPU_A]),
        ("0,7,1", [GPU_A]),  # CUDA stops at the first that names none
    ],
)
def test_the_visible_gpus_are_those_that_cuda_sees(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, uuids: list[str]
) -> None:
    two(monkeypatch, visible)
    found = presence.list_gpus()
    assert not isinstance(found, str) and [one.uuid for one in found] == uuids
    assert [one.number for one in found] == list(range(len(uuids)))
    assert presence.gpu_at_hand() == found[0] and found[0].attributes.name == H100
    assert found[0].attributes.sms == 132 and found[0].attributes.clock_hz == 1.98e9


def test_a_mig_instance_has_its_own_uuid_and_the_bus_id_of_the_whole_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, (A, MIG, "0000:1b:00.0", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"), visible=MIG_C[:12])
    found = presence.gpu_at_hand()
    assert found.uuid == MIG_C and found.bus_id == "0000:1b:00.0"
    assert devices.match(found.attributes.name) is None  # a seventh of an H100 has other rates


@pytest.mark.parametrize("visible", ["", "-1", "GPU-dddd"])
def test_gpus_that_are_hidden_are_named_as_the_reason(monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    two(monkeypatch, visible)
    assert presence.why_no_gpu() == (
        f"the NVIDIA driver finds no GPU (there is none); CUDA_VISIBLE_DEVICES is {visible!r}, which may hide it"
    )
    assert GpuExecutor().why_not() == f"{presence.why_no_gpu()}; use the emulator"


def test_a_number_counts_the_visible_gpus_and_a_uuid_may_be_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    two(monkeypatch, "1,0")
    assert presence.select("1").uuid == GPU_A == os.environ["CUDA_VISIBLE_DEVICES"]
    assert presence.select("gpu-bb").uuid == GPU_B == presence.gpu_at_hand().uuid
    assert presence.select("1").uuid == GPU_A  # numbers stay as they were at the beginning


@pytest.mark.parametrize("asked", ["2", "-1", "", "x", "GPU-"])
def test_a_gpu_that_is_not_there_is_one_line_with_what_there_is(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    two(monkeypatch)
    with pytest.raises(UserError, match=r"there are: 0 .*GPU-aaaaaaaa.*, 1 .*GPU-bbbbbbbb") as error:
        presence.select(asked)
    assert "\n" not in str(error.value) and presence.gpu_at_hand().uuid == GPU_A


def test_gpu_is_refused_where_none_is_used_or_there(monkeypatch: pytest.MonkeyPatch) -> None:
    two(monkeypatch)
    with pytest.raises(UserError, match="--executor emulator uses no GPU"):
        choose_gpu(Namespace(gpu="1", executor="emulator"))
    choose_gpu(Namespace(gpu=None, executor="emulator"))
    plug_in(monkeypatch)
    with pytest.raises(Unavailable, match="--gpu 1: the NVIDIA driver finds no GPU"):
        choose_gpu(Namespace(gpu="1"))


def test_the_command_line_takes_it_and_doctor_lists_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two(monkeypatch)
    assert main(["doctor", "--gpu", "1"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if " GPU " in line and "device" in line]
    assert lines[0].startswith(f"yes  GPU 1 ({H100}, GPU-bbbbbbbb): device H100, rates: ")
    assert "cutegen calibrate" in lines[0]
    assert main(["doctor", "--gpu", "5"]) == 2
    assert "there are: 0 (NVIDIA H100" in capsys.readouterr().err
    for command in ("run", "test", "profile", "problem", "tune", "lab", "calibrate", "demo"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert "--gpu N" in capsys.readouterr().out


def test_a_worker_sees_only_the_gpu_of_its_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also a candidate, whose environment is cleared before."""
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setitem(
        worker.TRUSTED, "inspect", lambda folder: {"sees": os.environ["CUDA_VISIBLE_DEVICES"]}
    )  # a role without CUDA
    report, notes = (os.open(os.devnull, os.O_WRONLY) for _ in range(2))
    worker.main({"folder": str(tmp_path), "role": "inspect", "gpu": GPU_B}, sandbox.Left(), report, notes)
    assert json.loads((tmp_path / "reply-inspect.json").read_text()) == {"sees": GPU_B}


def test_a_confined_process_keeps_only_the_gpu_of_its_request(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    child = os.fork()
    if child == 0:
        try:
            os.environ["CUDA_VISIBLE_DEVICES"] = "0"
            report = os.open(os.devnull, os.O_WRONLY)
            request = {"cpu_s": 10, "disk_bytes": 1 << 30, "device": "cuda", "gpu": GPU_B}
            worker._confine(tmp_path, request, sandbox.Left(), report)
            os._exit(0 if os.environ["CUDA_VISIBLE_DEVICES"] == GPU_B else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Nvml(SimpleNamespace):
    """NVML with two GPUs in the order of the bus, which know no MIG instance by its bus id."""

    class NVMLError(Exception):
        """As pynvml's."""

    def nvmlDeviceGetHandleByPciBusId(self, bus: str) -> tuple[str, str]:
        if bus == "unknown":
            raise self.NVMLError
        return ("bus", bus)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> tuple[str, str]:
        return ("uuid", uuid)


def test_nvml_watches_the_gpu_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    two(monkeypatch, "1")
    used = presence.gpu_at_hand()
    assert telemetry.device_handle(Nvml(), used) == ("bus", "0000:43:00.0")
    assert telemetry.process_handle(Nvml(), used) == ("bus", "0000:43:00.0")
    plug_in(monkeypatch, (B, MIG, "unknown", "NVIDIA A100 MIG 1g"))
    instance = presence.gpu_at_hand()
    assert telemetry.device_handle(Nvml(), instance) == ("uuid", MIG_C)
    plug_in(monkeypatch, (B, MIG, "0000:43:00.0", "NVIDIA A100 MIG 1g"))
    assert telemetry.device_handle(Nvml(), presence.gpu_at_hand()) == ("bus", "0000:43:00.0")
    assert telemetry.process_handle(Nvml(), presence.gpu_at_hand()) == ("uuid", MIG_C)


def test_tuning_takes_all_gpus_of_one_kind_or_the_chosen_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(
        monkeypatch,
        (A, A, "0000:1b:00.0", H100),
        (MIG, MIG, "0000:2b:00.0", "NVIDIA A100-SXM4-80GB"),
        (B, B, "0000:43:00.0", H100),
    )
    assert [one.uuid for one in presence.gpus_to_use()] == [GPU_A, GPU_B]
    presence.select("1")
    assert [one.attributes.name for one in presence.gpus_to_use()] == ["NVIDIA A100-SXM4-80GB"]
    assert GpuExecutor().device_name() != "H100"
