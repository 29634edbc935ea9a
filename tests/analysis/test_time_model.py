"""The time model: each resource can be the limit, more never costs less, what was measured is what the regression says,
and intervals are narrow only where kernels were measured.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis import devices
from workbench.analysis.time_model import compare_times, estimate_time, fitted_model, terms
from workbench.analysis.time_model.features import describe_launch
from workbench.analysis.time_model.regression import GaussianProcess, Hyperparameters
from workbench.records import CtaTimeline, KernelBuild, Launch, LineCounts, Work

H200 = devices.find("H200")
WORK = Work(case="full", flops=1 << 30, least_bytes=1 << 28, dtype="float32", tensor_cores=False)
BUILD = KernelBuild(kernel="k", arch="sm_90a", registers=32)
RESULTS = Path(__file__).parents[1] / "bench" / "results"
PLAIN = CtaTimeline(ctas=4, cycles=1000.0, issue=100.0, touched=1)


def launch(
    paced: CtaTimeline, *, tensor_flops: tuple[tuple[str, int], ...] = (), ctas: int = 1320, **counts: int
) -> Launch:
    return Launch(
        kernel="k",
        grid=(ctas, 1, 1),
        block=(256, 1, 1),
        total=LineCounts(line=0, **counts),
        tensor_flops=tensor_flops,
        paced=paced,
    )


def parts(made: Launch, work: Work = WORK, device: devices.Device = H200) -> dict[str, float]:
    return terms.resource_seconds(made, BUILD, device, work, fitted_model().constants)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (launch(PLAIN), "DRAM"),
        (launch(replace(PLAIN, issue=1e7)), "issue"),
        (launch(PLAIN, flops=10**12), "fp32"),
        (launch(PLAIN, flops=10**13, tensor_flops=(("bfloat16", 10**13),)), "tensor cores"),
        (launch(PLAIN, shared_wavefronts=10**9), "shared memory"),
        (launch(replace(PLAIN, l1_lines=10**7)), "L1"),
        (launch(replace(PLAIN, l1_requests=10**7)), "L1"),
        (launch(replace(PLAIN, l1_missed=10**6, l1_sectors=10**6)), "L2"),
        (launch(replace(PLAIN, cycles=1e7)), "latency"),
        (replace(launch(replace(PLAIN, cycles=10, issue=1), ctas=10**6), block=(32, 1, 1)), "CTA launch"),
    ],
)
def test_every_resource_can_be_the_limit(made: Launch, name: str) -> None:
    found = parts(made)
    assert max(found, key=lambda key: found[key]) == name
    assert estimate_time((made,), (BUILD,), H200, WORK).limit == name


@given(st.sampled_from(["cycles", "issue", "l1_requests", "l1_lines", "l1_missed", "written"]), st.integers(1, 10**8))
def test_more_of_anything_never_takes_less_time(name: str, more: int) -> None:
    made = launch(replace(PLAIN, l1_sectors=10**9))
    assert made.paced is not None
    worse = replace(made, paced=replace(made.paced, **{name: getattr(made.paced, name) + more}))
    constants = fitted_model().constants
    assert terms.combine(parts(worse), constants) >= terms.combine(parts(made), constants)


@given(st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=9))
def test_a_launch_takes_at_least_its_longest_resource_and_at_most_all_of_them(seconds: list[float]) -> None:
    found = terms.combine({str(n): value for n, value in enumerate(seconds)}, fitted_model().constants)
    assert max(seconds) * (1 - 1e-12) <= found <= sum(seconds) * (1 + 1e-12)


def test_products_of_split_tf32_run_at_the_rate_of_tf32() -> None:
    made = launch(replace(PLAIN, wgmma=True), flops=10**13, tensor_flops=(("tfloat32", 10**13),))
    assert parts(made)["tensor cores"] == pytest.approx(10**13 / H200.tf32, rel=0.01)
    assert parts(made)["fp32"] == 0


def test_dram_holds_passes_that_l2_misses_but_not_what_many_share() -> None:
    work = Work(case="full", flops=0, least_bytes=2 * 4 * 32 * 330 * 1000, dtype="float32", tensor_cores=False)
    private = launch(replace(PLAIN, touched=4000, l2_missed=8000), global_write_bytes=0)
    once = launch(replace(PLAIN, touched=4000, l2_missed=4000), global_write_bytes=0)
    shared = launch(replace(PLAIN, touched=400_000, l2_missed=800_000), global_write_bytes=0)
    assert terms.find_dram_bytes(once, work, 1.0, H200)[0] == work.least_bytes
    assert terms.find_dram_bytes(private, work, 1.0, H200)[0] == work.least_bytes + 4000 * 330 * 32
    assert terms.find_dram_bytes(shared, work, 1.0, H200)[0] == work.least_bytes


def test_small_outputs_stay_in_l2() -> None:
    made = launch(PLAIN, global_write_bytes=1 << 20)
    assert terms.find_dram_bytes(made, WORK, 1.0, H200) == (WORK.least_bytes - (1 << 20), 0.0)


HYPER = Hyperparameters(scales=(1.0, 2.0), amplitude=0.5, linear=0.1, offset=0.3, problem=0.1, noise=0.01)
POINTS = np.random.default_rng(0).normal(size=(60, 2))
VALUES = np.sin(POINTS[:, 0]) + 0.2 * POINTS[:, 1]
PROCESS = GaussianProcess.fit(HYPER, POINTS, VALUES, np.arange(60))


def test_the_regression_knows_what_was_measured_and_is_unsure_elsewhere() -> None:
    near, spread = PROCESS.predict(POINTS[:5] + 0.01)
    assert np.abs(near - VALUES[:5]).max() < 0.15
    _, far = PROCESS.predict(np.array([[40.0, 40.0]]))
    assert math.sqrt(far[0, 0]) > 3 * math.sqrt(spread[0, 0])


def test_two_versions_of_a_problem_are_compared_better_than_each_is_known() -> None:
    _, spread = PROCESS.predict(np.array([[6.0, 6.0], [6.1, 6.0]]))
    apart = math.sqrt(spread[0, 0] + spread[1, 1] - 2 * spread[0, 1])
    assert apart < 0.5 * math.sqrt(spread[0, 0])


def test_the_posterior_is_that_of_the_textbook() -> None:
    new = np.array([[0.3, -0.2], [1.0, 0.5]])
    rows = (POINTS - POINTS.mean(0)) / POINTS.std(0)
    at = (new - POINTS.mean(0)) / POINTS.std(0)

    def prior(a: np.ndarray, b: np.ndarray) -> float:
        squared = sum(((x - y) / s) ** 2 for x, y, s in zip(a, b, HYPER.scales, strict=True))
        return float(0.25 * (1 + squared / 3) ** -1.5 + 0.01 * (a @ b) + 0.09)

    whole = np.array([[prior(a, b) for b in rows] for a in rows]) + (0.1**2 + 0.01**2) * np.eye(60)
    between = np.array([[prior(a, b) for b in rows] for a in at])
    mean, spread = PROCESS.predict(new)
    assert mean == pytest.approx(between @ np.linalg.solve(whole, VALUES))
    own = np.array([[prior(a, b) for b in at] for a in at]) + 0.1**2 + 0.01**2 * np.eye(2)
    assert spread == pytest.approx(own - between @ np.linalg.solve(whole, between.T))


def test_estimates_have_an_interval_that_is_wider_on_other_devices() -> None:
    made = launch(replace(PLAIN, cycles=1e6))
    here = estimate_time([made], [BUILD], H200, WORK)
    assert here.low_s < here.seconds < here.high_s and here.limit == "latency"
    there = estimate_time([made], [BUILD], devices.find("A100"), WORK)
    assert there.high_s / there.low_s > here.high_s / here.low_s


def test_a_large_gain_is_told_and_none_is_not() -> None:
    slow = estimate_time([launch(replace(PLAIN, cycles=1e7, issue=1e6))], [BUILD], H200, WORK)
    fast = estimate_time([launch(PLAIN)], [BUILD], H200, WORK)
    assert compare_times(fast, slow).order == "faster" and compare_times(slow, fast).order == "slower"
    assert compare_times(fast, slow).speedup == pytest.approx(1 / compare_times(slow, fast).speedup)
    assert compare_times(fast, fast).order == "cannot be told"


def test_the_fit_has_the_features_of_the_code() -> None:
    _, found = describe_launch(launch(PLAIN), BUILD, H200, WORK, fitted_model().constants, 1.0)
    assert set(fitted_model().names) == {*found, "launches"}


def test_decisions_are_as_good_as_the_documentation_says() -> None:
    kept = json.loads((RESULTS / "decisions.json").read_text())["landscapes"]
    assert kept["kernels"] >= 900 and kept["right over 10 %"] >= 0.95
    assert kept["median factor"] <= 1.15 and kept["factor of 9 in 10"] <= 1.4
    assert kept["cannot be told over 10 %"] <= 0.1 and 0.85 <= kept["in the interval of 90 %"] <= 0.95
