"""Tensors with more elements than 32-bit offsets reach are split into several launches.

The tests lower the limit to a few elements. Single extents of that size are rejected where a kernel cannot be split.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from running import load

from workbench.emulator import emulated


def in_pieces(text: str, tensors: dict[str, torch.Tensor], most: int) -> tuple[torch.Tensor, int]:
    """The result with at most `most` elements a launch, and how many launches there were."""
    module, path = load(text, tuple(tensors))
    assert module.MAX_ELEMENTS == (1 << 31) - (1 << 20)
    with (
        pytest.MonkeyPatch.context() as patch,
        emulated(arch="sm_90a" if "sm_90a" in text else "sm_80", device="H200", source_file=str(path)) as emulation,
    ):
        patch.setattr(module, "MAX_ELEMENTS", most)
        got = module.ModelNew()(*tensors.values())
    assert not [item for item in emulation.findings if item.severity == "error"]
    return got, len(emulation.launches)


@pytest.mark.parametrize("how", ["", ".vector(4)", ".vector(4) .unroll(2)"])
@pytest.mark.parametrize(("shape", "launches"), [((5, 7, 6), 20), ((1, 128), 8)])
def test_elements(how: str, shape: tuple[int, ...], launches: int) -> None:
    x, y = torch.randn(shape), torch.randn(shape).half()
    got, count = in_pieces(f"elementwise(add(x, y)) {how}", {"x": x, "y": y}, 16)
    assert torch.equal(got, x + y) and count == launches


@pytest.mark.parametrize("shape", [(), (7, 1), (5, 1, 6), (5, 7, 6)])
def test_broadcast_elements(shape: tuple[int, ...]) -> None:
    x, b = torch.randn(5, 7, 6), torch.randn(shape)
    got, count = in_pieces("elementwise(mul(x, spread(b))) .vector(2)", {"x": x, "b": b}, 50)
    assert torch.equal(got, x * b) and count == 5


REDUCED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "reduce(mul(sub(x, y), sub(x, y)), op=mean, axis=all)": F.mse_loss,
    "reduce(x, op=max, axis=all)": lambda x, y: x.max(),
    "rowwise(sqrt(var1(x)), axis=all, keepdim=1)": lambda x, y: x.std().view(1, 1),
    "rowwise(add(sum(mul(x, y)), min(y)), axis=all)": lambda x, y: (x * y).sum() + y.min(),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("text", REDUCED)
@pytest.mark.parametrize(("most", "pieces"), [(1 << 20, 1), (400, 4)])
def test_reductions_of_everything(text: str, most: int, pieces: int) -> None:
    x, y = torch.randn(37, 33), torch.randn(37, 33)
    names = {"x": x, "y": y} if "y" in text else {"x": x}
    got, count = in_pieces(f"{text} .threads_per_row(32) .vector(4) .parts(3)", names, most)
    torch.testing.assert_close(got, REDUCED[text](x, y))
    assert count == pieces + 1


def test_a_reduction_of_everything_with_a_broadcast_operand() -> None:
    x, b = torch.randn(37, 33), torch.randn(37, 1)
    got, _ = in_pieces(
        "reduce(mul(x, spread(b)), op=sum, axis=all) .threads_per_row(32) .parts(2)", {"x": x, "b": b}, 400
    )
    torch.testing.assert_close(got, (x * b).sum())


@pytest.mark.few(1)
@pytest.mark.parametrize("how", [".threads_per_row(32)", ".threads_per_row(64) .vector(2) .kept()"])
def test_rows(how: str) -> None:
    x, target, affine = (
        torch.randn(7, 20),
        torch.tensor([0, 3, -100, 19, 7, 5, 1]),
        {"weight": torch.randn(20), "bias": torch.randn(20)},
    )
    for text, tensors, wanted, launches in (
        ("softmax(x)", {"x": x}, x.softmax(-1), 4),
        ("layernorm(x)", {"x": x} | affine, F.layer_norm(x, (20,), affine["weight"], affine["bias"]), 4),
        ("reduce(x, op=max)", {"x": x}, x.amax(-1), 4),
        ("crossentropy(x, target)", {"x": x, "target": target}, F.cross_entropy(x, target), 5),
        (
            "crossentropy(x, target, reduction=none)",
            {"x": x, "target": target},
            F.cross_entropy(x, target, reduction="none"),
            4,
        ),
    ):
        got, count = in_pieces(f"{text} {how}", tensors, 45)
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
        assert count == launches
    with pytest.raises(ValueError, match=r"^rows of 20 elements; this kernel supports at most 19 in a row$"):
        in_pieces(f"softmax(x) {how}", {"x": x}, 19)


@pytest.mark.slow
def test_scores_of_attention() -> None:
    q, k, v = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    got, count = in_pieces(
        "attention(q, k, v, causal=1) .schedule(stages) .tile(32, 32, 16) .thread_tile(4, 4)",
        {"q": q, "k": k, "v": v},
        80,
    )
    torch.testing.assert_close(got, F.scaled_dot_product_attention(q, k, v, is_causal=True), rtol=1e-4, atol=1e-5)
    assert count == 5  # two products, and two heads a launch


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scan(x) .threads(32)", "x has 20 elements; this kernel supports at most 19"),
        ("gather(x, index, layers=1)", "x has 20 elements; this kernel supports at most 19"),
        ("scatter_add(x, index, src, layers=1)", "x has 20 elements; this kernel supports at most 19"),
    ],
)
def test_what_is_not_taken_in_pieces_is_refused_by_name(text: str, said: str) -> None:
    tensors = (
        {"x": torch.randn(4, 5)}
        | ({"index": torch.tensor([1, 0])} if "index" in text else {})
        | ({"src": torch.randn(2, 5)} if "src" in text else {})
    )
    in_pieces(text, tensors, 20)
    with pytest.raises(ValueError, match=f"^{said}$"):
        in_pieces(text, tensors, 19)


@pytest.mark.parametrize(
    "text",
    [
        "reduce(x, op=sum, axis=all) .unroll(1)",
        "reduce(x, op=sum, axis=last) .unroll(8)",
        "softmax(x) .parts(4) .threads_per_row(64)",
        "matvec(x, vector) .rows(4) .threads_per_row(128)",
    ],
)
def test_single_elements_that_32_bits_do_not_count_are_refused(text: str) -> None:
    x = torch.empty(1, dtype=torch.float16).expand(1 << 10, 1 << 21)  # of so many elements, all the same
    tensors = (x, torch.empty(1, dtype=torch.float16).expand(1 << 21)) if "vector" in text else (x,)
    module, _ = load(text, ("x", "vector")[: len(tensors)])
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(ValueError, match=r"^x has too many elements for 32-bit places, 2\*\*31 and more$"),
    ):
        patch.setattr(torch.Tensor, "contiguous", lambda self: self)
        module.ModelNew()(*tensors)
