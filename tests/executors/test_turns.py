"""Sessions on one GPU take turns; on two GPUs they do not wait for each other."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.executors.fake_gpus import GPU_A, GPU_B, two
from workbench.errors import Stopped
from workbench.executors.gpu import presence, telemetry
from workbench.executors.gpu.turns import GpuTurns, find_holders, lock_folder
from workbench.protocols import RunContext
from workbench.records import Event

HOLD = """
import sys, time
from workbench.executors.gpu import presence
from workbench.executors.gpu.turns import GpuTurns
gpu = presence.select(sys.argv[1])
print("begun", flush=True)
with GpuTurns(gpu).hold(shared=sys.argv[2] == "shared"):
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
"""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    two(monkeypatch)
    yield
    presence.list_gpus.cache_clear()


@contextmanager
def other_session(gpu: str, how: str, seconds: float = 60.0) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a GPU."""
    command = [sys.executable, "-c", HOLD, gpu, how, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["begun\n", "held\n"]
        try:
            yield process
        finally:
            process.kill()


def turns(uuid: str, said: list[str] | None = None, stop: threading.Event | None = None) -> GpuTurns:
    """The turns of this process on a GPU."""
    found = presence.list_gpus()
    assert not isinstance(found, str)

    def progress(event: Event) -> None:
        if said is not None:
            said.append(f"{event.kind}: {event.message}")

    context = RunContext(progress=progress, stop=stop or threading.Event())
    return GpuTurns(next(one for one in found if one.uuid == uuid), context)


def test_a_session_waits_for_another_one_on_its_gpu_and_says_for_whom() -> None:
    said: list[str] = []
    with other_session("0", "alone", 1.0) as process:
        mine = turns(GPU_A, said)
        with mine.hold():
            assert process.poll() is not None or process.wait(5) == 0
    assert said == [f"waiting: waiting for GPU 0 (used by pid {process.pid})"] and 0 < mine.waited_s < 5


def test_two_gpus_do_not_wait_for_each_other() -> None:
    said: list[str] = []
    with other_session("0", "alone"), turns(GPU_B, said).hold():
        assert not said


def test_checks_share_a_gpu_and_wait_for_a_timing() -> None:
    said: list[str] = []
    with other_session("0", "shared"), turns(GPU_A, said).hold(shared=True):
        assert not said
    with other_session("0", "alone", 0.5), turns(GPU_A, said).hold(shared=True):
        assert len(said) == 1
    with other_session("0", "shared", 0.5), turns(GPU_A, said).hold():
        assert len(said) == 2


def test_a_session_that_was_killed_holds_nothing() -> None:
    with other_session("0", "alone") as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        said: list[str] = []
        with turns(GPU_A, said).hold():
            assert not said


def test_a_stop_ends_the_wait_and_leaves_no_turn_behind() -> None:
    stop = threading.Event()
    with other_session("0", "alone") as process:
        threading.Timer(0.3, stop.set).start()
        start = time.monotonic()
        with pytest.raises(Stopped), turns(GPU_A, stop=stop).hold():
            pass
        assert time.monotonic() - start < 30  # of the 60 s for which the other one holds it
        process.kill()
        process.wait()
    said: list[str] = []
    time.sleep(0.2)  # the turn that was given up has come and gone
    with turns(GPU_A, said).hold():
        assert not said
    assert find_holders(lock_folder() / f"{GPU_A}.lock") == ()


def test_ctrl_c_ends_the_wait() -> None:
    with other_session("0", "alone"):
        command = [sys.executable, "-c", HOLD, "0", "alone", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as second:
            assert second.stdout is not None and second.stdout.readline() == "begun\n"
            for _ in range(10):  # as a person would: Python drops a signal that comes inside a callback
                time.sleep(0.5)  # it waits now
                second.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    second.wait(3)
                    break
            assert second.poll() not in (None, 0) and second.stdout.read() == ""


def test_the_order_of_coming_is_the_order_of_turns() -> None:
    """A session that takes turn after turn lets one in that waits."""
    came = threading.Event()

    def wait() -> None:
        with turns(GPU_A).hold():
            came.set()

    mine = turns(GPU_A)
    with mine.hold():
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.3)
    for _ in range(20):
        with mine.hold():
            time.sleep(0.01)
    assert came.wait(0)
    thread.join()


def test_workers_of_other_sessions_are_no_disturbance(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        subprocess.Popen([*sleep, "workbench.executors.workers.server"]) as worker,
        subprocess.Popen([*sleep, "/home/me/bin/cutegen", "tune"]) as tuner,
        subprocess.Popen([*sleep, "/home/me/cutegen-tutorials/train.py"]) as foreign,
    ):
        try:
            time.sleep(0.2)
            seen = [1, os.getpid(), worker.pid, tuner.pid, foreign.pid]
            assert telemetry.count_others(seen, [os.getpid()], 1) == 2  # init and the foreign one
        finally:
            for one in (worker, tuner, foreign):
                one.kill()


def test_a_cache_folder_that_cannot_be_written_gives_another_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert lock_folder() == tmp_path / f"cutegen-gpus-{os.getuid()}" and lock_folder().is_dir()
    gpu = replace(presence.gpu_at_hand())
    with GpuTurns(gpu).hold():
        assert find_holders(lock_folder() / f"{gpu.uuid}.lock") == (os.getpid(),)
