"""muCUTLASS: parse and format, checks, and every emitted kernel against torch on the emulator."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from running import INIT, run

from workbench.codegen import compile_program
from workbench.errors import ProgramError
from workbench.language import Binding, Call, Program, Stage, check, format_program, parse

NAMES = st.sampled_from(["x", "y", "relu", "threads", "tile", "a_b"])
VALUES = st.recursive(
    NAMES | st.integers(-9, 999),
    lambda inner: st.builds(lambda n, p: Call(name=n, positional=tuple(p)), NAMES, st.lists(inner, max_size=2)),
    max_leaves=4,
)
CALLS = st.builds(
    lambda n, p, k: Call(name=n, positional=tuple(p), named=tuple(k)),
    NAMES,
    st.lists(VALUES, max_size=2),
    st.lists(st.tuples(NAMES, VALUES), max_size=2),
)
STAGES = st.builds(
    lambda o, s, e: Stage(operation=o, settings=tuple(s), epilogues=tuple(e)),
    CALLS,
    st.lists(CALLS, max_size=3),
    st.lists(CALLS, max_size=2),
)
PROGRAMS = st.builds(lambda s: Program(stages=tuple(s)), st.lists(STAGES, min_size=1, max_size=2))


@given(PROGRAMS)
def test_parse_of_format_is_the_program(program: Program) -> None:
    assert parse(format_program(program)) == program


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("elementwise(gelu_tahn(x))", "function"),
        ("softmax(x) .threads_per_row(7)", "threads_per_row"),
        ("elementwise(relu(x)) .vector(3)", "vector"),
        ("sofmax(x)", "operation"),
        ("gemm(a, b) .tile(64, 64, 16) .thread_tile(1, 1)", "thread_tile"),
        ("gemm(a, b) .tile(64, 64, 32) .mma(int4)", "mma"),
        ("softmax(x) >> relu()", "epilogue"),
        ("softmax(x) .arch(sm_50)", "arch"),
        ("reduce(x, op=median, axis=last)", "op"),
        ("elementwise(add(x))", "add"),
    ],
)
def test_rejections_name_field_and_legal_values(text: str, field: str) -> None:
    found = check(parse(text))
    assert [item.field for item in found] == [field]
    assert found[0].reason and found[0].legal
    with pytest.raises(ProgramError, match=field):
        compile_program(text, Binding(init_source=INIT, forward_arguments=("x",)))


def test_bad_text_says_where() -> None:
    with pytest.raises(ProgramError, match="line 1, column"):
        parse("softmax(x .threads(3)")


X = {
    "even": torch.randn(32, 128, generator=torch.Generator().manual_seed(1)),
    "odd": torch.randn(37, 51, generator=torch.Generator().manual_seed(2)),
}
UNARY = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "neg": torch.neg,
    "abs": torch.abs,
}


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("name", "shape", "vector"),
    [(n, s, v) for n, (s, v) in zip(itertools.cycle(UNARY), itertools.product(X, (1, 4)), strict=False)]
    + [(n, "odd", 4) for n in UNARY],
)
def test_elementwise(name: str, shape: str, vector: int) -> None:
    got = run(f"elementwise({name}(x)) .threads(128) .vector({vector})", (X[shape],), ("x",))
    torch.testing.assert_close(got, UNARY[name](X[shape]), rtol=2e-6, atol=2e-6)


def either(*quick: tuple[Any, ...], others: tuple[tuple[Any, ...], ...]) -> list[Any]:
    """Cases, of which the others take the same paths once more."""
    return [*quick, *(pytest.param(*case, marks=pytest.mark.slow) for case in others)]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("shape", "threads"),
    either(("odd", 1), ("even", 32), ("odd", 256), others=(("even", 1), ("odd", 32), ("even", 256))),
)
def test_row_kernels(shape: str, threads: int) -> None:
    x = X[shape]
    vector = 4 if threads > 1 else 1
    how = f".threads_per_row({threads}) .vector({vector})"
    torch.testing.assert_close(run(f"softmax(x) {how}", (x,), ("x",)), x.softmax(-1), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(run(f"softmax(x) {how} .passes(2)", (x,), ("x",)), x.softmax(-1), rtol=1e-5, atol=1e-7)
    for op, wanted in (("sum", x.sum(-1)), ("max", x.amax(-1)), ("mean", x.mean(-1)), ("min", x.amin(-1))):
        torch.testing.assert_close(
            run(f"reduce(x, op={op}, axis=last) {how}", (x,), ("x",)), wanted, rtol=1e-5, atol=1e-5
        )
    w, b = torch.randn(x.shape[1]), torch.randn(x.shape[1])
    got = run(f"layernorm(x, eps=1e-05) {how}", (x, w, b), ("x", "w", "b"), (("weight", "w"), ("bias", "b")))
    torch.testing.assert_close(got, F.layer_norm(x, (x.shape[1],), w, b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", [".threads(128)", ".split(8)"])
def test_middle_axis(how: str) -> None:
    x = torch.randn(2, 37, 51)
    torch.testing.assert_close(
        run(f"reduce(x, op=sum, axis=middle) {how}", (x,), ("x",)), x.sum(1), rtol=1e-5, atol=1e-5
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("shape", [(32, 32, 32), (37, 51, 67)])
@pytest.mark.parametrize("how", ["", ".tile(32, 32, 16) .thread_tile(2, 2)"])
def test_gemm(shape: tuple[int, int, int], how: str) -> None:
    m, n, k = shape
    a, b, bias = torch.randn(m, k), torch.randn(k, n), torch.randn(n)
    got = run(f"gemm(a, b) {how} >> bias() >> gelu_tanh()", (a, b, bias), ("a", "b", "bias"))
    torch.testing.assert_close(got, F.gelu(a @ b + bias, approximate="tanh"), rtol=1e-4, atol=1e-4)


DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32}
EVEN, ODD = (64, 64, 64), (37, 51, 67)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("mma", "shape"),
    either(("f16", EVEN), ("bf16", ODD), ("tf32", ODD), others=(("f16", ODD), ("bf16", EVEN), ("tf32", EVEN))),
)
def test_tensor_cores(mma: str, shape: tuple[int, int, int]) -> None:
    dtype = DTYPES[mma]
    m, n, k = shape
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    got = run(f"gemm(a, b) .tile(64, 64, 32) .mma({mma})", (a, b), ("a", "b"))
    error = (got.double() - a.double() @ b.double()).norm() / (a.double() @ b.double()).norm()
    assert float(error) < {"f16": 1e-3, "bf16": 8e-3, "tf32": 1e-3}[mma]


LONG, TURNED, HALF_TURNED = ((64, 64, 96), ""), ((36, 52, 68), "ab"), (ODD, "b")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("mma", "case"),
    either(
        ("f16", LONG),
        ("f16", HALF_TURNED),
        ("bf16", TURNED),
        ("tf32", TURNED),
        ("tf32", HALF_TURNED),
        others=(("f16", TURNED), ("bf16", LONG), ("bf16", HALF_TURNED), ("tf32", LONG)),
    ),
)
def test_multistage_tensor_cores(mma: str, case: tuple[tuple[int, int, int], str]) -> None:
    dtype, (shape, by_columns) = DTYPES[mma], case
    m, n, k = shape
    a = torch.randn(k, m).to(dtype).t() if "a" in by_columns else torch.randn(m, k).to(dtype)
    b = torch.randn(n, k).to(dtype).t() if "b" in by_columns else torch.randn(k, n).to(dtype)
    bias = torch.randn(n).to(dtype)
    got = run(
        f"gemm(a, b) .tile(64, 64, 32) .mma({mma}) .stages(3) >> bias() >> relu()", (a, b, bias), ("a", "b", "bias")
    )
    wanted = torch.relu(a.double() @ b.double() + bias.double())
    assert float((got.double() - wanted).norm() / wanted.norm()) < {"f16": 1e-3, "bf16": 8e-3, "tf32": 1e-3}[mma]


@pytest.mark.few(1)
@pytest.mark.parametrize(("shape", "threads"), either(("even", 32), ("odd", 256), others=(("odd", 32), ("even", 256))))
def test_rows_kept_in_registers(shape: str, threads: int) -> None:
    x, how = X[shape], f".threads_per_row({threads}) .vector(4) .kept()"
    w, b = torch.randn(x.shape[1]), torch.randn(x.shape[1])
    torch.testing.assert_close(run(f"softmax(x) {how}", (x,), ("x",)), x.softmax(-1), rtol=1e-5, atol=1e-7)
    got = run(f"layernorm(x, eps=1e-05) {how}", (x, w, b), ("x", "w", "b"), (("weight", "w"), ("bias", "b")))
    torch.testing.assert_close(got, F.layer_norm(x, (x.shape[1],), w, b), rtol=1e-4, atol=1e-5)


ONE, FEW, MANY = ".threads_per_row(1)", ".threads_per_row(32) .vector(4)", ".threads_per_row(256) .vector(4)"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("shape", "how"),
    either(("odd", ONE), ("even", FEW), ("odd", MANY), others=(("even", ONE), ("odd", FEW), ("even", MANY))),
)
def test_matvec(shape: str, how: str) -> None:
    x = X[shape]
    vector = torch.randn(x.shape[1])
    got = run(f"matvec(x, vector, keepdim=1) {how}", (x, vector), ("x", "vector"))
    torch.testing.assert_close(got, (x @ vector).unsqueeze(-1), rtol=1e-4, atol=1e-4)
