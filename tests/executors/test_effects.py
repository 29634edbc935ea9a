"""What a call changes: the reference's changes are compared, and others are named."""

from __future__ import annotations

import functools

import pytest

from workbench import problems
from workbench.analysis import coverage
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.inspector import WorkerInspector
from workbench.records import Candidate, Facts, Failure, Job, Outcome, Problem

NORM = """import torch
import torch.nn as nn

batch = 64
features = 32


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return self.norm(x)


def get_inputs():
    return [torch.randn(batch, features) * 3 + 1]


def get_init_inputs():
    return [features]
"""

IN_PLACE = """import torch
import torch.nn as nn

batch = 64
features = 32


class Model(nn.Module):
    def forward(self, x, y):
        x.add_(y)
        return torch.relu(x)


def get_inputs():
    return [torch.randn(batch, features), torch.randn(batch, features)]


def get_init_inputs():
    return []
"""

CACHE = """import torch
import torch.nn as nn

batch = 64
features = 32


class Model(nn.Module):
    def __init__(self, batch, features):
        super().__init__()
        self.register_buffer("total", torch.zeros(batch, features))

    def forward(self, x):
        self.total += x
        return self.total


def get_inputs():
    return [torch.randn(batch, features)]


def get_init_inputs():
    return [batch, features]
"""

KERNEL = """import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cutlass import Float32
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def norm(x: cute.Tensor, w: cute.Tensor, b: cute.Tensor, mean: cute.Tensor, var: cute.Tensor, y: cute.Tensor):
    tid, _, _ = cute.arch.thread_idx()
    col, _, _ = cute.arch.block_idx()
    n = x.shape[0]
    total = Float32(0)
    for r in cutlass.range(tid, n, 32):
        total += x[r, col]
    mu = cute.arch.warp_reduction_sum(total) / n
    squares = Float32(0)
    for r in cutlass.range(tid, n, 32):
        squares += (x[r, col] - mu) * (x[r, col] - mu)
    squares = cute.arch.warp_reduction_sum(squares)
    scale = cute.math.rsqrt(squares / n + 1e-5)
    for r in cutlass.range(tid, n, 32):
        y[r, col] = (x[r, col] - mu) * scale * w[col] + b[col]
    if tid == 0:
        mean[col] = 0.9 * mean[col] + 0.1 * mu
        var[col] = 0.9 * var[col] + 0.1 * squares / (n - 1)


@cute.jit
def launch(x: cute.Tensor, w: cute.Tensor, b: cute.Tensor, mean: cute.Tensor, var: cute.Tensor, y: cute.Tensor):
    norm(x, w, b, mean, var, y).launch(grid=(x.shape[1], 1, 1), block=(32, 1, 1))


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("own", torch.zeros(3))

    def forward(self, x):
        n, y = self.norm, torch.empty_like(x)
        self.own += 1
        {body}
        launch(*(from_dlpack(t) for t in (x, n.weight.detach(), n.bias.detach(), {mean}, {var}, y)))
        return y
"""
COUNT = "self.calls += 1; n.num_batches_tracked += 1"

TORCH = """import torch


class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        if sizes:
            self.register_buffer("total", torch.zeros(*sizes))

    def forward(self, x{more}):
        {body}
"""


@functools.cache
def subject(source: str) -> tuple[Problem, Facts]:
    problem = problems.load(source)
    return problem, WorkerInspector().inspect(problem)


def run_job(source: str, candidate: str) -> tuple[Job, Outcome]:
    problem, facts = subject(source)
    job = Job(problem=problem, facts=facts, candidate=Candidate(source=candidate), full_sample=False)
    return job, EmulatorExecutor().run(job)


def run(source: str, candidate: str) -> Failure | None:
    return run_job(source, candidate)[1].failure


def norm_kernel(body: str = COUNT, mean: str = "n.running_mean", var: str = "n.running_var") -> str:
    return KERNEL.format(body=body, mean=mean, var=var)


