"""Profiles versions, by one profiler or several."""

from __future__ import annotations

import dataclasses

from workbench import plugins
from workbench.errors import Unavailable, UserError
from workbench.profilers.emulation import run_on_emulator
from workbench.profilers.recorded import merge_profiles
from workbench.protocols import Options
from workbench.records import Event, Outcome, Profile, Version
from workbench.session.log import Reference
from workbench.session.testing import Testing


class Profiling:
    """Profiles versions of a log."""

    def __init__(self, testing: Testing) -> None:
        self.testing, self.log = testing, testing.log

    def profile(self, reference: Reference, by: str, options: Options) -> Profile:
        """The profile of a version by the profilers in `by`, joined with "+". Each one runs the version again.

        Each profiler gets the options that it knows. Missing values are listed in the notes of the profile.
        """
        self.testing.follow_gpu()
        version = self.log.version(reference)
        found = [self._profile(version, name, options) for name in by.split("+")]
        return merge_profiles(found) if len(found) > 1 else found[0]

    def _profile(self, version: Version, by: str, options: Options) -> Profile:
        self.log.notify(Event(kind="running", message=f"profiling v{version.number} by {by}"))
        job = self.testing.job(version, want_sass=True)
        profiler = plugins.load("profiler", by)
        own = {name: value for name, value in options.items() if name in profiler.option_names}
        context = dataclasses.replace(self.testing.context, options=own)
        if not profiler.reads_emulation:
            outcome = Outcome(executor=self.testing.executor.name, arch=job.arch, device=job.device)
            return profiler.profile(job, outcome, context)
        tested = next((t.outcome for t in reversed(version.trials) if t.outcome.full_launches), None)
        try:
            outcome = run_on_emulator(job, context, at_full_size=tested is None)
        except UserError as error:
            raise UserError(f"v{version.number}: {error}") from None
        if tested is not None:  # what limits at full size is known from the test
            outcome = dataclasses.replace(outcome, full_launches=tested.full_launches, full_builds=tested.full_builds)
        return profiler.profile(dataclasses.replace(job, cases=("shrunk",)), outcome, context)

    def findings(self, version: Version) -> str:
        """Findings of the default profiler about a version, one sentence per line; empty if it cannot profile it."""
        try:
            profile = self.profile(version.number, plugins.DEFAULTS.profiler, {})
        except (UserError, Unavailable):
            return ""
        lines = [profile.summary, *[f"line {f.line}: {f.message}" for f in profile.findings[:8]]]
        lines += [
            f"kernel {name}: occupancy {fraction:.0%}, limited by {limiter}"
            for name, fraction, limiter in profile.occupancy
        ]
        return "\n".join(f"- {line}" for line in lines if line)
