"""Programs that a problem's tensor sizes and dtypes, or the device's limits, do not allow are rejected.

The message is one line, and no other program is rejected.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from running import launched

from workbench import problems
from workbench.codegen import compile_program
from workbench.codegen.rows.lowering import axis_of
from workbench.emulator.execution.launch import EmulationFault
from workbench.errors import ProgramError
from workbench.kernels.rows.host import column_sizes, row_sizes, segment_sizes
from workbench.language import Binding, Call, check, parse
from workbench.language.expressions import axes
from workbench.language.ir import Operand
from workbench.language.operations.gemm.checks import shared_bytes
from workbench.problems.inspection import inspect
from workbench.proposers.binding import binding_of, candidate_of
from workbench.proposers.recognition import recognise
from workbench.records import Facts, Problem

INIT = "def __init__(self):\n    super().__init__()\n"
BENCH = Path(__file__).parents[1] / "bench" / "problems"
H = ".arch(sm_90a)"


def bound(**tensors: Operand) -> Binding:
    return Binding(init_source=INIT, forward_arguments=tuple(tensors), tensors=tuple(tensors.items()))


def said(text: str, binding: Binding) -> str:
    """Return the reason for a program's rejection, or an empty string."""
    try:
        compile_program(text, binding)
    except ProgramError as error:
        assert "\n" not in str(error)
        return str(error)
    return ""


def float32(*shape: int) -> Operand:
    return Operand(shape=shape, dtype="float32")


ROWS = bound(x=float32(16, 8192), y=float32(16, 8192), target=Operand(shape=(16,), dtype="int64"))
DEEP = bound(x=float32(128, 4096, 4095), y=float32(128, 4096, 4095))


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "softmax(x) .kept() .vector(4)",
            r"kept=: each thread would keep 8192 elements of a row in this problem, more than 256; legal: "
            r"threads_per_row\(at least 32\), or without kept$",
        ),  # a thread has a row where nothing is said
        ("crossentropy(x, target) .kept() .vector(2)", "keep 8192"),
        ("softmax(x, axis=last) .kept() .vector(4) .threads_per_row(32)", ""),
        ("softmax(x) .kept() .unroll(1)", ""),
        ("rowwise(sum(mul(x, y)), axis=last) .kept()", r"keep 512 elements .* threads_per_row\(at least 64\)"),
        (f"rowwise(sum(mul(x, y)), axis=last) {H} .kept() .threads_per_row(64) .cluster(2)", ""),
        ("softmax(abs(x)) .kept() .threads_per_row(1)", "keep 8192"),
        ("h = softmax(x) |> softmax(h) .kept() .vector(4)", "keep 8192"),
        ("h = reduce(x, op=sum) |> softmax(h) .kept() .vector(4)", ""),
        ("h = elementwise(relu(x)) |> layernorm(h, affine=0) .kept() .threads_per_row(1)", "keep 8192"),
        ("h = rowwise(sum(x), axis=first) |> softmax(h, axis=first) .kept()", ""),
    ],
)
def test_rows_that_a_threads_registers_do_not_hold(text: str, why: str) -> None:
    assert re.search(why, said(text, ROWS)) if why else said(text, ROWS) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "reduce(x, op=max, axis=1) .kept()",
            "keep 4096 elements of a row in this problem, more than 256; legal: split(at least 16), or without kept",
        ),
        ("reduce(x, op=max, axis=1) .kept() .split(16)", ""),
        ("reduce(x, op=max, axis=1) .kept() .split(16) .vector(4)", ""),
        ("rowwise(max(mul(x, y)), axis=1) .kept() .split(16)", "split(at least 32)"),
        ("reduce(x, op=max, axis=first) .kept()", ""),
        (f"reduce(x, op=sum, axis=1) {H} .through(shared)", ""),
        (
            f"reduce(x, op=sum, axis=1) {H} .through(shared) .threads(512) .unroll(8)",
            "two stages of 4095 columns need 262400 bytes of shared memory; legal: threads * unroll at most 3612",
        ),
        (f"rowwise(sum(mul(x, y)), axis=1) {H} .through(shared) .unroll(8)", "threads * unroll at most 1804"),
    ],
)
def test_columns_that_registers_or_shared_memory_do_not_hold(text: str, why: str) -> None:
    assert why in said(text, DEEP) and bool(why) == bool(said(text, DEEP))


def test_vectors_that_the_rows_do_not_allow_are_counted_as_single_elements() -> None:
    odd = bound(x=float32(128, 4096, 4096))
    assert said("reduce(x, op=max, axis=1) .kept() .split(16) .vector(2)", odd).count("keep 512") == 1


