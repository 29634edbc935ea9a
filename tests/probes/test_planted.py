"""Kernels that are slow in one known way each, run on the emulator at full size: the right probe comes first, and names
the slow line. `profiles.jsonl.gz` has the same profiles for the other tests:

    python tests/bench/probes_on_gpu.py take --without-gpu --out profiles.jsonl --only-planted
"""

from __future__ import annotations

import pytest
from planted_kernels import PLANTED, Planted
from taken import diagnose_taken, planted_profiles

from workbench.analysis import devices, speed_of_light
from workbench.executors.full_size import FullSizeRun
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs.client import server
from workbench.probes import diagnose
from workbench.profilers.counters import profile_full_size
from workbench.records import Candidate, Diagnosis, Job, Outcome

LEAST_FIRST, LEAST_LINES = 0.9, 0.84  # shares of all planted kernels
SECOND = ("no cluster",)  # its tile may be larger too, which is advised first
OFF_LINE = ("layer norm, a row in 64 threads' registers",)  # the longest wait is a pass later


def run_planted(planted: Planted) -> tuple[str, Diagnosis]:
    """(the kernel's text, its diagnosis from a run on the emulator)."""
    problem = planted.load()
    facts = WorkerInspector().inspect(problem)
    source = planted.source(problem, facts)
    job = Job(
        problem=problem,
        facts=facts,
        candidate=Candidate(source=source),
        arch="sm_90a",
        cases=("full",),
        wall_limit_s=120.0,
        memory_limit_bytes=16 << 30,
    )
    with FullSizeRun(job, server()) as full:
        outcome = full.add_to(Outcome(executor="emulator", arch=job.arch, device=job.device), None)
    profile = profile_full_size(facts, source, outcome)
    assert profile is not None, outcome
    work = next(work for work in facts.work if work.case == "full")
    found = diagnose(profile, speed_of_light.bound(work, devices.find("H200")), source)
    assert found is not None
    return source, found


@pytest.mark.few(2)
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_the_right_probe_comes_first_on_the_slow_line(planted: Planted) -> None:
    source, found = run_planted(planted)
    at = int(planted.name in SECOND)
    assert len(found.advice) > at and found.advice[at].probe == planted.probe, [item.probe for item in found.advice]
    if planted.name not in OFF_LINE:
        assert found.advice[at].line in planted.lines(source)


def test_a_barrier_after_each_load_is_named_in_place_of_the_loads() -> None:
    planted = Planted(
        "barrier_after_loads", "barrier_stalls", "row_sum", settings=(("rows", 512), ("columns", 65536))
    )  # what a warp waits for is the load before the barrier: only the count of barriers tells
    source, found = run_planted(planted)
    (advice,) = (item for item in found.advice if item.probe == "barrier_stalls")
    assert advice.line in planted.lines(source) and advice.gain > 1.1
    assert "memory_latency" not in {item.probe for item in found.advice}


def test_narrow_loads_of_a_kernel_that_also_computes_are_named() -> None:
    """An operand that a whole warp reads at once does not make an access narrower than it is."""
    planted = Planted("scalars_and_a_factor", "access_width", "polynomial")
    source, found = run_planted(planted)
    (advice,) = (item for item in found.advice if item.probe == "access_width")
    assert "a thread moves 4 bytes" in advice.cause and advice.line in planted.lines(source)


def test_most_planted_kernels_are_found_with_their_lines() -> None:
    first = lines = 0
    for planted in PLANTED:
        taken = planted_profiles()[planted.name]
        top = diagnose_taken(taken).advice[0]
        first += top.probe == planted.probe
        lines += top.probe == planted.probe and top.line in planted.lines(taken.source)
    assert len(PLANTED) >= 30 and len({planted.probe for planted in PLANTED}) >= 15
    assert first >= LEAST_FIRST * len(PLANTED) and lines >= LEAST_LINES * len(PLANTED)
