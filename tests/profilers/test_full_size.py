"""Profiles at full size from a few CTAs, against times that an H200 measured."""

from __future__ import annotations

import math

import pytest

from workbench import landscapes, problems
from workbench.codegen import compile_program
from workbench.errors import UserError
from workbench.executors.inspector import WorkerInspector
from workbench.profilers.sampled import CTAS, SampledProfiler
from workbench.proposers.binding import binding_of
from workbench.proposers.recognition import recognise
from workbench.records import Candidate, Facts, Job, Outcome, Problem, Profile


@pytest.fixture(scope="module")
def subjects() -> dict[str, tuple[Problem, Facts]]:
    found = {name: problems.load(name) for name in ("softmax", "relu")}
    return {name: (problem, WorkerInspector().inspect(problem)) for name, problem in found.items()}


def job(subject: tuple[Problem, Facts], program: str) -> Job:
    problem, facts = subject
    return Job(
        problem=problem,
        facts=facts,
        candidate=Candidate(source=compile_program(program, binding_of(problem, facts, recognise(facts)))),
        arch="sm_90a",
        device="H200",
    )


def profiled(job: Job) -> Profile:
    return SampledProfiler().profile(job, Outcome(executor="emulator", arch=job.arch, device=job.device))


def test_a_second_pass_over_memory_is_seen_and_the_times_are_near_those_measured(
    subjects: dict[str, tuple[Problem, Facts]],
) -> None:
    place = landscapes.find(subjects["softmax"][0], "H200")
    times = {}
    for program in (
        "softmax(x) .arch(sm_90a) .threads_per_row(32)",
        "softmax(x) .arch(sm_90a) .kept() .threads_per_row(1024) .vector(4)",
    ):
        found = profiled(job(subjects["softmax"], program))
        (launch,) = found.launches
        assert (
            launch.sampled == CTAS and found.case == "full" and found.by == "sampled" and found.limits[0][0] == "DRAM"
        )
        assert launch.total.global_write_bytes == 16384 * 16384 * 4  # four CTAs' times the grid over four
        row, modelled = place.row(program), found.kernels[0].modelled_s
        assert (
            row is not None
            and row.median_s is not None
            and modelled is not None
            and 0.6 < modelled / row.median_s < 1.2
        )
        times[program] = (dict(found.limits)["DRAM"], modelled, row.median_s)
    (twice, slow, _), (once, fast, _) = times.values()
    assert twice > 1.9 * once and slow > 1.7 * fast


def test_what_does_not_fit_in_memory_is_profiled_all_the_same(subjects: dict[str, tuple[Problem, Facts]]) -> None:
    (full,) = [case for case in subjects["relu"][1].cases if case.name == "full"]
    assert math.prod(full.inputs[0].shape) * 4 > 4 << 30
    found = profiled(job(subjects["relu"], "elementwise(relu(x)) .arch(sm_90a) .threads(256) .vector(4)"))
    assert found.limits[0][0] == "DRAM" and found.kernels[0].grid[0] > 100_000


def test_a_version_that_fails_at_full_size_says_so(subjects: dict[str, tuple[Problem, Facts]]) -> None:
    problem, facts = subjects["relu"]
    with pytest.raises(UserError, match=r"cannot be profiled at full size: .*no such thing"):
        profiled(
            Job(
                problem=problem,
                facts=facts,
                candidate=Candidate(
                    source="import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        "
                    "raise ValueError('no such thing')\n"
                ),
            )
        )