def test_a_batch_norm_that_updates_its_statistics_is_right() -> None:
    assert run(NORM, norm_kernel()) is None


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("candidate", "kind", "said"),
    [
        (norm_kernel(mean="n.bias.detach()", var="n.weight.detach()"), "state_modified", "parameter norm.weight"),
        (
            norm_kernel(mean="n.running_mean.clone()"),
            "wrong_result",
            "does not update its buffer norm.running_mean, as",
        ),
        (norm_kernel(body="n.num_batches_tracked += 1"), "wrong_result", "does not update its buffer calls, as"),
        (norm_kernel(body=COUNT + "; x.mul_(1)"), "", ""),
        (norm_kernel(body=COUNT + "; x.mul_(2)"), "input_modified", "changed its input x, which"),
    ],
)
def test_other_changes_of_a_batch_norm_are_named(candidate: str, kind: str, said: str) -> None:
    failure = run(NORM, candidate)
    assert (failure.kind if failure else "") == kind
    assert said in (failure.message if failure else "")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("        mean[col] = 0.9 * mean[col] + 0.1 * mu\n", "", "does not update its buffer norm.running_mean, as"),
        (
            KERNEL[KERNEL.index("    if tid == 0:") : KERNEL.index("\n\n\n@cute.jit")],
            "",
            "does not update its buffer norm.running_mean, buffer norm.running_var, as",
        ),
        ("0.1 * mu", "0.2 * mu", "wrong buffer norm.running_mean at case shrunk"),
    ],
)
def test_a_wrong_statistic_points_to_no_store_of_another_tensor(old: str, new: str, said: str) -> None:
    candidate = norm_kernel()
    assert candidate.count(old) == 1
    failure = run(NORM, candidate.replace(old, new))
    assert failure is not None
    assert said in failure.message
    assert failure.line is None
    assert "store to global memory" not in failure.hint


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("x.add_(y); return torch.relu(x)", ""),
        ("return torch.relu(x + y)", "does not update its input x, as"),
        ("y.add_(x); x.copy_(y); return torch.relu(x)", "changed its input y, which"),
    ],
)
def test_an_input_that_the_reference_changes_is_compared(body: str, said: str) -> None:
    failure = run(IN_PLACE, TORCH.format(more=", y", body=body))
    assert said in failure.message if failure and said else not failure and not said


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("self.total += x; return self.total", ""),
        ("self.total.copy_(x); return self.total", "at case odd"),  # right at the first call
        ("return self.total + x", "does not update its buffer total, as"),
    ],
)
def test_a_second_call_sees_what_the_first_left(body: str, said: str) -> None:
    failure = run(CACHE, TORCH.format(more="", body=body))
    assert said in failure.message if failure and said else not failure and not said


NOISE = IN_PLACE.replace("x.add_(y)\n        return torch.relu(x)", "return x + 0.5 * torch.randn_like(y)")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return x + 0.5 * torch.randn_like(y)", ""),
        ("noise = torch.randn_like(y); return torch.add(x, noise, alpha=0.5)", ""),
        ("return x + 0.5 * torch.rand_like(y)", "the reference draws random numbers"),
        ("return x + 0.4 * torch.randn(*y.shape).double().neg().to(y.dtype)", "with the same calls of torch"),
        ("return x.clone()", "the reference draws random numbers"),
    ],
)
def test_random_numbers_are_those_of_torch(body: str, said: str) -> None:
    failure = run(NOISE, TORCH.format(more=", y", body=body))
    assert said in failure.hint if failure and said else not failure and not said


COUNTED = CACHE.replace(
    "self.total += x\n        return self.total", "self.total = self.total + x\n        return x + 1"
)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("self.total = self.total + x; return x + 1", ""),
        ("self.total += x; return x + 1", ""),
        ("return x + 1", "does not update its buffer total, as"),
    ],
)
def test_a_buffer_that_the_reference_assigns_is_compared(body: str, said: str) -> None:
    failure = run(COUNTED, TORCH.format(more="", body=body))
    assert said in failure.message if failure and said else not failure and not said


