"""Candidates that have a number written in which forward is given: they are refused, and the verdict names it."""

from __future__ import annotations

import functools

import pytest

from workbench import evaluate, problems
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs.trials import gpu_cases, small_cases
from workbench.records import Candidate, Job, Opened, Verdict

PROBLEM = """import torch


class Model(torch.nn.Module):
    def forward(self, x, alpha: float):
        return torch.where(x > 0, x, alpha * x)


def get_inputs():
    return [torch.randn(512, 512), 0.1]
"""
CACHE = """import torch


class Model(torch.nn.Module):
    def forward(self, x, pos: int):
        return x[:, pos : pos + 4] * 2


def get_inputs():
    return [torch.randn(64, 128), 100]
"""
UNSCALE = """import torch


class Model(torch.nn.Module):
    def forward(self, grad, scale: float):
        found = grad.abs().max()
        grad.mul_(scale)
        return found


def get_inputs():
    return [torch.randn(512, 256), 0.25]
"""
CANDIDATE = """import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def leaky_kernel(x: cute.Tensor, y: cute.Tensor, alpha: cutlass.Float32, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * 128 + thread
    if index < count:
        value = x[index]
        y[index] = value
        if value < 0.0:
            y[index] = value * SLOPE


@cute.jit
def leaky(x: cute.Tensor, y: cute.Tensor, alpha: cutlass.Float32):
    count = cute.size(x)
    leaky_kernel(x, y, alpha, count).launch(grid=((count + 127) // 128, 1, 1), block=(128, 1, 1))


class ModelNew(torch.nn.Module):
    def forward(self, x, number):
        HEAD
        x = x.contiguous()
        y = torch.empty(x.shape)
        if y.numel():
            leaky(
                from_dlpack(x.view(-1)).mark_layout_dynamic(),
                from_dlpack(y.view(-1)).mark_layout_dynamic(),
                cutlass.Float32(number),
            )
        return y
"""


@functools.cache
def opened(text: str, keep: tuple[str, ...] = ()) -> Opened:
    return WorkerInspector().open(problems.load(text, keep=keep))


def judge(text: str, slope: str, head: str = "pass", keep: tuple[str, ...] = ()) -> Verdict:
    found = opened(text, keep)
    job = Job(
        problem=found.problem,
        facts=found.facts,
        candidate=Candidate(source=CANDIDATE.replace("SLOPE", slope).replace("HEAD", head)),
        cases=small_cases(found.facts),
        full_sample=False,
    )
    return evaluate.evaluate(job, EmulatorExecutor()).verdict


def test_a_kernel_that_takes_the_number_is_right() -> None:
    verdict = judge(PROBLEM, "alpha")
    assert verdict.correct and not verdict.untested
    assert any(line.startswith("alpha at 0.1, 0.0625, -0.1") for line in verdict.tested)


def test_a_number_that_is_written_in_is_named_with_both_values() -> None:
    verdict = judge(PROBLEM, "cutlass.Float32(0.1)")
    assert not verdict.correct and verdict.failure is not None
    assert verdict.failure.message.startswith(
        "wrong result at alpha = 0.0625; at alpha = 0.1, the value in get_inputs, it is right: "
        "is the number written into the kernel? ("
    )


@pytest.mark.slow
def test_a_number_that_an_instance_keeps_from_its_first_call_is_found() -> None:
    head = "self.first = number = getattr(self, 'first', number)"
    verdict = judge(PROBLEM, "alpha", head)
    assert not verdict.correct and verdict.failure is not None
    assert "is the number written into the kernel?" in verdict.failure.message


@pytest.mark.slow
def test_a_kept_number_may_be_written_in_and_is_named() -> None:
    verdict = judge(PROBLEM, "cutlass.Float32(0.1)", keep=("alpha",))
    assert verdict.correct and "forward's argument alpha was only tested at 0.1" in verdict.untested


def test_a_number_that_only_changes_an_input_is_found() -> None:
    head = "found = x.abs().max()\n        x.mul_({})\n        return found"
    assert judge(UNSCALE, "1.0", head.format("number")).correct
    verdict = judge(UNSCALE, "1.0", head.format("0.25"))
    assert not verdict.correct and verdict.failure is not None
    assert "is the number written into the kernel?" in verdict.failure.message


@pytest.mark.slow
def test_what_is_wrong_at_every_number_is_not_called_written_in() -> None:
    verdict = judge(PROBLEM, "cutlass.Float32(7.0)")
    assert verdict.failure is not None and "written into" not in verdict.failure.message


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("x, number = x[:, 100:104] * 1.0, 1.0", "written into the kernel?"),
        ("assert number == 100\n        x = x[:, 100:104] * 1.0", "(at pos = 63)"),
    ],
)
def test_an_offset_that_is_written_in_is_found(head: str, said: str) -> None:
    verdict = judge(CACHE, "cutlass.Float32(2.0)", f"{head}\n        return x * 2")
    assert not verdict.correct and verdict.failure is not None and said in verdict.failure.message


def test_a_gpu_checks_other_numbers_before_the_full_case() -> None:
    assert gpu_cases(opened(PROBLEM).facts) == ("odd", "numbers", "numbers2", "full")
    assert gpu_cases(opened(PROBLEM, ("alpha",)).facts) == ("odd", "full")
