"""Builds, runs, checks and times versions on the session's executor, and adds the trials to the log."""

from __future__ import annotations

from workbench import evaluate
from workbench.analysis import devices
from workbench.errors import Unrecorded
from workbench.executors.jobs.trials import gpu_cases, small_cases
from workbench.protocols import Executor, RunContext
from workbench.records import Candidate, Event, Job, Proposal, TorchCompile, Trial, Verdict, Version
from workbench.records.proposal import HUMAN
from workbench.session.device import follow_gpu
from workbench.session.log import Reference, SessionLog
from workbench.wire import content_hash


class TestSettings:
    """How versions are tested, as a person chose it. The log has it."""

    log: SessionLog

    @property
    def cold_l2(self) -> bool:
        """Whether L2 holds no data of a timed call on a GPU before it."""
        return self.log.meta.get("cold_l2", True)

    @cold_l2.setter
    def cold_l2(self, cold: bool) -> None:
        self.log.store.set_meta({"cold_l2": cold})

    @property
    def allow_torch(self) -> bool:
        """Whether torch may do most of the work in forward: a doubt then, not a refusal."""
        return self.log.meta.get("allow_torch", False)

    @allow_torch.setter
    def allow_torch(self, allow: bool) -> None:
        self.log.store.set_meta({"allow_torch": allow})

    @property
    def torch_compile(self) -> TorchCompile:
        """When torch.compile of the problem is timed beside a version on a GPU (`Job.compiled`)."""
        return self.log.meta.get("torch_compile", "later")

    @torch_compile.setter
    def torch_compile(self, when: TorchCompile) -> None:
        self.log.store.set_meta({"torch_compile": when})


class Testing(TestSettings):
    """Tests the versions of a log on one executor."""

    def __init__(self, log: SessionLog, executor: Executor, context: RunContext) -> None:
        self.log, self.executor, self.context = log, executor, context

    def job(self, version: Version | None, *, want_sass: bool = False, rival: Version | None = None) -> Job:
        """The job that tests a version on this executor; without a version it has no candidate.

        A `rival` that was correct is timed in alternation with it.
        """
        full = self.executor.full_size
        return Job(
            problem=self.log.problem,
            facts=self.log.facts,
            candidate=version.proposal.candidate if version is not None else Candidate(source=""),
            arch=self.log.arch,
            device=self.log.device,
            want_sass=want_sass,
            cases=(gpu_cases if full else small_cases)(self.log.facts),
            trials=2,
            timed_calls=40 if full else 0,
            wall_limit_s=300.0 if full else 60.0,
            memory_limit_bytes=(64 << 30) if full else (4 << 30),
            cold_l2=self.cold_l2 if full else True,
            allow_torch=self.allow_torch,
            compiled=self.torch_compile if full else "later",
            rival=rival.proposal.candidate if rival is not None and self._can_time(rival) else None,
        )

    def _can_time(self, rival: Version) -> bool:
        """Whether a version can be timed as a rival: it was correct when this kind of executor ran it last."""
        if not self.executor.times_rivals or not rival.trials:
            return False
        trial = rival.trials[-1]
        return trial.verdict.correct and trial.outcome.executor == self.executor.name

    def test(self, reference: Reference = "latest", *, want_sass: bool = False) -> Trial:
        """Compile, run and check a version, and add the trial to the log.

        A rival that was measured on another GPU is measured on this one first.
        """
        self.follow_gpu()
        version = self.log.version(reference)
        rival = self._find_rival(version)
        if rival is not None and self._is_of_another_gpu(rival):
            self._measure_again(rival)
            rival = self.log.version(rival.number)
        job = self.job(version, want_sass=want_sass, rival=rival)
        parent = rival.trials[-1] if rival is not None and rival.trials else None
        trial = evaluate.evaluate(job, self.executor, parent=parent, context=self.context)
        self.log.add_trial(version.number, content_hash(job), trial)
        message = f"v{version.number}: {describe(trial.verdict)}"
        self.log.add_event(Event(kind="judged", version=version.number, message=message))
        return trial

    def follow_gpu(self) -> None:
        """Go on with the GPU at hand, which is another one after `--gpu` or on another machine (session/device.py)."""
        follow_gpu(self.log, self.executor)

    def _is_of_another_gpu(self, version: Version) -> bool:
        """Whether the last time of a version was measured on a GPU, but not on this session's."""
        if self.executor.device_name() is None or not version.trials:
            return False
        outcome = version.trials[-1].outcome
        return outcome.timing is not None and not devices.is_same(outcome.device, self.log.device)

    def _measure_again(self, version: Version) -> None:
        """Test a version alone on the GPU at hand."""
        job = self.job(version)
        trial = evaluate.evaluate(job, self.executor, context=self.context)
        self.log.add_trial(version.number, content_hash(job), trial)
        message = f"v{version.number} measured again on the {self.log.device}: {describe(trial.verdict)}"
        self.log.add_event(Event(kind="judged", version=version.number, message=message))

    def _find_rival(self, version: Version) -> Version | None:
        """The version to compare times with: the parent, or for a repair the last correct version before it."""
        parent = self.log.version(version.parent) if version.parent is not None else None
        if parent is None or version.proposal.repairs is None or is_correct(parent):
            return parent
        return self._find_rival(parent) if parent.parent is not None else self.log.baseline

    def add(self, proposal: Proposal, *, test: bool = True) -> Version:
        """Add a proposal as a version and test it.

        Raises `Unrecorded` if the executor replays recordings and has none of it. The version is rejected then, unless
        a person wrote it.
        """
        version = self.log.add_version(proposal)
        if test:
            try:
                self.test(version.number)
            except Unrecorded as missing:
                if proposal.by != HUMAN:
                    self.log.reject(version.number, str(missing))
                raise
        return self.log.version(version.number)

    def replay(self, *versions: Reference) -> tuple[str, ...]:
        """Run versions that were tested again, by default all. Returns a sentence for each outcome that differs."""
        self.follow_gpu()
        messages = []
        for version in map(self.log.version, versions) if versions else self.log.versions:
            if not version.trials:
                continue
            number, before = version.number, version.trials[-1].verdict
            now = evaluate.evaluate(self.job(version), self.executor, context=self.context).verdict
            if before.correct and not now.correct:
                messages.append(f"v{number} was correct, today it is not")
            elif now.correct and not before.correct:
                messages.append(f"v{number} failed before and is correct today")
            elif before.failure and now.failure and before.failure.kind != now.failure.kind:
                messages.append(f"v{number} failed as {before.failure.kind} before and as {now.failure.kind} today")
        return tuple(messages)


def is_correct(version: Version) -> bool:
    """Whether the last trial of a version was correct."""
    return bool(version.trials) and version.trials[-1].verdict.correct


def describe(verdict: Verdict) -> str:
    """A verdict in a phrase."""
    if verdict.correct:
        return "correct"
    return f"{verdict.failure.stage}: {verdict.failure.message}" if verdict.failure else "not correct"
