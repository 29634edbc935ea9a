"""The GPU at hand, on a real one: `pytest -m gpu tests/gpu/test_gpu_at_hand.py -s`, about a minute.

The driver, torch and NVML mean the same GPU; a verdict names it; sessions and a calibration that run side by side take
turns, and their times are those of a session alone. With two GPUs or more, also that --gpu takes another one and that
sessions on two GPUs do not wait for each other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from workbench.executors.gpu import presence, telemetry
from workbench.wire import Json

ROOT = Path(__file__).parents[2]
TEST = ("test", "softmax", "softmax(x) .threads_per_row(128)", "--executor", "gpu", "--no-calibrate", "--json")
CLOSE = 0.05  # of the time of a session alone
pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with a new home: no calibration of the user's, locks of its own, one cache of what is compiled."""
    folder = tmp_path_factory.mktemp("home")
    named = {"XDG_DATA_HOME": "data", "XDG_CACHE_HOME": "cache", "CUTEGEN_CACHE": "compiled", "CUTEGEN_ROOT": "root"}
    paths = {name: str(folder / place) for name, place in named.items()}
    return {**os.environ, **paths, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}


def start(home: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    """A command of the workbench that runs in the background."""
    command = [sys.executable, "-P", "-m", "workbench", *arguments]
    return subprocess.Popen(command, env=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[Json, str]:
    """The JSON document of a command, and what it said on standard error."""
    out, said = process.communicate(timeout=150)
    assert process.returncode == 0, said[-3000:]
    return json.loads(out), said


@pytest.fixture(scope="module")
def alone(home: dict[str, str]) -> float:
    """Seconds of a softmax that a session measures alone, on the first GPU, which only its UUID names."""
    begun = time.monotonic()
    found, said = finish(start({**home, presence.VISIBLE: presence.gpu_at_hand().uuid}, *TEST))
    assert found["correct"] and found["time_provenance"] == "measured" and "waiting" not in said
    assert not found["disturbed"], found["disturbed"]
    print(f"\nalone: {found['time_s'] * 1e6:.1f} us, {time.monotonic() - begun:.0f} s in all, bound {found['bound']}")
    here = presence.device_at_hand()
    assert here is not None and found["bound"]["device"] == here.name
    return float(found["time_s"])


def check_close(found: Sequence[Json], alone: float) -> None:
    for one in found:
        print(f"side by side: {one['time_s'] * 1e6:.1f} us, {one['time_s'] / alone:.3f} of alone; {one['disturbed']}")
        assert one["correct"] and not one["disturbed"] and abs(one["time_s"] / alone - 1) < CLOSE


def test_driver_torch_and_nvml_mean_the_same_gpu() -> None:
    import pynvml
    import torch

    found = presence.list_gpus()
    assert not isinstance(found, str), found
    script = (
        "import json, torch; print(json.dumps([[torch.cuda.get_device_name(n), "
        "str(torch.cuda.get_device_properties(n).uuid), torch.cuda.get_device_properties(n).multi_processor_count] "
        "for n in range(torch.cuda.device_count())]))"
    )
    asked = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    for one, (name, uuid, sms) in zip(found, json.loads(asked.stdout), strict=True):
        print(f"\n{one}: {one.bus_id}, device {presence.device_at_hand()}")
        assert one.attributes.name == name and one.attributes.sms == sms
        assert one.uuid.startswith("MIG-") or one.uuid == f"GPU-{uuid}"
        pynvml.nvmlInit()
        handle = telemetry.device_handle(pynvml, one)
        assert one.uuid.startswith("MIG-") or str(pynvml.nvmlDeviceGetUUID(handle)) == one.uuid
    state = telemetry.observer(found[0], lambda: (), lambda: 0)()
    assert state is not None and state.sm_clock_mhz and state.memory_clock_mhz
    assert telemetry.driver_version() and telemetry.describe_limits(found[0]).endswith("MHz")
    assert torch.version.cuda


def test_a_gpu_that_is_hidden_or_not_there_is_one_line(home: dict[str, str]) -> None:
    hidden = start({**home, presence.VISIBLE: "-1"}, *TEST)
    _, said = hidden.communicate(timeout=60)
    assert hidden.returncode == 2 and "CUDA_VISIBLE_DEVICES is '-1', which may hide it" in said
    bad = start(home, "doctor", "--gpu", "77")
    _, said = bad.communicate(timeout=60)
    assert bad.returncode == 2 and "there are: 0 (" in said and len(said.splitlines()) == 1


def test_sessions_and_a_calibration_on_one_gpu_take_turns(home: dict[str, str], alone: float) -> None:
    begun = time.monotonic()
    calibration = start(home, "calibrate", "--json")
    time.sleep(4)
    sessions = [start(home, *TEST) for _ in range(2)]
    measured, _ = finish(calibration)
    print(f"\ncalibrated in {time.monotonic() - begun:.0f} s")
    rates = {rate["name"]: rate["value"] for rate in measured["calibration"]["rates"]}
    print(json.dumps({name: float(f"{value:.4g}") for name, value in rates.items()}), measured["calibration"]["notes"])
    assert rates["copy"] > 1e11 and rates["matmul bfloat16"] > 1e13
    found, told = zip(*map(finish, sessions), strict=True)
    print(
        f"all in {time.monotonic() - begun:.0f} s;", *(line for text in told for line in text.splitlines()), sep="\n  "
    )
    assert any("waiting for GPU 0 (used by pid " in text for text in told)
    check_close(found, alone)
    doctor, _ = finish(start(home, "doctor", "--json"))
    assert "measured" in doctor[0]["why"] and "cutegen calibrate" not in doctor[0]["why"]


def test_sessions_on_two_gpus_do_not_wait(home: dict[str, str], alone: float) -> None:
    if len(presence.list_gpus()) < 2 or isinstance(presence.list_gpus(), str):
        pytest.skip("this machine shows one GPU")
    sessions = [start(home, *TEST, "--gpu", str(number)) for number in range(2)]
    found, told = zip(*map(finish, sessions), strict=True)
    assert not any("waiting" in text for text in told)
    check_close(found, alone)


FORKED = """
import os
from workbench.executors.workers import server
for role in ("inspect", "candidate"):
    server.prepare(role)
import torch
if os.fork() == 0:
    os._exit(int(torch.ones(8, device="cuda").sum()))
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_process_that_is_forked_after_all_imports_has_cuda(home: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], env=home, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "8", done.stderr
