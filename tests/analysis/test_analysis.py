"""Hunks, statistics, bounds, occupancy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis import devices, hunks, occupancy, speed_of_light, statistics
from workbench.errors import UserError
from workbench.records import Work

TEXT = st.lists(st.sampled_from(["a\n", "b\n", "c\r\n", "\n", "x"]), max_size=12).map("".join)


@given(old=TEXT, new=TEXT)
def test_all_hunks_give_the_new_text_and_none_the_old(old: str, new: str) -> None:
    found = hunks.hunks(old, new)
    assert hunks.apply(old, new, [hunk.index for hunk in found]) == new
    assert hunks.apply(old, new, []) == old


@given(old=TEXT, new=TEXT, pick=st.sets(st.integers(1, 6)))
def test_a_hunk_is_independent_of_the_others(old: str, new: str, pick: set[int]) -> None:
    found = hunks.hunks(old, new)
    chosen = pick & {hunk.index for hunk in found}
    made = hunks.apply(old, new, chosen)
    expected = old.splitlines(keepends=True)
    for hunk in reversed(found):
        if hunk.index in chosen:
            expected[hunk.old_start : hunk.old_start + len(hunk.old)] = hunk.new
    assert made == "".join(expected)


def test_unknown_hunk_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="no hunk 3"):
        hunks.apply("a\n", "b\n", [3])


def test_statistics_tell_two_percent_apart_but_not_noise() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(100, 0.5, 40), rng.normal(102, 0.5, 40)
    _, low, high = statistics.unpaired_ratio(list(a), list(b))
    assert low > 1 or high < 1
    _, low, high = statistics.unpaired_ratio(list(a), list(rng.normal(100, 0.5, 40)))
    assert low <= 1 <= high
    median, low, high = statistics.median_interval(list(a))
    assert low <= median <= high


def test_bound_is_the_larger_of_the_two_times() -> None:
    device = devices.find("NVIDIA H200")
    memory = speed_of_light.bound(
        Work(case="full", flops=10**9, least_bytes=48 * 10**9, dtype="float32", tensor_cores=False), device
    )
    assert memory.limited_by == "memory" and memory.bound_s == pytest.approx(0.01)
    compute = speed_of_light.bound(
        Work(case="full", flops=67 * 10**12, least_bytes=1, dtype="float32", tensor_cores=False), device
    )
    assert compute.limited_by == "compute" and compute.bound_s == pytest.approx(1.0)


def test_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match="H200"):
        devices.find("TPU")


def test_occupancy_is_limited_by_what_runs_out_first() -> None:
    device = devices.find("A100")
    assert occupancy.occupancy(device, threads=256, registers=255, shared_bytes=0).limiter == "registers"
    assert occupancy.occupancy(device, threads=1024, registers=32, shared_bytes=100_000).limiter == "shared memory"
    assert occupancy.occupancy(device, threads=1024, registers=32, shared_bytes=0).fraction == 1.0
