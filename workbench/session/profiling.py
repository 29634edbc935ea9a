"""Profiles versions, by one profiler or several, and keeps what views show of each profile in the session; diagnoses
versions by the probes' advice on a profile.
"""

from __future__ import annotations

import dataclasses
import json

from workbench import evaluate, lessons, plugins, probes
from workbench.errors import Unavailable, UserError
from workbench.landscapes.keys import format_settings
from workbench.probes import directives
from workbench.probes.moving import is_made_by
from workbench.profilers.counters import profile_full_size
from workbench.profilers.emulation import run_on_emulator
from workbench.profilers.recorded import is_worth_keeping, merge_profiles, shorten
from workbench.protocols import Options, Tools
from workbench.records import Diagnosis, Event, Outcome, Profile, StoredProfile, Version
from workbench.session.log import Reference
from workbench.session.testing import Testing

ON_GPU = "ncu+sass"  # what probes read on a GPU
FULL_CASE = ("case", "full")  # the default, which is no option
PROBE_TOOL = "probe"  # the name of a model's tool


class Profiling:
    """Profiles versions of a log."""

    def __init__(self, testing: Testing) -> None:
        self.testing, self.log = testing, testing.log

    def profile(self, reference: Reference, by: str, options: Options, *, again: bool = False) -> Profile:
        """The profile of a version by the profilers in `by`, joined with "+".

        A profile that the session keeps, of this device and with these options, is returned as it was kept (see
        `recorded.shorten`), unless `again`. Else the profiler runs the version once more. Each profiler gets the
        options that it knows. Missing values are listed in the notes of the profile.
        """
        self.testing.follow_gpu()
        version = self.log.version(reference)
        found = [self._find(version, name, options, again=again) for name in by.split("+")]
        return merge_profiles(found) if len(found) > 1 else found[0]

    def _find(self, version: Version, by: str, options: Options, *, again: bool) -> Profile:
        """The kept profile of one profiler, else a new one, which the session keeps."""
        known = plugins.load("profiler", by, check=False).option_names
        own = {name: value for name, value in options.items() if name in known and value and (name, value) != FULL_CASE}
        key = tuple(sorted((name, str(value)) for name, value in own.items()))
        if not again and (stored := self._find_kept(version, by, key)) is not None:
            said = f"v{version.number} by {by}: the profile of {stored.at[:16]}; --again profiles it anew"
            self.log.notify(Event(kind="running", message=said))
            return stored.profile
        made = self._profile(version, by, own)
        if self.log.store.write and is_worth_keeping(made):
            stored = StoredProfile(
                version=version.number,
                source_hash=version.source_hash,
                options=key,
                profile=shorten(dataclasses.replace(made, by=by, device=made.device or self.log.device)),
                at=evaluate.now(),
            )
            self.log.add_profile(stored)
        return made

    def _find_kept(self, version: Version, by: str, key: tuple[tuple[str, str], ...]) -> StoredProfile | None:
        """The last profile of a version by one profiler that the session keeps, of this device, with these options."""
        for stored in reversed(self.log.store.profiles(version.number)):
            if (stored.profile.by, stored.profile.device, stored.options) == (by, self.log.device, key):
                return stored
        return None

    def find_kept(self, version: Version, by: str) -> Profile | None:
        """The kept profile by the profilers in `by`, without options; None if the session keeps none of one of them."""
        found = [self._find_kept(version, name, ()) for name in by.split("+")]
        kept = [stored.profile for stored in found if stored is not None]
        return merge_profiles(kept) if len(kept) == len(found) else None

    def _profile(self, version: Version, by: str, options: Options) -> Profile:
        self.log.notify(Event(kind="running", message=f"profiling v{version.number} by {by}"))
        job = self.testing.job(version, want_sass=True)
        profiler = plugins.load("profiler", by)
        context = dataclasses.replace(self.testing.context, options=options)
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


class Diagnosing:
    """Diagnoses versions of a log."""

    def __init__(self, testing: Testing, profiling: Profiling) -> None:
        self.testing, self.profiling, self.log = testing, profiling, testing.log
        self._known: dict[tuple[int, int, int], Diagnosis] = {}  # by version, its trials, the lessons

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
            self._known.clear()
            found = _diagnose(version, self.profiling.profile(version.number, by or ON_GPU, {}, again=again))
        else:
            found = self.find_known(version)
        if found is None:
            raise UserError(_explain_none(version, by))
        return found

    def find_known(self, version: Version) -> Diagnosis | None:
        """The diagnosis without any run, from what a version's test counted, or from a kept profile of a GPU; None
        without both.
        """
        learned = lessons.path()
        stamp = learned.stat().st_mtime_ns if learned is not None and learned.is_file() else 0
        key = version.number, len(version.trials), stamp
        if key not in self._known:
            profile = self._find_profile(version)
            made = _diagnose(version, profile) if profile is not None else None
            if made is None:
                return None
            self._known[key] = made
        return self._known[key]

    def try_diagnose(self, version: Version) -> Diagnosis | None:
        """The diagnosis of a version; None where it cannot be had."""
        try:
            return self.diagnose(version.number)
        except (UserError, Unavailable):
            return None

    def _find_profile(self, version: Version) -> Profile | None:
        """The profile from what a version's test counted at full size, else the one that the session keeps."""
        if not version.trials:
            return None
        outcome, source = version.trials[-1].outcome, version.proposal.candidate.source
        return profile_full_size(self.log.facts, source, outcome) or self.profiling.find_kept(version, ON_GPU)

    def questions(self, version: Version) -> tuple[str, ...]:
        """The questions of all probes, if there is a profile of the version that they can look at."""
        return directives.list_questions(probes.load_probes()) if self._find_profile(version) is not None else ()

    def add_probe_tool(self, tools: Tools, version: Version) -> Tools:
        """A model's tools, and `probe`: what one probe says about a version."""
        profile, verdict = self._find_profile(version), version.trials[-1].verdict
        known = probes.load_probes()

        def call(name: str, arguments: str) -> str:
            if name != PROBE_TOOL:
                return tools.call(name, arguments)
            try:
                asked = str(json.loads(arguments or "{}").get("name", ""))
            except (ValueError, AttributeError):
                return f"{PROBE_TOOL}: the arguments must be a JSON object with the name of a probe"
            if profile is None:
                return "there is no profile of this version"
            source = version.proposal.candidate.source
            return directives.answer_question(known, asked, profile, verdict.bound, source)

        names = [probe.name for probe in known]
        return Tools(specifications=(*tools.specifications, _specify_probe_tool(names)), call=call)


