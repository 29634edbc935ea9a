"""Sessions on one GPU take turns; on two GPUs they do not wait for each other."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
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
import sys
from workbench.executors.gpu import presence
from workbench.executors.gpu.turns import GpuTurns
gpu = presence.select(sys.argv[1])
print("begun", flush=True)
with GpuTurns(gpu).hold(shared=sys.argv[2] == "shared"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    two(monkeypatch)
    yield
    presence.list_gpus.cache_clear()


@contextmanager
def other_session(gpu: str, how: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a GPU until its standard input ends, and at most until the caller is done."""
    command = [sys.executable, "-c", HOLD, gpu, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["begun\n", "held\n"]
        try:
            yield process
        finally:
            process.kill()


def turns(
    uuid: str,
    said: list[str] | None = None,
    stop: threading.Event | None = None,
    then: Callable[[], object] = lambda: None,
) -> GpuTurns:
    """The turns of this process on a GPU; `then` is called when it has said that it waits."""
    found = presence.list_gpus()
    assert not isinstance(found, str)

    def progress(event: Event) -> None:
        if said is not None:
            said.append(f"{event.kind}: {event.message}")
        then()

    context = RunContext(progress=progress, stop=stop or threading.Event())
    return GpuTurns(next(one for one in found if one.uuid == uuid), context)


def test_a_session_waits_for_another_one_on_its_gpu_and_says_for_whom() -> None:
    said: list[str] = []
    with other_session("0", "alone") as process:
        assert process.stdin is not None
        mine = turns(GPU_A, said, then=process.stdin.close)
        with mine.hold():
            assert process.wait(60) == 0
    assert said == [f"waiting: waiting for GPU 0 (used by pid {process.pid})"] and 0 < mine.waited_s < 60


def test_two_gpus_do_not_wait_for_each_other() -> None:
    said: list[str] = []
    with other_session("0", "alone"), turns(GPU_B, said).hold():
        assert not said


def test_checks_share_a_gpu_and_wait_for_a_timing() -> None:
    said: list[str] = []
    with other_session("0", "shared"), turns(GPU_A, said).hold(shared=True):
        assert not said
    for n, (theirs, mine) in enumerate([("alone", "shared"), ("shared", "alone")], 1):
        with other_session("0", theirs) as process:
            assert process.stdin is not None
            with turns(GPU_A, said, then=process.stdin.close).hold(shared=mine == "shared"):
                assert len(said) == n


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
        with pytest.raises(Stopped), turns(GPU_A, stop=stop, then=stop.set).hold():
            pass
        assert process.poll() is None
    said: list[str] = []
    for thread in threading.enumerate():
        if thread.name == "cutegen-turn":  # the turn that was given up comes and goes
            thread.join(60)
    with turns(GPU_A, said).hold():
        assert not said
    assert find_holders(lock_folder() / f"{GPU_A}.lock") == ()


def test_ctrl_c_ends_the_wait() -> None:
    with other_session("0", "alone"):
        command = [sys.executable, "-c", HOLD, "0", "alone"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as second:
            assert second.stdout is not None and second.stdout.readline() == "begun\n"
            for _ in range(10):  # as a person would: Python drops a signal that comes inside a callback
                time.sleep(0.5)  # it waits now
                second.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    second.wait(3)
                    break
            assert second.poll() not in (None, 0) and second.stdout.read() == ""


def test_a_session_that_takes_turn_after_turn_lets_one_in_that_waits() -> None:
    waits, came = threading.Event(), threading.Event()

    def wait() -> None:
        with turns(GPU_A, then=waits.set).hold():
            came.set()

    mine = turns(GPU_A)
    with mine.hold():
        thread = threading.Thread(target=wait)
        thread.start()
        assert waits.wait(60)
    deadline = time.monotonic() + 60
    while not came.is_set() and time.monotonic() < deadline:
        with mine.hold():
            time.sleep(0.01)
    assert came.is_set()
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
