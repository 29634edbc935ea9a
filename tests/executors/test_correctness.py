"""Tolerances: honest kernels pass in any order of summation, lower precision and trivial outputs do not; with torch."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from workbench import problems
from workbench.evaluate import judge
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.workers.correctness import compare
from workbench.executors.workers.tolerance import Tolerance, as_matrix, measure_tolerance
from workbench.problems import inspection, loading
from workbench.problems.reference import Reference, Tf32Products, run_reference
from workbench.problems.reference.tf32 import TF32_EPS, round_to_nearest, truncate
from workbench.records import Candidate, Job, Precision, Proposal, Trial, Version
from workbench.records.proposal import HUMAN
from workbench.views.text import tables
from workbench.wire import Json

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
EPS32 = torch.finfo(torch.float32).eps
Function = Callable[..., torch.Tensor]


class Called(torch.nn.Module):
    """A module whose forward is a function."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


class Subject:
    """A computation with inputs drawn from a normal distribution, cast to the precision."""

    def __init__(self, function: Function, *inputs: torch.Tensor, precision: Precision) -> None:
        self.function, self.dtype = function, DTYPES[precision]
        self.inputs = [value.to(self.dtype) for value in inputs]
        self.reference: Reference = run_reference(Called(function), self.inputs, precision, seed=1)
        assert self.reference.eager is not None
        name = str(self.dtype).removeprefix("torch.")
        self.exact, self.eager = self.reference.exact[0], self.reference.eager[0]
        self.tolerance: Tolerance = measure_tolerance(
            self.exact, self.eager, name, self.reference.terms, self.reference.eps
        )

    def check(self, got: torch.Tensor) -> Json:
        """The comparison of an output, rounded to the output's dtype."""
        return compare(got.to(self.dtype), self.exact, self.tolerance)

    def with_inputs_in(self, dtype: torch.dtype) -> torch.Tensor:
        """The function in the subject's dtype, on inputs rounded to another."""
        return self.function(*(value.to(dtype).to(self.dtype) for value in self.inputs))


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def product(m: int, k: int, precision: Precision) -> Subject:
    return Subject(torch.matmul, normal(m, k), normal(k, m, seed=1), precision=precision)


def same(expected: list[float], dtype: str = "float32") -> Tolerance:
    return measure_tolerance(torch.tensor(expected, dtype=torch.float64), None, dtype, 1, EPS32)


