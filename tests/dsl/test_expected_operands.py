"""Operands of the wrong shape, dtype or rank are rejected before any launch.

The one-line message names the operand, its shape or dtype, and the expected one.
"""

from __future__ import annotations

import pytest
import torch
from running import launched, load, run

from workbench.emulator import emulated

HOPPER = ".arch(sm_90a) .mma(tf32) .tile(64, 32, 32) .schedule(cooperative)"
GROUPED = "ggemm(a, b, offsets) .arch(sm_90a) .mma(f16) .tile(64, 64, 64) .schedule(cooperative)"
WAYS = [
    "",
    ".tile(32, 32, 16) .thread_tile(2, 2)",
    ".tile(64, 64, 32) .mma(tf32)",
    ".tile(64, 64, 32) .mma(tf32) .stages(3)",
    HOPPER,
    HOPPER + " .splitk(2)",
    ".arch(sm_90a) .mma(tf32x3) .tile(64, 32, 32) .schedule(cooperative)",
]


def f(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape).to(dtype)


def refused(
    text: str, tensors: dict[str, torch.Tensor], *said: str, operands: tuple[tuple[str, str], ...] = (), before: int = 0
) -> None:
    module, path = load(text, tuple(tensors), operands)
    with (
        emulated(arch="sm_90a" if "sm_90a" in text else "sm_80", device="H200", source_file=str(path)) as emulation,
        pytest.raises((ValueError, TypeError)) as found,
    ):
        module.ModelNew()(*tensors.values())
    words = str(found.value)
    assert len(emulation.launches) == before and "\n" not in words and all(item in words for item in said), words


@pytest.mark.few(1)
@pytest.mark.parametrize("how", WAYS)
def test_products(how: str) -> None:
    a, b = f(8, 16), f(16, 12)
    refused(f"gemm(a, b) {how}", {"a": a, "b": f(15, 12)}, "b has the shape (15, 12)", "wants (16, 12)")
    refused(f"gemm(a, b) {how}", {"a": f(2, 8, 16), "b": b}, "b has the shape (16, 12)", "wants (2, 16, 12)")
    refused(f"gemm(a, b) {how}", {"a": f(16), "b": b}, "a has the shape (16,)", "2 to 3 axes")
    refused(f"gemm(a, b) {how}", {"a": a, "b": f(16, 12, dtype=torch.bfloat16)}, "b is torch.bfloat16", "torch.float32")
    refused(
        f"gemm(a, b) {how} >> bias() >> residual()",
        {"a": a, "b": b, "bias": f(1, 12), "residual": f(8, 12)},
        "bias has the shape (1, 12)",
        "wants (12,)",
    )
    refused(
        f"gemm(a, b) {how} >> bias() >> residual()",
        {"a": a, "b": b, "bias": f(12), "residual": f(8, 11)},
        "residual has the shape (8, 11)",
        "wants (8, 12), or a shape that broadcasts to it",
    )
    refused(f"gemm(a, b) {how} >> mul(g, along=m)", {"a": a, "b": b, "g": f(12)}, "g has the shape (12,)", "wants (8,)")


def test_a_transposed_weight_and_names_of_the_module() -> None:
    refused(
        f"gemm(a, b) {HOPPER}",
        {"x": f(8, 16), "w": f(12, 15)},
        "w has the shape (12, 15)",
        "wants (12, 16)",
        operands=(("a", "x"), ("b", "w.transpose(-2, -1)")),
    )
    refused(
        "gemm(a, b) >> bias()",
        {"x": f(8, 16), "w": f(16, 12), "c": f(3)},
        "c has the shape (3,)",
        operands=(("a", "x"), ("b", "w"), ("bias", "c")),
    )
    refused(
        "h = gemm(x, w) |> softmax(h, axis=2) .threads(32)",
        {"x": f(8, 16), "w": f(16, 12)},
        "h has the shape (8, 12)",
        "3 axes or more",
        before=1,
    )
    refused(
        "h = gemm(x, w) |> softmax(h, axis=2) .threads(32)", {"x": f(8, 16), "w": f(15, 12)}, "w has the shape (15, 12)"
    )


