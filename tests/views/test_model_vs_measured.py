"""The time model beside measured landscapes: what is drawn, and that the model ranks as the H200 does."""

from __future__ import annotations

import re

import pytest

from workbench.errors import UserError
from workbench.landscapes import landscapes
from workbench.views.plots.model_vs_measured import Kernel, compare_with_model, modelled_kernels, rank_correlation


def kernel(modelled: float, measured: float, stages: int = 4) -> Kernel:
    return Kernel(program="", modelled_s=modelled, measured_s=measured, stages=stages)


def test_ranks_are_spearmans_with_equal_values_in_the_middle_of_their_places() -> None:
    assert rank_correlation([kernel(1, 10), kernel(2, 20), kernel(3, 30)]) == pytest.approx(1)
    assert rank_correlation([kernel(1, 30), kernel(2, 20), kernel(3, 10)]) == pytest.approx(-1)
    assert rank_correlation([kernel(1, 1), kernel(1, 2), kernel(2, 3)]) == pytest.approx(
        0.8660254
    )  # against the definition, by hand


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["matmul_bf16_4096", "matmul_tf32_2048", "batched_matmul_bf16"])
def test_the_model_ranks_measured_products(name: str) -> None:
    kernels = modelled_kernels(landscapes()[name])
    assert len(kernels) > 300 and rank_correlation(kernels) > 0.95
    picked = min(kernels, key=lambda one: one.modelled_s)
    assert picked.measured_s < 1.06 * kernels[0].measured_s  # 1.8 times before the model knew what two stages cost


def test_the_picture_says_what_the_table_says() -> None:
    place = landscapes()["matmul_bf16_4096"]
    shown = compare_with_model(place)
    counts = [int(line.split()[-7]) for line in str(shown).splitlines()[2:]]
    points = [len(trace["x"]) for trace in shown.plotly["data"][:-1]]
    assert (
        counts == points and sum(counts) == len(modelled_kernels(place)) and str(shown).splitlines()[2].startswith("2 ")
    )
    assert shown.svg.count("h0") == sum(counts) and re.search(r"rank correlation 0\.9\d", shown.svg)


def test_a_landscape_without_such_kernels_is_refused_in_a_line() -> None:
    with pytest.raises(UserError, match=r"^softmax has no gemm with a schedule"):
        compare_with_model(landscapes()["softmax"])
