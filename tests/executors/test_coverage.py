"""What a verdict tested: extents of 1 and one over a power of two, NaN and infinity, and what was not varied."""

from __future__ import annotations

import dataclasses
import functools

import pytest

from workbench import evaluate
from workbench.analysis import coverage
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs.trials import find_last, find_not_finite, list_trials, small_cases
from workbench.records import Candidate, Check, Facts, Job, Outcome, Problem, Verdict

TEXT = """import torch
import torch.nn as nn

rows = 4096
columns = 1024


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""

KERNEL = """import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def relu_kernel(x: cute.Tensor, y: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * 128 + thread
    if index < count:
        value = x[index]
        BODY


@cute.jit
def relu(x: cute.Tensor, y: cute.Tensor):
    count = cute.size(x)
    relu_kernel(x, y, count).launch(grid=((count + 127) // 128, 1, 1), block=(128, 1, 1))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        GUARD
        y = torch.empty_like(x)
        relu(
            from_dlpack(x.view(-1)).mark_layout_dynamic(),
            from_dlpack(y.view(-1)).mark_layout_dynamic(),
        )
        return y
"""
MAXIMUM = "y[index] = cute.arch.fmax(value, cutlass.Float32(0.0))"
COMPARE = """y[index] = value
        if value < 0.0:
            y[index] = cutlass.Float32(0.0)"""


@functools.cache
def opened(text: str) -> tuple[Problem, Facts]:
    found = WorkerInspector().open(Problem(name="own", source=text))
    return found.problem, found.facts


def judge(body: str, guard: str = "pass", text: str = TEXT) -> Verdict:
    problem, facts = opened(text)
    source = KERNEL.replace("BODY", body).replace("GUARD", guard)
    job = Job(
        problem=problem,
        facts=facts,
        candidate=Candidate(source=source),
        cases=small_cases(facts),
        full_sample=False,
    )
    return evaluate.evaluate(job, EmulatorExecutor()).verdict


def test_sizes_are_one_and_one_over_a_power_of_two() -> None:
    _, facts = opened(TEXT)
    shapes = {case.name: case.inputs[0].shape for case in facts.cases}
    assert shapes == {
        "shrunk": (256, 256),
        "odd": (165, 179),
        "tiny": (1, 1),
        "over": (65, 65),
        "full": (4096, 1024),
    }
    assert [case.name for case in facts.cases] == ["shrunk", "odd", "tiny", "over", "full"]


@pytest.mark.parametrize(
    ("forward", "tiny"),
    [
        ("torch.softmax(x, -1)", (1, 1)),
        ("torch.nn.functional.layer_norm(x, x.shape[1:])", (1, 3)),  # one feature gives 0 for all inputs
        ("x.view(2, -1, x.shape[1]).sum(0)", (2, 1)),
        ("x[2:]", (3, 1)),  # an empty result says nothing
        ("x.std(1)", (1, 3)),  # of one value it is NaN
    ],
)
def test_a_size_is_one_where_the_result_says_something(forward: str, tiny: tuple[int, ...]) -> None:
    _, facts = opened(TEXT.replace("torch.relu(x)", forward))
    assert next(case for case in facts.cases if case.name == "tiny").inputs[0].shape == tiny


def test_small_extents_of_inputs_are_varied_and_widths_of_kernels_are_not() -> None:
    text = TEXT.replace("rows = 4096", "rows = 4\nwidth = 3").replace(
        "torch.relu(x)", "torch.nn.functional.avg_pool1d(x, width)"
    )
    _, facts = opened(text)
    settings = dict(next(case for case in facts.cases if case.name == "tiny").settings)
    assert settings["rows"] == 1 and "width" not in settings
    rows = next(size for size in facts.sizes if size.name == "rows")
    assert rows.varied


def test_sizes_that_are_kept_stay() -> None:
    kept = WorkerInspector().open(dataclasses.replace(Problem(name="own", source=TEXT), keep=("columns",))).facts
    assert {case.inputs[0].shape[1] for case in kept.cases} == {1024}


def test_the_last_trials_have_special_values_and_edge_cases_one() -> None:
    problem, facts = opened(TEXT)
    job = Job(problem=problem, facts=facts, candidate=Candidate(source=""), cases=small_cases(facts))
    assert list_trials(job) == [("shrunk", 0), ("shrunk", 1), ("odd", 0), ("tiny", 0), ("over", 0)]
    assert find_last(job) == ("odd", 0) and find_not_finite(job) == ("shrunk", 1)
    old = dataclasses.replace(facts, cases=tuple(case for case in facts.cases if case.name in ("shrunk", "full")))
    alone = dataclasses.replace(job, facts=old, cases=small_cases(old))
    assert list_trials(alone) == [("shrunk", 0), ("shrunk", 1), ("shrunk", 2)]
    assert find_last(alone) == ("shrunk", 1) and find_not_finite(alone) == ("shrunk", 2)
    assert find_not_finite(dataclasses.replace(job, cases=("full",))) is None
    assert list_trials(dataclasses.replace(job, trials=1))[-2:] == [("tiny", 0), ("over", 0)]


def test_a_maximum_that_drops_nan_is_correct_with_a_doubt() -> None:
    found = judge(MAXIMUM)
    assert found.correct and found.suspect == ()
    assert found.doubts == (
        "drops NaN: 1 element is NaN in torch's result, and not here, for inputs with a few of both",
    )


def test_a_comparison_that_keeps_nan_raises_no_doubt() -> None:
    found = judge(COMPARE)
    assert found.correct and found.doubts == () and found.refuses == () and found.untested == ()


def test_host_code_may_refuse_size_one_and_the_verdict_says_so() -> None:
    found = judge(COMPARE, "assert x.shape[0] > 1, 'at least two rows'")
    assert found.correct
    assert found.refuses == ("rows=1, columns=1 (AssertionError: at least two rows)",)


def test_host_code_may_not_refuse_another_case() -> None:
    found = judge(COMPARE, "assert x.shape[0] != 65, 'not 65'")
    assert not found.correct and found.failure is not None and "not 65" in found.failure.message


def test_a_kernel_that_is_wrong_only_at_one_over_a_power_of_two_is_found() -> None:
    wrong = (
        COMPARE + "\n        if count == 65 * 65 and index == count - 1:\n            y[index] = cutlass.Float32(7.0)"
    )
    found = judge(wrong)
    assert not found.correct and found.failure is not None and "case over" in found.failure.message


def test_a_kernel_that_is_wrong_only_at_size_one_is_found() -> None:
    found = judge(COMPARE + "\n        if count == 1:\n            y[index] = cutlass.Float32(7.0)")
    assert not found.correct and found.failure is not None and "case tiny" in found.failure.message


def test_a_size_that_no_case_varies_is_named() -> None:
    _, facts = opened(TEXT)
    kept = tuple(
        dataclasses.replace(
            case, settings=tuple((name, 1024 if name == "columns" else value) for name, value in case.settings)
        )
        for case in facts.cases
    )
    ran = tuple(Check(case=case.name, trial=0, timed=False, passed=True) for case in kept if case.name != "full")
    outcome = Outcome(executor="emulator", arch="sm_80", device="H200", checks=ran)
    assert coverage.untested_sizes(dataclasses.replace(facts, cases=kept), outcome) == (
        "columns was only tested at 1024",
    )
    assert coverage.untested_sizes(facts, outcome) == ()
