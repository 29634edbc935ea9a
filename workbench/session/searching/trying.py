"""How a search tries a candidate: on the GPU in a quick way (`QuickTesting`), on the emulator before that if it is told
to (`Screening`).

Neither is a ground to accept a version: what becomes the best of a search is tested as any version is.
"""

from __future__ import annotations

import dataclasses

from workbench.executors.jobs.trials import ODD, SHRUNK
from workbench.records import Job, Outcome, Trial, Version
from workbench.session.testing import Testing

COMPILING = ("source", "import", "compile")  # stages of a failure before anything ran
SCREEN_S = 10.0  # of CPU time that a screening may take (inferred)
TIMED_CALLS = 12  # of a quick trial


class Screening(Testing):
    """Tests on the emulator at one small case, of odd sizes, and runs a few CTAs at full size, which the time model
    needs. What takes longer than a trial on the GPU would is broken off.
    """

    def job(self, version: Version | None, *, want_sass: bool = False, rival: Version | None = None) -> Job:
        """As `Testing.job`, with one case and one trial."""
        known = {case.name for case in self.log.facts.cases}
        return dataclasses.replace(
            super().job(version, want_sass=want_sass, rival=rival),
            cases=(ODD if ODD in known else SHRUNK,),
            trials=1,
            wall_limit_s=SCREEN_S,
        )


class QuickTesting(Testing):
    """Tests on a GPU: the full size is checked once, and timed in fewer rounds without torch or the parent."""

    def job(self, version: Version | None, *, want_sass: bool = False, rival: Version | None = None) -> Job:
        """As `Testing.job`, for a quick trial."""
        whole = super().job(version, want_sass=want_sass)
        return dataclasses.replace(
            whole, cases=whole.cases[-1:], trials=1, timed_calls=TIMED_CALLS, rival=None, compiled="never", quick=True
        )


def find_emulated(version: Version) -> Trial | None:
    """The last trial of a version that has launches at full size on the emulator, or failed there."""
    return next((trial for trial in reversed(version.trials) if trial.outcome.timing is None), None)


def tells_nothing(outcome: Outcome) -> bool:
    """Whether an outcome of the emulator neither refuses a candidate nor has what the time model needs."""
    if outcome.failure is not None:
        return outcome.failure.stage == "limits"
    return not outcome.full_launches
