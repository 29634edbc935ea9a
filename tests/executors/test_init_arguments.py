"""A candidate whose `__init__` takes other arguments than Model's is told how it is made, and what to write."""

from __future__ import annotations

import pytest

from workbench import evaluate, executors, problems
from workbench.executors.inspector import WorkerInspector
from workbench.records import Candidate, Job

SCALED = """import torch


class Model(torch.nn.Module):
    def __init__(self, width: int, factor=2.0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.factor = factor

    def forward(self, x):
        return x * self.weight * self.factor


def get_inputs():
    return [torch.randn(64, 300)]


def get_init_inputs():
    return [300]
"""
BY_NAME = SCALED.replace("return [300]", "return {'width': 300}")
HEAD = """import torch


class ModelNew(torch.nn.Module):
"""
FORWARD = """
    def forward(self, x):
        return x
"""
INIT = """    def __init__(ARGUMENTS):
        super().__init__()
"""


@pytest.mark.parametrize(
    ("problem", "init", "said"),
    [
        (SCALED, INIT.replace("ARGUMENTS", "self"), "`def __init__(self)` (too many positional arguments)"),
        (
            SCALED,
            INIT.replace("ARGUMENTS", "self, a, b"),
            "`def __init__(self, a, b)` (missing a required argument: 'b')",
        ),
        (SCALED, "", "`def __init__(self)` (too many positional arguments)"),
        (BY_NAME, INIT.replace("ARGUMENTS", "self"), "(got an unexpected keyword argument 'width')"),
    ],
)
def test_a_candidate_with_other_arguments_is_told_what_to_write(problem: str, init: str, said: str) -> None:
    opened = WorkerInspector().open(problems.load(problem))
    job = Job(
        problem=opened.problem,
        facts=opened.facts,
        candidate=Candidate(source=HEAD + init + FORWARD),
        cases=("shrunk",),
        trials=1,
        full_sample=False,
    )
    failure = evaluate.evaluate(job, executors.choose("emulator")).verdict.failure
    assert failure is not None and failure.message.startswith("TypeError: ModelNew is made as ModelNew(")
    assert said in failure.message, failure.message
    assert failure.message.endswith("write `def __init__(self, width, factor=2.0)` as Model has")
