"""No cheat is accepted without a doubt, and each ends under its own name."""

from __future__ import annotations

import ast
import functools
import sys
from pathlib import Path

import pytest
from cheats import CHEATS, FILES, KINDS, PROBLEMS, Cheat, count_cases

import workbench
from workbench import evaluate, problems
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.inspector import WorkerInspector
from workbench.records import Candidate, Job, Opened, Verdict

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from cheats_on_gpu import list_cases


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
        assert verdict.failure.message.encode() and "\n" not in verdict.failure.message


def test_the_gates_page_counts_the_corpus() -> None:
    counted = count_cases()
    assert counted["cheats"] >= 100 and counted["own"] >= 15 and counted["honest"] >= 40
    page = (Path(workbench.__file__).parent / "docs" / "gate.md").read_text()
    cheats, own, honest = (counted[name] for name in ("cheats", "own", "honest"))
    said = f"{cheats} cheats, of which {own} are ideas of this project, and {honest} honest"
    assert said in page, said
    assert len({one.name for one in CHEATS}) == len(CHEATS)
    for one in CHEATS:
        ast.parse(one.source)


def test_every_kind_has_a_case_or_a_reason_and_every_case_a_kind() -> None:
    on_gpu = {name for name, *_ in list_cases() if name.startswith("gpu_") and not name.startswith("gpu_ok_")}
    known = on_gpu | {one.name for one in CHEATS} | set(FILES)
    cases = [case for kind in KINDS["kind"] for case in kind["cases"]] + KINDS["mistakes"]["cases"]
    assert not known ^ set(cases), known ^ set(cases)
    assert len(cases) == len(set(cases))
    for kind in KINDS["kind"]:
        assert bool(kind["cases"]) != bool(kind.get("why_none")), kind["name"]
        assert kind["what"] and kind["defence"] and kind["status"] in ("prevented", "detected", "partly"), kind["name"]
    assert set(KINDS["reported"].values()) <= set(cases) - {""}
    assert all(KINDS["harmless"].values())
