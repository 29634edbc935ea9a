"""Judges the candidates of a search: each becomes a version of the session with its verdict.

Cheap before dear: where times are measured on a GPU, a candidate is compiled and judged on the emulator first. Only one
that may beat the best, by the interval of its modelled time, goes to the GPU; what does not is screened out, with the
reason, and costs no trial. Without a GPU the emulator's verdict is the trial.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from workbench import evaluate
from workbench.analysis import devices
from workbench.analysis.time_model import compare_times
from workbench.errors import ProgramError, Unavailable, Unrecorded, UserError
from workbench.executors.jobs.trials import SHRUNK
from workbench.policies.search import Given, SearchTree
from workbench.policies.search.protocols import ShouldStop
from workbench.profilers.energy import Counter
from workbench.records import Event, Job, Outcome, Proposal, Trial, Verdict, Version
from workbench.records.search import NodeResult, SearchAim, SearchCandidate
from workbench.session.deciding import say_settled
from workbench.session.parts import Parts
from workbench.session.profiling import Profiling
from workbench.session.searching.candidates import find_version, read_candidate, write_candidate
from workbench.session.searching.prefetching import Prefetching
from workbench.session.searching.standing import settle
from workbench.session.testing import Testing

COMPILING = ("source", "import", "compile")  # stages of a failure before anything ran
Ahead = Callable[[], Sequence[SearchCandidate]]  # the candidates that are likely next


class Screening(Testing):
    """Tests on the emulator at one small case, and runs a few CTAs at full size, which the time model needs.

    What passes is judged at all cases where it is timed.
    """

    def job(self, version: Version | None, *, want_sass: bool = False, rival: Version | None = None) -> Job:
        """As `Testing.job`, with one case and one trial."""
        return dataclasses.replace(super().job(version, want_sass=want_sass, rival=rival), cases=(SHRUNK,), trials=1)


class LiveEvaluator:
    """Judges candidates on the session's executor. What was run before a kill is not run again."""

    def __init__(self, parts: Parts, profiling: Profiling, emulator: Prefetching, ahead: Ahead, aim: SearchAim) -> None:
        """`emulator` holds the session's own executor where that measures on no GPU."""
        self.log, self.deciding, self.profiling = parts.log, parts.deciding, profiling
        self.emulator, self.ahead, self.aim = emulator, ahead, aim
        self.screens = parts.testing.executor is not emulator.inner
        self.cheap = (Screening if self.screens else Testing)(parts.log, emulator, parts.testing.context)
        self.testing = parts.testing if self.screens else self.cheap
        self.emulated: dict[int, Outcome] = {}  # of versions that were measured before the search

    def judge(self, candidate: SearchCandidate, tree: SearchTree, should_stop: ShouldStop) -> NodeResult:
        """The result of a candidate: its version, its verdict, and what both cost."""
        start, joules = time.perf_counter(), self._read_joules()
        if self.emulator.workers:
            self.emulator.run_ahead(map(self._job, self.ahead()))
        known = {version.number for version in self.log.versions}
        try:
            version = self._find_or_add(candidate, tree)
        except ProgramError as error:
            return NodeResult(
                outcome="compile-error", message=_first_line(str(error)), seconds=time.perf_counter() - start
            )
        reason = "" if not self.screens or self._is_tested(version) else self._screen(version, tree)
        reason = reason or self._test(version)
        version = self.log.version(version.number)
        found = describe_result(version, screened=reason)
        settle(self.deciding, version, found)
        if version.number in known:
            say_settled(self.log, version)
        proposal, now, calls = version.proposal, self._read_joules(), self.log.store.exchanges()
        writing = sum(calls[number].seconds for number in proposal.exchanges)
        return dataclasses.replace(
            found,
            seconds=time.perf_counter() - start + writing,
            spent_joules=now - joules if now is not None and joules is not None else 0.0,
            tokens=(proposal.tokens_in or 0) + (proposal.tokens_out or 0),
            usd=proposal.cost_usd or 0.0,
        )

    def judge_given(self, version: Version, roots: Sequence[SearchCandidate]) -> Given:
        """A version of the session as a candidate, of the space's roots if it is one, with its result; one that this
        executor did not judge is tested.
        """
        own = write_candidate(version.proposal.candidate, version.proposal.title)
        found = describe_result(self.log.version(version.number), screened=self._test(version))
        return next((one for one in roots if one.key == own.key), own), found

    def _find_or_add(self, candidate: SearchCandidate, tree: SearchTree) -> Version:
        """The version of a candidate; one that the session has already is not added again."""
        version = find_version(self.log, candidate.key)
        if version is not None:
            return version
        node = tree.node(tree.keys[candidate.key])
        above = tree.node(node.parent or 0).result
        parent = above.version if above is not None else tree.setup.start if tree.setup is not None else None
        depth = self.log.version(parent).proposal.depth + 1 if parent is not None else 0
        proposal = Proposal(
            candidate=read_candidate(self.log, candidate),
            title=candidate.title,
            reason=f"node {node.number} of the search by {tree.setup.strategy if tree.setup else ''}"
            + (f"; {candidate.prior.source}" if candidate.prior is not None else ""),
            by=tree.setup.expander if tree.setup is not None else "planner",
            parent=parent,
            depth=depth,
        )
        return self.log.add_version(proposal)

    def _test(self, version: Version) -> str:
        """Test a version unless that was done; returns why nothing could be run, for an executor that replays."""
        if not self._is_tested(version):
            try:
                self.testing.test(version.number)
            except Unrecorded as missing:
                return _first_line(str(missing))
        self._measure_energy(self.log.version(version.number))
        return ""

    def _is_tested(self, version: Version) -> bool:
        """Whether this executor judged a version on the session's device."""
        name = self.testing.executor.name
        return any(trial.outcome.executor == name and self._is_here(trial) for trial in version.trials)

    def _is_here(self, trial: Trial) -> bool:
        """Whether a trial is of the session's device, where it was measured."""
        return trial.outcome.timing is None or devices.is_same(trial.outcome.device, self.log.device)

    def _measure_energy(self, version: Version) -> None:
        """Measure the joules of a correct version on the GPU, if the search wants few of them."""
        if self.aim == "energy" and self.screens and version.energy is None and version.trials[-1].verdict.correct:
            try:
                self.profiling.profile(version.number, "energy", {})
            except (UserError, Unavailable) as missing:
                message = f"the energy of v{version.number} is unknown: {missing}"
                self.log.add_event(Event(kind="note", version=version.number, message=message))

    def _screen(self, version: Version, tree: SearchTree) -> str:
        """Judge a version without a GPU; returns why it need not go there, "" if it may win."""
        trial = _find_emulated(version)
        if trial is None:
            trial = self.cheap.test(version.number)
        if not trial.verdict.correct:
            failure = trial.verdict.failure
            if failure is not None and failure.stage == "limits":  # too slow or too large for the emulator only
                return ""
            return f"on the emulator: {failure.message if failure is not None else 'not correct'}"
        rival, best_s = self._find_best(tree)
        if rival is None:
            return ""
        job = self.cheap.job(version)
        new = evaluate.estimate_outcome(job, trial.outcome)
        old = evaluate.estimate_outcome(job, self._emulate(rival))
        if new is not None and old is not None:
            most = compare_times(new, old).high
            return f"at most {most:.2f}x of v{rival.number}, by the time model" if most < 1 else ""
        if new is not None and new.low_s > best_s:
            return f"at least {new.low_s * 1e6:.4g} us by the time model, v{rival.number} takes {best_s * 1e6:.4g} us"
        return ""

    def _find_best(self, tree: SearchTree) -> tuple[Version | None, float]:
        """The fastest version of the search with its seconds on the GPU."""
        found = tree.best.result if tree.best is not None else None
        if found is None or found.version is None or not found.time_s:
            return None, 0.0
        return self.log.version(found.version), found.time_s

    def _emulate(self, version: Version) -> Outcome:
        """A version's outcome on the emulator; one that was measured without being screened is run there once, which is
        no trial of it.
        """
        trial = _find_emulated(version)
        if trial is not None:
            return trial.outcome
        if version.number not in self.emulated:
            self.emulated[version.number] = self.emulator.run(self.cheap.job(version), self.cheap.context)
        return self.emulated[version.number]

    def _job(self, candidate: SearchCandidate) -> Job:
        return dataclasses.replace(self.cheap.job(None), candidate=read_candidate(self.log, candidate))

    def _read_joules(self) -> float | None:
        """The energy counter of the GPU; None where there is none."""
        if not self.screens:
            return None
        try:
            return Counter().read()
        except Exception:  # NVML is missing, or counts no energy on this device
            return None


