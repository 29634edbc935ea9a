"""Job -> Outcome on a CUDA device: the candidate in one confined process, reference, check and eager timing in another afterwards."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.errors import ProblemError
from workbench.executors.client import server
from workbench.executors.emulator import candidate_outcome, prepare, require, wrong_result
from workbench.executors.handing import Handing, draw
from workbench.protocols import Progress
from workbench.records import Check, Event, Failure, Job, Outcome, Timing
from workbench.wire import from_plain

SHARED_MEMORY = Path("/dev/shm")  # outputs of full-size problems are gigabytes: handed over in memory where there is room
CHECK_LIMIT_S = 300.0


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

    def run(self, job: Job, /, *, progress: Progress | None = None) -> Outcome:
        """Run, time and check the candidate at the job's cases."""
        say = progress or (lambda event: None)
        start = time.perf_counter()
        place = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="cutegen-job-", dir=place, ignore_cleanup_errors=True) as name:
            folder = prepare(Path(name), job)
            seeds, kept = draw(job)
            (folder / "private" / "calls.json").write_text(json.dumps({"seeds": seeds, "kept": sorted(kept)}))
            workers, handing = server(), Handing(folder, job, seeds, kept)
            say(Event(kind="running", message="compiling, running and timing on the GPU", fraction=0.1))
            handing.start()
            try:
                said = workers.wait(workers.start_job("candidate", str(folder), wall_s=job.wall_limit_s, memory_bytes=job.memory_limit_bytes, device="cuda"), self.stop)
            finally:
                handing.finish()
            outcome = candidate_outcome(job, folder, said, self.name)
            timing = self._timing(folder, outcome)
            outcome = replace(outcome, timing=timing)
            ran = time.perf_counter() - start
            if outcome.failure is None:
                say(Event(kind="running", message="checking against the reference and timing torch", fraction=0.7))
                outcome = self._checked(job, folder, outcome)
        return replace(outcome, phases=(*outcome.phases, ("candidate", ran), ("total", time.perf_counter() - start)))

    def _timing(self, folder: Path, outcome: Outcome) -> Timing | None:
        path = folder / "scratch" / "timing.json"
        if outcome.failure is not None or not path.is_file() or path.is_symlink():
            return None
        return from_plain(json.loads(path.read_text()), Timing)

    def _checked(self, job: Job, folder: Path, outcome: Outcome) -> Outcome:
        workers = server()
        said = workers.wait(workers.start_job("gpu_check", str(folder), wall_s=CHECK_LIMIT_S, memory_bytes=job.memory_limit_bytes, device="cuda"), self.stop)
        try:
            reply: dict[str, Any] = require(folder, "gpu_check", said)
        except ProblemError as error:
            return replace(outcome, failure=Failure(stage="check", kind="no_output", message=str(error)))
        checks = tuple(from_plain(item, Check) for item in reply["checks"])
        reference = from_plain(reply["reference"], Timing) if reply.get("reference") else None
        versions = (*outcome.versions, *((key, str(value)) for key, value in reply["versions"].items()))
        return replace(outcome, checks=checks, reference_timing=reference, versions=versions, failure=wrong_result(checks))
