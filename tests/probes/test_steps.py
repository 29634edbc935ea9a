"""Which values of settings advice goes to: tiles of most reuse, the direction that a row's CTAs ask for."""

from __future__ import annotations

import dataclasses

import pytest

from workbench.probes.base import spread_rows
from workbench.probes.grid import fewer_parts
from workbench.probes.moving import describe_move, measure_reuse, write_for, write_moved
from workbench.probes.signals import Signals, read_signals
from workbench.records import Move

# isort: split
from taken import counted_profile

TILE = Move(setting="tile", direction="more")


def kernel_of(**changes: object) -> Signals:
    taken = counted_profile("rms_norm", "rmsnorm(x, eps=1e-05) .arch(sm_90a) .kept() .unroll(8) .vector(2)")
    found = read_signals(taken.profile)[0]
    return dataclasses.replace(found, metrics=dataclasses.replace(found.metrics, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schedule", "first"),
    [("", "128, 128"), (".schedule(pingpong)", "128, 128"), (".schedule(cooperative)", "128, 256")],
)
def test_a_larger_tile_is_the_one_of_most_reuse_whose_sums_fit(schedule: str, first: str) -> None:
    made = [
        text for _, text in write_moved(f"gemm(a, b) .arch(sm_90a) .mma(bf16) {schedule} .tile(64, 16, 32)", [TILE])
    ]
    assert f".tile({first}," in made[0] or f".tile({', '.join(reversed(first.split(', ')))}," in made[0]
    tiles = [tuple(map(int, text.split(".tile(")[1].split(")")[0].split(", "))) for text in made]
    uses = [measure_reuse(tile) for tile in tiles]
    assert uses == sorted(uses, reverse=True) and uses[-1] > measure_reuse((64, 16, 32))


def test_the_tile_of_most_reuse_has_no_larger_one() -> None:
    program = "gemm(a, b) .arch(sm_90a) .mma(bf16) .tile(128, 128, 32)"
    assert not list(write_moved(program, [TILE]))


@pytest.mark.parametrize(("threads", "way"), [(32, "more"), (128, "more"), (256, None), (512, "less"), (1024, "less")])
def test_a_row_takes_more_threads_in_a_small_cta_and_fewer_in_a_large_one(threads: int, way: str | None) -> None:
    found = spread_rows(kernel_of(block=(threads, 1, 1)))
    assert found == ((("threads_per_row", way),) if way else ())
    assert not spread_rows(dataclasses.replace(kernel_of(block=(threads, 1, 1)), share=0.1)), "another kernel's setting"


def test_a_cluster_is_taken_apart_where_there_are_ctas_enough() -> None:
    cluster = {"block": (256, 1, 1), "cluster": 4}
    assert spread_rows(kernel_of(grid=(16384, 1, 1), **cluster)) == (("cluster", "less"),)
    assert spread_rows(kernel_of(grid=(64, 1, 1), **cluster)) == ()


def test_parts_are_fewer_only_where_ctas_are_left() -> None:
    many, few = kernel_of(grid=(131072, 1, 1)), kernel_of(grid=(128, 1, 1))
    assert fewer_parts([many, many]) == (("parts", "less"),) and fewer_parts([many, few]) == ()


def test_a_program_for_another_arch_makes_the_move_there() -> None:
    wanted = [Move(setting="schedule", direction="more")]
    program = "gemm(a, b) .arch(sm_80) .mma(tf32) .tile(128, 128, 32)"
    assert ".schedule(" in (made := write_for("sm_90a", program, wanted)) and ".arch(sm_90a)" in made
    assert write_for("sm_80", program, wanted) == "", "it has that arch"


def test_a_setting_without_a_value_is_named() -> None:
    plain, kept = "layernorm(x, eps=1e-05) .threads_per_row(32)", "layernorm(x, eps=1e-05) .threads_per_row(32) .kept()"
    move = Move(setting="kept", direction="more")
    assert describe_move(move, plain, kept) == "kept" and describe_move(move, kept, plain) == "without kept"