def test_a_reduction_of_a_product_and_groups() -> None:
    refused(
        f"gemm(a, b) {HOPPER} >> residual() >> rowmax()",
        {"a": f(8, 16), "b": f(16, 12), "residual": f(12, 8)},
        "residual has the shape (12, 8)",
        "wants (8, 12)",
    )
    half = {"a": f(8, 16, dtype=torch.float16), "b": f(3, 16, 8, dtype=torch.float16)}
    refused(GROUPED, half | {"offsets": torch.tensor([4, 8])}, "offsets has the shape (2,)", "wants (3,)")
    refused(
        GROUPED,
        half | {"offsets": torch.tensor([4.0, 8.0, 8.0])},
        "offsets is torch.float32",
        "torch.int64, torch.int32",
    )
    refused(
        GROUPED,
        half | {"b": f(3, 15, 8, dtype=torch.float16), "offsets": torch.tensor([2, 4, 8])},
        "b has the shape (3, 15, 8)",
        "wants (3, 16, 8)",
    )


@pytest.mark.parametrize("how", [".threads_per_row(32)", ".threads_per_row(32) .vector(4) .unroll(2)"])
def test_rows(how: str) -> None:
    refused(f"layernorm(x) {how}", {"x": f(4, 8), "weight": f(7), "bias": f(8)}, "weight has the shape (7,)")
    refused(f"layernorm(x) {how}", {"x": f(4, 8), "weight": f(8), "bias": f(9)}, "bias has the shape (9,)")
    refused(f"rmsnorm(x) {how}", {"x": f(4, 8), "weight": f(4)}, "weight has the shape (4,)")
    refused(f"matvec(x, vector) {how}", {"x": f(4, 8), "vector": f(4)}, "vector has the shape (4,)")
    refused(
        "matvec(x, vector) .threads_per_row(64) .vector(4) .rows(2)",
        {"x": f(4, 8), "vector": f(1)},
        "vector has the shape (1,)",
        "wants (8,)",
    )
    refused(
        f"softmax(x) {how}",
        {"x": f(4, 8, dtype=torch.float64)},
        "x is torch.float64",
        "torch.float32, torch.float16, torch.bfloat16",
    )
    refused(f"softmax(x) {how}", {"x": torch.tensor(1.0)}, "x has the shape ()", "1 axes or more")


def test_losses_norms_and_moves() -> None:
    refused(
        "crossentropy(x, target)",
        {"x": f(4, 8), "target": torch.zeros(3, dtype=torch.int64)},
        "target has the shape (3,)",
        "wants (4,)",
    )
    refused(
        "crossentropy(x, target)",
        {"x": f(4, 8), "target": torch.zeros(4, 1, dtype=torch.int64)},
        "target has the shape (4, 1)",
        "wants (4,)",
    )
    refused("crossentropy(x, target)", {"x": f(4, 8), "target": f(4)}, "target is torch.float32")
    refused("groupnorm(x, groups=2, affine=0)", {"x": f(2, 5, 4)}, "x has 5 channels", "2")
    refused(
        "instancenorm(x)", {"x": f(2, 4, 4), "weight": f(3), "bias": f(4)}, "weight has the shape (3,)", "wants (4,)"
    )
    refused(
        "batchnorm(x, affine=0, running=1) .parts(2)",
        {"x": f(2, 4, 8), "running_mean": f(3), "running_var": f(4), "batches": torch.tensor(0)},
        "running_mean has the shape (3,)",
        "wants (4,)",
    )
    index = torch.zeros(4, dtype=torch.int64)
    refused(
        "gather(x, index, axis=3, layers=1)", {"x": f(4, 8), "index": index}, "x has the shape (4, 8)", "4 axes or more"
    )
    refused("gather(x, index, layers=1)", {"x": f(4, 8), "index": f(4)}, "index is torch.float32")
    refused(
        "scatter_add(out, index, src, layers=1)",
        {"out": f(4, 8), "index": index, "src": f(3, 8)},
        "index has the shape (4,)",
        "wants (3,)",
    )
    refused("scan(x, axis=2)", {"x": f(4, 8)}, "x has the shape (4, 8)", "3 axes or more")
    refused("scan(mul(x, m))", {"x": f(4, 8), "m": f(4, 7)}, "m has the shape (4, 7)", "wants (4, 8)")
    refused(
        "groupnorm(x, groups=2)",
        {"x": f(2, 4, 4), "weight": f(3), "bias": f(4)},
        "weight has the shape (3,)",
        "wants (4,)",
    )
    refused(
        "attention(q, k, v)", {name: f(1, 1, 1, 4, 8) for name in "qkv"}, "q has the shape (1, 1, 1, 4, 8)", "4 axes"
    )
    refused("attention(q, k, v)", {"q": f(1, 1, 4, 8), "k": f(1, 1, 5, 8), "v": f(1, 1, 4, 8)}, "k and v of one shape")


