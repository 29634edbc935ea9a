"""Every mistake of mistakes.toml is really made (compiled and run in a worker), and the catalogue's first guide is the one for it."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from workbench import problems
from workbench.errors import UserError
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.inspector import WorkerInspector
from workbench.proposers.llm.catalogue import guides, select
from workbench.records import Candidate, Facts, Failure, Job, Problem

FOLDER = Path(__file__).parent / "mistakes"
MISTAKES = [(base, name, *change) for base, entries in tomllib.loads((FOLDER / "mistakes.toml").read_text()).items() for name, change in entries.items()]
PROBLEMS: dict[str, Any] = {"elementwise": ("relu", {"batch_size": 8, "dim": 75}, "fp32"), "rows": ("row_sum", {}, "fp32"), "tiles": ("matmul", {"n": 48}, "fp16")}


@cache
def subject(base: str) -> tuple[Problem, Facts, str]:
    name, settings, precision = PROBLEMS[base]
    problem = problems.load(name, settings=settings, precision=precision)
    return problem, WorkerInspector().inspect(problem), (FOLDER / f"{base}.py").read_text()


def failure_of(base: str, source: str) -> Failure | None:
    problem, facts, _ = subject(base)
    return EmulatorExecutor().run(Job(problem=problem, facts=facts, candidate=Candidate(source=source), cases=("shrunk",), trials=1, wall_limit_s=20.0)).failure


def test_there_are_at_least_forty_of_each() -> None:
    assert len(MISTAKES) >= 40 and len(guides()) >= 40
    assert {guide for _, _, guide, _, _ in MISTAKES} == {guide.name for guide in guides()}  # no guide without a mistake that provokes it


@pytest.mark.parametrize("base", PROBLEMS)
def test_the_bases_are_correct(base: str) -> None:
    assert failure_of(base, subject(base)[2]) is None


@pytest.mark.parametrize(("base", "name", "guide", "find", "replace"), MISTAKES, ids=[f"{base}-{name}" for base, name, *_ in MISTAKES])
def test_the_guide_is_selected(base: str, name: str, guide: str, find: str, replace: str) -> None:
    correct = subject(base)[2]
    assert correct.count(find) == 1
    source = correct.replace(find, replace)
    failure = failure_of(base, source)
    assert failure is not None
    first = select(failure, source)[0]
    assert first.name == guide, (failure, [found.name for found in select(failure, source)])
    assert first.cause and first.cure and first.fix


def test_an_own_catalogue_wins_and_a_broken_one_is_named(tmp_path: Path) -> None:
    failure = Failure(stage="check", kind="wrong_result", message="wrong")
    (tmp_path / "catalogue.toml").write_text('[mine]\nstage = "check"\ncause = "c"\ncure = "d"\n')
    assert [guide.name for guide in select(failure, folder=tmp_path)] == ["mine"]
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "catalogue.toml").write_text('[mine]\nmessage = "("\ncause = "c"\ncure = "d"\n')
    with pytest.raises(UserError, match=r"\[mine\] cannot be used"):
        select(failure, folder=broken)