CONV = bound(x=float32(2, 3, 224, 224), w=float32(96, 3, 11, 11), x2=Operand(shape=(2, 3, 224, 224), dtype="float16"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "conv(x, w, stride=4, padding=2) .rows(16) .filters(4)",
            "rows=16: 16 rows of 4 filters of 11x11 are 7744 multiply-adds of a thread, all written out, "
            "more than 2560; legal: rows * filters at most 21",
        ),
        ("conv(x, w, stride=4, padding=2) .rows(16)", ""),
        ("conv(x, w) .rows(1) .filters(8)", ""),
        ("conv(x, w)", ""),
        (
            f"conv(x, w) {H} .mma(bf16) .schedule(pingpong)",
            "mma=bf16: it multiplies bfloat16, and x is float32 in this problem; legal: tf32, tf32x3",
        ),
        (f"conv(x, w) {H} .mma(tf32) .schedule(pingpong)", ""),
        ("conv(x, w) .mma(f16)", "multiplies float16"),
    ],
)
def test_convolutions_that_are_written_out_or_read_another_type(text: str, why: str) -> None:
    assert why in said(text, CONV) and bool(why) == bool(said(text, CONV))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"gemm(x, y) {H} .mma(bf16) .schedule(cooperative)", "it multiplies bfloat16, and x is float32"),
        ("gemm(x, y) .mma(f16) .stages(3)", "multiplies float16"),
        ("gemm(x, y) .mma(bf16)", ""),
        (f"gemm(x, y) {H} .mma(tf32x3) .schedule(cooperative)", ""),
    ],
)
def test_products_that_read_another_type(text: str, why: str) -> None:
    binding = bound(x=float32(64, 64), y=float32(64, 64))
    assert why in said(text, binding) and bool(why) == bool(said(text, binding))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            f"attention(q, k, v) {H} .mma(tf32)",
            "schedule=none: the head dimension is 1024 in this problem, more than 256; legal: stages",
        ),
        (f"attention(q, k, v) {H} .mma(tf32) .schedule(stages)", ""),
        (f"attention(q, k, v) {H} .mma(bf16) .schedule(stages)", "multiplies bfloat16"),
        ("attention(q, k, v)", "head dimension"),
    ],
)
def test_heads_that_are_too_wide(text: str, why: str) -> None:
    binding = bound(**{name: float32(2, 2, 64, 1024) for name in "qkv"})
    assert why in said(text, binding) and bool(why) == bool(said(text, binding))


@pytest.mark.parametrize(
    "text",
    [
        "softmax(x) .kept() .vector(4)",
        "conv(x, w) .rows(16) .filters(16)",
        "attention(q, k, v)",
        f"conv(x, w) {H} .mma(bf16) .schedule(pingpong)",
    ],
)
def test_of_tensors_that_are_not_known_nothing_is_said(text: str) -> None:
    assert said(text, Binding(init_source=INIT, forward_arguments=("x", "w", "q", "k", "v"))) == ""


# ---- what a problem says of its tensors
# --------------------------------------------------------------------------------


@cache
def seen(name: str) -> tuple[Problem, Facts]:
    problem = problems.load(str(next(BENCH.glob(f"{name}*"))) if name.isdigit() else name)
    return problem, inspect(problem)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "program", "why"),
    [
        ("layer_norm", "layernorm(x) .kept() .vector(8)", "keep 8192 elements"),
        ("layer_norm", "layernorm(x) .kept() .vector(8) .threads_per_row(32)", ""),
        ("50", "conv(x, w, stride=4, padding=2) .filters(8) .rows(16) >> bias()", "15488 multiply-adds"),
    ],
)
def test_a_problem_at_full_size_refuses_what_the_emulators_sizes_would_not(name: str, program: str, why: str) -> None:
    try:
        candidate_of(*seen(name), "sm_90a", program)
    except ProgramError as error:
        assert why and why in str(error)
    else:
        assert not why


def test_parameters_and_transposed_operands_are_known_at_full_size() -> None:
    problem, facts = seen("50")
    assert dict(binding_of(problem, facts, recognise(facts)).tensors)["w"] == float32(96, 3, 11, 11)
    problem, facts = seen("matmul_transposed")
    full = {spec.name: spec.shape for case in facts.cases if case.name == "full" for spec in case.inputs}
    known = dict(binding_of(problem, facts, recognise(facts)).tensors)
    assert known["a"].shape[::-1] in full.values() and known["a"].shape[-1] == known["b"].shape[-2]


# ---- sizes of an axis, by the text that is emitted
# ---------------------------------------------------------------------

