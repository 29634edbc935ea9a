"""Job -> Outcome on a CUDA device: the candidate in one confined process, its parent version in another, reference, checks and torch eager in a trusted third (see conduct.py)."""

from __future__ import annotations

import platform
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.errors import ProblemError, Stopped
from workbench.executors import surroundings
from workbench.executors.client import Server, server
from workbench.executors.conduct import Conducted, Run
from workbench.executors.crew import Bench, Member, family
from workbench.executors.emulator import candidate_outcome, prepare, wrong_result
from workbench.executors.handing import Ended
from workbench.executors.room import check_fits, place_for
from workbench.protocols import Progress
from workbench.records import Event, Facts, Failure, Job, Outcome
from workbench.wire import content_hash

QUIET_S = 3.0  # NVML's utilisation looks back over less than this: what it shows so long after our last run was not ours
_BENCH = Bench()
_last_run = [float("-inf")]


class GpuExecutor:
    """Runs candidates on the CUDA device at the problem's full size, and times them."""

    name = "gpu"

    def __init__(self) -> None:
        self.stop: threading.Event | None = None

    def why_not(self) -> str | None:
        """Needs Linux, an NVIDIA driver and a torch built for CUDA; asked without importing torch."""
        if platform.system() != "Linux":
            return "it needs Linux"
        if shutil.which("nvidia-smi") is None:
            return "no NVIDIA driver was found (nvidia-smi is not on the path); use the emulator"
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
        if done.returncode or "GPU" not in done.stdout:
            return "nvidia-smi finds no GPU; use the emulator"
        return None

    def admit(self, facts: Facts, cases: Collection[str] = ("full",)) -> None:
        """Raise `ProblemError` for a problem that does not fit the device's memory, before anything is allocated there."""
        check_fits(facts, cases, surroundings.memory_bytes())

    def run(self, job: Job, /, *, progress: Progress | None = None) -> Outcome:
        """Run, check and time the candidate at the job's cases, in turns with torch eager and the job's rival. Raises `ProblemError` for what does not fit the device."""
        self.admit(job.facts, job.cases)
        say = progress or (lambda event: None)
        start = time.perf_counter()
        place = place_for([spec for case in job.facts.cases if case.name in job.cases for spec in case.outputs])
        self._take_turn()
        try:
            with tempfile.TemporaryDirectory(prefix="cutegen-job-", dir=place, ignore_cleanup_errors=True) as name, tempfile.TemporaryDirectory(prefix="cutegen-rival-", ignore_cleanup_errors=True) as other:
                say(Event(kind="running", message="compiling, checking and timing on the GPU", fraction=0.1))
                outcome = self._crewed(job, Path(name), Path(other))
        finally:
            _last_run[0] = time.monotonic()
            _BENCH.lock.release()
        return replace(outcome, phases=(*outcome.phases, ("total", time.perf_counter() - start)))

    def _take_turn(self) -> None:
        while not _BENCH.lock.acquire(timeout=0.2):
            if self.stop is not None and self.stop.is_set():
                raise Stopped("stopped; everything finished is kept")

    def _crewed(self, job: Job, folder: Path, other: Path) -> Outcome:
        """The run with its processes; none of the candidates is left when this returns."""
        workers = server()
        plain = replace(job, rival=None)
        prepare(folder, plain)
        limits: dict[str, Any] = {"wall_s": job.wall_limit_s, "memory_bytes": job.memory_limit_bytes, "stop": self.stop}
        candidate = Member(workers, "candidate", folder, **limits)
        rival = None
        try:
            if job.rival is not None and job.timed_calls:
                rival = Member(workers, "candidate", prepare(other, replace(plain, candidate=job.rival)), **limits)
            return self._conducted(job, workers, candidate, rival)
        except BaseException:
            candidate.leave()
            _BENCH.clear()
            raise
        finally:
            if rival is not None:
                rival.leave()

    def _conducted(self, job: Job, workers: Server, candidate: Member, rival: Member | None) -> Outcome:
        start = time.perf_counter()
        look = surroundings.observer(family(workers), lambda: 2 + (rival is not None))
        referee = _BENCH.seat(workers, content_hash(job.problem), self.stop)
        busy_before = time.monotonic() - _last_run[0] > QUIET_S
        run = Run(job, candidate.folder, candidate.line, referee.line, rival.line if rival else None, look=look, busy_before=busy_before)
        run.result.notes += [surroundings.why_not()] if surroundings.why_not() else []
        lost = ""
        try:
            run.all()
            if rival is not None:
                rival.line.post({"do": "end"})  # it leaves the device while the candidate does
            candidate.line.tell({"do": "end"})
            referee.line.tell({"do": "close"})
        except Ended as ended:
            lost = str(ended)
        if not workers.running(referee.number):
            raise ProblemError("the process that checks results ended in the middle of a job: is the device's memory full?")
        if lost and workers.running(candidate.number):  # it answered with what cannot be read, or not at all
            candidate.leave()
            outcome = replace(candidate_outcome(job, candidate.folder, {"end": "exit"}, self.name), failure=Failure(stage="integrity", kind="bad_reply", message=f"the candidate's process: {lost}"))
        else:
            outcome = candidate_outcome(job, candidate.folder, workers.wait(candidate.number, self.stop), self.name)
        return self._filled(outcome, run.result, run.about, time.perf_counter() - start)

    def _filled(self, outcome: Outcome, made: Conducted, info: dict[str, Any], ran: float) -> Outcome:
        """The outcome with what the run found out."""
        failure = outcome.failure or made.failure or wrong_result(tuple(made.checks))
        timings = made.timings if failure is None else {}
        versions = (*outcome.versions, ("cuda", str(info.get("cuda"))), ("gpu", str(info.get("gpu"))))
        return replace(
            outcome, failure=failure, checks=tuple(made.checks), versions=versions, phases=(*outcome.phases, *made.phases.items(), ("candidate", ran)),
            timing=timings.get("candidate"), reference_timing=timings.get("eager"), rival_timing=timings.get("parent"), ratios=made.ratios if failure is None else (),
        )  # fmt: skip
