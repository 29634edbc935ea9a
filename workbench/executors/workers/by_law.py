"""Compares random results with the reference's by law, where a candidate's random numbers are not torch's."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch

from workbench.executors.jobs.exchange import read_outputs, read_values
from workbench.executors.jobs.trials import FEWEST_LAW_CALLS, LAW_CALLS, NOT_FINITE, Run, list_runs
from workbench.executors.workers import effects
from workbench.executors.workers.outputs import OUTPUTS, find_case, load_case, tolerance_path
from workbench.executors.workers.tolerance import Tolerance, as_matrix, measure_tolerances
from workbench.problems import loading
from workbench.problems.reference import law as laws
from workbench.records import Case, Check, Job

FOLLOWS = 0.3  # correlation with torch's random numbers of a candidate that takes them
LAW_ELEMENTS = 1 << 15  # of an output that are compared by law: its first and its last rows


def compare_by_law(folder: Path, job: Job, checks: list[Check], law_calls: int) -> list[Check]:
    """The comparisons, those of outputs by law where the random numbers are not torch's.

    A candidate that takes torch's numbers is compared number by number only.
    """
    runs = {run.place: run for run in list_runs(job)}
    failed = [check for check in checks if not check.passed and not check.of]
    largest = max(failed, key=lambda check: check.elements)
    if _follows_torch(folder, job, runs[Run(case=largest.case, trial=largest.trial).place]):
        return checks
    series = next(run for run in runs.values() if run.repeats)
    wanted = {Run(case=check.case, trial=check.trial).place for check in failed}
    wanted |= {place for place, run in runs.items() if run.layout}
    found = _rate_by_law(folder, job, series, law_calls)
    kept: list[Check] = []
    for check in checks:
        run = runs[Run(case=check.case, trial=check.trial).place]
        if check.of or run.place not in wanted:
            kept += [check] if run.values != (NOT_FINITE,) else []  # of which the kinds follow the random numbers
        elif not any(one.case == check.case and one.trial == check.trial and not one.of for one in found):
            found += _rate_by_law(folder, job, run, 1)
    return found + kept


def _follows_torch(folder: Path, job: Job, run: Run) -> bool:
    """Whether the first output of a trial deviates from the mean as that of the reference with torch's numbers does."""
    got, known = _read_samples(folder, job, run, 1, laws.SINGLE_SAMPLES)
    exact = read_values(folder / "private" / run.expected_place)[0]
    mean = known[0].mean(0)
    ours, theirs = (got[0][0].double() - mean).reshape(-1), (exact.double() - mean).reshape(-1)
    size = float(ours.norm() * theirs.norm())
    return size > 0 and float(ours @ theirs) > FOLLOWS * size


