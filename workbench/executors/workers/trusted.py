"""The trusted roles of a worker process: inspect a problem, make inputs and references, check a candidate's outputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from workbench.executors.jobs.exchange import Values, read_outputs, read_values, write_values
from workbench.executors.jobs.trials import (
    TINY,
    count_calls,
    find_not_finite,
    has_special_values,
    input_seed,
    list_trials,
)
from workbench.executors.workers import effects, special_values
from workbench.executors.workers.correctness import compare
from workbench.executors.workers.outputs import OUTPUTS, find_case
from workbench.executors.workers.tolerance import Tolerance, measure_tolerances
from workbench.problems import inspection, loading
from workbench.records import Case, Check, Job, Problem
from workbench.wire import Json, from_plain, to_plain

DOUBT_LENGTH = 300


def inspect_problem(folder: Path) -> Json:
    """`given/problem.json` as it is understood, with its facts."""
    problem = from_plain(json.loads((folder / "given" / "problem.json").read_text()), Problem)
    return {"opened": to_plain(inspection.open_problem(problem))}


def read_job(folder: Path) -> Job:
    """The job in the folder."""
    return from_plain(json.loads((folder / "given" / "job.json").read_text()), Job)


def make_reference(folder: Path) -> Json:
    """Write inputs and parameters to `given/`, expected values in float64 and tolerances to `private/`, by trial."""
    job = read_job(folder)
    seeds = json.loads((folder / "private" / "seeds.json").read_text())
    typical: list[Tolerance] = []  # of the first trial
    for name, trial in list_trials(job):
        place, seed, case = f"{name}-{trial}", seeds[f"{name}-{trial}"], find_case(job, name)
        module = loading.load_module(job.problem, case.settings)
        torch.manual_seed(seed)
        model = loading.build_model(module, "Model", job.problem)
        count = count_calls(job, name, trial)
        calls = [loading.make_inputs(module, job.problem, input_seed(seed, call)) for call in range(count)]
        write_values(folder / "given" / f"{place}-state", list(loading.state_of(model).values()))
        if (name, trial) == find_not_finite(job) and _make_not_finite(folder, model, calls[0], job, (place, seed)):
            continue
        special = has_special_values(job, name, trial)
        made = _run_special(model, calls, job, case, seed) if special else None
        if made is not None:
            calls, (expected, tolerances) = made
        else:  # before the reference runs, so that the candidate can begin
            _write_calls(folder, place, calls)
            expected = effects.run_calls(model, calls, job, case.outputs, seed=seed)
            tolerances = measure_tolerances(expected.found, expected.specs)
        _write_calls(folder, place, calls if made is not None else [])
        if name == TINY:
            tolerances = [one.at_least(typical[n]) if n < len(typical) else one for n, one in enumerate(tolerances)]
        typical = typical or tolerances
        for n, tolerance in enumerate(tolerances):
            write_values(_tolerance_folder(folder, place, n), tolerance.to_values())
        notes = {"changed": expected.changed, "values": special_values.KINDS if made is not None else ()}
        (folder / "private" / f"{place}.json").write_text(json.dumps(notes))
        write_values(folder / "private" / place, expected.found.exact)
    return {"done": True}


def _make_not_finite(
    folder: Path, model: torch.nn.Module, inputs: Sequence[object], job: Job, which: tuple[str, int]
) -> bool:
    """Write a call with inputs that have NaN and infinity, and what the reference makes of them.

    False if the reference does not run with them, or none of its results is NaN or infinite.
    """
    place, seed = which
    changed = special_values.make_not_finite(inputs)
    if changed is None:
        return False
    try:
        case = find_case(job, place.rpartition("-")[0])
        kinds = special_values.expected_kinds(effects.run_calls(model, [changed], job, case.outputs, seed=seed))
    except (RuntimeError, ValueError):  # for example probabilities must be numbers
        return False
    if not any(bool(((kind == special_values.NAN) | (kind == special_values.INFINITE)).any()) for kind in kinds):
        return False
    special_values.mark(folder, place)
    _write_calls(folder, place, [changed])
    (folder / "private" / f"{place}.json").write_text(json.dumps({"values": [special_values.NOT_FINITE]}))
    write_values(folder / "private" / place, kinds)
    return True


def _write_calls(folder: Path, place: str, calls: Values) -> None:
    for call, inputs in enumerate(calls):
        write_values(folder / "given" / f"{place}-call{call}", inputs)


def _run_special(
    model: torch.nn.Module, calls: Values, job: Job, case: Case, seed: int
) -> tuple[Values, tuple[effects.Expectation, list[Tolerance]]] | None:
    """Calls with special values, and what the reference gives for them; None if they do not suit it."""
    changed = [special_values.make_special(inputs, call) for call, inputs in enumerate(calls)]
    try:
        expected = effects.run_calls(model, changed, job, case.outputs, seed=seed)
        tolerances = measure_tolerances(expected.found, expected.specs)
    except (RuntimeError, ValueError):  # for example probabilities that are above 1
        return None
    return (changed, (expected, tolerances)) if special_values.suits(expected, tolerances) else None


def _tolerance_folder(folder: Path, place: str, output: int) -> Path:
    return folder / "private" / f"{place}-tolerance{output}"


def check_outputs(folder: Path) -> Json:
    """Compare what the candidate left in `scratch` with what is expected: outputs, state and inputs.

    A trial that the candidate refused is left out where it may refuse.
    """
    job = read_job(folder)
    refused = json.loads((folder / "scratch" / "reply.json").read_text())["refusals"]
    said = {(item["case"], item["trial"]): str(item["message"]) for item in refused}
    checks: list[Check] = []
    for name, trial in list_trials(job):
        place, case = f"{name}-{trial}", find_case(job, name)
        is_finite = not special_values.is_marked(folder, place)
        if name == TINY and (name, trial) in said:
            continue
        try:
            if not is_finite:
                checks.append(_check_not_finite(folder, job, (name, trial), said.get((name, trial), "")))
                continue
            got = read_outputs(folder, f"scratch/{OUTPUTS}/{place}", case.outputs * count_calls(job, name, trial))
            checks += _check_trial(folder, job, (name, trial), got)
        except (OSError, ValueError) as error:
            return {"error": f"the candidate's output for case {name} cannot be read: {error}"}
    return {"checks": [to_plain(check) for check in checks]}


def _check_not_finite(folder: Path, job: Job, which: tuple[str, int], refused: str) -> Check:
    """What differs in NaN and infinity; it always passes, perhaps with a doubt."""
    (name, trial), place = which, f"{which[0]}-{which[1]}"
    doubt = f"fails on NaN and infinity: {refused}" if refused else ""
    if not refused:
        got = read_outputs(folder, f"scratch/{OUTPUTS}/{place}", find_case(job, name).outputs)
        kinds = read_values(folder / "private" / place)
        doubt = special_values.describe_kinds(got[: len(kinds)], kinds)
    return Check(
        case=name, trial=trial, timed=False, passed=True, values=special_values.NOT_FINITE, doubt=doubt[:DOUBT_LENGTH]
    )


def _check_trial(folder: Path, job: Job, which: tuple[str, int], got: list[torch.Tensor]) -> list[Check]:
    """The comparisons of one trial with the outputs `got` of all its calls."""
    (name, trial), place = which, f"{which[0]}-{which[1]}"
    module = loading.load_module(job.problem, find_case(job, name).settings)
    model = loading.build_model(module, "Model", job.problem)
    calls = [read_values(folder / "given" / f"{place}-call{call}") for call in range(count_calls(job, name, trial))]
    followed = effects.list_followed(model, calls, job.facts.forward_arguments)
    state = read_values(folder / "given" / f"{place}-state")
    initial = effects.followed_values(state, calls)
    after = effects.read_changed(folder, f"scratch/{effects.EFFECTS}/{place}", followed)
    notes = json.loads((folder / "private" / f"{place}.json").read_text())
    changed, kinds = notes["changed"], notes["values"]
    values = [*got, *(after.get(n, initial[n]) for n in changed)]
    titles = [*("" for _ in got), *(followed[n].title for n in changed)]
    outputs = len(find_case(job, name).outputs)
    checks = []
    for n, (value, wanted) in enumerate(zip(values, read_values(folder / "private" / place), strict=True)):
        call = n // outputs if n < len(got) and outputs else 0
        tolerance = Tolerance(*read_values(_tolerance_folder(folder, place, n)))
        named = partial(effects.name_values, job.facts, model, state, calls[call])
        fields = compare(value, wanted, tolerance, named)
        number = n % outputs if n < len(got) and outputs else 0
        checks.append(
            Check(
                case=name,
                trial=trial,
                timed=False,
                output=number,
                of=titles[n],
                values=kinds[call] if kinds else "",
                **fields,
            )
        )
    return checks + effects.unasked_checks(name, trial, followed, after, changed)
