"""Quick trials of a search on a GPU: only what becomes the best is judged whole, and nothing is accepted without that.

Times are those of relu's landscape, as if a GPU were here.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.errors import UserError
from workbench.evaluate import QUICK
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.replay import ReplayExecutor
from workbench.policies.search import SearchTree
from workbench.protocols import PLAIN, RunContext
from workbench.records import Failure, Job, Outcome
from workbench.session import Session
from workbench.session.searching import prefetching
from workbench.session.verifying import verify_log
from workbench.views.search.outline import find_rows

SLOW = "elementwise(relu(x)) .arch(sm_90a) .threads(64) .vector(2)"  # in the landscape of relu
FAST = "elementwise(relu(x)) .arch(sm_90a) .unroll(1) .vector(4)"  # the fastest of it
WRONG = Failure(stage="check", kind="wrong_result", message="wrong at odd sizes")


class QuickGpu(ReplayExecutor):
    """Measured times of a landscape, with quick trials. `fails_whole` are programs that pass those only."""

    name = "quick-gpu"
    runs_quick = True

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Job] = []
        self.fails_whole: set[str] = set()
        self.noise = 0.0  # of quick trials: their intervals reach from 1 / (1 + noise) of the time to 1 + noise
        self.lock, self.at_work, self.most = threading.Lock(), 0, 0
        self.met, self.waits_s = threading.Event(), 0.0  # a quick trial waits so long for another one beside it, once

    def device_name(self) -> str | None:
        return "H200"

    def run(self, job: Job, context: RunContext = PLAIN, /) -> Outcome:
        with self.lock:
            self.jobs.append(job)
            self.at_work += 1
            self.most = max(self.most, self.at_work)
            if self.at_work > 1:
                self.met.set()
        try:
            found = super().run(job, context)
            if job.quick:
                self.met.wait(self.waits_s)
        finally:
            with self.lock:
                self.at_work -= 1
        if not job.quick and job.candidate.program in self.fails_whole:
            return dataclasses.replace(found, executor=self.name, timing=None, failure=WRONG)
        if job.quick and found.timing is not None:
            low_s, high_s = (found.timing.median_s * (1 + self.noise) ** sign for sign in (-1, 1))
            found = dataclasses.replace(found, timing=dataclasses.replace(found.timing, low_s=low_s, high_s=high_s))
        return dataclasses.replace(found, executor=self.name, quick=job.quick)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> QuickGpu:
    """A GPU beside which nothing is emulated."""
    monkeypatch.setattr(EmulatorExecutor, "why_not", lambda _: "not in this test")
    return QuickGpu()


@pytest.fixture
def session(gpu: QuickGpu, tmp_path: Path) -> Iterator[Session]:
    with Session.create("relu", root=tmp_path, executor=gpu, calibrate=False, name="s") as made:
        yield made


def test_only_what_becomes_the_best_is_judged_whole(session: Session, gpu: QuickGpu) -> None:
    session.accept(session.program(SLOW).number)
    tree = session.search("random", 12, seed=2, priors=False)
    assert tree.nodes[1].is_given
    least, whole = tree.nodes[1].result.time_s, []
    for number in tree.tried[1:]:
        version = session.version(tree.nodes[number].result.version)
        seconds = version.trials[-1].verdict.time_s
        quick, *rest = version.trials
        assert quick.outcome.quick and QUICK in quick.verdict.doubts and not quick.verdict.suspect
        if seconds < least:
            least = seconds
            whole.append(number)
            assert [trial.outcome.quick for trial in rest] == [False] and QUICK not in rest[0].verdict.doubts
        else:
            assert not rest and version.needs_verdict and version.standing != "accepted"
    assert tree.best.number == whole[-1] and 1 < len(whole) < tree.trials == 12
    assert sum(job.quick for job in gpu.jobs) == 12 and len(gpu.jobs) == 1 + 12 + len(whole)
    job = next(job for job in gpu.jobs if job.quick)
    assert (job.cases, job.trials, job.rival, job.compiled) == (("full",), 1, None, "never")
    assert job.timed_calls < next(job for job in gpu.jobs if not job.quick).timed_calls
    assert session.baseline.number == tree.best.result.version and not verify_log(session).problems


def test_a_best_that_fails_the_whole_verdict_is_closed(session: Session, gpu: QuickGpu) -> None:
    session.accept(session.program(SLOW).number)
    plain = session.search("random", 10, seed=1, priors=False)
    gpu.fails_whole = {plain.best.candidate.text}
    with Session.create("relu", root=session.folder.parent, executor=gpu, calibrate=False, name="other") as other:
        other.accept(other.program(SLOW).number)
        tree = other.search("random", 10, seed=1, priors=False)
        failed = tree.nodes[tree.keys[plain.best.candidate.key]]
        assert failed.failed and failed.result.message == WRONG.message
        version = other.version(failed.result.version)
        assert [trial.outcome.quick for trial in version.trials] == [True, False]
        assert version.standing == "rejected" and version.decision.reason == WRONG.message
        assert tree.best is not failed and tree.best_s > plain.best_s
        assert not other.version(tree.best.result.version).needs_verdict


def test_a_version_with_a_quick_trial_is_judged_whole_before_it_is_accepted(session: Session, gpu: QuickGpu) -> None:
    session.accept(session.program(SLOW).number)
    best = session.program(FAST)
    session.accept(best.number)
    session.accept(1, by="person")  # a slower baseline, as a person wants it
    session.search("random", 6, seed=1, priors=False)
    quick = [version for version in session.versions if version.trials and version.needs_verdict]
    base_s = session.version(1).trials[-1].verdict.time_s
    faster = [one for one in quick if one.trials[-1].verdict.time_s < base_s]
    assert faster and all(version.standing != "accepted" for version in quick)
    chosen = session.accept(faster[0].number, by="person")
    assert [trial.outcome.quick for trial in chosen.trials] == [True, False] and chosen.standing == "accepted"
    gpu.fails_whole = {faster[-1].proposal.candidate.program}
    if len(faster) > 1:
        assert session.judge(faster[-1].number).standing == "rejected"


def test_what_may_be_faster_is_verified_at_the_end(session: Session, gpu: QuickGpu) -> None:
    session.accept(session.program(SLOW).number)
    plain = session.search("random", 12, seed=2, priors=False)
    gpu.noise, whole = 9.0, len(gpu.jobs)
    with Session.create("relu", root=session.folder.parent, executor=gpu, calibrate=False, name="other") as other:
        other.accept(other.program(SLOW).number)
        tree = other.search("random", 12, seed=2, priors=False)
        mine = [job for job in gpu.jobs[whole:] if not job.quick]
        assert len(mine) == 2 and mine[-1].candidate.program == plain.best.candidate.text
        assert tree.best.candidate == plain.best.candidate and not tree.best.result.quick and tree.trials == 12
        assert other.baseline.number == tree.best.result.version and tree.stopped and not verify_log(other).problems
        slower = [node for node in tree.walk()[1:] if node is not tree.best]
        assert all(other.version(node.result.version).standing == "rejected" for node in slower)
        again = other.search("random", 12, seed=2, priors=False)
        assert len([job for job in gpu.jobs[whole:] if not job.quick]) == 2 and again.best.number == tree.best.number


def test_the_tree_says_what_is_not_surely_faster(session: Session, gpu: QuickGpu) -> None:
    session.accept(session.program(SLOW).number)
    gpu.noise = 9.0
    tree = session.search("random", 12, seed=2, priors=False)
    events = [event for event in session._searching._log_of(1).events() if event.kind not in ("verified", "stopped")]
    before = SearchTree.replay(events)
    said = {row.number: row.note for row in find_rows(before)}
    faster = [node for node in before.walk() if node.passed and node.result.time_s < before.best_s]
    assert faster and all("by a quick trial" in said[node.number] for node in faster)
    assert not any("by a quick trial" in row.note for row in find_rows(tree))


def test_a_fastest_that_fails_at_the_end_leaves_the_next(session: Session, gpu: QuickGpu) -> None:
    session.accept(session.program(SLOW).number)
    plain = session.search("random", 12, seed=2, priors=False)
    times = {node.candidate.text: node.result.time_s for node in plain.walk() if node.result.time_s}
    first, second = sorted(times, key=times.__getitem__)[:2]
    gpu.noise, gpu.fails_whole = 9.0, {first}
    with Session.create("relu", root=session.folder.parent, executor=gpu, calibrate=False, name="other") as other:
        other.accept(other.program(SLOW).number)
        tree = other.search("random", 12, seed=2, priors=False)
        failed = tree.nodes[tree.keys[plain.best.candidate.key]]
        assert failed.failed and other.version(failed.result.version).standing == "rejected"
        assert tree.best.candidate.text == second and not tree.best.result.quick


def test_what_ctrl_c_left_open_is_settled_when_the_search_goes_on(
    session: Session, gpu: QuickGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.accept(session.program(SLOW).number)
    plain = session.search("random", 9, seed=2, priors=False)
    gpu.noise, before, run = 9.0, len(gpu.jobs), QuickGpu.run

    def break_off(self: QuickGpu, job: Job, context: RunContext = PLAIN, /) -> Outcome:
        if len(gpu.jobs) > before + 5:
            raise KeyboardInterrupt
        return run(self, job, context)

    with Session.create("relu", root=session.folder.parent, executor=gpu, calibrate=False, name="other") as other:
        other.accept(other.program(SLOW).number)
        monkeypatch.setattr(QuickGpu, "run", break_off)
        with pytest.raises(KeyboardInterrupt):
            other.search("random", 9, seed=2, priors=False)
        assert sum(version.standing == "pending" for version in other.versions) >= 3
        assert not any(version.standing == "accepted" for version in other.versions[1:])
        monkeypatch.setattr(QuickGpu, "run", run)
        tree = other.search("random", 9, seed=2, priors=False)
        assert tree.best.candidate == plain.best.candidate and other.baseline.number == tree.best.result.version
        tried = [other.version(node.result.version).standing for node in tree.walk()[1:] if node is not tree.best]
        assert tried and set(tried) <= {"rejected"} and not verify_log(other).problems


@pytest.mark.parametrize("strategy", ["random", "tree"])
def test_what_runs_ahead_changes_nothing(gpu: QuickGpu, tmp_path: Path, strategy: str) -> None:
    stories, most = [], []
    for workers in (0, 9):
        gpu.most, gpu.waits_s = 0, 20.0 * (workers > 0)
        with Session.create("relu", root=tmp_path, executor=gpu, calibrate=False, name=f"w{workers}") as session:
            tree = session.search(strategy, 10, seed=2, workers=workers, priors=False)
            results = [dataclasses.replace(tree.nodes[number].result, seconds=0.0) for number in tree.tried]
            stories.append([(node.parent, node.candidate) for node in tree.nodes[1:]] + results)
            most.append(gpu.most)
    assert stories[0] == stories[1] and most[0] == 1 and 1 < most[1] <= 9


def test_a_kill_between_the_two_trials_costs_none(
    session: Session, gpu: QuickGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = QuickGpu.run

    def break_off(self: QuickGpu, job: Job, context: RunContext = PLAIN, /) -> Outcome:
        if not job.quick:
            raise KeyboardInterrupt
        return run(self, job, context)

    monkeypatch.setattr(QuickGpu, "run", break_off)
    with pytest.raises(KeyboardInterrupt):
        session.search("random", 3, seed=1, priors=False)
    assert [trial.outcome.quick for trial in session.version(1).trials] == [True]
    monkeypatch.setattr(QuickGpu, "run", run)
    tree = session.search("random", 3, seed=1, priors=False)
    assert tree.trials == 3 and [trial.outcome.quick for trial in session.version(1).trials] == [True, False]


def test_the_number_of_workers_follows_the_machine(monkeypatch: pytest.MonkeyPatch, session: Session) -> None:
    def choose(cores: int, gib: int) -> int:
        monkeypatch.setattr(prefetching.os, "sched_getaffinity", lambda _: set(range(cores)))
        memory = type("Memory", (), {"available": gib << 30})
        monkeypatch.setattr(prefetching.psutil, "virtual_memory", lambda: memory)
        return prefetching.choose_workers()

    assert [choose(2, 64), choose(4, 64), choose(16, 64), choose(128, 512), choose(16, 8)] == [0, 1, 7, 12, 1]
    of = {
        gib: dataclasses.replace(
            session.facts,
            work=tuple(dataclasses.replace(one, least_bytes=gib << 30) for one in session.facts.work),
        )
        for gib in (1, 20)
    }
    assert [prefetching.choose_on_gpu(of[1], "H200", workers) for workers in (0, 3, 7, 12)] == [0, 3, 7, 8]
    assert prefetching.choose_on_gpu(of[20], "H200", 12) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", [0, 3])
def test_a_search_may_screen_by_the_emulator(tmp_path: Path, workers: int) -> None:
    gpu = QuickGpu()
    with Session.create("relu", root=tmp_path, executor=gpu, calibrate=False, name="s") as session:
        session.accept(session.program(FAST).number)
        tree = session.search("random", 3, seed=1, screen="emulator", workers=workers)
        assert tree.trials == 3
        for number in tree.tried[1:]:
            result = tree.nodes[number].result
            first, *rest = session.version(result.version).trials
            assert (first.outcome.executor, {check.case for check in first.outcome.checks}) == ("emulator", {"odd"})
            assert result.screened == (not rest)
        assert tree.screened == len(tree.tried) - 4
        with pytest.raises(UserError, match="screens by priors or emulator, not by 'eye'"):
            session.search("random", 3, screen="eye")


def test_a_search_for_energy_screens_by_the_emulator_and_measures_joules(tmp_path: Path) -> None:
    gpu = QuickGpu()
    with Session.create("relu", root=tmp_path, executor=gpu, calibrate=False, name="s") as session:
        session.accept(session.program(SLOW).number)
        session.search("random", 1, aim="energy", priors=False)
        asked = [event.message for event in session.events() if event.message.startswith("the energy of v")]
    assert asked and not any(job.quick for job in gpu.jobs)