@pytest.mark.parametrize("how", ["", ".arch(sm_90a) .mma(tf32) .tile(128, 32, 32) .schedule(cooperative)"])
def test_convolutions(how: str) -> None:
    x, w = f(1, 4, 6, 6), f(8, 4, 3, 3)
    refused(f"conv(x, w) {how}", {"x": x, "w": f(8, 3, 3, 3)}, "(8, 3, 3, 3)")
    refused(f"conv(x, w) {how}", {"x": x, "w": f(8, 4, 3)}, "w has the shape (8, 4, 3)", "4 axes")
    refused(f"conv(x, w) {how}", {"x": f(4, 6), "w": w}, "x has the shape (4, 6)", "3 to 5 axes")
    refused(f"conv(x, w) {how} >> bias()", {"x": x, "w": w, "bias": f(7)}, "bias has the shape (7,)", "wants (8,)")


@pytest.mark.parametrize("axis", ["last(3)", "2", "over(1, 2)", "but(2)"])
def test_axes_that_a_tensor_does_not_have(axis: str) -> None:
    how = " .parts(2) .threads_per_row(32)" if axis.startswith("but") else ""
    refused(
        f"reduce(x, op=sum, axis={axis}) .unroll(1){how}", {"x": f(4, 8)}, "x has the shape (4, 8)", "3 axes or more"
    )
    run(f"reduce(x, op=sum, axis={axis}) .unroll(1){how}", (f(2, 3, 8),), ("x",))


def test_rows_that_go_through_shared_memory() -> None:
    text = "reduce(mul(x, b), op=sum, axis=1) .arch(sm_90a) .through(shared) .threads(64)"
    refused(text, {"x": f(2, 8, 16), "b": f(2, 8, 16, dtype=torch.float16)}, "b is torch.float16", "torch.float32")
    refused(text, {"x": f(2, 8, 16), "b": f(2, 8, 15)}, "b has the shape (2, 8, 15)", "wants (2, 8, 16)")


def test_windows_that_do_not_fit_and_middles() -> None:
    refused("pool(x, window=size(3, 3))", {"x": f(4)}, "x has the shape (4,)", "2 axes or more")
    refused("pool(x, window=size(9, 3))", {"x": f(1, 4, 4)}, "x has the shape (1, 4, 4)", "does not fit")
    refused("reduce(x, axis=middle)", {"x": f(4, 8)}, "x has the shape (4, 8)", "3 axes")


WHOLE = torch.tensor([[1 << 24, 1, 2, 3]] * 4)


@pytest.mark.few(12)
@pytest.mark.parametrize(
    "text",
    [
        "elementwise(add(x, 1))",
        "elementwise(add(x, 1)) .vector(4) .unroll(2)",
        "reduce(x, op=sum)",
        "reduce(x, op=sum) .unroll(1)",
        "reduce(x, op=max, axis=0)",
        "softmax(x) .vector(4)",
        "scan(x)",
        "pool(x, window=size(2, 2))",
        "gemm(x, x)",
        "scatter_add(x, i, x)",
        "scatter_max(x, i, x)",
        "conv(x, x)",
    ],
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float64])
def test_numbers_that_float32_does_not_hold(text: str, dtype: torch.dtype) -> None:
    x = WHOLE.to(dtype)
    tensors = {"x": x[None].expand(4, 4, 4) if text.startswith("conv") else x} | (
        {"i": torch.zeros(4, 4, dtype=torch.int64)} if "i," in text else {}
    )
    refused(text, tensors, f"x is {dtype}" if "out" not in text else str(dtype))


