"""A closer look at one version, by one profiler or several."""

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
    """Profiles the versions that `testing` tests."""

    def __init__(self, testing: Testing) -> None:
        self.testing, self.log = testing, testing.log

    def profile(self, reference: Reference, by: str, options: Options) -> Profile:
        """The profile of a version by the profilers named in `by`, joined with "+"; runs it once more for each.

        Each profiler is given those of the options that it has. What cannot be seen is named in the notes.
        """
        version = self.log.version(reference)
        found = [self._profile(version, name, options) for name in by.split("+")]
        return merge_profiles(found) if len(found) > 1 else found[0]

    def _profile(self, version: Version, by: str, options: Options) -> Profile:
        self.log.show(Event(kind="running", message=f"profiling v{version.number} by {by}"))
        job = self.testing.job(version, want_sass=True)
        profiler = plugins.load("profiler", by)
        own = {name: value for name, value in options.items() if name in profiler.option_names}
        context = dataclasses.replace(self.testing.context, options=own)
        if not profiler.reads_emulation:
            outcome = Outcome(executor=self.testing.executor.name, arch=job.arch, device=job.device)
            return profiler.profile(job, outcome, context)
        try:
            outcome = run_on_emulator(job, context)
        except UserError as error:
            raise UserError(f"v{version.number}: {error}") from None
        return profiler.profile(dataclasses.replace(job, cases=("shrunk",)), outcome, context)

    def findings(self, version: Version) -> str:
        """What counters say about a version, as a list of sentences; empty where nothing was counted."""
        try:
            profile = self.profile(version.number, "counters", {})
        except (UserError, Unavailable):
            return ""
        lines = [profile.summary, *[f"line {f.line}: {f.message}" for f in profile.findings[:8]]]
        lines += [
            f"kernel {name}: occupancy {fraction:.0%}, limited by {limiter}"
            for name, fraction, limiter in profile.occupancy
        ]
        return "\n".join(f"- {line}" for line in lines if line)
