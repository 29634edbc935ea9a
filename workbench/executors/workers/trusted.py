"""The trusted roles of a worker process: inspect a problem, make inputs and references, check a candidate's outputs."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from workbench.executors.jobs.exchange import Values, read_outputs, read_values, write_values
from workbench.executors.jobs.trials import (
    EMPTY,
    FEWEST_LAW_CALLS,
    LAW_CALLS,
    NOT_FINITE,
    REFUSABLE,
    TINY,
    Run,
    has_law,
    input_seed,
    list_runs,
    name_numbers,
)
from workbench.executors.workers import effects, special_values
from workbench.executors.workers.correctness import compare
from workbench.executors.workers.initial_state import draw_caches, draw_constants
from workbench.executors.workers.outputs import OUTPUTS, find_case, load_case
from workbench.executors.workers.tolerance import Tolerance, as_matrix, measure_tolerances
from workbench.problems import inspection, loading
from workbench.problems.reference import law as laws
from workbench.problems.reference.choices import find_choices, take_equal_values
from workbench.problems.results import tensors_of
from workbench.records import Case, Check, Job, Problem
from workbench.wire import Json, from_plain, to_plain

DOUBT_LENGTH = 300
FOLLOWS = 0.3  # correlation with torch's random numbers of a candidate that takes them
LAW_ELEMENTS = 1 << 15  # of an output that are compared by law: its first and its last rows


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
    for run in list_runs(job):
        seed, case = seeds[_expected_place(run)], find_case(job, run.case)
        module = load_case(job, run.case)
        loading.seed_generators(seed)
        model = loading.build_model(module, "Model", job.problem)
        calls = [loading.make_inputs(module, job.problem, input_seed(seed, call)) for call in range(len(run.values))]
        if run.draws_state:
            draw_constants(model, seed)
            draw_caches(model, calls[0], seed)
        write_values(folder / "given" / f"{run.place}-state", list(loading.state_of(model).values()))
        if run.repeats:
            _write_calls(folder, run.place, calls)
            continue
        if run.may_be_left_out:
            make = _lay_out if run.layout else _make_not_finite
            if not make(folder, model, calls[0], job, run, seed):
                special_values.leave_out(folder, run.place)
                _write_calls(folder, run.place, [[]])
            continue
        kinds, expected, tolerances = _expect(folder, model, calls, job, case, run, seed)
        if run.case == TINY:
            tolerances = [one.at_least(typical[n]) if n < len(typical) else one for n, one in enumerate(tolerances)]
        typical = typical or tolerances
        write_values(_tolerance_path(folder, run.place), [value for one in tolerances for value in one.to_values()])
        notes = {"changed": expected.changed, "values": kinds}
        (folder / "private" / f"{run.place}.json").write_text(json.dumps(notes))
        write_values(folder / "private" / run.place, expected.found.exact)
    return {"done": True}


def _expected_place(run: Run) -> str:
    """The trial whose parameters, values and results a trial has: inputs of another layout have the same values."""
    return Run(case=run.case, trial=0).place if run.layout else run.place


def _make_not_finite(
    folder: Path, model: torch.nn.Module, inputs: Sequence[object], job: Job, run: Run, seed: int
) -> bool:
    """Write a call with inputs that have NaN and infinity, and what the reference makes of them.

    False if the reference does not run with them, or none of its results is NaN or infinite.
    """
    changed = special_values.make_not_finite(inputs)
    if changed is None:
        return False
    try:
        case = find_case(job, run.case)
        kinds = special_values.expected_kinds(effects.run_calls(model, [changed], job, case.outputs, seed=seed))
    except (RuntimeError, ValueError):  # for example probabilities must be numbers
        return False
    if not any(bool(((kind == special_values.NAN) | (kind == special_values.INFINITE)).any()) for kind in kinds):
        return False
    _write_calls(folder, run.place, [changed])
    write_values(folder / "private" / run.place, kinds)
    return True


def _lay_out(folder: Path, model: torch.nn.Module, inputs: Sequence[object], job: Job, run: Run, seed: int) -> bool:
    """Write a call with inputs of another layout. False if no input has one, or the reference does not take it."""
    changed = special_values.lay_out(inputs, run.layout)
    if changed is None:
        return False
    results = []
    try:
        for values in (inputs, changed):
            loading.seed_generators(seed)
            with torch.no_grad():
                results.append(tensors_of(copy.deepcopy(model)(*copy.deepcopy(list(values)))))
    except RuntimeError:  # a view of a tensor that is not contiguous
        return False
    if not all(torch.allclose(*map(_as_double, pair), 0.1, 0.1, True) for pair in zip(*results, strict=True)):
        return False  # it reads the strides themselves
    _write_calls(folder, run.place, [changed])
    return True


def _as_double(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.float64)


def _write_calls(folder: Path, place: str, calls: Values) -> None:
    for call, inputs in enumerate(calls):
        write_values(folder / "given" / f"{place}-call{call}", inputs)


def _expect(
    folder: Path, model: torch.nn.Module, calls: Values, job: Job, case: Case, run: Run, seed: int
) -> tuple[tuple[str, ...], effects.Expectation, list[Tolerance]]:
    """Write the calls of a trial. Returns the kinds of their values, what the reference gives, and the tolerances.

    A kind that does not suit the reference is left out; if that is not enough, all inputs are as drawn.
    """

    def attempt(several: Values, kinds: Sequence[str]) -> tuple[effects.Expectation, list[Tolerance]] | None:
        changed = [special_values.make_special(inputs, kind) for inputs, kind in zip(several, kinds, strict=True)]
        try:
            expected = effects.run_calls(model, changed, job, case.outputs, seed=seed)
            tolerances = measure_tolerances(expected.found, expected.specs)
        except (RuntimeError, ValueError):  # for example probabilities that are above 1
            return None
        return (expected, tolerances) if special_values.suits(expected, tolerances) else None

    kinds = run.values
    made = attempt(calls, kinds) if any(kinds) and special_values.has_floats(calls[0]) else None
    if made is None and any(kinds) and special_values.has_floats(calls[0]):
        pairs = zip(calls, kinds, strict=True)
        kinds = tuple(kind if attempt([inputs], [kind]) is not None else "" for inputs, kind in pairs)
        made = attempt(calls, kinds) if any(kinds) else None
    if made is not None:
        changed = [special_values.make_special(inputs, kind) for inputs, kind in zip(calls, kinds, strict=True)]
        _write_calls(folder, run.place, changed)
        return kinds, *made
    _write_calls(folder, run.place, calls)  # before the reference runs, so that the candidate can begin
    expected = effects.run_calls(model, calls, job, case.outputs, seed=seed)
    others = name_numbers(job.facts, run.case)
    return (others,) * len(calls), expected, measure_tolerances(expected.found, expected.specs)


def _tolerance_path(folder: Path, place: str) -> Path:
    return folder / "private" / f"{place}-tolerances"


def check_outputs(folder: Path) -> Json:
    """Compare what the candidate left in `scratch` with what is expected: outputs, state and inputs.

    A trial that the candidate refused is left out where it may refuse.
    """
    job, reply = read_job(folder), json.loads((folder / "scratch" / "reply.json").read_text())
    said = {(item["case"], item["trial"]): str(item["message"]) for item in reply["refusals"]}
    checks: list[Check] = []
    for run in list_runs(job):
        why = said.get((run.case, run.trial), "")
        if special_values.is_left_out(folder, run.place) or (why and (run.case in REFUSABLE or run.layout)):
            continue
        if run.repeats:
            continue
        try:
            if run.values == (NOT_FINITE,):
                checks.append(_check_not_finite(folder, job, run, why))
                continue
            outputs = find_case(job, run.case).outputs * len(run.values)
            checks += _check_trial(folder, job, run, read_outputs(folder, f"scratch/{OUTPUTS}/{run.place}", outputs))
        except (OSError, ValueError) as error:
            return {"error": f"the candidate's output for case {run.case} cannot be read: {error}"}
    if has_law(job.facts) and any(not check.passed and not check.of for check in checks):
        try:
            checks = _compare_by_law(folder, job, checks, int(reply["law_calls"]))
        except (OSError, ValueError, KeyError) as error:
            return {"error": f"the candidate's outputs of repeated calls cannot be read: {error}"}
    return {"checks": [to_plain(check) for check in checks]}


def _check_not_finite(folder: Path, job: Job, run: Run, refused: str) -> Check:
    """What differs in NaN and infinity; it always passes, perhaps with a doubt."""
    doubt = f"fails on NaN and infinity: {refused}" if refused else ""
    if not refused:
        got = read_outputs(folder, f"scratch/{OUTPUTS}/{run.place}", find_case(job, run.case).outputs)
        kinds = read_values(folder / "private" / run.place)
        doubt = special_values.describe_kinds(got[: len(kinds)], kinds)
    return Check(
        case=run.case, trial=run.trial, timed=False, passed=True, values=NOT_FINITE, doubt=doubt[:DOUBT_LENGTH]
    )


def _check_trial(folder: Path, job: Job, run: Run, got: list[torch.Tensor]) -> list[Check]:
    """The comparisons of one trial with the outputs `got` of all its calls."""
    place = _expected_place(run)
    module = load_case(job, run.case)
    model = loading.build_model(module, "Model", job.problem)
    calls = [read_values(folder / "given" / f"{place}-call{call}") for call in range(len(run.values))]
    followed = effects.list_followed(model, calls, job.facts)
    state = read_values(folder / "given" / f"{place}-state")
    initial = effects.followed_values(state, calls)
    after = effects.read_changed(folder, f"scratch/{effects.EFFECTS}/{run.place}", followed)
    notes = json.loads((folder / "private" / f"{place}.json").read_text())
    changed, kinds = notes["changed"], [run.layout] if run.layout else notes["values"]
    if run.case == EMPTY:  # what no elements leave of statistics is compared by nobody
        after, changed = {}, []
    values = [*got, *(after.get(n, initial[n]) for n in changed)]
    titles = [*("" for _ in got), *(followed[n].title for n in changed)]
    is_left = [*(False for _ in got), *(n not in after for n in changed)]
    wanted_values = read_values(folder / "private" / place)
    tolerances = Tolerance.from_values(read_values(_tolerance_path(folder, place)))
    outputs = len(find_case(job, run.case).outputs)
    checks = []
    for n, (value, wanted) in enumerate(zip(values, wanted_values[: len(values)], strict=True)):
        call = n // outputs if n < len(got) and outputs else 0
        named = partial(effects.name_values, job.facts, model, state, calls[call])
        wanted = take_equal_values(value, wanted, partial(find_choices, model, calls[call], state))
        fields = compare(value, wanted, tolerances[n], named)
        if run.layout and not fields["passed"]:  # the problem's own inputs are not laid out so
            fields = {"passed": True, "doubt": f"reads inputs of {run.layout} wrong"}
        number = n % outputs if n < len(got) and outputs else 0
        checks.append(
            Check(
                case=run.case,
                trial=run.trial,
                timed=False,
                output=number,
                of=titles[n],
                values=kinds[call],
                untouched=is_left[n] and not fields["passed"],
                **fields,
            )
        )
    return checks + effects.unasked_checks(run.case, run.trial, followed, after, changed)


# ---- random results -------------------------------------------------------------------------------------------------


def _compare_by_law(folder: Path, job: Job, checks: list[Check], law_calls: int) -> list[Check]:
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
    exact = read_values(folder / "private" / _expected_place(run))[0]
    mean = known[0].mean(0)
    ours, theirs = (got[0][0].double() - mean).reshape(-1), (exact.double() - mean).reshape(-1)
    size = float(ours.norm() * theirs.norm())
    return size > 0 and float(ours @ theirs) > FOLLOWS * size


def _read_samples(
    folder: Path, job: Job, run: Run, calls: int, count: int
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The outputs of a trial in its `calls` calls alike, [calls, ...] each, and `count` samples of the reference's."""
    case, place = find_case(job, run.case), _expected_place(run)
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
    case, place = find_case(job, run.case), _expected_place(run)
    if run.repeats:
        inputs = [read_values(folder / "given" / f"{place}-call0")]
        one = effects.run_calls(_read_model(folder, job, case, place), inputs, job, case.outputs, seed=0)
        tolerances = measure_tolerances(one.found, one.specs)
        kinds = [f"random numbers by law over {calls} calls"]
    else:
        kinds = [run.layout] if run.layout else json.loads((folder / "private" / f"{place}.json").read_text())["values"]
        tolerances = Tolerance.from_values(read_values(_tolerance_path(folder, place)))
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
