"""No cheat is accepted without a doubt, and each ends under its own name."""

from __future__ import annotations

import ast
import functools

import pytest
from cheats import CHEATS, PROBLEMS, Cheat
from test_corpus import CORPUS

from workbench import evaluate, problems
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.inspector import WorkerInspector
from workbench.records import Candidate, Job, Opened, Verdict


@functools.cache
def open_problem(name: str) -> Opened:
    small = problems.load("relu", settings=(("batch_size", 31), ("dim", 63)))
    return WorkerInspector().open(problems.load(PROBLEMS[name]) if name in PROBLEMS else small)


def find_end(verdict: Verdict) -> str:
    """The kind of the failure, or "refused", "doubt" or "accepted"."""
    if verdict.failure is not None:
        return verdict.failure.kind
    return "refused" if verdict.refused else "doubt" if verdict.suspect or verdict.doubts else "accepted"


@pytest.mark.few(8)
@pytest.mark.parametrize("one", CHEATS, ids=lambda one: one.name)
def test_a_cheat_is_not_accepted(one: Cheat) -> None:
    subject = open_problem(one.problem)
    job = Job(
        problem=subject.problem,
        facts=subject.facts,
        candidate=Candidate(source=one.source),
        cases=("shrunk",),
        wall_limit_s=8.0,
        memory_limit_bytes=3 << 29,
        full_sample=False,
    )
    verdict = evaluate.evaluate(job, EmulatorExecutor()).verdict
    assert find_end(verdict) in one.ends, verdict
    if verdict.failure is not None:
        assert verdict.failure.message and "\n" not in verdict.failure.message


def test_there_are_a_hundred_cheats_of_which_some_are_our_own() -> None:
    assert len({one.name for one in CHEATS}) == len(CHEATS)
    own = sum(one.own for one in CHEATS)
    assert own >= 15 and len(CHEATS) - own >= 45 and len(CHEATS) + len(CORPUS) >= 130
    for one in CHEATS:
        ast.parse(one.source)
