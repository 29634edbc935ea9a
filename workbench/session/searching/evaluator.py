"""Judges the candidates of a search: each becomes a version of the session with its verdict.

Where times are measured on a GPU, a candidate has a quick trial there; if that is surely faster than the best, by both
intervals, the whole verdict follows, whose result counts. One that may be faster has it at the end of the search, if
it is the fastest then. Without a GPU the emulator's verdict is the trial. A search that screens by the
emulator judges a candidate there first. Only one that may beat the best, by the interval of its modelled time, goes to
the GPU; what does not is screened out, with the reason, and costs no trial.

What is likely next is run ahead meanwhile. A wrong guess costs time only.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workbench import evaluate
from workbench.analysis import devices
from workbench.analysis.time_model import compare_times
from workbench.errors import ProgramError, Unavailable, Unrecorded, UserError
from workbench.policies.search import Given, SearchNode, SearchTree
from workbench.policies.search.protocols import ShouldStop
from workbench.profilers.energy import Counter
from workbench.records import Candidate, Event, Job, Outcome, Proposal, Trial, Verdict, Version
from workbench.records.search import NodeResult, SearchAim, SearchCandidate
from workbench.session.deciding import say_settled
from workbench.session.parts import Parts
from workbench.session.profiling import Profiling
from workbench.session.searching.candidates import find_version, read_candidate, write_candidate
from workbench.session.searching.prefetching import Prefetching
from workbench.session.searching.standing import settle
from workbench.session.searching.trying import (
    COMPILING,
    QuickTesting,
    Screening,
    find_emulated,
    tells_nothing,
)
from workbench.session.testing import Testing
from workbench.wire import content_hash

UNTOLD = 2  # screenings in a row that told nothing, after which candidates go to the GPU at once (inferred)
Ahead = Callable[[], Sequence[SearchCandidate]]  # the candidates that are likely next


@dataclass(slots=True)
class Guess:
    """A candidate that is likely next, and how far it was run ahead."""

    job: Job  # of its screening
    key: str  # of that job
    is_done: bool = False  # on the GPU, or screened out


class LiveEvaluator:
    """Judges candidates on the session's executor. What was run before a kill is not run again."""

    def __init__(
        self,
        parts: Parts,
        profiling: Profiling,
        emulator: Prefetching,
        gpu: Prefetching,
        ahead: Ahead,
        aim: SearchAim,
    ) -> None:
        """`gpu` holds the session's own executor. So does `emulator`, where nothing is screened by the emulator."""
        self.log, self.deciding, self.profiling = parts.log, parts.deciding, profiling
        self.emulator, self.gpu, self.ahead, self.aim = emulator, gpu, ahead, aim
        self.screens = gpu.inner is not emulator.inner
        context = parts.testing.context
        self.cheap = (Screening if self.screens else Testing)(parts.log, emulator, context)
        self.quick = QuickTesting(parts.log, gpu, context) if gpu.runs_quick and aim == "time" else None
        self.testing = parts.testing if self.screens or self.quick is not None else self.cheap
        self.emulated: dict[int, Outcome] = {}  # of versions that were measured before the search
        self.guesses: list[Guess] = []
        self.is_guessed = False  # for the candidate that is judged
        self.read: dict[str, Candidate] = {}
        self.screens_now = self.screens

    def judge(self, candidate: SearchCandidate, tree: SearchTree, should_stop: ShouldStop) -> NodeResult:
        """The result of a candidate: its version, its verdict, and what both cost."""
        start, joules = time.perf_counter(), self._read_joules()
        self.screens_now = self.screens and not self._told_nothing(tree)
        self.is_guessed = False
        self.emulator.meanwhile = self.gpu.meanwhile = lambda: self._go_ahead(tree)
        self._go_ahead(tree)
        known = {version.number for version in self.log.versions}
        try:
            version = self._find_or_add(candidate, tree)
        except ProgramError as error:
            return NodeResult(
                outcome="compile-error", message=_first_line(str(error)), seconds=time.perf_counter() - start
            )
        reason = "" if not self.screens_now or self._is_tested(version) else self._screen(version, tree)
        reason = reason or self._test(version, tree)
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

    def verify(self, node: SearchNode) -> NodeResult:
        """Give a node that had a quick trial the whole verdict; returns that, and what it cost."""
        assert node.result is not None and node.result.version is not None
        start, joules = time.perf_counter(), self._read_joules()
        version = self.log.version(node.result.version)
        if version.needs_verdict:
            self.testing.test(version.number)
        now = self._read_joules()
        return dataclasses.replace(
            describe_result(self.log.version(version.number)),
            seconds=time.perf_counter() - start,
            spent_joules=now - joules if now is not None and joules is not None else 0.0,
        )

    def settle_open(self, tree: SearchTree) -> None:
        """Decide on versions of the search that are still open, now that its best is known."""
        for node in sorted(tree.walk(), key=lambda node: node is not tree.best):  # the best first
            if node.result is not None and node.result.version is not None and not node.is_given:
                settle(self.deciding, self.log.version(node.result.version), node.result)

    def judge_given(self, version: Version, roots: Sequence[SearchCandidate]) -> Given:
        """A version of the session as a candidate, of the space's roots if it is one, with its result; one that this
        executor did not judge is tested.
        """
        if self.screens and find_emulated(version) is None:  # what it is compared with, by the time model
            job = self.cheap.job(version)
            self.emulator.begin(content_hash(job), job)
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
            candidate=self._read(candidate),
            title=candidate.title,
            reason=f"node {node.number} of the search by {tree.setup.strategy if tree.setup else ''}"
            + (f"; {candidate.prior.source}" if candidate.prior is not None else ""),
            by=tree.setup.expander if tree.setup is not None else "planner",
            parent=parent,
            depth=depth,
        )
        return self.log.add_version(proposal)

    def _test(self, version: Version, tree: SearchTree | None = None) -> str:
        """Test a version unless that was done; returns why nothing could be run, for an executor that replays.

        In a `tree` it has a quick trial first where the executor has such, and no other if the best of the tree is
        faster.
        """
        try:
            if not self._is_tested(version):
                testing = self.testing if self.quick is None or tree is None else self.quick
                testing.test(version.number)
                version = self.log.version(version.number)
            if version.needs_verdict and (tree is None or self._may_be_best(version, tree)):
                self.testing.test(version.number)
        except Unrecorded as missing:
            return _first_line(str(missing))
        self._measure_energy(self.log.version(version.number))
        return ""

    def _may_be_best(self, version: Version, tree: SearchTree) -> bool:
        """Whether a version is surely faster than the best of the search by its last trial."""
        found, best = describe_result(version), tree.best
        if found.outcome != "passed" or found.time_s is None:
            return False
        least = tree.best_s if best is None or best.result is None else best.result.low_s or tree.best_s
        return (found.high_s or found.time_s) < least

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
        trial = find_emulated(version)
        if trial is None:
            trial = self.cheap.test(version.number)
        rival, _ = self._find_best(tree)
        old = self._emulate(rival) if rival is not None and trial.verdict.correct else None
        return self._why_not(self.cheap.job(version), trial.outcome, trial.verdict, tree, old)

    def _why_not(self, job: Job, outcome: Outcome, verdict: Verdict, tree: SearchTree, known: Outcome | None) -> str:
        """Why a candidate need not go to the GPU, by its outcome on the emulator and that of the best, if that is
        `known`; "" if it may win.
        """
        if not verdict.correct:
            failure = verdict.failure
            if failure is not None and failure.stage == "limits":  # too slow or too large for the emulator only
                return ""
            return f"on the emulator: {failure.message if failure is not None else 'not correct'}"
        rival, best_s = self._find_best(tree)
        if rival is None:
            return ""
        new = evaluate.estimate_outcome(job, outcome)
        old = evaluate.estimate_outcome(job, known) if known is not None else None
        if new is not None and old is not None:
            most = compare_times(new, old).high
            return f"at most {most:.2f}x of v{rival.number}, by the time model" if most < 1 else ""
        if new is not None and new.low_s > best_s:
            return f"at least {new.low_s * 1e6:.4g} µs by the time model, v{rival.number} takes {best_s * 1e6:.4g} µs"
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
        trial = find_emulated(version)
        if trial is not None:
            return trial.outcome
        if version.number not in self.emulated:
            self.emulated[version.number] = self.emulator.run(self.cheap.job(version), self.cheap.context)
        return self.emulated[version.number]

    # ---- ahead ------------------------------------------------------------------------------------------------------

    def _read(self, candidate: SearchCandidate) -> Candidate:
        if candidate.key not in self.read:
            self.read[candidate.key] = read_candidate(self.log, candidate)
        return self.read[candidate.key]

    def _guess(self) -> None:
        """Guess what is next after the candidate that is judged."""
        self.is_guessed = True
        plain, known = self.cheap.job(None), {guess.job.candidate.source: guess for guess in self.guesses}
        self.guesses = []
        for candidate in map(self._read, self.ahead()):
            job = dataclasses.replace(plain, candidate=candidate)
            self.guesses.append(known.get(candidate.source) or Guess(job, content_hash(job)))

    def _go_ahead(self, tree: SearchTree) -> None:
        """Take each guess a step further, the likeliest first, as far as workers are free; guess if there are any. Done
        while the emulator or a quick trial is waited for.
        """
        if not (self.emulator.is_free or self.gpu.is_free):
            return
        if not self.is_guessed:
            self._guess()
        for guess in self.guesses:
            if guess.is_done:
                continue
            if self.screens_now or self.quick is None:
                if not self.emulator.begin(guess.key, guess.job):
                    continue
                outcome = self.emulator.find(guess.key)
                if outcome is None or self.quick is None:
                    continue
                verdict = evaluate.judge(guess.job, outcome, None)
                rival, _ = self._find_best(tree)
                known = self._find_known(rival) if rival is not None else None
                if rival is not None and known is None:
                    continue
                if self._why_not(guess.job, outcome, verdict, tree, known):
                    guess.is_done = True
                    continue
            assert self.quick is not None
            job = dataclasses.replace(self.quick.job(None), candidate=guess.job.candidate)
            guess.is_done = self.gpu.begin(content_hash(job), job)

    def _find_known(self, rival: Version) -> Outcome | None:
        """The outcome of the best version on the emulator, if it is known by now."""
        trial = find_emulated(rival)
        if trial is not None:
            return trial.outcome
        return self.emulated.get(rival.number) or self.emulator.find(content_hash(self.cheap.job(rival)))

    def _told_nothing(self, tree: SearchTree) -> bool:
        """Whether the last screenings of the search told nothing: such kernels take the emulator too long."""
        found = []
        for number in reversed(tree.tried):
            result = tree.nodes[number].result
            version = self.log.version(result.version) if result is not None and result.version is not None else None
            trial = find_emulated(version) if version is not None else None
            if trial is not None and trial.outcome.executor == self.emulator.name:
                found.append(tells_nothing(trial.outcome))
            if len(found) == UNTOLD:
                break
        return len(found) == UNTOLD and all(found)

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
        quick=trial.outcome.quick and passed,
    )


def _find_fault(verdict: Verdict) -> str:
    """Why a version is not to be used; "" if nothing speaks against it."""
    if not verdict.correct:
        return verdict.failure.message if verdict.failure is not None else "not correct"
    if verdict.refused:
        return f"refused: {verdict.refused}"
    return f"suspect: {verdict.suspect[0]}" if verdict.suspect else ""


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""