def _read_samples(
    folder: Path, job: Job, run: Run, calls: int, count: int
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The outputs of a trial in its `calls` calls alike, [calls, ...] each, and `count` samples of the reference's."""
    case, place = find_case(job, run.case), run.expected_place
    several = len(case.outputs) * len(run.values)  # of different calls
    read = read_outputs(folder, f"scratch/{OUTPUTS}/{run.place}", case.outputs * len(run.values) * calls)
    model = _read_model(folder, job, case, place)
    inputs = [read_values(folder / "given" / f"{place}-call{call}") for call in range(len(run.values))]
    drawn = effects.sample_calls(model, inputs, count)
    known = [torch.stack(list(samples)) for samples in zip(*drawn, strict=True)]
    return [torch.stack(read[n::several]) for n in range(several)], known


def _read_model(folder: Path, job: Job, case: Case, place: str) -> torch.nn.Module:
    """The reference with the parameters and buffers of a trial."""
    model = loading.build_model(load_case(job, case.name), "Model", job.problem)
    with torch.no_grad():
        stored = read_values(folder / "given" / f"{place}-state")
        for value, held in zip(loading.state_of(model).values(), stored, strict=True):
            value.copy_(held)
    return model


def _rate_by_law(folder: Path, job: Job, run: Run, calls: int) -> list[Check]:
    """A comparison by law for each output of a trial, of a layout with a doubt only."""
    if run.repeats and not FEWEST_LAW_CALLS <= calls <= LAW_CALLS:
        raise ValueError(f"{calls} calls")
    got, known = _read_samples(folder, job, run, calls, laws.SAMPLES if run.repeats else laws.SINGLE_SAMPLES)
    case, place = find_case(job, run.case), run.expected_place
    if run.repeats:
        inputs = [read_values(folder / "given" / f"{place}-call0")]
        one = effects.run_calls(_read_model(folder, job, case, place), inputs, job, case.outputs, seed=0)
        tolerances = measure_tolerances(one.found, one.specs)
        kinds = [f"random numbers by law over {calls} calls"]
    else:
        kinds = [run.layout] if run.layout else json.loads((folder / "private" / f"{place}.json").read_text())["values"]
        tolerances = Tolerance.from_values(read_values(tolerance_path(folder, place)))
    outputs, checks = len(case.outputs), []
    for n, (own, theirs) in enumerate(zip(got, known, strict=True)):
        found = _compare_outputs(own, theirs, tolerances[n])
        for other in range(n - n % outputs, n):  # those of the same call before it
            if found.distance <= 1:
                found = _compare_joint_law((own, got[other]), (theirs, known[other])) or found
        said = f"by law, over {calls} call{'s' * (calls > 1)}, {found.said}"
        wrong = found.distance > 1
        checks.append(
            Check(
                case=run.case,
                trial=run.trial,
                timed=False,
                passed=not wrong or bool(run.layout),
                output=n % outputs,
                elements=own[0].numel(),
                bad_elements=own[0].numel() if wrong else 0,
                max_error=found.distance,
                message=said if wrong and not run.layout else "",
                values="" if wrong else kinds[n // outputs],
                doubt=f"reads inputs of {run.layout} wrong" if wrong and run.layout else found.doubt,
            )
        )
    return checks


def _compare_outputs(own: torch.Tensor, known: torch.Tensor, tolerance: Tolerance) -> laws.Comparison:
    """Compare the samples [N, ...] of one output with those of the reference."""
    if not known[0].numel():
        return laws.Comparison(0.0)
    mean = as_matrix(known.double().mean(0))
    allowed = torch.zeros_like(mean)
    if tolerance.rounding:
        allowed = tolerance.allowed(mean, (slice(None), slice(None)))
    ours, theirs = (value.reshape(len(value), *mean.shape) for value in (own, known))
    high = max(LAW_ELEMENTS // mean.shape[1], 2)
    if len(mean) > high:
        rows = torch.cat([torch.arange(high // 2), torch.arange(len(mean) - high // 2, len(mean))])
        ours, theirs, allowed = ours[:, rows], theirs[:, rows], allowed[rows]
    return laws.compare_laws(ours, theirs, allowed)


def _compare_joint_law(
    own: tuple[torch.Tensor, torch.Tensor], known: tuple[torch.Tensor, torch.Tensor]
) -> laws.Comparison | None:
    """Compare how two outputs of the same calls depend on each other; None where one of them is not random."""
    if any(bool((value == value[0]).all()) for value in known):
        return None
    if own[0].shape != own[1].shape:
        return laws.Comparison(
            math.inf, "several random results of different shapes are compared number by number only"
        )
    ours, theirs = (one.double() * other.double() for one, other in (own, known))
    mean = as_matrix(theirs.mean(0))
    ours, theirs = (value.reshape(len(value), *mean.shape) for value in (ours, theirs))
    found = laws.compare_laws(ours, theirs, 1e-3 * theirs.abs().amax(0))
    return laws.Comparison(found.distance, f"two results together: {found.said}") if found.distance > 1 else None
