"""Profiles of real kernels on the emulator, and the model's order of versions against what an H200 measured."""

from __future__ import annotations

import importlib
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench import problems
from workbench.codegen import compile_program
from workbench.evaluate import estimate_outcome
from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.inspector import WorkerInspector
from workbench.language import Binding
from workbench.profilers.counters import CounterProfiler
from workbench.profilers.sass import SassProfiler
from workbench.proposers.binding import candidate_of
from workbench.proposers.recognition import recognise
from workbench.protocols import Profiler, RunContext
from workbench.records import Candidate, Facts, Job, Outcome, Problem

MEASURED = Path(__file__).parent.parent / "bench" / "results" / "h200_loop_part1.json"
CLEAR = 1.3  # measured times further apart than this must be modelled in the same order
COMPARED = {"relu": (1, 2), "row_sum": (1, 2), "softmax": (1, 2), "rms_norm": (1, 2)}


def subject(name: str) -> tuple[Problem, Facts]:
    problem = problems.load(name)
    return problem, WorkerInspector().inspect(problem)


def emulate(problem: Problem, facts: Facts, program: str) -> tuple[Job, Outcome]:
    binding = Binding(
        init_source=facts.init_source,
        forward_arguments=facts.forward_arguments,
        operands=recognise(facts).operands,
        module_names="import torch\nimport torch.nn as nn",
    )
    job = Job(
        problem=problem,
        facts=facts,
        candidate=Candidate(source=compile_program(program, binding)),
        cases=("shrunk",),
        trials=1,
    )
    outcome = EmulatorExecutor().run(job)
    assert outcome.failure is None, outcome.failure
    return job, outcome


@pytest.fixture(scope="module")
def rows() -> Iterator[dict[str, list[dict[str, object]]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for row in json.loads(MEASURED.read_text())["rows"]:
        found.setdefault(row["problem"], []).append(row)
    yield found


@pytest.mark.few(1)
@pytest.mark.parametrize("name", COMPARED)
def test_the_model_orders_versions_as_the_gpu_does_and_is_within_a_factor_of_two(
    name: str, rows: dict[str, list[dict[str, object]]]
) -> None:
    problem, facts = subject(name)
    pairs = []
    for row in rows[name]:
        if row["version"] in COMPARED[name]:
            estimate = estimate_outcome(*emulate(problem, facts, str(row["program"])))
            assert estimate is not None
            pairs.append((float(str(row["median_s"])), estimate.seconds))
    assert len(pairs) == 2
    for measured, modelled in pairs:
        assert 0.5 < modelled / measured < 2
    (slow, slow_modelled), (fast, fast_modelled) = sorted(pairs, reverse=True)
    assert slow / fast > CLEAR and slow_modelled > fast_modelled


def test_a_profile_says_what_limits_and_why() -> None:
    problem, facts = subject("row_sum")
    program = json.loads(MEASURED.read_text())["rows"]
    job, outcome = emulate(
        problem, facts, next(row["program"] for row in program if row["problem"] == "row_sum" and row["version"] == 1)
    )
    profile = CounterProfiler().profile(job, outcome, RunContext(options={"case": "shrunk"}))
    assert profile.case == "shrunk" and CounterProfiler().profile(job, outcome).case == "full"
    assert profile.limits[0][0] == "L1" and list(profile.limits) == sorted(profile.limits, key=lambda item: -item[1])
    assert "limited by L1 (modelled)" in profile.summary and "x the ideal sectors" in profile.summary
    launch = profile.launches[0]
    assert sum(line.global_sectors for line in launch.lines) == launch.total.global_sectors
    assert launch.total.global_read_bytes == 256 * 256 * 4 and launch.total.global_write_bytes == 256 * 4
    ((kernel, fraction, limiter),) = profile.occupancy
    assert (
        kernel == launch.kernel and 0 < fraction <= 1 and limiter in ("threads", "CTAs", "registers", "shared memory")
    )
    said = SassProfiler().profile(job, outcome).summary
    assert "registers" in said and "no spills" in said


def test_every_profiler_that_is_declared_is_one() -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"][
        "workbench.profilers"
    ]
    assert set(declared) == {"counters", "sampled", "sass", "ncu", "timeline", "energy"}
    for name, place in declared.items():
        module, _, made = place.partition(":")
        profiler = getattr(importlib.import_module(module), made)()
        assert (
            isinstance(profiler, Profiler)
            and profiler.name == name
            and (profiler.why_not() is None or "\n" not in profiler.why_not())
        )


def test_nothing_launched_is_said() -> None:
    problem, facts = subject("relu")
    job = Job(problem=problem, facts=facts, candidate=Candidate(source=""))
    empty = Outcome(executor="emulator", arch="sm_80", device="H200")
    assert "no CuTe DSL kernel" in CounterProfiler().profile(job, empty).summary
    assert SassProfiler().profile(job, empty).summary == "nothing was compiled"


@pytest.mark.slow
def test_tiles_that_stick_out_of_the_emulated_matrices_are_ordered_by_their_full_size() -> None:
    """Measured on an H200 (its landscape), 4096 cubed in bf16: 179 us with clusters of 2x1, 201 to 339 in smaller
    tiles.
    """
    problem = problems.load("matmul", precision="bf16")
    facts = WorkerInspector().inspect(problem)
    times = []
    for program in (".tile(128, 256, 64) .cluster(2, 1)", ".tile(64, 64, 64)"):
        candidate = candidate_of(problem, facts, "sm_90a", f"gemm(a, b) .mma(bf16) .schedule(cooperative) {program}")
        job = Job(
            problem=problem,
            facts=facts,
            candidate=Candidate(source=candidate.source),
            arch="sm_90a",
            cases=("shrunk",),
            trials=1,
        )
        outcome = EmulatorExecutor().run(job)
        assert outcome.failure is None, outcome.failure
        estimate = estimate_outcome(job, outcome)
        assert estimate is not None
        times.append(estimate.seconds)
    assert 1.1 * times[0] < times[1] and 0.5 * 179e-6 < times[0] < 2 * 179e-6
