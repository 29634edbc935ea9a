"""Quick jobs of the GPU's executor: several at a time, with the processes' real code on the emulated GPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_benchmark import _process, planned

from workbench import problems
from workbench.errors import Stopped
from workbench.evaluate import QUICK, judge
from workbench.executors.gpu import executor, processes, telemetry
from workbench.executors.gpu.executor import GpuExecutor
from workbench.executors.gpu.presence import Gpu
from workbench.executors.gpu.processes import Begun, Candidates
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs.rpc import SocketChannel
from workbench.protocols import RunContext
from workbench.records import Candidate, Job

TWICE = """
plain = ModelNew.forward
ModelNew.forward = lambda self, x: 2 * plain(self, x)
"""


class Workers:
    """The worker server's part: processes that run what a GPU worker does on the emulated GPU."""

    def __init__(self) -> None:
        import multiprocessing

        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["test_benchmark", "torch", "cutlass.cute", "workbench.emulator"])
        self.running: dict[int, Any] = {}
        self.roles: list[str] = []

    def is_running(self, number: int) -> bool:
        return bool(self.running[number].is_alive())

    def wait(self, number: int, stop: threading.Event | None) -> dict[str, Any]:
        self.running[number].join(60)
        return {"end": "exit", "code": 0, "output": "", "protections": []}


class EmulatedProcess:
    """What `WorkerProcess` is, with such a process."""

    def __init__(self, workers: Workers, role: str, folder: Path, *, stop: Any = None, **_: Any) -> None:
        import socket

        self.workers, self.folder, self.stop, self.number = workers, folder, stop, len(workers.running)
        mine, theirs = socket.socketpair()
        with theirs:
            process = workers.context.Process(target=_process, args=(role, folder, theirs), daemon=True)
            process.start()
        workers.running[self.number] = process
        workers.roles.append(role)
        self.channel = SocketChannel(mine, process.is_alive)

    def wait_for_end(self, limit_s: float) -> None:
        self.workers.running[self.number].join(limit_s)

    def end(self) -> None:
        self.channel.close()
        self.workers.running[self.number].join(60)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Workers]:
    made = Workers()
    gpu = Gpu.__new__(Gpu)
    object.__setattr__(gpu, "uuid", "GPU-of-this-test")
    object.__setattr__(gpu, "number", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for module in (executor, processes):
        monkeypatch.setattr(module, "WorkerProcess", EmulatedProcess)
    monkeypatch.setattr(executor, "server", lambda: made)
    monkeypatch.setattr(executor, "gpu_at_hand", lambda: gpu)
    monkeypatch.setattr(executor, "device_at_hand", lambda: None)
    monkeypatch.setattr(telemetry, "observer", lambda *_: lambda: None)
    monkeypatch.setattr(telemetry, "memory_bytes", lambda: None)
    monkeypatch.setattr(telemetry, "why_not", lambda: "")
    yield made
    executor._POOL.clear()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_quick_jobs_run_side_by_side_and_leave_the_referee_to_each_other(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problems.load("row_sum")
    facts = WorkerInspector().inspect(problem)
    plain = Job(problem=problem, facts=facts, candidate=Candidate(source=""), cases=("odd", "shrunk"), trials=1)
    right = replace(plain, candidate=planned(plain), timed_calls=4, compiled="never", quick=True)
    wrong = replace(right, candidate=Candidate(source=right.candidate.source + TWICE), cases=("shrunk",))
    together, began = threading.Barrier(2), Candidates.begin

    seeds: list[int] = []

    def begin(self: Candidates, job: Job, seed: int) -> Begun:
        seeds.append(seed)
        together.wait(60)  # both are begun before one has the referee
        return began(self, job, seed)

    monkeypatch.setattr(Candidates, "begin", begin)
    with ThreadPoolExecutor(2) as pool:
        passed, failed = pool.map(GpuExecutor().run, (right, wrong))
    assert [(check.case, check.passed, check.timed) for check in passed.checks] == [
        ("odd", True, False),
        ("shrunk", True, False),
    ]
    assert passed.quick and passed.failure is None and passed.timing is not None
    assert len(passed.timing.samples_s) == 4 and passed.timing.call_s is None
    assert passed.reference_timing is passed.rival_timing is None and not passed.ratios
    verdict = judge(right, passed, None)
    assert verdict.correct and verdict.time_s and QUICK in verdict.doubts and not verdict.suspect
    assert failed.quick and failed.timing is None and [one.passed for one in failed.checks] == [False]
    assert not judge(wrong, failed, None).correct
    assert sorted(workers.roles) == ["candidate"] * 3 + ["referee"] and not executor._at_work
    whole = GpuExecutor().run(replace(right, quick=False, cases=("shrunk",)))
    assert whole.failure is None and not whole.quick and whole.reference_timing is not None
    assert workers.roles.count("referee") == 1 and len(set(seeds)) == 1


@pytest.mark.parametrize(
    ("error", "answered", "stays"), [(Stopped, 2, True), (Stopped, 1, False), (KeyError, 2, False)]
)
def test_a_run_that_is_stopped_leaves_a_referee_that_owes_no_answer(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], answered: int, stays: bool
) -> None:
    ended: list[str] = []
    referee = SimpleNamespace(
        channel=SimpleNamespace(sent=2, received=answered), end=lambda: ended.append("referee"), number=1
    )
    pool = executor.RefereePool()
    pool.referee = referee  # type: ignore[assignment]
    monkeypatch.setattr(executor, "_POOL", pool)
    with pytest.raises(error), executor._hold_device(RunContext()):
        raise error
    assert (pool.referee is referee, ended) == ((True, []) if stays else (False, ["referee"]))
    assert not pool.lock.locked()


@contextmanager
def held() -> Iterator[None]:
    """The device, held by another run."""
    with executor._POOL.lock:
        yield


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_quick_job_that_is_stopped_while_it_waits_leaves_no_process(workers: Workers) -> None:
    problem = problems.load("row_sum")
    facts = WorkerInspector().inspect(problem)
    plain = Job(problem=problem, facts=facts, candidate=Candidate(source=""), cases=("shrunk",), trials=1)
    job = replace(plain, candidate=planned(plain), timed_calls=4, compiled="never", quick=True)
    stop = threading.Event()
    with held(), ThreadPoolExecutor(1) as pool:
        running = pool.submit(GpuExecutor().run, job, RunContext(stop=stop))
        while not workers.roles:
            stop.wait(0.01)
        stop.set()
        assert type(running.exception(60)).__name__ == "Stopped"
    assert not executor._at_work and not any(one.is_alive() for one in workers.running.values())
    assert workers.roles == ["candidate"]
