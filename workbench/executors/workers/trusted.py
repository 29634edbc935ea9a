"""The trusted roles of a worker process: inspect a problem, make inputs and references, check a candidate's outputs."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from workbench.executors.jobs.exchange import read_outputs, read_values, write_values
from workbench.executors.workers.correctness import compare
from workbench.executors.workers.outputs import OUTPUTS, find_case
from workbench.executors.workers.tolerance import Tolerance, measure_tolerances
from workbench.problems import inspection, loading
from workbench.problems.reference import run_reference
from workbench.records import Check, Job, Problem
from workbench.wire import Json, from_plain, to_plain


def inspect_problem(folder: Path) -> Json:
    """`given/problem.json` as it is understood, with its facts."""
    problem = from_plain(json.loads((folder / "given" / "problem.json").read_text()), Problem)
    return {"opened": to_plain(inspection.open_problem(problem))}


def read_job(folder: Path) -> Job:
    """The job in the folder."""
    return from_plain(json.loads((folder / "given" / "job.json").read_text()), Job)


def list_trials(job: Job) -> list[tuple[str, int]]:
    """(case, trial) of all runs, in order."""
    known = {case.name for case in job.facts.cases}
    return [(name, trial) for name in job.cases if name in known for trial in range(job.trials)]


def make_reference(folder: Path) -> Json:
    """Write inputs and parameters to `given/`, expected outputs in float64 and tolerances to `private/`, by trial."""
    job = read_job(folder)
    seeds = json.loads((folder / "private" / "seeds.json").read_text())
    for name, trial in list_trials(job):
        place, seed, case = f"{name}-{trial}", seeds[f"{name}-{trial}"], find_case(job, name)
        module = loading.load_module(job.problem, case.settings)
        torch.manual_seed(seed)
        model = loading.build_model(module, "Model", job.problem)
        inputs = loading.make_inputs(module, job.problem, seed ^ 1)
        write_values(folder / "given" / f"{place}-state", list(loading.state_of(model).values()))
        write_values(folder / "given" / place, inputs)
        found = run_reference(model, inputs, job.problem.precision, seed=seed)
        for n, tolerance in enumerate(measure_tolerances(found, case.outputs)):
            write_values(_tolerance_folder(folder, place, n), tolerance.to_values())
        write_values(folder / "private" / place, found.exact)
    return {"done": True}


def _tolerance_folder(folder: Path, place: str, output: int) -> Path:
    return folder / "private" / f"{place}-tolerance{output}"


def check_outputs(folder: Path) -> Json:
    """Compare the candidate's outputs in `scratch/out` with the expected ones."""
    job = read_job(folder)
    checks = []
    for name, trial in list_trials(job):
        place, case = f"{name}-{trial}", find_case(job, name)
        expected = read_values(folder / "private" / place)
        try:
            got = read_outputs(folder, f"scratch/{OUTPUTS}/{place}", case.outputs)
        except (OSError, ValueError) as error:
            return {"error": f"the candidate's output for case {name} cannot be read: {error}"}
        for n, (value, wanted) in enumerate(zip(got, expected, strict=True)):
            fields = compare(value, wanted, Tolerance(*read_values(_tolerance_folder(folder, place, n))))
            checks.append(to_plain(Check(case=name, trial=trial, timed=False, output=n, **fields)))
    return {"checks": checks}
