"""The trusted roles of a worker process: inspect a problem, make inputs and references, check a candidate's outputs."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from workbench.analysis import correctness
from workbench.executors.jobs.exchange import read_outputs, read_values, write_values
from workbench.executors.workers import referee
from workbench.executors.workers.outputs import OUTPUTS, find_case
from workbench.problems import inspection, loading
from workbench.records import Check, Job, Problem
from workbench.wire import Json, from_plain, to_plain


def inspect_problem(folder: Path) -> Json:
    """Facts of `given/problem.json`."""
    problem = from_plain(json.loads((folder / "given" / "problem.json").read_text()), Problem)
    return {"facts": to_plain(inspection.inspect(problem))}


def read_job(folder: Path) -> Job:
    """The job in the folder."""
    return from_plain(json.loads((folder / "given" / "job.json").read_text()), Job)


def list_trials(job: Job) -> list[tuple[str, int]]:
    """(case, trial) of all runs, in order."""
    known = {case.name for case in job.facts.cases}
    return [(name, trial) for name in job.cases if name in known for trial in range(job.trials)]


def make_reference(folder: Path) -> Json:
    """Write inputs and parameters to `given/`, expected outputs in float64 to `private/`, for each trial."""
    job = read_job(folder)
    seeds = json.loads((folder / "private" / "seeds.json").read_text())
    for name, trial in list_trials(job):
        place, seed = f"{name}-{trial}", seeds[f"{name}-{trial}"]
        module = loading.load_module(job.problem, find_case(job, name).settings)
        torch.manual_seed(seed)
        model = loading.build_model(module, "Model", job.problem)
        inputs = loading.make_inputs(module, job.problem, seed ^ 1)
        write_values(folder / "given" / f"{place}-state", list(loading.state_of(model).values()))
        write_values(folder / "given" / place, inputs)
        torch.manual_seed(seed)
        with torch.no_grad():
            result = model.double()(*referee.to_float64(inputs))
        write_values(folder / "private" / place, list(result) if isinstance(result, (tuple, list)) else [result])
    return {"done": True}


def check_outputs(folder: Path) -> Json:
    """Compare the candidate's outputs in `scratch/out` with the expected ones."""
    job = read_job(folder)
    checks = []
    for name, trial in list_trials(job):
        expected = read_values(folder / "private" / f"{name}-{trial}")
        case = find_case(job, name)
        try:
            got = read_outputs(folder, f"scratch/{OUTPUTS}/{name}-{trial}", case.outputs)
        except (OSError, ValueError) as error:
            return {"error": f"the candidate's output for case {name} cannot be read: {error}"}
        length = correctness.summed_terms(case, job.facts)
        for n, (value, wanted, spec) in enumerate(zip(got, expected, case.outputs, strict=True)):
            here = value.to(torch.float64).numpy() if value.is_floating_point() else value.numpy()
            fields = correctness.compare(
                here,
                wanted.numpy(),
                dtype=spec.dtype,
                precision=job.problem.precision,
                length=length,
                products=correctness.longest_product_chain(job.facts.graph),
            )
            checks.append(to_plain(Check(case=name, trial=trial, timed=False, output=n, **fields)))
    return {"checks": checks}
