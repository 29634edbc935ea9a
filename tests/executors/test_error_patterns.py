"""Wrong outputs are described: where the wrong elements lie, and which pattern explains them."""

from __future__ import annotations

import functools
import html
import math

import pytest
import torch

from workbench import problems
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.inspector import WorkerInspector
from workbench.executors.workers.correctness import compare
from workbench.executors.workers.tolerance import measure_tolerance
from workbench.records import Candidate, Facts, Job, Outcome, Problem, WrongValues
from workbench.views.plots.error_map import draw_error_map

SOURCE = """import torch
import torch.nn as nn

rows = 48
columns = 128


class Model(nn.Module):
    def forward(self, x, b):
        return torch.relu(x + b)


def get_inputs():
    return [torch.randn(rows, columns), torch.randn(columns)]


def get_init_inputs():
    return []
"""

KERNEL = """import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS = 64
compiled = {}


@cute.kernel
def kernel(x: cute.Tensor, b: cute.Tensor, y: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    columns = x.shape[1]
    turns = (columns + THREADS - 1) // THREADS
    for turn in range(turns):
        c = turn * THREADS + tidx
        if c < columns:
            v = x[row, c] + b[c]
            y[row, c] = cute.arch.fmax(v, cutlass.Float32(0.0))


@cute.jit
def launch(x: cute.Tensor, b: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    kernel(x, b, y).launch(grid=[x.shape[0], 1, 1], block=[THREADS, 1, 1], stream=stream)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        views = [from_dlpack(t).mark_layout_dynamic() for t in (x, b, y)]
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        launch(*views, stream)
        return y
"""
STORE = "y[row, c] = cute.arch.fmax(v, cutlass.Float32(0.0))"

# what is changed in the kernel, what it becomes, what the verdict says
MUTANTS = [
    (
        STORE,
        "y[row, (c + 1) % columns] = cute.arch.fmax(v, cutlass.Float32(0.0))",
        "shifted by one along the last axis",
    ),
    (STORE, "y[(row + 1) % x.shape[0], c] = cute.arch.fmax(v, cutlass.Float32(0.0))", "along the second last axis"),
    ("b[c]", "b[row]", "b is indexed by the row instead of the column"),
    ("x[row, c] + b[c]", "x[row, c]", "b is missing"),
    ("x[row, c] + b[c]", "x[row, c] + b[c] + b[c]", "b is added twice"),
    ("x[row, c] + b[c]", "x[0, c] + b[c]", "they repeat the first row"),
    ("x[row, c] + b[c]", "x[row, columns - 1 - c] + b[columns - 1 - c]", "in reverse along the last axis"),
    (STORE, "y[row, c] = cute.arch.fmax(v, cutlass.Float32(0.0)) * 2.0", "they are 2 times the expected values"),
    (STORE, "y[row, c] = cute.arch.fmax(v, cutlass.Float32(0.0)) * 0.5", "they are 1/2 of the expected values"),
    (STORE, "y[row, c] = -cute.arch.fmax(v, cutlass.Float32(0.0))", "they have the wrong sign"),
    (STORE, "y[row, c] = cute.arch.fmax(v, cutlass.Float32(0.0)) + 1.0", "they differ from the expected values by +1"),
    (STORE, "y[row, c] = cutlass.Float32(0.0)", "they are 0: never written, or overwritten"),
    ("b[c]", "(b[c] if c < 64 else cutlass.Float32(100.0))", "the last 64 columns (from 64 on, the last tile of 64)"),
]


@functools.cache
def subject() -> tuple[Problem, Facts]:
    problem = problems.load(SOURCE)
    return problem, WorkerInspector().inspect(problem)


def run(source: str) -> Outcome:
    problem, facts = subject()
    return EmulatorExecutor().run(
        Job(problem=problem, facts=facts, candidate=Candidate(source=source), full_sample=False)
    )


@pytest.mark.slow
def test_the_kernel_that_the_mutants_come_from_is_right() -> None:
    assert run(KERNEL).failure is None


@pytest.mark.few(1)
@pytest.mark.parametrize(("part", "other", "said"), MUTANTS, ids=[said[:30] for _, _, said in MUTANTS])
def test_a_mutant_is_refused_with_its_pattern_and_the_line_of_the_store(part: str, other: str, said: str) -> None:
    source = KERNEL.replace(part, other)
    outcome = run(source)
    assert outcome.failure is not None
    assert outcome.failure.kind == "wrong_result"
    assert said in outcome.failure.hint
    assert "y[" in source.splitlines()[(outcome.failure.line or 1) - 1]
    wrong = next(check for check in outcome.checks if not check.passed)
    assert wrong.wrong is not None
    drawn = draw_error_map(wrong)
    assert f'alt="map of the wrong elements: {html.escape(wrong.wrong.sentence)}"' in drawn and "<svg" not in drawn


def described(got: torch.Tensor, expected: torch.Tensor, **operands: torch.Tensor) -> WrongValues:
    dtype = str(got.dtype).removeprefix("torch.")
    found = compare(got, expected, measure_tolerance(expected, None, dtype, 1, 2.0**-23), lambda: operands)["wrong"]
    assert isinstance(found, WrongValues)
    return found


def matrix(rows: int = 48, columns: int = 300) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(rows, columns, dtype=torch.float64)


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ((slice(None), slice(256, None)), "the last 44 columns (from 256 on, the last tile of 256)"),
        ((slice(None), slice(None, None, 4)), "every 4th column"),
        ((slice(32, None), slice(None)), "the last 16 rows (from 32 on, the last tile of 32)"),
        ((7, slice(64, 96)), "columns 64 to 95 of row 7 (the 32 elements of one warp)"),
        ((47, slice(None)), "the last row"),
        ((slice(None), slice(None)), "every element"),
    ],
)
def test_where_the_wrong_elements_lie(at: tuple[slice, slice], said: str) -> None:
    got = matrix().float()
    got[at] += 10
    assert described(got, matrix()).where == said


def test_patterns_of_values() -> None:
    square, whole = matrix(64, 64), torch.arange(40)
    assert "transposed" in described(square.T.float().contiguous(), square).pattern
    assert "1/64 of the expected values, and 64 is an extent" in described((square / 64).float(), square).pattern
    assert described(whole + 1, whole).pattern == "they are one too large"
    gone, kept = square.clone(), square.float()
    gone[3] = math.nan
    assert "NaN is swallowed" in described(kept, gone).pattern
    kept[5] = math.nan
    assert "they are NaN" in described(kept, square).pattern
    assert described(square.float() + torch.randn(64, 64), square).pattern == ""


def test_values_that_are_few_or_nearly_right_are_not_called_moved() -> None:
    for expected in (torch.tensor([3.0]), torch.tensor([[3.0], [5.0]]), torch.full((8, 8), 2.0), torch.ones(2, 2)):
        said = described(expected * 1.0009, expected.double()).pattern
        assert not said or said == "they are 1.0009 times the expected values"
    line = torch.arange(1.0, 9.0)
    assert "in reverse" in described(line.flip(0), line.double()).pattern
    assert "in reverse" not in described(line * 1.0009, line.double()).pattern


def test_the_map_is_small_and_has_shares() -> None:
    expected = matrix(2000, 3000)
    got = expected.float()
    got[:1000] += 10
    found = described(got, expected)
    assert (len(found.cells) <= 32) and (len(found.cells[0]) <= 64)
    assert found.cells[0][0] == 1.0
    assert found.cells[-1][0] == 0.0
