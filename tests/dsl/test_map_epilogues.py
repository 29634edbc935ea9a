"""Epilogues that are expressions, `map(...)`: every kernel with epilogues against torch, recognition, rejections.

Operands are small integers, so results are exact.
"""

from __future__ import annotations

import pytest
import torch
from running import launched
from test_product_recognition import check as check_candidate
from test_product_recognition import facts, text

from workbench.language import check, parse
from workbench.proposers.recognition import recognise

EXPRESSION = ">> relu() >> map(mul(add(value(), r), relu(sub(value(), spread(c)))){along})"
HOPPER = ".arch(sm_90a) .mma(tf32) .schedule"


def integers(*shape: int, seed: int) -> torch.Tensor:
    """Return a tensor of small integers."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).float()


def expected(value: torch.Tensor, r: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Return what the epilogues make of a product, in float64."""
    value = value.double().relu()
    return (value + r) * (value - c).relu()


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("how", "along"),
    [
        (f"{HOPPER}(cooperative) .tile(64, 64, 32)", "n"),
        (f"{HOPPER}(pingpong) .tile(64, 64, 32) .swap()", "m"),
        (f"{HOPPER}(cooperative) .tile(64, 64, 32) .splitk(2)", "n"),
        (".tile(64, 64, 32) .mma(tf32) .stages(2)", "m"),
        (".tile(32, 32, 16) .thread_tile(2, 2)", "n"),
    ],
)
def test_products(how: str, along: str) -> None:
    a, b = integers(68, 72, seed=1), integers(72, 76, seed=2)
    r, c = integers(68, 76, seed=3), integers(76 if along == "n" else 68, seed=4)
    epilogue = EXPRESSION.format(along="" if along == "n" else ", along=m")
    got, emulation = launched(f"gemm(a, b) {how} {epilogue}", (a, b, r, c), ("a", "b", "r", "c"))
    want = expected(a.double() @ b.double(), r, c if along == "n" else c[:, None])
    assert torch.equal(got.double(), want)
    assert not [finding for finding in emulation.findings if finding.severity == "error"]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("operation", "how"),
    [
        ("convtranspose(x, w, stride=2)", ".arch(sm_90a) .mma(tf32) .schedule(patch) .tile(128, 16, 8)"),
        ("conv(x, w)", f"{HOPPER}(cooperative) .tile(64, 32, 16)"),
        ("conv(x, w)", ".mma(tf32) .tile(64, 32, 16)"),
        ("conv(x, w)", ".rows(2)"),
        ("convtranspose(x, w, stride=2)", ""),
    ],
)
def test_convolutions(operation: str, how: str) -> None:
    transposed = "transpose" in operation
    x, w = integers(2, 8, 7, 9, seed=1), integers(8, 8, 3, 3, seed=2)
    function = torch.nn.functional.conv_transpose2d if transposed else torch.nn.functional.conv2d
    value = function(x.double(), w.double(), stride=2 if transposed else 1)
    r, c = integers(*value.shape, seed=3), integers(8, seed=4)
    got, _ = launched(f"{operation} {how} {EXPRESSION.format(along='')}", (x, w, r, c), ("x", "w", "r", "c"))
    assert torch.equal(got.double(), expected(value, r, c[:, None, None]))


def test_a_convolution_of_one_tap_as_a_product() -> None:
    x, w = integers(2, 8, 7, 9, seed=1), integers(16, 8, 1, 1, seed=2)
    r, c = integers(2, 16, 7, 9, seed=3), integers(16, seed=4)
    how = f"{HOPPER}(cooperative) .tile(64, 64, 32) .product()"
    got, _ = launched(f"conv(x, w) {how} {EXPRESSION.format(along='')}", (x, w, r, c), ("x", "w", "r", "c"))
    assert torch.equal(got.double(), expected(torch.nn.functional.conv2d(x.double(), w.double()), r, c[:, None, None]))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("body", "epilogues"),
    [
        (
            "(lambda h: (h * F.relu(h + y)).abs())(self.linear(x))",
            ">> bias() >> map(mul(value(), relu(add(value(), t1)))) >> abs()",
        ),
        (
            "(lambda h: torch.where(h > self.c, h * h, h - self.c))(torch.tanh(self.linear(x)))",
            ">> bias() >> tanh() >> "
            "map(where(gt(value(), spread(t1)), mul(value(), value()), sub(value(), spread(t1))))",
        ),
        (
            "(lambda h: h * (h + self.column))(self.plain(x))",
            "map(mul(value(), add(value(), spread(t1))), along=m)",
        ),
        ("torch.add(self.linear(x), y, alpha=2)", ">> bias() >> map(add(value(), mul(t1, 2)))"),
        ("y - self.linear(x)", ">> bias() >> map(sub(t1, value()))"),
    ],
)
def test_values_that_are_used_twice_are_recognised(body: str, epilogues: str) -> None:
    found = recognise(facts(body))
    assert text(found).endswith(epilogues)
    check_candidate(body, found)


@pytest.mark.parametrize(
    ("epilogue", "reason", "legal"),
    [
        ("map(relu(t))", "an expression of the value", "value()"),
        ("map(value())", "an expression of the value", "value()"),
        ("map(mul(value(), swish(value())))", "no such function", "swish"),
        ("map(mul(value()))", "takes 2", "2"),
        ("map(add(mul(value(), t), spread(t)))", "a tensor in one place", "spread(t) everywhere"),
        ("map(relu(value()), along=m)", "along", "along=n or along=m"),
        ("map(relu(value()), t)", "an expression of the value", "one expression"),
    ],
)
def test_rejections(epilogue: str, reason: str, legal: str) -> None:
    (found,) = check(parse(f"gemm(a, b) >> {epilogue}"))
    assert found.field == "map" and reason in f"{found.reason}" and (legal in found.legal or legal in found.reason)