def describe_result(version: Version, screened: str = "") -> NodeResult:
    """The last trial of a version as the result of a node; with a reason, that of one that was screened out."""
    if not version.trials:
        return NodeResult(outcome="failed", message=screened, screened=True, version=version.number)
    trial = version.trials[-1]
    verdict, timing = trial.verdict, trial.outcome.timing
    message = screened or _find_fault(verdict)
    passed = verdict.correct and not _find_fault(verdict)
    failure = verdict.failure
    low, high = (timing.low_s, timing.high_s) if timing is not None else verdict.time_interval or (None, None)
    broken = failure is not None and failure.stage in COMPILING
    joules = version.energy.joules_per_call if version.energy is not None and timing is not None else None
    if joules is None and verdict.energy is not None:
        joules = verdict.energy.joules
    return NodeResult(
        outcome="passed" if passed else "compile-error" if broken else "failed",
        time_s=verdict.time_s if passed else None,
        low_s=low if passed else None,
        high_s=high if passed else None,
        joules=joules if passed else None,
        message=message,
        screened=bool(screened),
        version=version.number,
    )


def _find_fault(verdict: Verdict) -> str:
    """Why a version is not to be used; "" if nothing speaks against it."""
    if not verdict.correct:
        return verdict.failure.message if verdict.failure is not None else "not correct"
    if verdict.refused:
        return f"refused: {verdict.refused}"
    return f"suspect: {verdict.suspect[0]}" if verdict.suspect else ""


def _find_emulated(version: Version) -> Trial | None:
    """The last trial of a version that has launches at full size on the emulator, or failed there."""
    return next((trial for trial in reversed(version.trials) if trial.outcome.timing is None), None)


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""
