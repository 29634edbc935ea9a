"""Runs share a GPU's memory; one that found too little of it runs again alone. The locks are real; a GPU that is full
is played, since there is none here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workbench import problems
from workbench.errors import GpuMemoryError, Stopped
from workbench.executors.gpu import executor, telemetry
from workbench.executors.gpu.executor import GpuExecutor
from workbench.executors.gpu.memory import describe_shortage
from workbench.executors.gpu.presence import Gpu
from workbench.executors.gpu.turns import GpuTurns, find_holders, share_memory
from workbench.executors.inspector import WorkerInspector
from workbench.protocols import PLAIN, RunContext
from workbench.records import Candidate, Failure, Job, Outcome

FULL = (
    "CUDA out of memory. Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 512.00 MiB is "
    "free. Process 687 has 4.91 GiB memory in use."
)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpu:
    made = Gpu.__new__(Gpu)
    object.__setattr__(made, "uuid", "GPU-of-this-test")
    object.__setattr__(made, "number", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(executor, "gpu_at_hand", lambda: made)
    monkeypatch.setattr(executor, "device_at_hand", lambda: None)
    monkeypatch.setattr(telemetry, "memory_bytes", lambda: None)
    return made


class SmallGpu(GpuExecutor):
    """A device whose memory is enough for one run."""

    def __init__(self, together: int, error: Exception | None = None, needs: int = 1) -> None:
        self.room = 1 - needs
        self.begun, self.error, self.runs = threading.Barrier(together), error, 0
        self.at_work = 0
        self.lock = threading.Lock()

    def _run_in_folders(self, job: Job, context: RunContext, turns: GpuTurns) -> Outcome:
        with self.lock:
            self.runs += 1
            self.at_work += 1
            first = self.runs <= self.begun.parties
        if first:
            self.begun.wait(30)
        with self.lock:
            is_full = self.at_work > 1 + self.room
        if first:
            self.begun.wait(30)
        with self.lock:
            self.at_work -= 1
        if is_full and self.error is not None:
            raise self.error
        message = f"OutOfMemoryError: {FULL}"
        failure = Failure(stage="run", kind="raised", message=message) if is_full else None
        return Outcome(failure=failure, executor=self.name, arch=job.arch, device="")


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    problem = problems.load("row_sum")
    facts = WorkerInspector().inspect(problem)
    yield Job(problem=problem, facts=facts, candidate=Candidate(source=""), cases=("odd",), trials=1, quick=True)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("error", [None, GpuMemoryError("the reference does not fit")])
def test_runs_that_found_the_memory_full_run_again_one_at_a_time(gpu: Gpu, job: Job, error: Exception | None) -> None:
    device = SmallGpu(3, error)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(device.run, [job] * 3))
    assert [one.failure for one in found] == [None] * 3
    assert device.runs == 6


@pytest.mark.timeout(120)
def test_a_candidate_that_needs_more_than_there_is_fails_with_one_clear_line(gpu: Gpu, job: Job) -> None:
    device = SmallGpu(1, needs=2)
    failure = device.run(job).failure
    assert device.runs == 2 and failure is not None
    assert failure.message == (
        "out of memory on the GPU: 6.00 GiB more were asked for, 512.00 MiB of 139.80 GiB were free"
    )
    assert "--set NAME=VALUE" in failure.hint


def test_other_words_of_a_full_device_are_kept() -> None:
    assert describe_shortage("CUDA_ERROR_OUT_OF_MEMORY: out of memory. See the manual") == (
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    )


@pytest.mark.timeout(120)
def test_one_that_wants_the_memory_alone_comes_before_those_that_come_later(gpu: Gpu) -> None:
    order: list[str] = []

    def hold(name: str, *, alone: bool) -> None:
        with share_memory(gpu, PLAIN, alone=alone):
            order.append(name)

    with ThreadPoolExecutor(2) as pool:
        with share_memory(gpu, PLAIN):
            waiting = pool.submit(hold, "alone", alone=True)
            while not find_holders(GpuTurns(gpu, PLAIN, "queue").path):
                time.sleep(0.01)
            later = pool.submit(hold, "later", alone=False)
            assert not order
        waiting.result(30)
        later.result(30)
    assert order == ["alone", "later"]


@pytest.mark.timeout(120)
def test_waiting_for_the_memory_can_be_stopped_and_blocks_nobody(gpu: Gpu) -> None:
    stop = threading.Event()
    said: list[str] = []

    def say(event: object) -> None:
        said.append(str(getattr(event, "message", "")))
        stop.set()

    alone = share_memory(gpu, RunContext(stop=stop, progress=say), alone=True)
    with share_memory(gpu, PLAIN), pytest.raises(Stopped), alone:
        pass
    assert said and said[0].startswith("waiting for memory of GPU 0")
    with share_memory(gpu, PLAIN):
        pass
