"""Expressions with reductions over every kind of axis, in every geometry, against torch in float64.

Also broadcasts, norms by channel and checks; all on the emulator.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from running import run

from workbench.language import check, parse

SOFTMAX = "div(exp(sub(x, max(x))), sum(exp(sub(x, max(x)))))"
NORM = "mul(sub(x, mean(x)), rsqrt(add(var(x), 1e-05)))"


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) * 2 + 1


def right(
    text: str,
    wanted: torch.Tensor,
    *tensors: torch.Tensor,
    names: tuple[str, ...] = ("x", "b", "c"),
    tolerance: float = 1e-5,
    operands: tuple[tuple[str, str], ...] = (),
) -> None:
    got = run(text, tensors, names[: len(tensors)], operands)
    assert got.shape == wanted.shape and got.dtype == (torch.int64 if wanted.dtype == torch.int64 else tensors[0].dtype)
    torch.testing.assert_close(got.double() if got.is_floating_point() else got, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "how",
    [
        ".threads_per_row(1)",
        ".threads_per_row(64) .vector(4) .unroll(2)",
        ".threads_per_row(32) .vector(4) .kept()",
        ".threads_per_row(64) .vector(4) .parts(3)",
        ".arch(sm_90a) .threads_per_row(64) .vector(4) .kept() .cluster(2)",
    ],
)
def test_rows(how: str) -> None:
    wide, x = drawn(5, 1056), drawn(3, 131)
    right(f"rowwise({SOFTMAX}) {how}", wide.double().softmax(-1), wide)
    right(f"rowwise({NORM}) {how}", F.layer_norm(x.double(), x.shape[1:]), x)
    if "kept" not in how:
        right(
            f"reduce(x, op=argmax, keepdim=1) {how} .unroll(1)"
            if "unroll" not in how
            else f"reduce(x, op=argmax, keepdim=1) {how}",
            x.argmax(-1, keepdim=True),
            x,
        )


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "how",
    [
        ".threads(32)",
        ".split(4) .vector(4) .unroll(2)",
        ".split(8) .vector(4) .kept()",
        ".split(2) .vector(4) .unroll(2) .parts(4)",
    ],
)
@pytest.mark.parametrize("shape", [(2, 21, 64), (2, 40, 13)])
def test_columns(how: str, shape: tuple[int, ...]) -> None:
    x = drawn(*shape)
    right(f"softmax(x, axis=1) {how}", x.double().softmax(1), x)
    if shape[-1] == 13:
        right(f"rowwise(var1(x), axis=1) {how}", x.double().var(1), x)
    else:
        right(f"rowwise(argmin(x), axis=1) {how}", x.argmin(1), x)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("axis", "dims"),
    [
        ("all", (0, 1, 2, 3)),
        ("last(2)", (2, 3)),
        ("2", (2,)),
        ("over(1, 2)", (1, 2)),
        ("first", (0,)),
        ("but(1)", (0, 2, 3)),
    ],
)
def test_every_axis(axis: str, dims: tuple[int, ...]) -> None:
    x = drawn(3, 5, 6, 8)
    how = (
        ".parts(2) .threads_per_row(32) .vector(4)"
        if axis in ("all", "but(1)")
        else ".parts(2) .split(2)"
        if axis == "2"
        else ""
    )
    right(f"reduce(mul(x, x), op=mean, axis={axis}, keepdim=1) {how}", (x.double() ** 2).mean(dims, keepdim=True), x)
    right(f"rowwise(sqrt(sum(abs(x))), axis={axis}) {how}", x.double().abs().sum(dims).sqrt(), x)


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("prod", lambda x: x.prod(-1)),
        ("min", lambda x: x.amin(-1)),
        ("any", lambda x: (x != 0).any(-1).double()),
        ("all", lambda x: (x > 1).all(-1).double()),
    ],
)
def test_other_reductions(op: str, wanted: object) -> None:
    x = drawn(6, 33)
    right(
        f"reduce({'gt(x, 1)' if op == 'all' else 'x'}, op={op}) .threads_per_row(32) .unroll(2)", wanted(x.double()), x
    )  # type: ignore[operator]


def test_nan_is_the_largest_and_the_least() -> None:
    x = drawn(4, 40)
    x[1, 3] = float("nan")
    for op, wanted in (("max", x.amax(-1)), ("min", x.amin(-1))):
        got = run(f"reduce(x, op={op}) .threads_per_row(32) .unroll(1)", (x,), ("x",))
        assert torch.equal(got.isnan(), wanted.isnan())


def test_a_variance_far_from_zero() -> None:
    x = drawn(2, 4000) * 1e-2 + 1000
    for how in (".threads_per_row(64) .vector(4) .unroll(2)", ".threads_per_row(64) .vector(4) .parts(4)"):
        right(f"rowwise(var(x)) {how}", x.double().var(-1, correction=0), x, tolerance=2e-5)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("b", "c"), [((8,), ()), ((5, 1, 1), (3, 1, 1, 1)), ((3, 1, 6, 1), (6, 8)), ((3, 5, 6, 1), (1, 1, 1, 8))]
)
def test_broadcasts(b: tuple[int, ...], c: tuple[int, ...]) -> None:
    x, tensors = drawn(3, 5, 6, 8), (drawn(*b), drawn(*c))
    wanted = x.double() * tensors[0].double() + tensors[1].double()
    right("elementwise(add(mul(x, spread(b)), spread(c))) .vector(4) .unroll(2)", wanted, x, *tensors)
    right(
        "reduce(add(mul(x, spread(b)), spread(c)), op=max, axis=1) .threads(32) .vector(4)", wanted.amax(1), x, *tensors
    )
    odd = x[..., :7].contiguous()
    if b[-1] == 1 and c[-1:] != (8,):
        right("elementwise(add(mul(x, spread(b)), spread(c))) .vector(4) .unroll(2)", wanted[..., :7], odd, *tensors)


def test_tensors_may_be_called_what_the_kernel_calls_its_own() -> None:
    rows, y = drawn(4, 33), drawn(4, 33)
    right(
        "reduce(mul(rows, y), op=sum) .threads_per_row(32) .unroll(1)",
        (rows.double() * y.double()).sum(-1),
        rows,
        y,
        names=("rows", "y"),
    )
    right("elementwise(sub(out, width)) .unroll(1)", rows.double() - y.double(), rows, y, names=("out", "width"))


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves(dtype: torch.dtype) -> None:
    x = drawn(4, 264).to(dtype)
    right("softmax(x) .threads_per_row(32) .vector(8) .unroll(1)", x.double().softmax(-1), x, tolerance=1e-2)
    right(
        "layernorm(x, affine=0) .threads_per_row(32) .vector(8) .kept()",
        F.layer_norm(x.double(), (264,)),
        x,
        tolerance=2e-2,
    )


def test_not_contiguous_and_nearly_empty() -> None:
    x = drawn(40, 6, 4).transpose(0, 1)
    right("softmax(x, axis=1) .split(2)", x.double().softmax(1), x)
    one = drawn(1, 1)
    right("reduce(x, op=mean, axis=all) .threads_per_row(32) .parts(8)", one.double().mean(), one)
    empty = torch.empty(0, 5)
    assert run("softmax(x) .unroll(1)", (empty,), ("x",)).shape == (0, 5)
    assert run("elementwise(relu(x)) .unroll(2)", (empty,), ("x",)).shape == (0, 5)


@pytest.mark.parametrize("how", [".threads_per_row(1)", ".threads_per_row(64) .vector(4) .kept()"])
def test_targets_that_are_ignored(how: str) -> None:
    x, target = drawn(9, 36), torch.tensor([3, -100, 35, 0, -100, 7, 8, 1, 2])
    right(
        f"crossentropy(x, y) {how}",
        F.cross_entropy(x.double(), target),
        x,
        target,
        names=("x", "y"),
        operands=(("target", "y"),),
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", [".threads_per_row(32) .vector(4) .parts(2)"])
def test_norms_by_channel(how: str) -> None:
    x, weight, bias = drawn(3, 6, 4, 8), drawn(6), drawn(6) - 1
    names = ("x", "weight", "bias", "running_mean", "running_var", "batches")
    wide = [item.double() for item in (x, weight, bias)]
    right(f"groupnorm(x, groups=3) {how}", F.group_norm(wide[0], 3, wide[1], wide[2]), x, weight, bias, names=names)
    right(
        f"instancenorm(x) {how}", F.instance_norm(wide[0], weight=wide[1], bias=wide[2]), x, weight, bias, names=names
    )
    running, variance, batches = torch.zeros(6), torch.ones(6), torch.tensor(4)
    kept, seen = running.double(), variance.double()
    wanted = F.batch_norm(wide[0], kept, seen, wide[1], wide[2], training=True, momentum=0.3)
    right(
        f"batchnorm(x, running=1, momentum=0.3) {how}", wanted, x, weight, bias, running, variance, batches, names=names
    )
    torch.testing.assert_close(running.double(), kept, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(variance.double(), seen, rtol=1e-5, atol=1e-6)
    assert int(batches) == 5


@pytest.mark.parametrize("shape", [(37, 24), (200, 13), (9, 264)])
@pytest.mark.parametrize("how", [".split(4) .vector(4) .unroll(2) .parts(3)", ".split(1) .parts(64)"])
def test_batch_norm_of_columns(shape: tuple[int, int], how: str) -> None:
    channels = shape[1]
    x, weight, bias = drawn(*shape) + 3, drawn(channels), drawn(channels) - 1
    running, variance, batches = torch.zeros(channels), torch.ones(channels), torch.tensor(4)
    kept, seen = running.double(), variance.double()
    wide = [item.double() for item in (x, weight, bias)]
    wanted = F.batch_norm(wide[0], kept, seen, wide[1], wide[2], training=True, momentum=0.3)
    names = ("x", "weight", "bias", "running_mean", "running_var", "batches")
    text = f"batchnorm(x, running=1, momentum=0.3, axis=first) {how}"
    right(text, wanted, x, weight, bias, running, variance, batches, names=names, tolerance=2e-5)
    torch.testing.assert_close(running.double(), kept, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(variance.double(), seen, rtol=1e-5, atol=1e-6)
    assert int(batches) == 5
    plain = F.batch_norm(wide[0], None, None, training=True)
    right(f"batchnorm(x, affine=0, axis=first) {how}", plain, x, names=names[:1], tolerance=2e-5)
    with pytest.raises(ValueError, match=r"x has 3 axes; axis=first wants \(batch, channels\)"):
        run(f"batchnorm(x, affine=0, axis=first) {how}", (x[None],), names[:1])


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("rowwise(relu(x))", "rowwise"),
        ("rowwise(sum(spread(b)))", "rowwise"),
        ("rowwise(sum(x), axis=outer)", "axis"),
        ("rowwise(sum(x), axis=over(2, 1))", "axis"),
        ("rowwise(sum(x), axis=last(0))", "axis"),
        ("rowwise(sum(x)) .kept() .parts(4)", "kept"),
        ("rowwise(sum(x)) .cluster(2)", "cluster"),
        ("rowwise(sum(x), axis=1) .arch(sm_90a) .threads_per_row(64) .cluster(2)", "cluster"),
        ("rowwise(sum(x), axis=but(1))", "parts"),
        ("rowwise(var(x), axis=1) .split(32) .vector(8)", "split"),
        ("groupnorm(x)", "groups"),
        ("batchnorm(x)", "parts"),
        ("batchnorm(x, axis=first)", "parts"),
        ("batchnorm(x, axis=last) .parts(2)", "axis"),
        ("elementwise(spread(relu(x)))", "spread"),
        ("elementwise(sum(x))", "function"),
        ("elementwise(clamp(x, 0))", "clamp"),
        ("softmax(x) .unroll(2) .passes(2)", "passes"),
        ("rowwise(sum(x)) .unroll(3)", "unroll"),
        ("rowwise(sum(x, x))", "sum"),
        ("softmax(x) .parts(8) .threads_per_row(1)", "parts"),
        ("matvec(x, v) .parts(8) .threads_per_row(1)", "parts"),
        ("batchnorm(x) .parts(8) .threads_per_row(1)", "parts"),
        ("softmax(x) .parts(many)", "parts"),
        ("softmax(x) .unroll(abc)", "unroll"),
        ("reduce(x, axis=1) .split(abc) .vector(8)", "split"),
    ],
)
def test_rejections(text: str, field: str) -> None:
    found = check(parse(text))
    assert found and found[0].field == field and found[0].reason and found[0].legal
