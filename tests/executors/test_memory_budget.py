"""A problem that is larger than the device's memory is refused in one line, before a session is made or anything is
allocated."""

from __future__ import annotations

import dataclasses
import os
from functools import cache
from pathlib import Path

import pytest

from workbench import executors, problems
from workbench.errors import ProblemError
from workbench.executors.gpu import memory as room
from workbench.executors.gpu import telemetry
from workbench.executors.gpu.executor import GpuExecutor
from workbench.problems.inspection import inspect
from workbench.records import Candidate, Facts, Job, Problem
from workbench.session import Session
from workbench.views.text import tables

H200 = 141 * 10**9
MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # bytes


@cache
def large() -> tuple[Problem, Facts]:
    problem = problems.load("relu", settings=(("batch_size", 1 << 18), ("dim", 1 << 17)))
    return problem, inspect(problem)


@pytest.mark.parametrize(("cases", "memory"), [(("full",), 275 * 10**9), (("shrunk", "odd"), H200), (("full",), None)])
def test_what_fits_or_of_which_nothing_is_known_is_let_through(cases: tuple[str, ...], memory: int | None) -> None:
    room.check_fits(large()[1], cases, memory)


def test_what_does_not_fit_is_said_with_both_numbers() -> None:
    with pytest.raises(ProblemError) as caught:
        room.check_fits(large()[1], ("full",), H200)
    said = str(caught.value)
    assert (
        "take 274.9 GB at its full sizes (the largest is x (262144, 131072))" in said
        and "the device has 141.0 GB" in said
        and "--set NAME=VALUE" in said
        and "\n" not in said
    )


def test_parameters_count_too() -> None:
    facts = large()[1]
    heavy = dataclasses.replace(
        facts, work=tuple(dataclasses.replace(work, least_bytes=work.least_bytes + 2**40) for work in facts.work)
    )
    with pytest.raises(ProblemError, match=r"take 1,374\.4 GB"):
        room.check_fits(heavy, ("full",), 275 * 10**9)


@pytest.mark.few(1)
@pytest.mark.parametrize("device", ["H200", "A100"])
def test_the_emulator_says_that_no_device_of_the_kind_has_room(tmp_path: Path, device: str) -> None:
    problem, facts = large()
    with Session.create(problem, root=tmp_path, executor="emulator", device=device, facts=facts) as session:
        (line,) = [line for line in str(tables.status(session)).splitlines() if line.startswith("warning")]
        assert f"take 274.9 GB, {session.device} has " in line and "the full case does not fit the device" in line
        assert f"no time: the full case, 274.9 GB, does not fit {session.device}'s memory" in str(
            tables.verdict(session.generate())
        )


@pytest.mark.skipif(MACHINE >= 137 * 10**9, reason="this machine's memory holds the problem")
def test_a_problem_may_be_larger_than_the_memory_of_this_machine(tmp_path: Path) -> None:
    problem = problems.load("relu", settings=(("batch_size", 1 << 18), ("dim", 1 << 16)))
    with Session.create(problem, root=tmp_path, executor="emulator") as session:
        verdict = session.generate().trials[-1].verdict
        assert verdict.bound.least_bytes > 137e9 and verdict.time_s > verdict.bound.bound_s


def test_a_problem_that_fits_is_not_warned_of(tmp_path: Path) -> None:
    with Session.create("relu", root=tmp_path, executor="emulator") as session:
        assert "does not fit" not in str(tables.status(session)) and "does not fit" not in str(
            tables.verdict(session.generate())
        )


def test_a_session_on_a_gpu_is_not_made_and_a_job_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, facts = large()
    executor = GpuExecutor()
    monkeypatch.setattr(executors, "choose", lambda name: executor)
    monkeypatch.setattr(telemetry, "memory_bytes", lambda: H200)
    with pytest.raises(ProblemError, match="does not fit the device"):
        Session.create(problem, root=tmp_path / "sessions", executor="gpu", facts=facts)
    assert not (tmp_path / "sessions").exists()
    job = Job(
        problem=problem, facts=facts, candidate=Candidate(source=""), arch="sm_90a", device="H200", cases=("full",)
    )
    with pytest.raises(ProblemError, match="does not fit the device"):
        executor.run(job)


def test_a_candidate_that_refuses_the_full_size_is_not_correct(tmp_path: Path) -> None:
    with Session.create("relu", root=tmp_path, executor="emulator") as session:
        source = session.generate().proposal.candidate.source
        check = "        if x.numel() > 1 << 20:\n            raise ValueError('too many elements')\n"
        head = "    def forward(self, x):\n"
        assert source.count(head) == 1
        verdict = session.edit(source.replace(head, head + check)).trials[-1].verdict
        assert not verdict.correct and verdict.failure is not None
        assert "at full size: ValueError: too many elements" in verdict.failure.message
        assert verdict.failure.line is not None
