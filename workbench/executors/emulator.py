"""Runs jobs without a GPU: reference, candidate and check each have a process of their own (workers/worker.py)."""

from __future__ import annotations

import platform
import time
from dataclasses import replace
from pathlib import Path

from workbench.errors import ProblemError
from workbench.executors.full_size import FullSizeRun
from workbench.executors.jobs.client import Server, server
from workbench.executors.jobs.folder import JobFolder, candidate_outcome, cpu_limits, disk_limit, prepare, read_reply
from workbench.executors.wrong_result import wrong_result
from workbench.protocols import PLAIN, Executor, RunContext
from workbench.records import Check, Event, Facts, Failure, Job, Outcome, Problem
from workbench.wire import from_plain

CHECK_LIMIT_S = 120.0


class EmulatorExecutor(Executor):
    """Runs candidates on the PTX emulator."""

    name = "emulator"
    auto_rank = 1

    def why_not(self) -> str | None:
        """The emulator needs Linux and CuTe DSL."""
        if platform.system() != "Linux":
            return "candidates are confined with Linux features; use Linux, WSL2 or a container"
        return None

    def admit(self, problem: Problem, facts: Facts, device: str) -> None:
        """Raise `ProblemError` for a problem whose smallest sizes are too much for the emulator."""
        if [case.name for case in facts.cases] == ["full"]:
            raise ProblemError(facts.notes[0])

    def run(self, job: Job, context: RunContext = PLAIN, /) -> Outcome:
        """Run the candidate at the job's cases and compare with the reference."""
        start = time.perf_counter()
        workers = server()
        with (
            JobFolder() as name,
            FullSizeRun(job, workers) as at_full_size,
        ):
            folder = prepare(Path(name), job)
            context.progress(Event(kind="running", message="compiling and emulating", fraction=0.1))
            reference = workers.start_job("reference", str(folder), **cpu_limits(CHECK_LIMIT_S))
            number = workers.start_job(
                "candidate",
                str(folder),
                memory_bytes=job.memory_limit_bytes,
                disk_bytes=disk_limit(job),
                tools=job.want_sass,
                **cpu_limits(job.wall_limit_s),
            )

            def fail_with_reference() -> None:  # the candidate waits for its inputs in vain
                if not workers.is_running(reference):
                    read_reply(folder, "reference", {"end": "its process ended"})

            try:
                end = workers.wait(number, context.stop, fail_with_reference)
            except BaseException:
                workers.cancel(reference)
                raise
            outcome = candidate_outcome(job, folder, end, self.name)
            ran = time.perf_counter() - start
            if outcome.failure is None:
                read_reply(folder, "reference", workers.wait(reference, context.stop))
                context.progress(Event(kind="running", message="checking", fraction=0.8))
                outcome = self._check(job, folder, workers, outcome, context)
                if outcome.failure is None:
                    context.progress(Event(kind="running", message="a few CTAs at full size", fraction=0.9))
                    outcome = at_full_size.add_to(outcome, context.stop)
            else:
                workers.cancel(reference)
        phases = (*outcome.phases, ("candidate", ran), ("total", time.perf_counter() - start))
        return replace(outcome, phases=phases)

    def _check(self, job: Job, folder: Path, workers: Server, outcome: Outcome, context: RunContext) -> Outcome:
        """The outcome with the comparisons of the candidate's outputs."""
        end = workers.wait(workers.start_job("check", str(folder), **cpu_limits(CHECK_LIMIT_S)), context.stop)
        try:
            reply = read_reply(folder, "check", end)
        except ProblemError as error:
            return replace(outcome, failure=Failure(stage="check", kind="no_output", message=str(error)))
        checks = tuple(from_plain(item, Check) for item in reply["checks"])
        wrong = wrong_result(checks, outcome.unmapped_parameters, outcome.launches, job.facts)
        return replace(outcome, checks=checks, failure=wrong, left_out=tuple(reply["left_out"]))
