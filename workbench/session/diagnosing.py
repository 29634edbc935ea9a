"""Diagnoses of versions: the probes' advice on what a test counted, or on a profile that is taken for it."""

from __future__ import annotations

from workbench import probes
from workbench.errors import UserError
from workbench.profilers.counters import profile_full_size
from workbench.records import Diagnosis, Profile, Version
from workbench.session.log import Reference
from workbench.session.profiling import Profiling
from workbench.session.testing import Testing

ON_GPU = "ncu+sass"  # what probes read on a GPU


class Diagnosing:
    """Diagnoses versions of a log."""

    def __init__(self, testing: Testing, profiling: Profiling) -> None:
        self.testing, self.profiling, self.log = testing, profiling, testing.log

    def diagnose(self, reference: Reference = "latest", by: str = "", *, again: bool = False) -> Diagnosis:
        """The diagnosis of a version. What its test counted at full size is enough; nothing is run then.

        `by` names profilers, joined with "+"; without it a session on a GPU takes `ON_GPU`. A version that was not
        tested is tested first. Raises `UserError` where there is nothing to look at.
        """
        version = self.log.version(reference)
        if not version.trials:
            self.testing.test(version.number)
            version = self.log.version(version.number)
        measured = version.trials[-1].outcome.timing is not None
        if by or measured:
            found = _diagnose(version, self.profiling.profile(version.number, by or ON_GPU, {}, again=again))
        else:
            found = self.find_known(version)
        if found is None:
            trial = version.trials[-1]
            why = trial.verdict.failure.message if trial.verdict.failure else trial.outcome.full_note
            raise UserError(f"v{version.number} has no profile to diagnose: {why or 'no kernel of it has a time'}")
        return found

    def find_known(self, version: Version) -> Diagnosis | None:
        """The diagnosis from what a version's test counted, without any run; None if that is not enough."""
        if not version.trials:
            return None
        outcome, source = version.trials[-1].outcome, version.proposal.candidate.source
        profile = profile_full_size(self.log.facts, source, outcome)
        return _diagnose(version, profile) if profile is not None else None


def _diagnose(version: Version, profile: Profile) -> Diagnosis | None:
    verdict = version.trials[-1].verdict
    return probes.diagnose(profile, verdict.bound, version.proposal.candidate.source, seconds=verdict.time_s)