AXES = st.one_of(
    st.sampled_from(["last", "first", "middle", "all"]),
    st.integers(0, 4),
    st.integers(1, 4).map(lambda n: Call(name="last", positional=(n,))),
    st.integers(0, 4).map(lambda n: Call(name="but", positional=(n,))),
    st.tuples(st.integers(0, 4), st.integers(0, 4)).map(
        lambda ends: Call(name="over", positional=(min(ends), max(ends)))
    ),
)


@given(AXES, st.lists(st.integers(0, 7), min_size=5, max_size=6))
def test_sizes_are_those_of_the_kernels(axis: object, shape: list[int]) -> None:
    assert axes.is_axis(axis)
    kind, first, last, _ = axis_of(axis)
    cfg = SimpleNamespace(axis=kind, first_axis=first, last_axis=last)
    if kind == "but":
        assert axes.sizes(axis, tuple(shape)) == segment_sizes(cfg, torch.Size(shape))[:2]
    else:
        sizes = column_sizes if kind == "strided" else row_sizes
        assert axes.sizes(axis, tuple(shape)) == sizes(cfg, torch.Size(shape))[-2:]


# ---- products without a schedule
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            f"gemm(a, b) {H} .mma(tf32) .tile(256, 256, 32)",
            "tile=256, 256, 32: each thread would hold 512 accumulators, more than its registers take; "
            "legal: m * n at most 24576",
        ),
        (f"gemm(a, b) {H} .mma(bf16) .tile(128, 256, 128) >> bias(c) >> gelu_tanh()", "256 accumulators"),
        (f"gemm(a, b) {H} .mma(tf32) .tile(256, 96, 128)", "k at most 64"),
        (f"gemm(a, b) {H} .mma(tf32) .tile(256, 96, 64)", ""),
        (f"gemm(a, b) {H} .mma(bf16) .tile(128, 128, 128)", ""),
        (f"gemm(a, b) {H} .mma(bf16) .tile(256, 128, 32) .stages(3)", "256 accumulators"),
        (f"gemm(a, b) {H} .thread_tile(8, 8) .tile(256, 32, 128)", "8192 multiply-adds of a thread, all written out"),
        (f"gemm(a, b) {H} .thread_tile(8, 4) .tile(256, 32, 128)", ""),
        (
            f"gemm(a, b) {H} .thread_tile(16, 16) .tile(256, 256, 16)",
            "thread_tile=16, 16: each thread would hold 256 accumulators",
        ),
        ("gemm(a, b) .mma(tf32) .tile(128, 192, 128)", "bytes of shared memory"),
        ("gemm(a, b) .thread_tile(4, 4) .tile(128, 128, 128)", ""),
        (
            f"reduce(x, op=sum, axis=middle) {H} .threads(1024) .through(shared)",
            "a CTA would have 1056 threads, more than 1024; legal: 32, 64, 128, 256, 512",
        ),
        (f"reduce(x, op=sum, axis=middle) {H} .threads(1024) .through(shared) .unroll(8)", "1056 threads"),
        (f"reduce(x, op=sum, axis=middle) {H} .threads(512) .through(shared)", ""),
    ],
)
def test_what_registers_and_compilers_do_not_take(text: str, why: str) -> None:
    found = " | ".join(map(str, check(parse(text))))
    assert why in found and bool(why) == bool(found)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "settings",
    [
        ".mma(tf32) .tile(64, 32, 32)",
        ".mma(bf16) .tile(32, 64, 16)",
        ".thread_tile(4, 4) .tile(64, 32, 16)",
        ".mma(bf16) .tile(64, 32, 32) .stages(3)",
    ],
)
def test_shared_memory_is_what_a_launch_takes(settings: str) -> None:
    stage = parse(f"gemm(a, b) {H} {settings}").stages[0]
    kind = torch.bfloat16 if "stages" in settings else torch.float32
    a, b = torch.randn(9, 20).to(kind), torch.randn(20, 11).to(kind)
    _, emulation = launched(f"gemm(a, b) {H} {settings}", (a, b), ("a", "b"))
    (launch,) = emulation.launches
    tile = next(call.positional for call in stage.settings if call.name == "tile")
    m, n, k = (int(str(size)) for size in tile)
    assert launch.dynamic_shared_bytes == shared_bytes(stage, (m, n, k))


def test_the_emulator_refuses_the_launches_that_a_gpu_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.language import checks
    from workbench.language.operations import bulk_copy

    monkeypatch.setattr(bulk_copy, "MOST_THREADS", 2048)
    monkeypatch.setattr(checks, "check_stage", checks._check_stage)  # which keeps no results
    with pytest.raises(EmulationFault, match="1056 threads in a CTA, but the device allows 1 to 1024"):
        launched(f"reduce(x, op=sum, axis=middle) {H} .threads(1024) .through(shared)", (torch.randn(1, 4, 8),), ("x",))
