"""Tolerances: honest kernels pass in any order of summation, lower precision and trivial outputs do not;
against torch.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench import problems
from workbench.analysis import correctness
from workbench.problems import inspection
from workbench.records import Operation

EXACT = torch.float64


def products(m: int, k: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(m, k, generator=generator), torch.randn(k, m, generator=generator)
    return a, b, (a.to(EXACT) @ b.to(EXACT)).numpy()


def truncated(value: torch.Tensor) -> torch.Tensor:
    """To TF32 as tensor cores do it: the low 13 bits of the mantissa are dropped."""
    return (value.view(torch.int32) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("k", [64, 1024, 8192])
def test_float32_products_pass_and_half_or_tf32_products_do_not(k: int) -> None:
    a, b, expected = products(32, k, k)
    pieces = sum(a[:, at : at + 16] @ b[at : at + 16] for at in range(0, k, 16))
    assert isinstance(pieces, torch.Tensor)
    for honest in (a @ b, pieces):
        assert correctness.compare(honest.numpy(), expected, dtype="float32", precision="fp32", length=k)["passed"]
    for lower in (
        truncated(a) @ truncated(b),
        (a.half().float() @ b.half().float()),
        (a.bfloat16().float() @ b.bfloat16().float()),
    ):
        assert not correctness.compare(lower.numpy(), expected, dtype="float32", precision="fp32", length=k)["passed"]


@pytest.mark.parametrize("k", [64, 1024, 8192])
def test_the_tf32_policy_lets_tf32_pass_but_neither_bfloat16_nor_zeros(k: int) -> None:
    a, b, expected = products(64, k, k)
    assert correctness.compare(
        (truncated(a) @ truncated(b)).numpy(), expected, dtype="float32", precision="tf32", length=k
    )["passed"]
    coarse = (a.bfloat16().float() @ b.bfloat16().float()).numpy()
    assert not correctness.compare(coarse, expected, dtype="float32", precision="tf32", length=k)["passed"]
    assert not correctness.compare(
        np.zeros_like(expected, np.float32), expected, dtype="float32", precision="tf32", length=k
    )["passed"]


@pytest.mark.parametrize(("dtype", "name"), [(torch.float16, "fp16"), (torch.bfloat16, "bf16")])
def test_torch_in_16_bits_passes_and_a_wrong_element_does_not(dtype: torch.dtype, name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(64, 512, generator=generator).to(dtype)
    for call in (
        lambda v: torch.softmax(v, -1),
        lambda v: torch.nn.functional.gelu(v, approximate="tanh"),
        lambda v: torch.nn.functional.layer_norm(v, (512,)),
    ):
        expected, got = call(x.to(EXACT)).numpy(), call(x).float().numpy()
        told = {"dtype": str(dtype).removeprefix("torch."), "precision": name, "length": 512}
        assert correctness.compare(got, expected, **told)["passed"]
        got[5, 7] += float(np.sqrt(np.mean(expected**2)))
        found = correctness.compare(got, expected, **told)
        assert not found["passed"] and found["worst_index"] == (5, 7) and found["bad_elements"] == 1


@given(st.integers(1, 1 << 20), st.sampled_from(["float32", "float16", "bfloat16"]), st.sampled_from(["fp32", "tf32"]))
def test_no_tolerance_reaches_what_zeros_would_need(length: int, dtype: str, precision: str) -> None:
    assert 0 < correctness.tolerance(dtype, precision, length) < 0.1  # zeros differ by the whole of a value


def test_another_shape_is_never_broadcast_into_passing() -> None:
    found = correctness.compare(np.ones((1, 1), np.float32), np.ones((4, 4)), dtype="float32", precision="fp32")
    assert not found["passed"] and "shape [1, 1], expected [4, 4]" in found["message"]


@pytest.mark.parametrize(
    ("got", "expected", "kind"),
    [
        ([0, 0, 0], [1e-9, 0, 0], "zero"),
        ([2, 2, 2], [2, 2, 2.0001], "constant"),
        ([2, 2], [2, 2], ""),
        ([1, 2], [1, 2], ""),
        ([3], [3.1], ""),
    ],
)
def test_trivial_outputs_are_named_unless_the_reference_is_one(
    got: list[float], expected: list[float], kind: str
) -> None:
    assert (
        correctness.compare(
            np.array(got, np.float32), np.array(expected, np.float64), dtype="float32", precision="fp32"
        )["trivial"]
        == kind
    )


def test_nan_and_infinity_match_only_themselves() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 1.0])
    assert correctness.compare(special.astype(np.float32), special, dtype="float32", precision="fp32")["passed"]
    for index in range(3):
        wrong = special.astype(np.float32)
        wrong[index] = 0.0 if index == 0 else -wrong[index]
        found = correctness.compare(wrong, special, dtype="float32", precision="fp32")
        assert not found["passed"] and found["worst_index"] == (index,)


def test_tf32_adds_up_over_products_in_a_row() -> None:
    """Four layers, each on operands of ten bits: over the tolerance of one product, under that of four; a twentieth
    more than that is not.
    """
    rng = np.random.default_rng(3)

    def ten_bits(value: np.ndarray) -> np.ndarray:
        return (value.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)

    x = rng.standard_normal((256, 256))
    exact, short = x, x
    for _ in range(4):
        w = rng.uniform(-1 / 16, 1 / 16, (256, 256))
        exact, short = np.maximum(exact @ w, 0), np.maximum(ten_bits(short) @ ten_bits(w), 0)
    one, four = (
        correctness.compare(short, exact, dtype="float32", precision="tf32", length=256, products=products)
        for products in (1, 4)
    )
    assert four["passed"] and four["max_error"] < one["max_error"]
    assert not correctness.compare(exact * 1.05, exact, dtype="float32", precision="tf32", length=256, products=4)[
        "passed"
    ]


def test_products_in_a_row_are_those_on_one_path() -> None:
    def op(name: str, target: str, *operands: str) -> Operation:
        return Operation(name=name, target=f"aten.{target}.default", operands=operands)

    graph = [
        op("a", "mm", "x", "w"),
        op("b", "mm", "x", "v"),
        op("c", "cat", "[a, b]"),
        op("d", "relu", "c"),
        op("e", "addmm", "bias", "d", "u"),
        Operation(name="output", target="output", operands=("e",)),
    ]
    assert correctness.longest_product_chain(graph) == 2 and correctness.longest_product_chain(
        graph[:1]
    ) == 1 == correctness.longest_product_chain([])


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("61_conv_transpose3d", 48 * 27),
        ("80_conv2d_dilated", 32 * 45),
        ("82_conv2d_depthwise", 512),
        ("01_square_matmul", 4096),
    ],
)
def test_a_convolution_sums_as_many_terms_as_a_filter_has_elements(name: str, terms: int) -> None:
    facts = inspection.inspect(
        problems.load(str(Path(__file__).parents[1] / "bench" / "problems" / f"{name}.py"), name=name)
    )
    full = next(case for case in facts.cases if case.name == "full")
    assert correctness.summed_terms(full, facts) == terms


def test_strict_convolutions_of_many_terms_pass_in_float32_and_not_in_tf32() -> None:
    generator = torch.Generator().manual_seed(3)
    x, w = (
        torch.rand(2, 48, 9, 9, 9, generator=generator),
        (torch.rand(48, 48, 3, 3, 3, generator=generator) - 0.5) / 18,
    )
    expected = torch.conv_transpose3d(x.to(EXACT), w.to(EXACT)).numpy()
    same = {"dtype": "float32", "precision": "fp32", "length": 48 * 27}
    assert correctness.compare(torch.conv_transpose3d(x, w).numpy(), expected, **same)["passed"]
    assert not correctness.compare(torch.conv_transpose3d(truncated(x), truncated(w)).numpy(), expected, **same)[
        "passed"
    ]
