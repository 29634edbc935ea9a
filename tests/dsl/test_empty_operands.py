"""Operands without elements give torch's result, or a one-line error that names the empty extent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from running import launched

HOPPER = ".arch(sm_90a) .mma(tf32) .tile(64, 32, 32) .schedule(cooperative)"


def gives(text: str, tensors: dict[str, torch.Tensor], wanted: torch.Tensor) -> None:
    got, emulation = launched(text, tuple(tensors.values()), tuple(tensors))
    torch.testing.assert_close(got, wanted, equal_nan=True)
    assert not [item for item in emulation.findings if item.severity == "error"]


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["", ".tile(64, 64, 32) .mma(tf32) .stages(3)", HOPPER])
def test_products(how: str) -> None:
    for a, b in (
        ((0, 16), (16, 12)),
        ((8, 16), (16, 0)),
        ((8, 0), (0, 12)),
        ((2, 8, 0), (2, 0, 12)),
        ((0, 8, 16), (0, 16, 12)),
    ):
        tensors = {"a": torch.ones(a), "b": torch.ones(b), "bias": torch.arange(float(b[-1]))}
        gives(f"gemm(a, b) {how} >> bias()", tensors, tensors["a"] @ tensors["b"] + tensors["bias"])


def test_a_product_that_is_reduced() -> None:
    gives(f"gemm(a, b) {HOPPER} >> rowsum()", {"a": torch.ones(8, 0), "b": torch.ones(0, 12)}, torch.zeros(8))
    gives(f"gemm(a, b) {HOPPER} >> rowsum()", {"a": torch.ones(0, 8), "b": torch.ones(8, 12)}, torch.zeros(0))
    gives(
        f"gemm(a, b) {HOPPER} >> rowsum(keepdim=1)", {"a": torch.ones(0, 8), "b": torch.ones(8, 12)}, torch.zeros(0, 1)
    )
    gives(
        f"gemm(a, b) {HOPPER} >> colsum(keepdim=1)", {"a": torch.ones(4, 8), "b": torch.ones(8, 0)}, torch.zeros(1, 0)
    )
    with pytest.raises(ValueError, match=r"^b has the shape \(8, 0\); the max of no elements is undefined$"):
        launched(f"gemm(a, b) {HOPPER} >> rowmax()", (torch.ones(4, 8), torch.ones(8, 0)), ("a", "b"))


def test_groups() -> None:
    text = "ggemm(a, b, offsets) .arch(sm_90a) .mma(f16) .tile(64, 64, 64) .schedule(cooperative)"
    for rows, k, n, ends in ((0, 16, 8, [0, 0]), (4, 16, 0, [1, 4]), (4, 0, 8, [1, 4])):
        gives(
            text,
            {"a": torch.ones(rows, k).half(), "b": torch.ones(2, k, n).half(), "offsets": torch.tensor(ends)},
            torch.zeros(rows, n).half(),
        )


ROWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax(x)": lambda x: x.softmax(-1),
    "softmax(x) .vector(4) .kept()": lambda x: x.softmax(-1),
    "log_softmax(x)": lambda x: x.log_softmax(-1),
    "reduce(x, op=sum)": lambda x: x.sum(-1),
    "reduce(x, op=mean)": lambda x: x.mean(-1),
    "reduce(x, op=sum, axis=0)": lambda x: x.sum(0),
    "rmsnorm(x, affine=0)": lambda x: x.clone(),
    "scan(x)": lambda x: x.clone(),
    "elementwise(relu(x))": torch.relu,
    "elementwise(relu(x)) .vector(4)": torch.relu,
    "elementwise(relu(x)) .vector(4) .unroll(2)": torch.relu,
    "pool(x, window=2)": lambda x: x[:, ::2],
}


@pytest.mark.few(5)
@pytest.mark.parametrize("text", ROWS)
def test_rows(text: str) -> None:
    gives(text, {"x": torch.ones(0, 8)}, ROWS[text](torch.ones(0, 8)))
    if "pool" not in text:
        gives(text, {"x": torch.ones(4, 0)}, ROWS[text](torch.ones(4, 0)))


@pytest.mark.parametrize("how", ["", ".unroll(1)", ".parts(2) .threads_per_row(32)"])
def test_there_is_no_largest_of_nothing(how: str) -> None:
    gives(f"reduce(x, op=max) {how}", {"x": torch.ones(0, 8)}, torch.ones(0))
    with pytest.raises(ValueError, match=r"^x has the shape \(4, 0\); the max of no elements is undefined$"):
        launched(f"reduce(x, op=max) {how}", (torch.ones(4, 0),), ("x",))


def test_middles_norms_losses_and_whole_windows() -> None:
    for shape in ((0, 4, 8), (2, 0, 8), (2, 4, 0)):
        gives("reduce(x, op=sum, axis=middle)", {"x": torch.ones(shape)}, torch.ones(shape).sum(1))
    with pytest.raises(ValueError, match=r"^x has the shape \(2, 0, 8\); the max of no elements is undefined$"):
        launched("reduce(x, op=max, axis=middle)", (torch.ones(2, 0, 8),), ("x",))
    x, affine = torch.ones(0, 4, 8), {"weight": torch.ones(4), "bias": torch.ones(4)}
    gives("groupnorm(x, groups=2)", {"x": x} | affine, x)
    gives("instancenorm(x)", {"x": x} | affine, x)
    gives("layernorm(x)", {"x": x, "weight": torch.ones(8), "bias": torch.ones(8)}, x)
    gives("pool(x, op=avg, window=all)", {"x": x[..., None]}, torch.ones(0, 4, 1, 1))
    for reduction in ("mean", "sum", "none"):
        x, target = torch.ones(0, 8), torch.ones(0, dtype=torch.int64)
        gives(
            f"crossentropy(x, target, reduction={reduction})",
            {"x": x, "target": target},
            F.cross_entropy(x, target, reduction=reduction),
        )


@pytest.mark.parametrize("how", ["", ".arch(sm_90a) .mma(tf32) .tile(128, 32, 32) .schedule(cooperative)"])
def test_convolutions(how: str) -> None:
    gives(f"conv(x, w) {how}", {"x": torch.ones(0, 4, 6, 6), "w": torch.ones(8, 4, 3, 3)}, torch.ones(0, 8, 4, 4))
    with pytest.raises(ValueError, match=r"^x has the shape \(1, 0, 6, 6\); this kernel wants at least one channel$"):
        launched(f"conv(x, w) {how}", (torch.ones(1, 0, 6, 6), torch.ones(8, 0, 3, 3)), ("x", "w"))
