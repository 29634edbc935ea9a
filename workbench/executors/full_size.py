"""Runs a few CTAs of a candidate at the problem's full size, beside its test on small cases: the launches that the time
model needs. A process of its own does it, which is confined like the candidate's (workers/profile_worker.py).
"""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

from workbench.analysis import devices
from workbench.analysis.time_model import fitted_model
from workbench.executors.jobs.client import Server
from workbench.executors.jobs.folder import JobFolder, cpu_limits, end_failure, prepare
from workbench.executors.jobs.trials import REFUSALS
from workbench.records import Failure, Job, KernelBuild, Launch, Outcome
from workbench.toolchain.compiled import CompiledCache
from workbench.wire import Json, from_plain

CTAS = 4  # of each launch
LAUNCH_LIMIT_S = 20.0  # for the CTAs of one launch; less where the job has little time
WALL_S = 60.0
REPLY_BYTES = 256 << 20


class FullSizeRun:
    """One run at full size. Use as a context manager: its process has ended and its folder is gone afterwards."""

    def __init__(self, job: Job, workers: Server) -> None:
        self.job = dataclasses.replace(
            job, cases=("full",), trials=1, want_sass=False, wall_limit_s=min(job.wall_limit_s, WALL_S)
        )
        self.workers = workers
        self.number: int | None = None
        self.folder = Path()
        self._place: JobFolder | None = None

    @property
    def wanted(self) -> bool:
        """Whether the job asks for it and the problem has a full case."""
        return self.job.full_sample and any(case.name == "full" for case in self.job.facts.cases)

    @property
    def refusal(self) -> str:
        """Why the full case can run on no such device; "" if it can."""
        work = next((work for work in self.job.facts.work if work.case == "full"), None)
        memory = devices.find(self.job.device).memory_bytes
        if work is None or work.least_bytes <= memory:
            return ""
        return f"the full case, {work.least_bytes / 1e9:,.1f} GB, does not fit {self.job.device}'s memory"

    def __enter__(self) -> FullSizeRun:
        if self.wanted and not self.refusal:
            # once per process: the verdict on these launches will need it, and in a new process the workers start now
            threading.Thread(target=fitted_model, name="cutegen-time-model").start()
            self._place = JobFolder()
            self.folder = prepare(Path(self._place.name), self.job)
            options = {
                "mode": "emulator",
                "sample": CTAS,
                "limit_s": min(LAUNCH_LIMIT_S, self.job.wall_limit_s / 2),
                "skip_repeats": True,
                "sass": False,
            }
            (self.folder / "given" / "profile.json").write_text(json.dumps(options))
            self.number = self.workers.start_job(
                "profile",
                str(self.folder),
                memory_bytes=self.job.memory_limit_bytes,
                **cpu_limits(self.job.wall_limit_s),
            )
        return self

    def __exit__(self, *error: Any) -> None:
        if self.number is not None:
            self.workers.cancel(self.number)
        if self._place is not None:
            self._place.cleanup()

    def add_to(self, outcome: Outcome, stop: threading.Event | None) -> Outcome:
        """The outcome with the launches at full size, or with a note why there are none."""
        if self.number is None:
            return dataclasses.replace(outcome, full_note=self.refusal) if self.wanted else outcome
        end = self.workers.wait(self.number, stop)
        CompiledCache(self.job.candidate.source, self.job.arch).add_from(self.folder / "scratch" / "compiled")
        try:
            reply = self._read_reply(end)
            failure = from_plain(reply["failure"], Failure) if reply["failure"] else None
            if failure is None:
                return dataclasses.replace(
                    outcome,
                    full_launches=tuple(from_plain(item, Launch) for item in reply["launches"]),
                    full_builds=tuple(from_plain({**item, "ptx": ""}, KernelBuild) for item in reply["builds"]),
                )
        except Exception as error:  # the candidate could have written anything
            failure = Failure(stage="integrity", kind="bad_reply", message=f"an unreadable answer: {error}")
        if _is_refusal_of_candidate(failure):
            told = dataclasses.replace(failure, message=f"at full size: {failure.message}")
            return dataclasses.replace(outcome, failure=told)
        return dataclasses.replace(outcome, full_note=f"it does not run at full size: {failure.message}")

    def _read_reply(self, end: Json) -> Json:
        failure = end_failure(self.job, end)
        path = self.folder / "scratch" / "reply.json"
        if failure is not None:
            return {"failure": dataclasses.asdict(failure)}
        if not path.is_file() or path.is_symlink() or path.stat().st_size > REPLY_BYTES:
            raise ValueError("no reply")
        reply: Json = json.loads(path.read_text())
        return reply


def _is_refusal_of_candidate(failure: Failure) -> bool:
    """Whether the candidate's host code refused the full size, as it also would on a GPU.

    Faults of kernels do not count, because a sample of CTAs with zeros as inputs may cause them. Large inputs are
    zeros: host code that refuses zeros is taken for code that refuses the size.
    """
    return failure.stage == "run" and failure.line is not None and failure.message.split(":")[0] in REFUSALS
