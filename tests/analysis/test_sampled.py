"""The model of sampled launches: each resource can be the limit, more never costs less, and what L2 keeps is not
written.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis import devices, sampled
from workbench.records import CtaTimeline, KernelBuild, Launch, LineCounts, Work
from workbench.wire import from_plain

H200 = devices.find("H200")
WORK = Work(case="full", flops=1 << 30, least_bytes=1 << 28, dtype="float32", tensor_cores=False)
RESULTS = Path(__file__).parents[1] / "bench" / "results" / "time_model.json"


def launch(paced: CtaTimeline, *, classes: tuple[tuple[str, int], ...] = (), **counts: int) -> Launch:
    return Launch(
        kernel="k",
        grid=(1320, 1, 1),
        block=(256, 1, 1),
        total=LineCounts(line=0, **counts),
        classes=classes,
        paced=paced,
    )


PLAIN = CtaTimeline(ctas=4, cycles=1000.0, issue=100.0, touched=1)


def seconds(made: Launch, work: Work = WORK) -> tuple[float, str]:
    return sampled.modelled_time([made], [KernelBuild(kernel="k", arch="sm_90a", registers=32)], H200, work)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (launch(PLAIN), "DRAM"),
        (launch(replace(PLAIN, issue=1e7)), "issue"),
        (launch(PLAIN, flops=10**12), "fp32"),
        (launch(PLAIN, flops=10**13, classes=((sampled.TENSOR, 1),)), "tensor cores"),
        (launch(PLAIN, shared_wavefronts=10**9), "shared memory"),
        (launch(replace(PLAIN, l1_lines=10**7)), "L1"),
        (launch(replace(PLAIN, l1_requests=10**7)), "L1"),
        (launch(replace(PLAIN, l1_missed=10**6, l1_sectors=10**6)), "L2"),
        (launch(replace(PLAIN, cycles=1e7)), "latency"),
    ],
)
def test_every_resource_can_be_the_limit(made: Launch, name: str) -> None:
    assert seconds(made)[1] == name


@given(st.sampled_from(["cycles", "issue", "l1_requests", "l1_lines", "l1_missed", "written"]), st.integers(1, 10**8))
def test_more_of_anything_never_takes_less_time(name: str, more: int) -> None:
    made = launch(replace(PLAIN, l1_sectors=10**9))
    assert made.paced is not None
    assert (
        seconds(replace(made, paced=replace(made.paced, **{name: getattr(made.paced, name) + more})))[0]
        >= seconds(made)[0]
    )


def test_dram_holds_passes_that_l2_misses_but_not_what_many_share() -> None:
    work = Work(case="full", flops=0, least_bytes=2 * 4 * 32 * 330 * 1000, dtype="float32", tensor_cores=False)
    private = launch(replace(PLAIN, touched=4000, l2_missed=8000), global_write_bytes=0)
    once = launch(replace(PLAIN, touched=4000, l2_missed=4000), global_write_bytes=0)
    shared = launch(replace(PLAIN, touched=400_000, l2_missed=800_000), global_write_bytes=0)
    assert sampled.dram_bytes(once, work, 1.0, H200)[0] == work.least_bytes
    assert sampled.dram_bytes(private, work, 1.0, H200)[0] == work.least_bytes + 4000 * 330 * 32
    assert sampled.dram_bytes(shared, work, 1.0, H200)[0] == work.least_bytes


def test_small_outputs_stay_in_l2() -> None:
    made = launch(PLAIN, global_write_bytes=1 << 20)
    assert sampled.dram_bytes(made, WORK, 1.0, H200) == (WORK.least_bytes - (1 << 20), 0.0)


def test_the_kept_results_are_what_the_model_says_and_as_good_as_stated() -> None:
    kept = json.loads(RESULTS.read_text())
    for row in kept["rows"]:
        made = sampled.modelled_time(
            [from_plain(item, Launch) for item in row["launches"]],
            [from_plain(item, KernelBuild) for item in row["builds"]],
            H200,
            from_plain(row["work"], Work),
        )
        assert made == (pytest.approx(row["modelled_s"]), row["limit"])
    assert (
        kept["summary"]["kernels"] >= 60
        and kept["summary"]["spearman"] > 0.9
        and kept["summary"]["median_factor"] < 1.25
    )
