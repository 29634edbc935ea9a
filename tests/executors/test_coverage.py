"""What a verdict tested: extents of 1 and one over a power of two, NaN and infinity, and what was not varied."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import pytest
import torch

from workbench import evaluate, problems
from workbench.analysis import coverage
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs.trials import Run, list_runs, small_cases
from workbench.executors.workers.inputs.initial_state import draw_constants
from workbench.problems import inspection
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
        y = torch.empty(x.shape)
        if y.numel():
            x = x.contiguous()
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


def judge(body: str, guard: str = "pass", text: str = TEXT, kernel: str = KERNEL) -> Verdict:
    problem, facts = opened(text)
    source = kernel.replace("BODY", body).replace("GUARD", guard)
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
        "long": (5, 1024),
        "long2": (4096, 2),
        "empty": (0, 256),
        "full": (4096, 1024),
    }
    assert [*shapes] == ["shrunk", "odd", "tiny", "over", "long", "long2", "empty", "full"]


def test_a_long_case_of_a_product_leaves_most_of_a_tile_for_the_last_one() -> None:
    text = TEXT.replace("columns = 1024", "columns = 4096").replace("torch.relu(x)", "x @ x.T")
    shapes = {case.name: case.inputs[0].shape for case in opened(text)[1].cases}
    assert shapes["long"][1] == 319 and shapes["long2"][0] == 129 and shapes["shrunk"][0] <= 128
    square = text.replace("rows, columns", "rows, rows")
    shapes = {case.name: case.inputs[0].shape for case in opened(square)[1].cases}
    assert shapes["long"] == (129, 129) and shapes["shrunk"] == (128, 128)


@pytest.mark.few(2)
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


def test_each_small_case_has_a_trial_and_special_values_come_with_the_smallest() -> None:
    problem, facts = opened(TEXT)
    job = Job(problem=problem, facts=facts, candidate=Candidate(source=""), cases=small_cases(facts))
    special = (("negative", "small and positive"), ("zero and tiny rows",), ("NaN and infinity",))
    assert list_runs(job) == [
        Run(case="shrunk", trial=0, draws_state=False),
        Run(case="odd", trial=0, values=("zeros and one sign", "large")),
        *(Run(case=name, trial=0) for name in ("tiny", "over", "long", "long2", "empty")),
        *(Run(case="over", trial=trial, values=values) for trial, values in enumerate(special, 1)),
        Run(case="over", trial=4, layout="offset and padded layout"),
        Run(case="over", trial=5, layout="transposed layout"),
    ]
    old = dataclasses.replace(facts, cases=tuple(case for case in facts.cases if case.name in ("shrunk", "full")))
    alone = list_runs(dataclasses.replace(job, facts=old, cases=small_cases(old)))
    assert {run.case for run in alone} == {"shrunk"} and [run.trial for run in alone] == [*range(7)]
    assert [run.draws_state for run in alone] == [False, True, True, True, True, False, False]
    once = list_runs(dataclasses.replace(job, trials=1))
    assert [run.case for run in once] == [*small_cases(facts)] and {run.values for run in once} == {("",)}


def test_a_maximum_that_drops_nan_is_correct_with_a_doubt() -> None:
    found = judge(MAXIMUM)
    assert found.correct and found.suspect == ()
    assert found.doubts == (
        "drops NaN: 1 element is NaN in torch's result, and not here, for inputs with a few of both",
    )


@pytest.mark.slow
def test_a_comparison_that_keeps_nan_raises_no_doubt() -> None:
    found = judge(COMPARE)
    assert found.correct and found.doubts == () and found.refuses == () and found.untested == ()
    assert found.tested == (
        "rows from 0 to 4096, columns from 1 to 1024",
        "values: drawn, zeros and one sign, large, negative, small and positive, zero and tiny rows, NaN and infinity",
        "layouts: as given, offset and padded, transposed",
    )


@pytest.mark.slow
def test_host_code_may_refuse_size_one_and_the_verdict_says_so() -> None:
    found = judge(COMPARE, "assert x.shape[0] > 1, 'at least two rows'")
    assert found.correct
    assert found.refuses == (
        "rows=1, columns=1 (AssertionError: at least two rows)",
        "rows=0 (AssertionError: at least two rows)",
    )


SCALED = TEXT.replace(
    "    def forward",
    """    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(columns))
        self.branch = nn.Parameter(1e-5 * torch.ones(columns))
        self.norm = nn.BatchNorm1d(columns)
        self.register_buffer("count", torch.zeros(1))

    def forward""",
).replace("return []", "return [columns]")


def test_parameters_of_a_constant_are_drawn_and_other_constants_stay() -> None:
    space: dict[str, type[torch.nn.Module]] = {}
    exec(SCALED, space)
    drawn, again = space["Model"](64), space["Model"](64)
    for model in (drawn, again):
        draw_constants(model, 5)
    state = drawn.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in again.state_dict().items())
    assert float(state["branch"].abs().min()) >= 0.5  # 1e-5 hides what it scales
    for name in ("scale", "norm.weight", "norm.running_var"):
        assert len(state[name].unique()) > 60 and float(state[name].min()) >= 0.5
    assert len(state["norm.bias"].unique()) > 60 and float(state["norm.bias"].min()) < 0
    assert not state["count"].any() and not state["norm.num_batches_tracked"]


@pytest.mark.slow
def test_a_weight_that_the_problem_makes_of_ones_may_not_be_left_out() -> None:
    text = SCALED.replace("torch.relu(x)", "torch.relu(x) * self.scale")
    owner = KERNEL.replace(
        "    def forward",
        """    def __init__(self, columns):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(columns))

    def forward""",
    )
    wrong = judge(MAXIMUM, text=text, kernel=owner)
    assert not wrong.correct and wrong.failure is not None and "case odd" in wrong.failure.message
    assert judge(MAXIMUM, text=text, kernel=owner.replace("return y", "return y * self.scale")).correct


HIGHEST = TEXT.replace("torch.relu(x)", "x.amax(1)")
ROWS = (
    KERNEL.replace("count = cute.size(x)", "count = x.shape[0]")
    .replace("x.view(-1)", "x")
    .replace("empty(x.shape)", "empty(x.shape[0])")
    .replace("value = x[index]", "value = cutlass.Float32(START)")
    .replace(
        "BODY",
        """for column in cutlass.range(x.shape[1]):
            value = cute.arch.fmax(value, x[index, column])
        y[index] = value""",
    )
)


@pytest.mark.few(1)
@pytest.mark.parametrize(("start", "said"), [("-3e38", ""), ("0", "wrong result"), ("1e-30", "wrong result")])
def test_a_maximum_begins_below_all_inputs(start: str, said: str) -> None:
    found = judge("", text=HIGHEST, kernel=ROWS.replace("START", start))
    assert found.correct is not bool(said)
    assert said in (found.failure.message if found.failure else "")


def test_inputs_of_other_layouts_and_empty_ones_may_be_refused_and_a_doubt_says_where_they_are_read_wrong() -> None:
    viewed = KERNEL.replace("x = x.contiguous()", "pass").replace("if y.numel():", "if True:")
    refused = judge(COMPARE, kernel=viewed)
    assert refused.correct
    assert [said.split(" (")[0] for said in refused.refuses] == [
        "rows=0",
        "inputs of offset and padded layout",
        "inputs of transposed layout",
    ]
    flat = KERNEL.replace("x.contiguous()", "torch.as_strided(x, (x.numel(),), (1,), x.storage_offset())")
    wrong = judge(COMPARE, kernel=flat)
    assert wrong.correct and any("reads inputs of offset and padded layout wrong" in doubt for doubt in wrong.doubts)


def test_host_code_may_not_refuse_another_case() -> None:
    found = judge(COMPARE, "assert x.shape[0] != 65, 'not 65'")
    assert not found.correct and found.failure is not None and "not 65" in found.failure.message


@pytest.mark.slow
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


@pytest.mark.slow
def test_extents_of_parameters_that_are_numbers_of_the_text_are_named() -> None:
    problem = Path(__file__).parent.parent / "problems" / "own" / "mlp_hard_coded.py"
    facts = inspection.inspect(problems.load(str(problem)))
    found = coverage.fixed_extents(facts)
    assert found == {10: ("fc2.weight[0]", "fc2.bias[0]")}
    check = Check(case="shrunk", trial=0, timed=False, passed=True)
    said = coverage.untested_sizes(facts, Outcome(executor="emulator", arch="sm_80", device="H200", checks=(check,)))
    assert "fc2.weight[0], fc2.bias[0] were only tested at 10" in said


def test_numbers_that_forward_is_given_are_named(tmp_path: Path) -> None:
    """A kernel may have them written in, if no case gives it others: defaults that are left out, and what is kept."""
    path = tmp_path / "cache.py"
    path.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x, pos: int, scale=0.5, name='a'):\n"
        "        return x * scale + pos\n\n\ndef get_inputs():\n    return [torch.randn(96, 128), 100]\n"
    )
    facts = inspection.inspect(problems.load(str(path)))
    check = Check(case="shrunk", trial=0, timed=False, passed=True)
    ran = (check, dataclasses.replace(check, case="numbers"))
    said = coverage.untested_sizes(facts, Outcome(executor="emulator", arch="sm_80", device="H200", checks=ran))
    assert [one for one in said if "forward" in one] == ["forward's argument scale was only tested at 0.5"]
    kept = inspection.inspect(problems.load(str(path), keep=("pos",)))
    said = coverage.untested_sizes(kept, Outcome(executor="emulator", arch="sm_80", device="H200", checks=(check,)))
    assert [one for one in said if "forward" in one] == [
        "forward's argument pos was only tested at 100",
        "forward's argument scale was only tested at 0.5",
    ]