# ---- the three faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("k", [64, 1024])
def test_a_softmax_of_a_product_passes_as_torch_eager_computes_it(precision: Precision, k: int) -> None:
    subject = Subject(lambda a, b: torch.softmax(a @ b, -1), normal(64, k), normal(k, 64, seed=1), precision=precision)
    a, b = subject.inputs
    fused = torch.softmax(a.float() @ b.float(), -1)
    halves = torch.softmax(a[:, : k // 2] @ b[: k // 2] + a[:, k // 2 :] @ b[k // 2 :], -1)  # rounded three times
    for honest in (subject.eager, fused, halves):
        assert subject.check(honest)["passed"]
    shifted = torch.softmax(a.float() @ b.float(), -1).roll(1, -1)
    assert not subject.check(shifted)["passed"] and not subject.check(torch.zeros_like(fused))["passed"]


def test_a_softmax_that_torch_itself_misses_in_places_passes_as_torch_computes_it() -> None:
    torch.manual_seed(4)
    subject = Subject(
        lambda a, b: torch.softmax(a @ b, dim=-1), torch.randn(512, 4096), torch.randn(4096, 512), precision="bf16"
    )
    elements = subject.eager.numel()
    assert 0 < subject.tolerance.eager_bad < 0.01 * elements
    assert subject.check(subject.eager)["passed"]
    a, b = subject.inputs
    other = torch.softmax((a.double() @ b.double()).bfloat16(), dim=-1)  # another order of summation
    assert subject.check(other)["passed"]
    zeros = subject.eager.clone()
    zeros[:16] = 0
    assert not subject.check(zeros)["passed"]
    wrong = subject.eager.clone()
    wrong[3, 5] += 30
    assert not subject.check(wrong)["passed"]


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
@pytest.mark.parametrize("share", [0.1, 0.69])
def test_zeros_for_the_small_elements_of_a_heavy_tailed_tensor_fail(precision: Precision, share: float) -> None:
    heavy = torch.exp(normal(256, 512))
    heavy[::17, ::13] *= 1e3
    subject = Subject(lambda x: x * 2, heavy, precision=precision)
    limit = subject.exact.abs().flatten().kthvalue(int(share * heavy.numel())).values
    found = subject.check(subject.exact.where(subject.exact.abs() > limit, 0.0))
    assert not found["passed"] and found["bad_elements"] == pytest.approx(share * heavy.numel(), rel=0.01)


def test_half_precision_fails_as_strict_float32_in_element_wise_kernels_of_a_million_elements() -> None:
    subject = Subject(lambda x: functional.gelu(x, approximate="tanh"), normal(1 << 20), precision="fp32")
    assert subject.reference.terms == 1
    for dtype in (torch.float16, torch.bfloat16):
        found = subject.check(subject.with_inputs_in(dtype))
        assert found["bad_elements"] > 0.8 * found["elements"]
        assert not subject.check(subject.eager.to(dtype))["passed"]
    x = subject.inputs[0]
    for honest in (subject.eager, x * torch.sigmoid(2 * 0.7978845608 * (x + 0.044715 * x * x * x))):
        assert subject.check(honest)["passed"]


# ---- precision -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [16, 64, 1024, 8192])
def test_float32_products_pass_in_any_order_and_half_or_tf32_products_do_not(k: int) -> None:
    subject = product(32, k, "fp32")
    a, b = subject.inputs
    serial, split = torch.zeros(32, 32), torch.zeros(32, 32)
    for at in range(k):
        serial = serial + a[:, at : at + 1] * b[at : at + 1]
    for at in range(0, k, 16):
        split = split + a[:, at : at + 16] @ b[at : at + 16]
    for honest in (subject.eager, serial, split):
        assert subject.check(honest)["passed"]
    for lower in (torch.float16, torch.bfloat16):
        assert not subject.check(subject.with_inputs_in(lower))["passed"]
    assert not subject.check(truncate(a) @ truncate(b))["passed"]


@pytest.mark.parametrize("k", [16, 64, 1024, 8192])
def test_the_tf32_policy_lets_tf32_pass_but_neither_bfloat16_nor_zeros(k: int) -> None:
    subject = product(64, k, "tf32")
    a, b = subject.inputs
    for honest in (truncate(a) @ truncate(b), round_to_nearest(a) @ round_to_nearest(b), a @ b):
        found = subject.check(honest)
        assert found["passed"] and found["max_error"] < 0.7
    coarse = subject.check(subject.with_inputs_in(torch.bfloat16))
    assert not coarse["passed"] and coarse["max_error"] > 1.5
    assert not subject.check(torch.zeros(64, 64))["passed"]


def grouped_norm_of_convolution(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    values = functional.hardswish(functional.conv3d(x, w))
    return functional.group_norm(values, 4).mean(dim=(2, 3, 4))


@pytest.mark.parametrize("seed", [0, 1, 117, *range(2, 12)])
def test_tf32_may_truncate_or_round_where_few_elements_show_it(seed: int) -> None:
    torch.manual_seed(seed)
    convolution = torch.nn.Conv3d(3, 16, 4, bias=False)
    w = convolution.weight.detach()
    torch.manual_seed(1000 + seed)
    x = torch.rand(5, 3, 7, 9, 9)
    subject = Subject(grouped_norm_of_convolution, x, w, precision="tf32")
    for ways in itertools.product((truncate, round_to_nearest), repeat=2):
        with Tf32Products(*ways):
            assert subject.check(grouped_norm_of_convolution(x, w))["passed"]
    coarse = subject.check(subject.with_inputs_in(torch.bfloat16))
    assert not coarse["passed"] or coarse["max_error"] > 0.7
    assert not subject.check(grouped_norm_of_convolution(x * 0.9, w))["passed"]


def test_one_factor_of_a_tf32_product_may_be_truncated_and_the_other_rounded() -> None:
    torch.manual_seed(70)
    linear = torch.nn.Linear(129, 101)
    torch.manual_seed(1070)
    x, y = torch.rand(67, 129), torch.rand(67, 101)

    def normed(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        n = functional.layer_norm(functional.linear(x, w, bias), (101,))
        return (n + y) * y

    w, bias = linear.weight.detach(), linear.bias.detach()
    subject = Subject(normed, x, w, bias, y, precision="tf32")
    with Tf32Products(round_to_nearest, truncate):
        honest = subject.check(normed(x, w, bias, y))
    assert honest["passed"]
    wrong = normed(x, w, bias, y)
    wrong[3, 5] *= 1.2
    assert not subject.check(wrong)["passed"]
    assert not subject.check(subject.with_inputs_in(torch.bfloat16))["passed"]


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", [0, 1, 11, 18, 19])
def test_a_row_of_which_a_clamp_leaves_one_element_may_have_the_errors_of_tf32(seed: int) -> None:
    torch.manual_seed(seed)
    sums = torch.randn(4096, 256) * 1e-2 + torch.linspace(-0.045, 0.3, 4096)[:, None]

    def clamped(error: float) -> torch.Tensor:
        return (sums + error * torch.randn(sums.shape).clamp(-2, 2)).clamp(0, 0.25)

    exact = sums.double().clamp(0, 0.25)
    tolerance = measure_tolerance(exact, clamped(1e-4), "float32", 576, TF32_EPS)
    assert compare(clamped(1e-4), exact, tolerance)["passed"]
    assert not compare(clamped(1e-3), exact, tolerance)["passed"]
    wrong = exact.float()
    wrong[-1] = 0
    assert not compare(wrong, exact, tolerance)["passed"]


def test_tolerances_are_on_the_device_of_the_reference() -> None:
    exact = torch.zeros(3, 5, dtype=torch.int64, device="meta")
    tolerance = measure_tolerance(exact, None, "int64", 1, 0.0)
    assert {value.device for value in vars(tolerance).values() if isinstance(value, torch.Tensor)} == {exact.device}


def test_the_tf32_policy_is_about_products_alone() -> None:
    subject = Subject(torch.tanh, normal(64, 512), precision="tf32")
    assert subject.check(subject.eager)["passed"]
    assert not subject.check(truncate(subject.eager))["passed"]


def test_tf32_adds_up_over_products_in_a_row() -> None:
    weights = [normal(256, 256, seed=n) / 16 for n in range(4)]

    def layers(x: torch.Tensor, *ws: torch.Tensor) -> torch.Tensor:
        for w in ws:
            x = torch.relu(x @ w)
        return x

    subject = Subject(layers, normal(256, 256), *weights, precision="tf32")
    x, *ws = subject.inputs
    for w in ws:
        x = torch.relu(truncate(x) @ truncate(w))
    assert subject.check(x)["passed"]
    assert not subject.check(subject.with_inputs_in(torch.bfloat16))["passed"]
    assert not subject.check(subject.exact * 1.05)["passed"]


def test_convolutions_pass_in_float32_and_not_in_tf32() -> None:
    x, w = normal(2, 48, 9, 9, 9), normal(48, 48, 3, 3, 3, seed=1) / 18
    subject = Subject(functional.conv_transpose3d, x, w, precision="fp32")
    assert subject.check(functional.conv_transpose3d(x, w))["passed"]
    assert not subject.check(functional.conv_transpose3d(truncate(x), truncate(w)))["passed"]


def test_one_wrong_row_of_a_million_fails() -> None:
    subject = Subject(lambda x: x * 2, normal(1 << 20, 2), precision="fp32")
    got = subject.eager.clone()
    assert subject.check(got)["passed"]
    got[77_777] = got[77_778]
    found = subject.check(got)
    assert not found["passed"] and found["bad_elements"] == 2


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_wrong_element_fails_in_16_bits(precision: Precision) -> None:
    for function in (
        lambda x: torch.softmax(x, -1),
        lambda x: functional.gelu(x, approximate="tanh"),
        lambda x: functional.layer_norm(x, (512,)),
    ):
        subject = Subject(function, normal(64, 512), precision=precision)
        got = subject.eager.clone()
        assert subject.check(got)["passed"]
        got[5, 7] += got.float().square().mean().sqrt()
        found = subject.check(got)
        assert not found["passed"] and found["worst_index"] == (5, 7) and found["bad_elements"] == 1


# ---- honest kernels --------------------------------------------------------------------------------------------------


def online_softmax(x: torch.Tensor) -> torch.Tensor:
    """In blocks of 32 columns, with a running maximum and a running sum."""
    top, total = torch.full((len(x), 1), -torch.inf), torch.zeros(len(x), 1)
    for part in x.float().split(32, 1):
        higher = torch.maximum(top, part.amax(1, keepdim=True))
        total = total * torch.exp(top - higher) + torch.exp(part - higher).sum(1, keepdim=True)
        top = higher
    return torch.exp(x.float() - top) / total


def welford(x: torch.Tensor) -> torch.Tensor:
    """Layer norm with Welford's serial mean and variance."""
    mean, squares = torch.zeros(len(x)), torch.zeros(len(x))
    for n, value in enumerate(x.float().T):
        before = value - mean
        mean = mean + before / (n + 1)
        squares = squares + before * (value - mean)
    return (x.float() - mean[:, None]) * torch.rsqrt(squares / x.shape[1] + 1e-5)[:, None]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    ("function", "kernel", "scale"),
    [
        (lambda x: torch.softmax(x, -1), online_softmax, 8.0),
        (lambda x: functional.layer_norm(x, (512,)), welford, 1.0),
        (lambda x: x.sum(-1), lambda x: sum(x.float().split(1, 1))[:, 0], 1.0),
        (lambda x: x.sum(-1), lambda x: x.float().reshape(64, 8, 64).sum(2).sum(1), 1.0),
    ],
    ids=["online softmax", "welford", "serial sum", "split sum"],
)
def test_other_algorithms_pass(function: Function, kernel: Function, scale: float, precision: Precision) -> None:
    subject = Subject(function, scale * normal(64, 512), precision=precision)
    found = subject.check(kernel(subject.inputs[0]))
    assert found["passed"] and found["max_error"] < 0.7


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("axis", [0, 1])
def test_products_of_scaled_rows_or_columns_pass_and_zeros_in_the_small_ones_do_not(
    precision: Precision, axis: int
) -> None:
    spread = torch.logspace(-8, 8, 64)
    a, b = normal(64, 256), normal(256, 64, seed=1)
    a, b = (a * spread[:, None], b) if axis == 0 else (a, b * spread)
    subject = Subject(torch.matmul, a, b, precision=precision)
    first, second = subject.inputs
    halves = first[:, :128].float() @ second[:128].float() + first[:, 128:].float() @ second[128:].float()
    assert subject.check(subject.eager)["passed"] and subject.check(halves)["passed"]
    wrong = subject.exact.clone()
    wrong.select(axis, 0).zero_()
    assert subject.check(wrong)["bad_elements"] > 32


@pytest.mark.parametrize("seed", range(8))
def test_three_tf32_products_pass_in_rows_of_which_a_relu_leaves_little(seed: int) -> None:
    x, w, bias = normal(2, 16, 16, seed=seed), normal(16, 32, 3, seed=seed) / 7, normal(32, seed=seed) / 4 - 0.3

    def transposed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return functional.conv_transpose1d(x, w, stride=2)

    subject = Subject(lambda x, w: torch.relu(transposed(x, w) + bias[:, None]), x, w, precision="fp32")
    (high, lower), (first, second) = ((truncate(value), truncate(value - truncate(value))) for value in (x, w))
    three = transposed(high, first) + transposed(high, second) + transposed(lower, first)
    found = subject.check(torch.relu(three + bias[:, None]))
    assert found["passed"] and found["max_error"] < 0.7
    assert not subject.check(torch.relu(transposed(high, first) + bias[:, None]))["passed"]


@pytest.mark.parametrize("axis", [0, 1])
def test_zeros_in_small_rows_that_a_relu_left_do_not_pass(axis: int) -> None:
    spread = torch.logspace(-8, 0, 64)
    x = normal(64, 64) * (spread[:, None] if axis == 0 else spread)
    subject = Subject(torch.relu, x, precision="fp32")
    wrong = subject.exact.clone()
    kept = wrong.select(axis, 0)
    nonzero = int((kept != 0).sum())
    kept.zero_()
    assert subject.check(wrong)["bad_elements"] == nonzero


def test_cancellation_is_allowed_what_torch_has_there() -> None:
    subject = Subject(lambda x, w, b: x * w + b, normal(64, 512), normal(512), normal(512, seed=1), precision="bf16")
    x, w, b = subject.inputs
    assert subject.check(w * x + b)["passed"] and subject.check(x.float() * w + b)["passed"]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", problems.shipped())
def test_torch_eager_passes_on_every_shipped_problem_at_every_precision(name: str) -> None:
    cases = [case for case in inspection.inspect(problems.load(name)).cases if case.name in ("shrunk", "odd")]
    for precision, case in itertools.product(DTYPES, cases):
        problem = problems.load(name, precision=precision)
        module = loading.load_module(problem, case.settings)
        model, inputs = loading.build_model(module, "Model", problem), loading.make_inputs(module, problem, 3)
        found = run_reference(model, inputs, precision, seed=3)
        assert found.eager is not None
        for got, exact in zip(found.eager, found.exact, strict=True):
            tolerance = measure_tolerance(exact, got, str(got.dtype).removeprefix("torch."), found.terms, found.eps)
            checked = compare(got, exact, tolerance)
            assert checked["passed"] and checked["max_error"] < 0.5, (precision, case.name, checked)
            assert checked["max_error"] == pytest.approx(tolerance.eager_error)
            assert checked["max_absolute"] == tolerance.eager_absolute
            assert not compare(torch.zeros_like(got), exact, tolerance)["passed"], (precision, case.name)


def ill_conditioned(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """An instance norm of small differences from a large bias."""
    return functional.instance_norm((x @ w * 0.0004 + 1.0).view(1, 8, -1))


def test_another_order_of_summation_passes_where_rounding_decides_the_result() -> None:
    x, w = normal(8 * 64, 96).abs(), normal(96, 1, seed=1)
    subject = Subject(ill_conditioned, x, w, precision="fp32")
    assert 64 * EPS32 < float(subject.tolerance.uniform) / 10 / float(subject.exact.abs().max()) < 2**-11
    reordered = Subject(ill_conditioned, x.flip(1), w.flip(0), precision="fp32")
    assert subject.check(reordered.eager)["passed"] and subject.check(subject.exact)["passed"]
    coarse = [ill_conditioned(truncate(x), truncate(w)), ill_conditioned(x.bfloat16().float(), w.bfloat16().float())]
    shifted, scaled = subject.exact + 0.02, subject.exact * 1.01
    for wrong in (*coarse, shifted, scaled, torch.zeros_like(subject.exact)):
        assert not subject.check(wrong)["passed"]


@pytest.mark.parametrize(("step", "precision"), [(0.125, "fp32"), (1e-3, "fp16"), (1e-3, "tf32")])
def test_a_jump_and_coarse_arithmetic_do_not_make_a_problem_ill_conditioned(step: float, precision: Precision) -> None:
    subject = Subject(lambda x, w: (x @ w / step).round() * step, normal(64, 256), normal(256, 64), precision=precision)
    assert subject.tolerance.uniform == 0


# ---- what never passes -----------------------------------------------------------------------------------------------


@given(st.integers(0, 20), st.sampled_from(["float32", "float16", "bfloat16"]), st.floats(0.0, 1e6))
def test_zeros_never_pass_however_wrong_torch_is(bits: int, dtype: str, wrong: float) -> None:
    exact = normal(8, 64).double()
    tolerance = measure_tolerance(exact, (exact + wrong * normal(8, 64, seed=1)).float(), dtype, 1 << bits, EPS32)
    assert not compare(torch.zeros(8, 64), exact, tolerance)["passed"]


def test_torch_that_overflows_or_cannot_run_is_no_yardstick() -> None:
    exact = torch.linspace(1, 2, 64, dtype=torch.float64).reshape(2, 32)
    broken = measure_tolerance(exact, torch.full((2, 32), torch.inf).half(), "float16", 1, EPS32)
    unknown = measure_tolerance(exact, None, "float16", 1, EPS32)
    assert unknown.eager_error is None and broken.eager_error == 0.0
    for tolerance in (broken, unknown):
        assert compare(exact.half(), exact, tolerance)["passed"]
        assert not compare(exact.half() * 1.02, exact, tolerance)["passed"]


def test_a_wrong_tail_and_constants_fail() -> None:
    subject = Subject(lambda x: torch.softmax(x, -1), normal(31, 63), precision="fp32")
    tail = subject.eager.clone()
    tail[-1, -1] = tail[-1, -2]
    found = subject.check(tail)
    assert not found["passed"] and found["worst_index"] == (30, 62)
    assert not subject.check(torch.full((31, 63), 1 / 63))["passed"]
    assert not subject.check(torch.zeros(31, 63))["passed"]


def test_zeros_do_not_pass_for_tiny_outputs() -> None:
    tiny = torch.full((8, 8), 1e-5, dtype=torch.float64)
    tolerance = measure_tolerance(tiny, None, "float32", 1, EPS32)
    assert not compare(torch.zeros(8, 8), tiny, tolerance)["passed"]
    assert compare(tiny.float(), tiny, tolerance)["passed"]


def test_another_shape_is_never_broadcast_into_passing() -> None:
    ones = torch.ones(4, 4, dtype=torch.float64)
    found = compare(torch.ones(1, 1), ones, measure_tolerance(ones, None, "float32", 1, EPS32))
    assert not found["passed"] and "shape [1, 1], expected [4, 4]" in found["message"]


@pytest.mark.parametrize(
    ("got", "expected", "kind"),
    [
        ([0, 0, 0], [1e-9, 0, 0], "zero"),
        ([2, 2, 2], [2, 2, 2.0001], "constant"),
        ([2, 2], [2, 2], ""),
        ([1, 2], [1, 2], ""),
        ([3], [3.1], ""),
    ],
)
def test_trivial_outputs_are_named_unless_the_reference_is_one(
    got: list[float], expected: list[float], kind: str
) -> None:
    found = compare(torch.tensor(got, dtype=torch.float32), torch.tensor(expected, dtype=torch.float64), same(expected))
    assert found["trivial"] == kind


def test_nan_and_infinity_match_only_themselves() -> None:
    special = [torch.nan, torch.inf, -torch.inf, 1.0]
    exact = torch.tensor(special, dtype=torch.float64)
    assert compare(exact.float(), exact, same(special))["passed"]
    for index in range(4):
        for other in special:
            wrong = exact.float()
            wrong[index] = other if not (other == special[index] or index == 0 == special.index(other)) else 0.0
            found = compare(wrong, exact, same(special))
            assert not found["passed"] and found["worst_index"] == (index,) and found["bad_elements"] == 1


@given(st.integers(0, 2**31 - 1))
def test_integers_must_be_equal(value: int) -> None:
    exact = torch.tensor([value, 3])
    tolerance = measure_tolerance(exact, exact, "int64", 1, EPS32)
    assert compare(exact.clone(), exact, tolerance)["passed"] and not compare(exact + 1, exact, tolerance)["passed"]


def test_an_output_in_blocks_is_compared_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(lambda x: torch.softmax(x, -1), normal(40, 300), precision="bf16")
    got = subject.eager.clone()
    got[33, 250] *= 1.5
    whole = subject.check(got)
    monkeypatch.setattr("workbench.executors.workers.tolerance.BLOCK", 128)
    parts = Subject(subject.function, *subject.inputs, precision="bf16").check(got)
    assert parts == whole and whole["worst_index"] == (33, 250) and whole["bad_elements"] == 1


def test_a_worker_need_not_load_more_of_torch_to_check_an_output() -> None:
    """A worker is forked for each job, so it would load dynamo or sympy, for seconds, each time."""
    code = """
import sys, torch
from workbench.executors.workers import correctness, tolerance, trusted
from workbench.problems.reference import run_reference
before = set(sys.modules)
found = run_reference(torch.nn.Linear(64, 64), [torch.randn(64, 64)], "tf32", seed=1)
allowed = tolerance.measure_tolerance(found.exact[0], found.eager[0], "float32", found.terms, found.eps)
assert correctness.compare(found.eager[0], found.exact[0], allowed)["passed"] and found.terms == 64
assert len(set(sys.modules) - before) < 20, set(sys.modules) - before
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- candidates on the emulator --------------------------------------------------------------------------------------

PROBLEM = """
import torch
SIZE = 64
class Model(torch.nn.Module):
    def forward(self, {arguments}):
        return {expression}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, {arguments}):
        {body}
"""
HEAVY = {"arguments": "x", "inputs": "torch.exp(3 * torch.randn(SIZE, 512))", "expression": "x * 2"}
SOFTMAX = {
    "arguments": "a, b",
    "inputs": "torch.randn(SIZE, 64), torch.randn(64, SIZE)",
    "expression": "torch.softmax(a @ b, -1)",
}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("problem", "precision", "body", "passes"),
    [
        (SOFTMAX, "bf16", "return torch.softmax((b.T @ a.T).T, -1).contiguous()", True),
        (SOFTMAX, "bf16", "return torch.zeros(len(a), b.shape[1], dtype=a.dtype)", False),
        (HEAVY, "fp32", "return x + x", True),
        (HEAVY, "fp32", "return torch.where(2 * x > 4.0, 2 * x, 0.0)", False),
        (HEAVY, "fp32", "return (x.half() * 2).float()", False),
    ],
)
def test_a_verdict_states_both_errors(
    problem: dict[str, str], precision: Precision, body: str, passes: bool, tmp_path: Path
) -> None:
    file = tmp_path / "problem.py"
    file.write_text(PROBLEM.format(**problem))
    subject = problems.load(str(file), precision=precision)
    candidate = Candidate(source=CANDIDATE.format(arguments=problem["arguments"], body=body))
    job = Job(problem=subject, facts=inspection.inspect(subject), candidate=candidate, trials=1, full_sample=False)
    outcome = EmulatorExecutor().run(job)
    assert len(outcome.checks) >= 2 and all(check.passed == passes for check in outcome.checks), outcome.failure
    for check in outcome.checks:
        assert check.eager_error is not None and check.eager_error < 0.5
        assert check.eager_absolute is not None and (passes or check.max_absolute > 10 * check.eager_absolute)
    verdict = judge(job, outcome, None)
    version = Version(
        number=1,
        parent=None,
        proposal=Proposal(candidate=candidate, title="a candidate", reason="", by=HUMAN),
        source_hash="",
        path="",
        trials=(Trial(outcome=outcome, verdict=verdict, at=""),),
    )
    assert verdict.correct == passes
    assert re.search(r"; largest error \de[+-]\d+, torch eager's \de[+-]\d+", tables.verdict(version).text)


def test_a_few_elements_of_a_row_that_an_activation_made_small_may_have_the_error_of_its_sums() -> None:
    subject = Subject(lambda x: functional.leaky_relu(x, 1e-4), torch.randn(64, 512), precision="fp32")
    rounded = subject.exact.float()
    small = rounded.clone()
    subject.exact[5] = -subject.exact[5].abs() * 1e-4  # a row below 0, of which one element is left as it was
    subject.exact[5, 7] = 1e-4
    subject.tolerance = measure_tolerance(subject.exact, None, "float32", 1, EPS32)
    small[5] = subject.exact[5].float()
    for count, error, passes in ((1, 1e-7, True), (3, 1e-7, True), (300, 1e-7, False), (1, 1e-4, False)):
        wrong = small.clone()
        wrong[5, 7 : 7 + count] += error
        assert subject.check(wrong)["passed"] is passes, (count, error)


@pytest.mark.parametrize("seed", range(20))
def test_the_tolerance_of_a_small_case_is_not_less_for_that_of_a_larger_one(seed: int) -> None:
    torch.manual_seed(seed)
    small, large = (torch.randn(rows, 3, dtype=torch.float64) for rows in (1 + seed % 3, 40))
    small *= 10.0 ** -(seed % 4)
    near = (small * (1 + 2e-3 * torch.rand_like(small))).float()  # TF32's errors, which are larger than those of sums
    alone = measure_tolerance(small, near, "float32", 4, 2.0**-10)
    other = measure_tolerance(large, (large + 1e-6).float(), "float32", 4, 2.0**-23)
    everywhere = (slice(None), slice(None))
    before, after = (one.allowed(as_matrix(small), everywhere) for one in (alone, alone.at_least(other)))
    assert bool((after >= before * 0.999).all())
