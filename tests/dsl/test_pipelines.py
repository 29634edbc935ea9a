"""Programs of several stages: checked boundaries, one function per stage, distinct names, results against torch."""

from __future__ import annotations

import pytest
import torch
from running import INIT, run

from workbench.codegen import compile_program
from workbench.errors import ProgramError
from workbench.language import Binding, check, configurations, format_program, parse

CHAIN = (
    "h = gemm(x, w) .tile(32, 32, 16) .thread_tile(2, 2) >> bias(c) >> relu() |> g = softmax(h) "
    ".threads_per_row(32) .vector(4) |> elementwise(mul(g, relu(h)))"
)


def test_stages_pass_boundary_tensors_on() -> None:
    x, w, c = torch.randn(37, 51), torch.randn(51, 24), torch.randn(24)
    h = torch.relu(x @ w + c)
    torch.testing.assert_close(
        run(CHAIN, (x, w, c), ("x", "w", "c")), h.softmax(-1) * torch.relu(h), rtol=1e-4, atol=1e-5
    )


def test_two_stages_of_one_kind_with_other_settings() -> None:
    text = (
        "h = softmax(x) .threads_per_row(32) |> g = softmax(h) .threads_per_row(256) .vector(4) |> reduce(g, "
        "op=max, axis=last) .threads_per_row(1)"
    )
    x = torch.randn(9, 70)
    torch.testing.assert_close(run(text, (x,), ("x",)), x.softmax(-1).softmax(-1).amax(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("softmax(x) |> softmax(h)", "must name the tensor"),
        ("h = softmax(x) |> softmax(x)", "no later stage reads it"),
        ("h = softmax(x)", "the last stage's result"),
        ("h = softmax(x) |> h = softmax(h) |> softmax(h)", "two stages write"),
    ],
)
def test_boundaries_are_checked(text: str, reason: str) -> None:
    assert any(reason in str(item) for item in check(parse(text)))


def test_format_keeps_names_of_results() -> None:
    assert format_program(parse(CHAIN)) == CHAIN


@pytest.mark.parametrize(
    "text", ["softmax(x)", "elementwise(relu(x))", "gemm(a, b) .arch(sm_90a) .mma(bf16) .schedule(pingpong) .stages(4)"]
)
def test_every_configuration_is_legal_and_different(text: str) -> None:
    found = list(
        configurations(
            parse(text).stages[0], only=("threads_per_row", "vector", "passes", "kept", "threads", "tile", "cluster")
        )
    )
    assert len(found) > 10
    assert len({str(stage) for stage in found}) == len(found)
    for stage in found[:: max(len(found) // 20, 1)]:
        again = parse(format_program(type(parse(text))(stages=(stage,))))
        assert not check(again)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "text",
    [
        "gemm(p, q) .tile(32, 32, 16) .thread_tile(2, 2) >> add(a)",
        "gemm(p, q) .arch(sm_90a) .mma(tf32) .tile(64, 64, 32) .schedule(cooperative) >> add(b)",
        "gemm(p, q) >> add(m)",
    ],
)
def test_operands_called_like_locals_of_the_emitted_text(text: str) -> None:
    p, q, other = torch.randn(48, 48), torch.randn(48, 48), torch.randn(48, 48)
    name = text[-2]
    got = run(text, (p, q, other), ("p", "q", name))
    torch.testing.assert_close(got, p @ q + other, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("softmax(class)", "needs this word"),
        ("softmax(torch)", "needs this word"),
        ("softmax(x, y)", "takes 1"),
        ("gemm(x)", "takes 2"),
        ("softmax(zz)", "no tensor is called so"),
        ("softmax(x) .vector(2) .vector(4)", "set twice"),
        ("x = softmax(y) |> softmax(x)", "an argument of forward"),
    ],
)
def test_operands_that_cannot_be_meant(text: str, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason):
        compile_program(text, Binding(init_source=INIT, forward_arguments=("x", "y")))