def _specify_probe_tool(names: list[str]) -> dict[str, object]:
    """The tool `probe` as a chat completion request names it."""
    name = {"type": "string", "enum": names}
    return {
        "type": "function",
        "function": {
            "name": PROBE_TOOL,
            "description": "Let one probe look at the profile of the kernel to improve: what it advises, or nothing.",
            "parameters": {"type": "object", "properties": {"name": name}, "required": ["name"]},
        },
    }


def _explain_none(version: Version, by: str) -> str:
    """Why a version has no diagnosis, and what to do."""
    trial = version.trials[-1]
    if (failure := trial.verdict.failure) is not None:
        why = "; ".join(filter(None, (failure.message, failure.hint)))
        return f"v{version.number} failed, so there is nothing to diagnose: {why}; mend it, or name another version"
    why = trial.outcome.full_note or "no kernel of it has a time"
    alone = f"; {by} alone knows no time: counters and sampled do" if by else ""
    return f"v{version.number} has no profile to diagnose: {why}{alone}"


def _diagnose(version: Version, profile: Profile) -> Diagnosis | None:
    verdict = version.trials[-1].verdict
    return probes.diagnose(
        profile,
        verdict.bound,
        version.proposal.candidate.source,
        seconds=verdict.time_s,
        experience=lessons.experience(lessons.read()),
    )


class Learning:
    """Keeps a lesson of each version that was tested (workbench/lessons.py)."""

    def __init__(self, diagnosing: Diagnosing) -> None:
        self.diagnosing, self.log = diagnosing, diagnosing.log

    def handle_event(self, event: Event) -> None:
        """Learn from a version that was judged just now. The log keeps a fault of this away from the test."""
        if event.kind == "judged" and event.version is not None and lessons.path() is not None:
            self.learn(self.log.version(event.version))

    def learn(self, version: Version) -> None:
        """Add the lesson of a tested version, and to that of the failed ones before it how they were repaired."""
        parent = self._changed_version(version)
        if parent is None:
            return
        diagnosis = self.diagnosing.find_known(parent)
        lesson = lessons.learn(
            version,
            parent,
            kind=self.log.facts.kind,
            session=self.log.name,
            bottleneck=diagnosis.bottleneck if diagnosis is not None else "",
            probe=_find_followed(diagnosis, parent, version),
            changes=_changes(parent, version),
        )
        if lesson is None:
            return
        lessons.add(lesson)
        broken = self.log.version(version.proposal.repairs) if version.proposal.repairs is not None else None
        if broken is not None and lesson.outcome != "failed":
            known = {one.id: one for one in lessons.read()}
            failed = known.get(lessons.identify(self.log.name, broken))
            if failed is not None:
                lessons.add_repair(failed, _changes(broken, version), version.number - broken.number)

    def _changed_version(self, version: Version) -> Version | None:
        """The correct version that a version changes: its parent, or that of the failed version that it repairs."""
        if version.parent is None:
            return None
        parent = self.log.version(version.parent)
        if version.proposal.repairs is None or (parent.trials and parent.trials[-1].verdict.correct):
            return parent
        return self._changed_version(parent)


def _find_followed(found: Diagnosis | None, old: Version, new: Version) -> str:
    """The probe whose advice a change followed: the one that the proposal names, else the first one whose moves make
    all of the change; "" if there is none.
    """
    if new.proposal.advice or found is None:
        return new.proposal.advice
    before, after = old.proposal.candidate.program, new.proposal.candidate.program
    if not before or not after:
        return ""
    return next((advice.probe for advice in found.advice if is_made_by(advice.moves, before, after)), "")


def _changes(old: Version, new: Version) -> tuple[tuple[str, str, str], ...]:
    """Settings of programs that differ: (name, before, after); () if one of them has no program."""
    before, after = old.proposal.candidate.program, new.proposal.candidate.program
    if not before or not after:
        return ()
    mine, theirs = format_settings(before), format_settings(after)
    return tuple(
        (name, mine.get(name, "none"), theirs.get(name, "none"))
        for name in sorted({*mine, *theirs} - {"arch"})
        if mine.get(name) != theirs.get(name)
    )