KEYS = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, length, dim):
        super().__init__()
        self.register_buffer("keys", torch.zeros(length, dim))

    def forward(self, k, at):
        WRITE
        return self.keys * 0.125


def get_inputs():
    return [torch.randn(16, 64), AT]


def get_init_inputs():
    return [128, 64]
"""
WRITES = {
    "slice": ("self.keys[at : at + k.shape[0]] = k", "32"),
    "index": ("self.keys[at] = k", "torch.arange(32, 48)"),
    "index_copy": ("self.keys.index_copy_(0, at, k)", "torch.arange(32, 48)"),
    "scatter": ("self.keys.scatter_(0, (at + torch.arange(k.shape[0])[:, None]).expand(-1, k.shape[1]), k)", "32"),
}
KEYS_KERNEL = """import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def write(k: cute.Tensor, keys: cute.Tensor, y: cute.Tensor, at: cutlass.Int32):
    col, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    if row >= at and row < at + k.shape[0]:
        keys[row, col] = k[row - at, col]
    y[row, col] = keys[row, col] * 0.125


@cute.jit
def launch(k: cute.Tensor, keys: cute.Tensor, y: cute.Tensor, at: cutlass.Int32):
    write(k, keys, y, at).launch(grid=(keys.shape[0], 1, 1), block=(keys.shape[1], 1, 1))


class ModelNew(nn.Module):
    def __init__(self, length, dim):
        super().__init__()
        self.register_buffer("keys", torch.zeros(length, dim))

    def forward(self, k, at):
        y = torch.empty_like(self.keys)
        launch(*(from_dlpack(one) for one in (k, self.keys, y)), at if isinstance(at, int) else int(at[0]))
        return y
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("name", WRITES)
def test_a_kernel_that_writes_a_part_of_a_cache_is_right(name: str) -> None:
    write, at = WRITES[name]
    assert run(KEYS.replace("WRITE", write).replace("AT", at), KEYS_KERNEL) is None


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("        keys[row, col] = k", "        y[row, col] = k", ""),  # the cache keeps its old rows
        ("row >= at and row < at + k.shape[0]:", "row >= at and row < at + k.shape[0] - 1:", "at case"),
        (
            "    y[row, col] = keys",
            "    else:\n        keys[row, col] = cutlass.Float32(0.0)\n    y[row, col] = keys",
            "",
        ),
        ("keys[row, col] * 0.125", "keys[row, col] * 0.125\n    keys[row, col] = y[row, col]", "buffer keys"),
    ],
)
def test_the_part_of_a_cache_that_is_not_written_stays(old: str, new: str, said: str) -> None:
    write, at = WRITES["slice"]
    assert old in KEYS_KERNEL
    failure = run(KEYS.replace("WRITE", write).replace("AT", at), KEYS_KERNEL.replace(old, new))
    assert failure is not None
    assert failure.kind == "wrong_result"
    assert said in failure.message


TWICE = CACHE.replace("self.total += x\n        return self.total", "return 2 * x")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("body", "reused"),
    [
        ("return torch.mul(x, 2, out=torch.empty_like(x))", False),
        (
            "y = self.__dict__.setdefault('kept', {}).setdefault(x.shape, torch.empty_like(x)); "
            "return torch.mul(x, 2, out=y)",
            True,
        ),
    ],
)
def test_a_result_that_the_next_call_overwrites_is_said(body: str, reused: bool) -> None:
    """A caller that holds both would find them equal."""
    job, outcome = run_job(TWICE, TORCH.format(more="", body=body))
    assert outcome.failure is None and outcome.reused == reused
    assert (coverage.REUSED in coverage.tested_inputs(job.facts, outcome)) == reused
