"""A reference that the device's memory has no room for runs with some samples at a time, or on the CPU.

There is no such device here: the tests limit the samples of one run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from workbench import problems
from workbench.executors.jobs.trials import input_seed
from workbench.executors.workers import effects, referee
from workbench.executors.workers.outputs import find_case
from workbench.problems import loading
from workbench.problems.inspection import open_problem
from workbench.records import Candidate, Job

PROBLEM = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(24)
        self.layer = nn.Linear(24, 24)
    def forward(self, x, y):
        return {}
def get_inputs():
    return [torch.rand(24, 24), torch.rand(24, 24)]
"""
FORWARDS = {
    "torch.relu(x) + y": (0, 1),
    "torch.softmax(x, 1) * y[:1]": (0,),
    "x @ y": (0,),
    "x.T @ y": (),
    "torch.softmax(x, 0) + y": (),
    "self.norm(x) + y": (),
    "self.layer(x), y.sum(1)": (0, 1),
    "x.sum() + y.sum()": (),
}


def make_job(forward: str) -> Job:
    opened = open_problem(problems.load(PROBLEM.format(forward)))
    return Job(problem=opened.problem, facts=opened.facts, candidate=Candidate(source=""))


def make_call(job: Job) -> tuple[torch.nn.Module, list[Any]]:
    module = loading.load_module(job.problem, find_case(job, "shrunk").settings)
    return loading.build_model(module, "Model", job.problem), loading.make_inputs(module, job.problem, input_seed(7, 0))


@pytest.mark.few(1)
@pytest.mark.parametrize("forward", FORWARDS)
def test_samples_are_found_where_each_stands_alone(forward: str) -> None:
    job = make_job(forward)
    model, inputs = make_call(job)
    assert referee.find_samples(model, inputs, job, find_case(job, "shrunk").outputs) == FORWARDS[forward]


def limit_samples(most: int, tries: int) -> Callable[..., Any]:
    """`run_calls` on a device with room for so many samples; the CPU, which comes after so many tries, has for all."""
    run, held = effects.run_calls, {"tries": 0}

    def attempt(model: torch.nn.Module, calls: Sequence[Sequence[Any]], *given: Any, **options: Any) -> Any:
        if len(calls[0][0]) > most and held["tries"] < tries:
            held["tries"] += 1
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return run(model, calls, *given, **options)

    return attempt


@pytest.mark.parametrize(("forward", "most"), [("torch.relu(x) + y", 6), ("torch.relu(x) + y", 2), ("x.T @ y", 6)])
def test_results_are_those_of_one_run(forward: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(forward)
    model, inputs = make_call(job)
    judge = referee.Referee()
    judge._job, judge.split = job, FORWARDS[forward]
    whole = judge._expect("shrunk", model, [inputs], 3, 0)
    monkeypatch.setattr(referee, "give_back_memory", lambda: None)
    monkeypatch.setattr(effects, "run_calls", limit_samples(most, 1 + len(referee.PARTS) if FORWARDS[forward] else 1))
    found = judge._expect("shrunk", model, [inputs], 3, 0)
    assert found.specs == whole.specs and found.changed == whole.changed and found.outputs == whole.outputs
    assert found.found.eager is not None and whole.found.eager is not None
    for one, other in zip(found.found.exact, whole.found.exact, strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(found.found.eager, whole.found.eager, strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_right_for_quick_jobs_is_computed_once_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job("torch.relu(x) + y")
    make, run, runs = loading.make_inputs, effects.run_calls, []

    def count(*given: Any, **options: Any) -> Any:
        runs.append(options)
        return run(*given, **options)

    monkeypatch.setattr(loading, "make_inputs", lambda module, problem, seed, *_: make(module, problem, seed))
    model, _ = make_call(job)
    monkeypatch.setattr(referee, "reference_model", lambda *_: model)
    monkeypatch.setattr(effects, "run_calls", count)
    memory = [1 << 30]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (memory[0], memory[0]))
    judge = referee.Referee()

    def count_runs(quick: bool, seed: int, timed: bool = False) -> int:
        judge.close()  # between jobs
        judge._job = dataclasses.replace(job, quick=quick)
        before = len(runs)
        assert judge.expect("shrunk", 3, [seed], timed) == {"carried": False} and judge.expected is not None
        return len(runs) - before

    assert [count_runs(False, 1), count_runs(False, 1)] == [1, 1]
    assert [count_runs(True, 1), count_runs(True, 1), count_runs(True, 1, timed=True), count_runs(True, 1)] == [
        1,
        0,
        1,
        0,
    ]
    assert [count_runs(True, 2), count_runs(True, 2)] == [1, 0]
    memory[0] = 1 << 10  # too little for what is kept
    assert [count_runs(True, 3), count_runs(True, 3)] == [1, 1]


def test_ranges_of_rounded_integers_are_those_of_the_parts() -> None:
    job = make_job("x - y, (x / y).round().int(), (x * 50).int(), (x > y).sum(1)")
    model, inputs = make_call(job)
    found = referee.run_in_parts(model, inputs, (0, 1), 3, job, find_case(job, "shrunk").outputs, seed=3).found
    assert [pair is not None for pair in found.ranges] == [False, True, True, True]
    for exact, pair in zip(found.exact[1:], found.ranges[1:], strict=True):
        assert pair is not None
        least, most = pair
        assert least.shape == most.shape == exact.shape
        assert bool(((least <= exact) & (exact <= most)).all()) and int(most.sum() - least.sum()) <= exact.numel() // 8
