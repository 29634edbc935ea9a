"""What holds around a session's loop, with a light executor double: views that fail, machines that differ, readers,
cancelled steps."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_double import FACTS, Double

from workbench import evaluate
from workbench.errors import Stopped, UserError
from workbench.protocols import Executor, RunContext
from workbench.records import Candidate, Check, Job, Outcome, Problem, Timing, Work
from workbench.session import DATABASE, Session
from workbench.views.text import tables


class Slow(Double):
    """Works from the `first` run on until the session says stop."""

    def __init__(self, first: int) -> None:
        self.left = first - 1

    def run(self, job: Job, context: RunContext, /) -> Outcome:
        if self.left:
            self.left -= 1
            return super().run(job, context)
        if not context.stop.wait(90):
            raise AssertionError("nobody stopped it")
        raise Stopped


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with made_with(Double(), tmp_path) as made:
        yield made


def made_with(executor: Executor, root: Path) -> Session:
    return Session.create(Problem(name="p", source="s"), root=root, executor=executor, facts=FACTS)


def test_a_view_that_fails_does_not_take_the_work_with_it(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    session.subscribe(lambda event: 1 / 0)
    session.subscribe(lambda event: seen.append(event.kind))
    session.accept(session.edit("x = 1\n").number)
    assert seen == ["proposed", "judged", "decided"] and session.baseline is not None
    assert "a subscriber of session p failed" in caplog.text


def test_a_session_made_on_a_gpu_opens_without_one(session: Session) -> None:
    session.accept(session.edit("x = 1\n").number)
    session.close()
    database = sqlite3.connect(session.folder / DATABASE)
    database.execute("UPDATE meta SET value = ? WHERE key = 'executor'", (json.dumps("gpu"),))
    database.commit()
    database.close()
    with Session.open(session.folder) as again:
        assert again.executor_name in ("emulator", "gpu") and again.baseline is not None


def test_readers_see_what_a_writer_wrote_and_cannot_decide(session: Session) -> None:
    session.edit("x = 1\n")
    with Session.open(session.folder, write=False) as reader:
        assert reader.versions == session.versions
        with pytest.raises(UserError, match="reading only"):
            reader.accept(1)


def test_accepting_no_hunk_is_refused(session: Session) -> None:
    session.accept(session.edit("x = 1\n").number)
    session.edit("x = 2\n")
    with pytest.raises(UserError, match="no hunk of v2 was picked"):
        session.accept(2, hunks=[])
    assert len(session.versions) == 2 and session.version(2).decision is None


def test_decisions_are_served_while_a_step_runs(tmp_path: Path) -> None:
    session = made_with(Slow(first=3), tmp_path)
    session.edit("x = 1\n")
    session.edit("x = 2\n")

    def edit() -> None:
        with pytest.raises(Stopped):
            session.edit("x = 3\n")

    worker = threading.Thread(target=edit)
    worker.start()
    while len(session.versions) < 3:
        time.sleep(0.01)
    session.accept(1)
    session.reject(2, "not now")
    assert worker.is_alive()
    session.stop()
    worker.join(60)
    assert not worker.is_alive() and [v.decision.kind if v.decision else None for v in session.versions] == [
        "accept",
        "reject",
        None,
    ]
    session.close()


def test_a_cancelled_step_stops_the_work(tmp_path: Path) -> None:
    session = made_with(Slow(first=1), tmp_path)

    async def cancelled() -> None:
        future = asyncio.ensure_future(asyncio.to_thread(session.edit, "x = 1\n"))
        while not session.versions:
            await asyncio.sleep(0.01)
        step = asyncio.ensure_future(session.step())  # queued behind the edit
        await asyncio.sleep(0.2)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        with pytest.raises(Stopped):
            await future

    asyncio.run(cancelled())
    assert len(session.versions) == 1 and not session.versions[0].trials
    session.close()


def test_best_never_sets_a_modelled_time_against_a_measured_one(tmp_path: Path) -> None:
    class Timed(Double):
        def run(self, job: Job, context: RunContext, /) -> Outcome:
            timing = Timing(case="full", device="H200", samples_s=(0.5,) * 5, median_s=0.5, low_s=0.5, high_s=0.5)
            return dataclasses.replace(super().run(job, context), timing=timing)

    session = made_with(Timed(), tmp_path)
    session.accept(session.edit("x = 1\n").number)
    trial = session.version(1).trials[-1]
    faster = dataclasses.replace(trial.verdict, time_s=0.1, time_provenance="modelled")
    session.edit("x = 2\n", test=False)
    session.log.add_trial(2, "job", dataclasses.replace(trial, verdict=faster))
    session.accept(2)
    assert session.best is not None and session.best.number == 1
    session.close()


def test_a_time_under_the_floor_is_accepted_by_no_policy_and_by_a_person_only_with_force(tmp_path: Path) -> None:
    class TooFast(Double):
        def run(self, job: Job, context: RunContext, /) -> Outcome:
            timing = Timing(case="full", device="H200", samples_s=(1e-6,) * 5, median_s=1e-6, low_s=1e-6, high_s=1e-6)
            return dataclasses.replace(super().run(job, context), timing=timing)

    facts = dataclasses.replace(
        FACTS, work=(Work(case="full", flops=10**9, least_bytes=48 * 10**8, dtype="float32", tensor_cores=False),)
    )
    with Session.create(Problem(name="q", source="s"), root=tmp_path, executor=TooFast(), facts=facts) as session:
        version = session.edit("x = 1\n")
        verdict = session.version(version.number).trials[-1].verdict
        assert (
            verdict.correct
            and "faster than the device can be" in verdict.refused
            and verdict.refused in verdict.suspect
        )
        assert "✗ refused as suspect" in tables.verdict(
            session.version(1)
        ).html and "REFUSED as suspect: 1.0 us is under 0.9" in str(tables.verdict(session.version(1)))
        for options in ({}, {"by": "policy"}, {"by": "policy", "force": True}):
            with pytest.raises(UserError, match=r"v1 is refused as suspect: 1\.0 us is under 0\.9 of the floor"):
                session.accept(1, **options)  # type: ignore[arg-type]
        session.judge(1)
        decision = session.version(1).decision
        assert (
            decision is not None
            and decision.kind == "reject"
            and decision.reason.startswith("suspect: 1.0 us is under 0.9")
            and session.baseline is None
        )
        session.accept(1, force=True)
        assert session.baseline is not None and session.baseline.number == 1


def test_parameters_without_partner_are_named_in_the_hint() -> None:
    job = Job(problem=Problem(name="p", source="s"), facts=FACTS, candidate=Candidate(source="x = 1\n"))
    outcome = Outcome(
        executor="double",
        arch="sm_80",
        device="H200",
        checks=(Check(case="c", trial=0, timed=False, passed=False, message="off"),),
        unmapped_parameters=("scale",),
    )
    verdict = evaluate.judge(job, outcome, None)
    assert verdict.failure is not None and verdict.failure.kind == "wrong_result" and "scale" in verdict.failure.hint


@pytest.mark.parametrize(
    ("device", "arch", "said"),
    [
        ("A100", "sm_90a", "not for the A100"),
        ("B200", "sm_90a", "not for the B200"),
        ("H300", "", "no device is called"),
    ],
)
def test_a_device_that_cannot_run_the_code_is_refused_before_anything_is_kept(
    tmp_path: Path, device: str, arch: str, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        Session.create("relu", root=tmp_path, executor="emulator", device=device, arch=arch)
    assert not list(tmp_path.iterdir())


class OnGpu(Double):
    """Measures on the GPU of that name."""

    full_size, default_arch = True, "sm_90a"

    def __init__(self, gpu: str) -> None:
        self.gpu = gpu

    def device_name(self) -> str:
        return self.gpu


@pytest.mark.parametrize(("gpu", "arch"), [("H100", "sm_90a"), ("H200", "sm_90a"), ("A10", "sm_80"), ("B200", "sm_80")])
def test_the_gpu_at_hand_is_the_device_and_decides_the_architecture(gpu: str, arch: str, tmp_path: Path) -> None:
    with made_with(OnGpu(gpu), tmp_path) as session:
        assert (session.device, session.arch) == (gpu, arch)


def test_a_device_that_contradicts_the_gpu_at_hand_is_refused(tmp_path: Path) -> None:
    problem = Problem(name="p", source="s")
    with pytest.raises(UserError, match="--device H200: times are measured on the H100 that is here"):
        Session.create(problem, root=tmp_path, executor=OnGpu("H100"), facts=FACTS, device="H200")
    with Session.create(problem, root=tmp_path, executor=OnGpu("H100"), facts=FACTS, device="NVIDIA H100") as session:
        assert session.device == "H100"
