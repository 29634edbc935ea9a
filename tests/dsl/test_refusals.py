"""Programs that the language rejects before code is emitted: unknown named arguments, flags and operands.

A rejection names the field, the value, the reason and the legal values.
"""

from __future__ import annotations

import pytest

from workbench.codegen import compile_program
from workbench.errors import ProgramError
from workbench.language import OPERATIONS, Binding, Call, Stage, check, parse
from workbench.language.checks import check_stage


@pytest.mark.parametrize(
    ("text", "field", "legal"),
    [
        ("softmax(x, axes=1)", "axes", "axis"),
        ("gemm(a, b, foo=3)", "foo", "metric"),
        ("gemm(a, b, bias=c) >> bias()", "bias", "metric"),
        ("elementwise(relu(x), axis=1)", "axis", "none by name"),
        ("ggemm(a, b, o, k=1) .arch(sm_90a) .mma(f16) .schedule(cooperative)", "k", "none by name"),
        ("crossentropy(x, y, reduction=max)", "reduction", "mean, sum, none"),
        ("crossentropy(x, y, weight=1)", "weight", "reduction, logits"),
        ("view(x, turn=1)", "turn", "flatten"),
        ("conv(x, w, strides=2)", "strides", "stride, padding, dilation, groups"),
        ("conv(x, w, output_padding=1)", "output_padding", "stride"),
        ("batchnorm(x, track=1) .parts(2)", "track", "running"),
        ("attention(q, k, v, masks=m)", "masks", "causal, scale, hide"),
        ("rowwise(sum(x), dim=1)", "dim", "axis, keepdim"),
        ("softmax(x, axis=0, axis=1)", "axis", "once"),
        ("layernorm(x, weight=3)", "weight", "a name"),
        ("layernorm(x, eps=small)", "eps", "a number"),
        ("gather(x, i, axis=-1)", "axis", "0 and more"),
    ],
)
def test_named_arguments(text: str, field: str, legal: str) -> None:
    found = [item for item in check(parse(text)) if item.field == field]
    assert len(found) == 1 and legal in found[0].legal and found[0].reason


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("reduce(x, keepdim=7)", "keepdim"),
        ("reduce(x, keepdim=yes)", "keepdim"),
        ("rowwise(sum(x), keepdim=2)", "keepdim"),
        ("matvec(x, v, keepdim=no)", "keepdim"),
        ("layernorm(x, affine=false)", "affine"),
        ("batchnorm(x, running=on) .parts(2)", "running"),
        ("attention(q, k, v, causal=2)", "causal"),
        ("scan(x, reverse=no)", "reverse"),
        ("pool(x, window=2, ceil=yes)", "ceil"),
        ("gather(x, i, layers=3)", "layers"),
    ],
)
def test_flags_are_0_or_1(text: str, field: str) -> None:
    assert [(item.field, item.legal) for item in check(parse(text))] == [(field, "0, 1")]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("softmax(x) .vector(4) .kept(no)", "kept"),
        ("softmax(x) .vector(4) .kept(4)", "kept"),
        ("elementwise(relu(x)) .threads(x=128)", "threads"),
        ("gemm(a, b) .layout(a=diagonal)", "layout"),
        ("gemm(a, b) .layout(c=row)", "layout"),
        ("conv(x, w) .product(2)", "product"),
        ("conv(x, w) .arch(sm_90a) .mma(tf32) .schedule(cooperative) .unfold(2)", "unfold"),
    ],
)
def test_settings_that_take_nothing_or_no_names(text: str, field: str) -> None:
    found = [item for item in check(parse(text)) if item.field == field]
    assert found and found[0].legal and found[0].reason


@pytest.mark.parametrize("layout", ["a=row, b=column", "b=col", "a=column"])
def test_the_words_for_layouts(layout: str) -> None:
    """The planner writes `column`."""
    assert not check(parse(f"gemm(a, b) .layout({layout})"))


@pytest.mark.parametrize(
    "text",
    [
        "softmax(x, 3)",
        "softmax(3)",
        "gemm(relu(a), b)",
        "gemm(a, b, 2)",
        "crossentropy(relu(x), y)",
        "elementwise(relu(x), y)",
        "elementwise(3)",
        "elementwise(add(1, 2))",
        "elementwise(leaky_relu(x, slope=0.2))",
        "elementwise(add(x, (1, 2)))",
        "rowwise(sum(x), y)",
        "matvec(relu(x), v)",
        "reduce(x, y)",
        "batchnorm(abs(x)) .parts(2)",
    ],
)
def test_operands_that_would_be_ignored(text: str) -> None:
    found = check(parse(text))
    assert found and all(item.reason and item.legal for item in found)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_refuses_an_argument_that_nobody_has(name: str) -> None:
    operation = OPERATIONS[name]
    stage = Stage(operation=Call(name=name, positional=operation.roles or ("x",), named=(("nonsense", 1),)))
    assert [item.field for item in check_stage(stage) if item.field == "nonsense"] == ["nonsense"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("softmax(x", r"expected ',', '=', '\(', '\)'"),
        ("softmax(x) ; y", r"'\|>', '>>'"),
        ("softmax(" + "exp(" * 400 + "x" + ")" * 400 + ")", "nested over 60 deep"),
        ("relu(x)", r"elementwise\(relu\(\.\.\.\)\)"),
    ],
)
def test_what_cannot_be_read_is_said_in_the_languages_own_signs(text: str, said: str) -> None:
    with pytest.raises(ProgramError, match=said) as caught:
        compile_program(
            text, Binding(init_source="def __init__(self):\n    super().__init__()\n", forward_arguments=("x",))
        )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "softmax(x) .vector(4.0)",
        "pool(x, op=max, window=size(2.0, 2))",
        "conv(x, w) .mma(tf32) .tile(64, 64, 32.0)",
        "gemm(a, b) .cluster(2.0, 1.0)",
        "attention(q, k, v, causal=1.0)",
        "scan(x, exclusive=1.0)",
        "gemm(a, b) .mma(bf16) .stages(2.0)",
        "matvec(x, vector) .rows(4.0) .threads_per_row(128)",
    ],
)
def test_a_count_with_a_point_is_refused(text: str) -> None:
    """2.0 equals 2 and passed as a legal value until the text was emitted."""
    (found,) = [item for item in check(parse(text)) if "without a point" in item.reason]
    assert ".0" in found.value and "Call(" not in str(found) and found.legal


@pytest.mark.parametrize(
    "text",
    [
        "layernorm(x, eps=1.0)",
        "elementwise(mul(x, 2.0))",
        "attention(q, k, v, scale=0.5)",
        "gemm(a, b) >> scale(2.0)",
        "layernorm(x, eps=0.5)",
    ],
)
def test_what_is_no_count_may_have_a_point(text: str) -> None:
    assert not check(parse(text))
