"""Runs a job's candidate once more on the emulator, for the profilers that read counters and SASS."""

from __future__ import annotations

from dataclasses import replace

from workbench.errors import UserError
from workbench.executors.full_size import FullSizeRun
from workbench.executors.jobs.client import server
from workbench.profilers.profile_client import run_profiled
from workbench.protocols import PLAIN, RunContext
from workbench.records import Job, Outcome


def run_on_emulator(job: Job, context: RunContext = PLAIN, *, at_full_size: bool = False) -> Outcome:
    """Run the shrunk case with SASS and follow its first CTAs in time; `at_full_size` runs a few CTAs there too.

    Raises `UserError` if the candidate fails before a kernel ran.
    """
    workers = server()
    with (
        FullSizeRun(replace(job, full_sample=at_full_size), workers) as full,
        run_profiled(job, "emulator", context, case="shrunk", wall_s=max(job.wall_limit_s, 60.0)) as seen,
    ):
        if seen.failure is not None and not seen.launches:
            raise UserError(f"this version cannot be profiled: {seen.failure.message}")
        outcome = Outcome(
            executor="emulator",
            arch=job.arch,
            device=job.device,
            builds=seen.builds,
            launches=seen.launches,
            protections=seen.protections,
        )
        return full.add_to(outcome, context.stop)
