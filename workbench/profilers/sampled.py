"""Profiles a few CTAs of every launch at the problem's full size, on the emulator.

Counts are scaled to the grid. Times are those of analysis/time_model.
"""

from __future__ import annotations

import dataclasses

from workbench.errors import UserError
from workbench.profilers.counters import CounterProfiler
from workbench.profilers.profile_client import run_profiled
from workbench.protocols import PLAIN, Profiler, RunContext
from workbench.records import Failure, Job, Outcome, Profile

CTAS = 4  # CTAs of each launch, as many as the time model was fitted with
LIMIT_S = 60.0  # for the CTAs of one launch


class SampledProfiler(Profiler):
    """Counters and modelled time at full size; needs no GPU."""

    name = "sampled"

    def why_not(self) -> str | None:
        """Always available."""
        return None

    def profile(self, job: Job, outcome: Outcome, context: RunContext = PLAIN, /) -> Profile:
        """As `CounterProfiler.profile`, at the full case.

        Raises `UserError` if the candidate fails, its CTAs take longer than LIMIT_S, or memory is not enough.
        """
        with run_profiled(
            job,
            "emulator",
            context,
            case="full",
            wall_s=max(job.wall_limit_s, 3 * LIMIT_S),
            options={"sample": CTAS, "limit_s": LIMIT_S},
        ) as seen:
            if seen.failure is not None:
                raise UserError(f"this version cannot be profiled at full size: {_explain(seen.failure)}")
            found = dataclasses.replace(
                outcome,
                executor="emulator",
                builds=seen.builds,
                launches=seen.launches,
                full_builds=seen.builds,
                full_launches=seen.launches,
                protections=seen.protections,
            )
        return dataclasses.replace(
            CounterProfiler().profile(dataclasses.replace(job, cases=("full",)), found), by=self.name
        )


def _explain(failure: Failure) -> str:
    """The failure's message with its line and an advice."""
    at = f" (line {failure.line})" if failure.line is not None else ""
    advice = (
        {"sample_waits": "; --by counters --case shrunk runs all CTAs, at small sizes"}
        if failure.kind == "sample_waits"
        else {"limits": "; smaller sizes can be set by --set, and --by counters takes the emulated ones"}
    )
    return f"{failure.message}{at}{advice.get(failure.kind) or advice.get(failure.stage, '')}"
