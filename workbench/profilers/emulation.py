"""Runs a job's candidate once more on the emulator, for the profilers that read counters and SASS."""

from __future__ import annotations

from workbench.errors import UserError
from workbench.profilers.profile_client import run_profiled
from workbench.protocols import PLAIN, RunContext
from workbench.records import Job, Outcome


def run_on_emulator(job: Job, context: RunContext = PLAIN) -> Outcome:
    """Run the shrunk case with SASS and follow its first CTAs in time.

    Raises `UserError` if the candidate fails before a kernel ran.
    """
    with run_profiled(job, "emulator", context, case="shrunk", wall_s=max(job.wall_limit_s, 60.0)) as seen:
        if seen.failure is not None and not seen.launches:
            raise UserError(f"this version cannot be profiled: {seen.failure.message}")
        return Outcome(
            executor="emulator",
            arch=job.arch,
            device=job.device,
            builds=seen.builds,
            launches=seen.launches,
            protections=seen.protections,
        )
