"""NaN and infinities propagate as in torch through every function, epilogue, reduction, pool, softmax and loss.

Maxima and minima compile to one instruction.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from running import launched, run

from workbench.language.expressions.lowering import log_sum
from workbench.language.expressions.scalars import UNARY
from workbench.language.parser import format_value

NAN, INF = float("nan"), float("inf")
ODD = torch.tensor([NAN, -NAN, INF, -INF, 0.0, -0.0, 1.5, -1.5, 7.0, -7.0, 30.0])
TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    name: getattr(F, name)
    for name in (
        "mish",
        "softsign",
        "hardsigmoid",
        "hardswish",
        "softplus",
        "logsigmoid",
        "leaky_relu",
        "elu",
        "gelu",
        "silu",
    )
} | {"gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "round_even": torch.round}
CASTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "to_f16": lambda x: x.half().float(),
    "to_bf16": lambda x: x.bfloat16().float(),
}


def same(got: torch.Tensor, wanted: torch.Tensor, said: str = "") -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5, equal_nan=True, msg=lambda why: f"{said}: {why}")


def test_functions() -> None:
    """Computes all functions in one kernel: row n of x goes through function n."""
    text = "x"
    for number, name in enumerate(UNARY):
        text = f"where(eq(n, {number}), {name}(x), {text})"
    x, n = (
        ODD.expand(len(UNARY), -1).contiguous(),
        torch.arange(len(UNARY)).float()[:, None].expand(-1, len(ODD)).contiguous(),
    )
    for name, row in zip(UNARY, run(f"elementwise({text})", (x, n), ("x", "n")), strict=True):
        wanted = (TORCH.get(name) or CASTS.get(name) or getattr(torch, name))(ODD)
        if name == "gelu":
            wanted[2] = INF  # which the CPU's vectorised gelu makes NaN, its scalar one and the GPU's do not
        same(row, wanted, name)


@pytest.mark.slow
def test_functions_of_two() -> None:
    a, b = (item.contiguous() for item in (ODD[:, None].expand(-1, len(ODD)), ODD[None, :].expand(len(ODD), -1)))
    for name, wanted in (
        ("max", torch.maximum),
        ("min", torch.minimum),
        ("xlogy", torch.xlogy),
        ("xlog1py", torch.special.xlog1py),
        *((name, getattr(torch, name)) for name in ("atan2", "hypot", "copysign", "fmax", "fmin")),
        *((name, getattr(torch, name)) for name in ("fmod", "remainder", "floor_divide")),
    ):
        same(run(f"elementwise({name}(a, b))", (a, b), ("a", "b")), wanted(a, b), name)
    same(run("elementwise(clamp(a, -1, 2))", (a,), ("a",)), a.clamp(-1, 2), "clamp")


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["", ".arch(sm_90a) .mma(tf32) .tile(64, 32, 32) .schedule(cooperative)"])
def test_epilogues(how: str) -> None:
    a, b = torch.zeros(8, 4), torch.zeros(4, 12)
    a[:, 0], b[0, :11] = 1, ODD
    same(
        run(f"gemm(a, b) {how} >> max(-2) >> min(3) >> clamp(-1, 2) >> relu()", (a, b), ("a", "b")),
        torch.relu(b[:1].clamp(-2, 3).clamp(-1, 2)).expand(8, -1),
    )
    if how:
        for name, wanted in (("colmax", b[0]), ("rowmin", torch.full((8,), NAN))):
            same(run(f"gemm(a, b) {how} >> {name}()", (a, b), ("a", "b")), wanted, name)


def rows() -> torch.Tensor:
    """Return rows with one NaN, several, one infinity, both, only -inf, only inf, and a leading -inf."""
    x = torch.randn(8, 70, generator=torch.Generator().manual_seed(1))
    x[0, 40], x[1, 5], x[1, 66], x[2, 33], x[3, 1], x[3, 2] = NAN, NAN, NAN, INF, INF, -INF
    x[4], x[5], x[6, :35], x[7, 69] = -INF, INF, -INF, -INF
    return x


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "how",
    [
        ".threads_per_row(32)",
        ".threads_per_row(1)",
        ".threads_per_row(32) .vector(2) .unroll(2)",
        ".threads_per_row(32) .parts(2)",
    ],
)
def test_rows(how: str) -> None:
    x = rows()
    for op, wanted in (("max", x.amax(-1)), ("min", x.amin(-1))):
        same(run(f"reduce(x, op={op}) {how}", (x,), ("x",)), wanted, op)
    general = how if "unroll" in how or "parts" in how else f"{how} .unroll(1)"
    for op, wanted in (("argmax", x.argmax(-1)), ("argmin", x.argmin(-1))):
        assert torch.equal(run(f"reduce(x, op={op}) {general}", (x,), ("x",)), wanted)
    for passes in (".passes(2)", ".passes(3)") if general != how else ("",):
        same(run(f"softmax(x) {how} {passes}", (x,), ("x",)), x.softmax(-1), passes)


VARIANTS = [
    ".threads_per_row(1)",
    ".threads_per_row(32) .vector(2) .kept()",
    ".threads_per_row(64) .vector(2) .unroll(1) .kept()",
    ".threads_per_row(32) .parts(2)",
    ".arch(sm_90a) .threads_per_row(64) .cluster(2)",
]


@pytest.mark.few(1)
@pytest.mark.parametrize("how", VARIANTS)
def test_rows_whose_largest_is_infinite(how: str) -> None:
    x = rows()
    same(run(f"rowwise({format_value(log_sum('x'))}) {how}", (x,), ("x",)), x.logsumexp(-1), "logsumexp")
    same(run(f"log_softmax(x) {how}", (x,), ("x",)), x.log_softmax(-1), "log_softmax")
    passes = ("", ".passes(2)") if not any(name in how for name in ("unroll", "parts", "cluster")) else ("",)
    for more in passes:
        same(run(f"softmax(x) {how} {more}", (x,), ("x",)), x.softmax(-1), more)
    if passes != ("",):
        for logits, losses in ((1, F.cross_entropy), (0, F.nll_loss)):
            for place in (40, 69):
                target = torch.full((8,), place)
                got = run(
                    f"crossentropy(x, target, reduction=none, logits={logits}) {how}", (x, target), ("x", "target")
                )
                same(got, losses(x, target, reduction="none"), f"crossentropy of class {place}")


@pytest.mark.slow
def test_columns_whose_largest_is_infinite() -> None:
    x = rows().t().contiguous()
    for how in ("", ".split(4) .kept()"):
        same(run(f"rowwise({format_value(log_sum('x'))}, axis=0) {how}", (x,), ("x",)), x.logsumexp(0), how)
        same(run(f"softmax(x, axis=0) {how}", (x,), ("x",)), x.softmax(0), how)


@pytest.mark.slow
def test_columns_and_scans() -> None:
    x = rows().t()
    for how in ("", ".split(4) .vector(4)", ".arch(sm_90a) .through(shared) .threads(32)"):
        same(run(f"reduce(x, op=max, axis=0) {how}", (x,), ("x",)), x.amax(0))
        assert torch.equal(run(f"reduce(x, op=argmin, axis=0) {how}", (x,), ("x",)), x.argmin(0))
    for how in ("", ".split(4)"):
        same(run(f"reduce(x, op=min, axis=middle) {how}", (x[None],), ("x",)), x[None].amin(1))
    same(run("scan(x, op=max) .threads(32) .per_thread(8)", (rows(),), ("x",)), rows().cummax(-1).values)
    same(run("scan(x, op=max, axis=0) .threads(32)", (x,), ("x",)), x.cummax(0).values)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("schedule", ["direct", "strip"])
def test_pools(schedule: str, dtype: torch.dtype) -> None:
    """Also covers float16, whose maxima are computed without conversion."""
    x = rows()[None].to(dtype)
    same(
        run(f"pool(x, window=size(2, 3), stride=1, padding=1) .threads(64) .schedule({schedule})", (x,), ("x",)),
        F.max_pool2d(x, (2, 3), 1, 1),
    )


def test_halves() -> None:
    x = ODD.half().repeat(8)[:64]
    for dtype in (torch.float16, torch.bfloat16):
        same(
            run("elementwise(min(relu(x), 6)) .vector(8) .unroll(2)", (x.to(dtype),), ("x",)),
            torch.relu(x.to(dtype)).clamp(max=6),
            str(dtype),
        )


@pytest.mark.few(1)
@pytest.mark.parametrize("how", [".threads_per_row(1)", ".threads_per_row(32) .vector(2)"])
def test_losses(how: str) -> None:
    target = torch.arange(8)
    for keep in (slice(0, 1), slice(2, 3), slice(6, 8), slice(4, 5)):
        x, y = rows()[keep], target[keep] + 40
        same(run(f"crossentropy(x, y) {how}", (x, y), ("x", "y"), (("target", "y"),)), F.cross_entropy(x, y), str(keep))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_maximum_is_one_instruction(arch: str) -> None:
    _, emulation = launched("elementwise(min(relu(x), 6)) .vector(4)", (torch.ones(64),), ("x",), arch=arch)
    text = "\n".join(module.ptx for module in emulation.modules)
    assert len(re.findall(r"max\.NaN\.f32", text)) == 4 == len(re.findall(r"min\.NaN\.f32", text)) and not re.findall(
        r"setp.*f32|selp.*f32", text
    )