def test_whole_numbers_that_are_only_moved_compared_or_small_are_right() -> None:
    index = torch.tensor([3, 0, 2])
    assert torch.equal(run("gather(x, index, layers=1)", (WHOLE, index), ("x", "index")), WHOLE[index])
    x, mask = torch.randn(4, 8), torch.arange(32).view(4, 8) % 3 == 0
    assert torch.equal(run("elementwise(mul(x, m))", (x, mask.to(torch.uint8)), ("x", "m")), x * mask)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("elementwise(add(x, b))", lambda x, b: x + b),
        ("elementwise(mul(x, spread(b))) .vector(2) .unroll(2)", lambda x, b: x * b),
    ],
)
def test_elements(text: str, wanted: object) -> None:
    x, b = f(4, 8), f(4, 7)
    refused(text, {"x": x, "b": b}, "b has the shape (4, 7)", "wants (4, 8)")
    assert torch.equal(run(text, (x, f(4, 8, dtype=torch.float16)), ("x", "b")), f(4, 8) * (2 if "add" in text else 1))
    shifted = torch.arange(33.0)[1:].view(4, 8)  # its start allows no vectors
    assert torch.equal(run(text, (shifted, 3 * x), ("x", "b")), wanted(shifted, 3 * x))  # type: ignore[operator]
    assert torch.equal(
        launched(text, (x, 3 * f(4, 8)), ("x", "b"))[0], wanted(x, 3 * f(4, 8))
    )  # another type than at the call before  # type: ignore[operator]


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["", ".vector(4)", ".vector(4) .unroll(2)"])
def test_a_result_of_two_types_has_the_one_that_torch_gives(how: str) -> None:
    half, short, single, mask = (
        torch.randn(4, 8).to(dtype) for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.bool)
    )
    for x, b in ((half, single), (single, half), (half, short), (half, mask), (short, short)):
        got, wanted = run(f"elementwise(add(x, b)) {how}", (x, b), ("x", "b")), x + b
        torch.testing.assert_close(got, wanted, rtol=1e-5 if wanted.dtype == torch.float32 else 1e-2, atol=1e-5)


def test_a_broadcast_operand_without_axes_does_not_change_the_type() -> None:
    x = torch.randn(4, 8).half()
    for b in (torch.tensor(2.0), torch.full((8,), 2.0), torch.tensor(2.0), torch.full((8,), 2.0).half()):
        got, wanted = run("elementwise(mul(x, spread(b))) .vector(2)", (x, b), ("x", "b")), x * b
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)
    for x, b in (
        (torch.tensor(2.0).half(), torch.tensor(3.0)),
        (torch.tensor([2.0]).half(), torch.tensor(3.0)),
        (torch.tensor(2.0), torch.ones(3).bfloat16()),
    ):
        got, wanted = run("elementwise(mul(spread(x), spread(b)))", (x, b), ("x", "b")), x * b
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("how", ["", ".threads_per_row(32) .vector(4)"])
def test_one_row_of_logits_and_its_class(how: str) -> None:
    x, target = torch.randn(8), torch.tensor(3)
    for reduction in ("mean", "none"):
        got, wanted = (
            run(f"crossentropy(x, target, reduction={reduction}) {how}", (x, target), ("x", "target")),
            torch.nn.functional.cross_entropy(x, target, reduction=reduction),
        )
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("how", ["", ".threads_per_row(32) .vector(4)"])
def test_a_class_that_there_is_not_gives_no_number_and_reads_nothing_else(how: str) -> None:
    x, target = torch.randn(3, 8), torch.tensor([1, 8, 2])
    loss, emulation = launched(f"crossentropy(x, target) {how}", (x, target), ("x", "target"))
    assert loss.isnan() and not [item for item in emulation.findings if item.severity == "error"]
