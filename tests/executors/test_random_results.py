"""Kernels with a random generator of their own are compared with a random reference by law."""

from __future__ import annotations

import functools

import pytest

from workbench import problems
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.inspector import WorkerInspector
from workbench.records import Candidate, Job, Opened, Outcome

PROBLEM = """import torch
import torch.nn as nn

rows, features = 64, 250


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return self.drop(x)


def get_inputs():
    return [torch.randn(rows, features)]
"""

KERNEL = """import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cutlass import Float32, Uint32
from cutlass.cute.runtime import from_dlpack


@cute.jit
def mix(value: Uint32) -> Uint32:
    value = (value ^ (value >> Uint32(16))) * Uint32(0x7FEB352D)
    value = (value ^ (value >> Uint32(15))) * Uint32(0x846CA68B)
    return value ^ (value >> Uint32(16))


@cute.kernel
def dropout(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32, seed: Uint32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 128 + thread
    if i < n:
        number = mix(mix(Uint32(i)) ^ seed)
        kept = (number >> Uint32(8)).to(Float32) < Float32(0.7 * 16777216.0)
        y[i] = x[i] * Float32(1 / 0.7) if kept else Float32(0.0)


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32, seed: Uint32):
    dropout(x, y, n, seed).launch(grid=[(n + 127) // 128, 1, 1], block=[128, 1, 1])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        seed = int(torch.randint(2**31, ()))
        flat = [from_dlpack(one.view(-1)).mark_layout_dynamic() for one in (x, y)]
        launch(*flat, x.numel(), seed)
        return y
"""
SEED = "int(torch.randint(2**31, ()))"
COUNTED = "self.calls = getattr(self, 'calls', 0) + 1; seed ="


@functools.cache
def opened(source: str = PROBLEM) -> Opened:
    return WorkerInspector().open(problems.load(source))


def run(source: str, problem: str = PROBLEM) -> Outcome:
    """The outcome at all small cases of the problem."""
    found = opened(problem)
    cases = tuple(case.name for case in found.facts.cases if case.name != "full")
    job = Job(problem=found.problem, facts=found.facts, candidate=Candidate(source=source), cases=cases)
    return EmulatorExecutor().run(job)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [SEED, f"{COUNTED} (torch.initial_seed() ^ self.calls * 0x9E3779B1) & 0x7FFFFFFF"])
def test_a_kernel_with_a_generator_of_its_own_is_right(seed: str) -> None:
    outcome = run(KERNEL.replace(f"seed = {SEED}", seed if "seed =" in seed else f"seed = {seed}"))
    assert outcome.failure is None
    assert all(check.passed for check in outcome.checks)
    assert "random numbers by law over 48 calls" in {check.values for check in outcome.checks}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (SEED, "7", "the same random numbers: take a new seed in each call"),
        ("1 / 0.7", "1.0", "the mean is 0."),
        ("seed = " + SEED, f"{COUNTED} self.calls * 0x9E3779B1 & 0x7FFFFFFF", "with two seeds of torch"),
        ("0.7 * 1", "0.6 * 1", "of the values are 0, and 0."),
        ("0.7 * 16777216.0", "16777216.0", "0 of the values are 0"),
        ("seed = " + SEED, "seed = torch.initial_seed() & 0x7FFFFFFF", "take a new seed in each call"),
        ("Uint32(i)", "Uint32(i // 32)", "torch's"),
    ],
)
def test_another_law_is_refused_by_what_is_unlike(old: str, new: str, said: str) -> None:
    failure = run(KERNEL.replace(old, new)).failure
    assert failure is not None
    assert failure.kind == "wrong_result"
    assert "by law, over" in failure.message
    assert said in failure.message


def test_dropout_in_eval_mode_draws_nothing() -> None:
    evaluated = PROBLEM.replace("self.drop = nn.Dropout(0.3)", "self.drop = nn.Dropout(0.3)\n        self.eval()")
    failure = run(KERNEL, evaluated).failure
    assert failure is not None
    assert "by law" not in failure.message


def test_torchs_own_numbers_are_compared_one_by_one() -> None:
    head = KERNEL.split("@cute.jit")[0]
    body = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return nn.functional.dropout(x, 0.3)"
    assert run(f"{head}\n\n{body}\n").failure is None
    failure = run(f"{head}\n\n{body} * 1.001\n").failure
    assert failure is not None
    assert "by law" not in failure.message
