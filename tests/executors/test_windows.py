"""Verdicts of problems with a window wider than most cases: a kernel without it is refused, or there is a doubt."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "problems"))
from window_text import WINDOW

from workbench import evaluate, problems
from workbench.analysis import integrity
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs.trials import small_cases
from workbench.records import Candidate, Job, Verdict

WITHOUT = WINDOW.split("def get_inputs")[0].replace("Model", "ModelNew").replace(" & (i - j < WINDOW)", "")


def judge(text: str) -> Verdict:
    found = WorkerInspector().open(problems.load(text))
    job = Job(
        problem=found.problem,
        facts=found.facts,
        candidate=Candidate(source=WITHOUT),
        cases=small_cases(found.facts),
        full_sample=False,
    )
    return evaluate.evaluate(job, EmulatorExecutor()).verdict


def test_a_candidate_without_the_window_is_wrong_at_the_case_beyond_it() -> None:
    verdict = judge(WINDOW)
    assert not verdict.correct and verdict.failure is not None
    assert "wrong result at case beyond" in verdict.failure.message


@pytest.mark.slow
def test_a_window_that_no_case_exceeds_leaves_a_doubt() -> None:
    verdict = judge(WINDOW.replace("128", "4096").replace("1024", "8192"))
    assert verdict.correct
    codes = [integrity.find_code(doubt) for doubt in verdict.doubts]
    assert "constant_unreached" in codes and any("the constant 4096 in line 3" in doubt for doubt in verdict.doubts)
