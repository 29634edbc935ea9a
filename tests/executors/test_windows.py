"""Verdicts of problems with a window wider than most cases: a kernel without it is refused, or there is a doubt."""

from __future__ import annotations

import pytest

from workbench import evaluate, problems
from workbench.analysis import integrity
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs.trials import small_cases
from workbench.records import Candidate, Job, Verdict

PROBLEM = """import torch

WINDOW = 128


class Model(torch.nn.Module):
    def forward(self, scores):
        s = scores.shape[-1]
        i = torch.arange(s)[:, None]
        j = torch.arange(s)[None, :]
        keep = (j <= i) & (i - j < WINDOW)
        return torch.softmax(scores.masked_fill(~keep, float("-inf")), dim=-1)


def get_inputs():
    return [torch.randn(8, 1024, 1024)]
"""
WITHOUT = PROBLEM.split("def get_inputs")[0].replace("Model", "ModelNew").replace(" & (i - j < WINDOW)", "")


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
    verdict = judge(PROBLEM)
    assert not verdict.correct and verdict.failure is not None
    assert "wrong result at case beyond" in verdict.failure.message


@pytest.mark.slow
def test_a_window_that_no_case_exceeds_leaves_a_doubt() -> None:
    verdict = judge(PROBLEM.replace("128", "4096").replace("1024", "8192"))
    assert verdict.correct
    codes = [integrity.find_code(doubt) for doubt in verdict.doubts]
    assert "constant_unreached" in codes and any("the constant 4096 in line 3" in doubt for doubt in verdict.doubts)
