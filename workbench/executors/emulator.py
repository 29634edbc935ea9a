"""Job -> Outcome with no GPU: reference, candidate and check each in a process of their own (see worker.py)."""

from __future__ import annotations

import json
import platform
import secrets
import signal
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workbench.errors import ProblemError
from workbench.executors.client import Server, server
from workbench.protocols import Progress
from workbench.records import Check, Event, Failure, Job, KernelBuild, Launch, Outcome
from workbench.toolchain.compiled import Shelf
from workbench.wire import from_plain, to_plain

CHECK_LIMIT_S = 120.0


class EmulatorExecutor:
    """Runs candidates on the PTX emulator. Set `stop` to an event to make a run stoppable."""

    name = "emulator"

    def __init__(self) -> None:
        self.stop: threading.Event | None = None

    def why_not(self) -> str | None:
        """The emulator needs Linux and CuTe DSL."""
        if platform.system() != "Linux":
            return "candidates are confined with Linux features; use Linux, WSL2 or a container"
        return None

    def run(self, job: Job, /, *, progress: Progress | None = None) -> Outcome:
        """Run the candidate at the job's cases and compare with the reference."""
        say = progress or (lambda event: None)
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="cutegen-job-", ignore_cleanup_errors=True) as name:
            folder = prepare(Path(name), job)
            workers = server()
            say(Event(kind="running", message="compiling and emulating", fraction=0.1))
            reference = workers.start_job("reference", str(folder), wall_s=CHECK_LIMIT_S)
            number = workers.start_job("candidate", str(folder), wall_s=job.wall_limit_s, memory_bytes=job.memory_limit_bytes)
            try:
                reply = workers.wait(number, self.stop)
            except BaseException:
                workers.cancel(reference)
                raise
            outcome = candidate_outcome(job, folder, reply, self.name)
            ran = time.perf_counter() - start
            if outcome.failure is None:
                said = workers.wait(reference, self.stop)
                require(folder, "reference", said)
                say(Event(kind="running", message="checking", fraction=0.8))
                outcome = self._checked(job, folder, workers, outcome)
            else:
                workers.cancel(reference)
        phases = (*outcome.phases, ("candidate", ran), ("total", time.perf_counter() - start))
        return _replace(outcome, phases=phases)

    def _checked(self, job: Job, folder: Path, workers: Server, outcome: Outcome) -> Outcome:
        said = workers.wait(workers.start_job("check", str(folder), wall_s=CHECK_LIMIT_S), self.stop)
        try:
            reply = require(folder, "check", said)
        except ProblemError as error:
            return _replace(outcome, failure=Failure(stage="check", kind="no_output", message=str(error)))
        checks = tuple(from_plain(item, Check) for item in reply["checks"])
        return _replace(outcome, checks=checks, failure=wrong_result(checks))


def wrong_result(checks: tuple[Check, ...]) -> Failure | None:
    """The failure that the first failed comparison means."""
    wrong = next((check for check in checks if not check.passed), None)
    if wrong is None:
        return None
    value = wrong.worst_got
    kind = "not_finite" if value is not None and value != value else "wrong_result"
    return Failure(stage="check", kind=kind, message=f"wrong result at case {wrong.case}: {wrong.message}")


def _replace(outcome: Outcome, **changes: Any) -> Outcome:
    import dataclasses

    return dataclasses.replace(outcome, **changes)


def prepare(folder: Path, job: Job) -> Path:
    """Lay out the job's folder; seeds come from the operating system and stay out of the candidate's reach."""
    for name in ("given", "private", "scratch"):
        (folder / name).mkdir(mode=0o700)
    (folder / "given" / "job.json").write_text(json.dumps(to_plain(job)))
    (folder / "scratch" / "candidate.py").write_text(job.candidate.source)
    Shelf(job.candidate.source, job.arch).give(folder / "given" / "compiled")
    names = [f"{case}-{trial}" for case in job.cases for trial in range(max(job.trials, 1))]
    (folder / "private" / "seeds.json").write_text(json.dumps({name: secrets.randbits(48) for name in names}))
    return folder


def require(folder: Path, role: str, said: dict[str, Any]) -> dict[str, Any]:
    """The reply of a trusted role; raises `ProblemError` when it has none."""
    path = folder / f"reply-{role}.json"
    if not path.exists():
        raise ProblemError(f"the {role} process ended without an answer ({said['end']}): {said.get('output', '').strip()[-300:]}")
    reply: dict[str, Any] = json.loads(path.read_text())
    if "error" in reply:
        raise ProblemError(str(reply["error"]))
    return reply


def candidate_outcome(job: Job, folder: Path, said: dict[str, Any], executor: str) -> Outcome:
    """What the candidate's process left behind, or why it ended."""
    base = Outcome(executor=executor, arch=job.arch, device=job.device, output_text=said.get("output", "")[:100_000], versions=_versions())
    path = folder / "scratch" / "reply.json"
    failure = ended(job, said)
    Shelf(job.candidate.source, job.arch).take(folder / "scratch" / "compiled")
    if failure is not None or not path.is_file() or path.is_symlink() or path.stat().st_size > 256 << 20:
        failure = failure or Failure(stage="run", kind="early_exit", message=f"the candidate's process ended early with exit code {said.get('code')}", hint="a candidate must not leave the process")
        return _replace(base, failure=failure)
    try:
        reply = json.loads(path.read_text())
        return _replace(
            base, failure=from_plain(reply["failure"], Failure) if reply["failure"] else None, builds=tuple(from_plain(item, KernelBuild) for item in reply["builds"]),
            launches=tuple(from_plain(item, Launch) for item in reply["launches"]), unmapped_parameters=tuple(reply["unmapped"]),
            protections=tuple(reply["protections"]), phases=tuple((key, float(value)) for key, value in reply["phases"].items()),
            findings=tuple(finding for item in reply["launches"] for finding in from_plain(item, Launch).findings),
        )  # fmt: skip
    except Exception as error:
        return _replace(base, failure=Failure(stage="integrity", kind="bad_reply", message=f"the candidate's process left an unreadable answer: {error}"))


def ended(job: Job, said: dict[str, Any]) -> Failure | None:
    """The failure that an abnormal end means; None when the process ended by itself with code 0."""
    end = said["end"]
    if end == "wall":
        return Failure(stage="limits", kind="timeout", message=f"no result within {job.wall_limit_s:g} s", hint="an endless loop on the host or in the kernel, or far too much work")
    if end == "memory":
        return Failure(stage="limits", kind="memory", message=f"more than {job.memory_limit_bytes >> 20} MiB of memory used", hint="allocate outputs of the problem's size only")
    if end == "output":
        return Failure(stage="limits", kind="output_flood", message="more than 1 MiB printed", hint="print less")
    if end == "processes":
        return Failure(stage="limits", kind="processes", message="too many processes started", hint="a candidate starts no processes")
    if end == "signal":
        number = said["signal"]
        name = signal.Signals(number).name if number in signal.valid_signals() else str(number)
        return Failure(stage="run", kind="signal", message=f"the candidate's process died of {name}")
    if end == "killed":
        return Failure(stage="run", kind="killed", message="the candidate's process was killed")
    if said.get("code"):
        return Failure(stage="run", kind="early_exit", message=f"the candidate's process ended early with exit code {said['code']}", hint="a candidate must not leave the process")
    return None


def _versions() -> tuple[tuple[str, str], ...]:
    return tuple((name, version(name)) for name in ("torch", "nvidia-cutlass-dsl"))

