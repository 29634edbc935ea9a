"""The trusted roles of a worker process: inspect a problem, make inputs and references, check a candidate's outputs."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from workbench.executors.jobs.exchange import Values, read_outputs, read_values, write_values
from workbench.executors.jobs.trials import (
    AT_CASE,
    EMPTY,
    FAINT,
    FAINT_ONLY,
    ILL_CONDITIONED,
    NOT_FINITE,
    REFUSABLE,
    TINY,
    Run,
    has_law,
    input_seed,
    list_runs,
    name_numbers,
)
from workbench.executors.workers import effects
from workbench.executors.workers.by_law import compare_by_law
from workbench.executors.workers.correctness import compare
from workbench.executors.workers.inputs import not_finite, special_values
from workbench.executors.workers.inputs.initial_state import draw_caches, draw_constants
from workbench.executors.workers.outputs import OUTPUTS, find_case, load_case, tolerance_path
from workbench.executors.workers.tolerance import Tolerance, measure_tolerances
from workbench.problems import inspection, loading
from workbench.problems.reference.choices import find_choices, take_equal_values
from workbench.problems.results import tensors_of
from workbench.records import Case, Check, Job, Problem
from workbench.wire import Json, from_plain, to_plain

DOUBT_LENGTH, REFUSAL_LENGTH = 300, 80
NO_INPUT = "no input has them"
ZERO_ROWS = "zero rows"  # which are left out where only the tiny ones suit the reference
NOT_NUMBERS = torch.tensor((not_finite.NAN, not_finite.INFINITE))


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
    left_out: dict[str, str] = {}  # values and layouts that are not tested -> why
    for run in list_runs(job):
        seed, case = seeds[run.expected_place], find_case(job, run.case)
        (folder / "private" / AT_CASE).write_text(run.case)
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
        if run.layout or run.values == (NOT_FINITE,):
            make = _lay_out if run.layout else _make_not_finite
            if why := make(folder, model, calls[0], job, run, seed):
                _leave_out(folder, run, why, left_out)
            continue
        made = _expect(folder, model, calls, job, case, run, seed)
        if isinstance(made, str):
            _leave_out(folder, run, made, left_out)
            continue
        left_out |= made.left_out
        expected, tolerances = made.found, made.tolerances
        if run.case == TINY:
            tolerances = [one.at_least(typical[n]) if n < len(typical) else one for n, one in enumerate(tolerances)]
        typical = typical or tolerances
        write_values(tolerance_path(folder, run.place), [value for one in tolerances for value in one.to_values()])
        notes = {"changed": expected.changed, "values": made.kinds}
        (folder / "private" / f"{run.place}.json").write_text(json.dumps(notes))
        write_values(folder / "private" / run.place, expected.found.exact)
    said = [f"{kind} ({why})" for kind, why in left_out.items() if why != NO_INPUT]
    (folder / "private" / "left-out.json").write_text(json.dumps(said))
    return {"done": True}


def _leave_out(folder: Path, run: Run, why: str, left_out: dict[str, str]) -> None:
    """Leave a trial out, and note why."""
    left_out[run.layout or run.values[0]] = why
    special_values.leave_out(folder, run.place)
    _write_calls(folder, run.place, [[]])


def _make_not_finite(
    folder: Path, model: torch.nn.Module, inputs: Sequence[object], job: Job, run: Run, seed: int
) -> str:
    """Write a call with inputs that have NaN and infinity, and what the reference makes of them.

    Returns why it is left out, else "": the reference does not run with them, or they leave no trace in its results.
    """
    for in_each_row in (False, True):  # a few may be where the reference ignores them
        changed = not_finite.make_not_finite(inputs, in_each_row=in_each_row)
        if changed is None:
            return NO_INPUT
        try:
            found = effects.run_calls(model, [changed], job, find_case(job, run.case).outputs, seed=seed)
        except (RuntimeError, ValueError) as error:  # for example probabilities must be numbers
            return _describe_refusal(error)
        kinds = not_finite.expected_kinds(found)
        integers = not_finite.expected_integers(found, partial(find_choices, model, changed))
        leaves_any = any(bool((torch.isin(kind, NOT_NUMBERS)).any()) for kind in kinds)
        if leaves_any or any(value is not None for value in integers):
            _write_calls(folder, run.place, [changed])
            write_values(folder / "private" / run.place, [*kinds, *integers])
            return ""
    return "no result is NaN or infinite then"


def _describe_refusal(error: Exception) -> str:
    said = next(iter(str(error).splitlines()), "").partition(" (")[0][:REFUSAL_LENGTH]
    return f"the reference does not take them: {said or type(error).__name__}"


def _lay_out(folder: Path, model: torch.nn.Module, inputs: Sequence[object], job: Job, run: Run, seed: int) -> str:
    """Write a call with inputs of another layout. Returns why it is left out, else "": the reference does not take it,
    or no input has one.
    """
    changed = special_values.lay_out(inputs, run.layout)
    if changed is None:
        return NO_INPUT if special_values.are_contiguous(inputs) else "the problem's own inputs are not contiguous"
    results = []
    try:
        for values in (inputs, changed):
            loading.seed_generators(seed)
            with torch.no_grad():
                results.append(tensors_of(copy.deepcopy(model)(*copy.deepcopy(list(values)))))
    except RuntimeError as error:  # a view of a tensor that is not contiguous
        return _describe_refusal(error)
    if not all(torch.allclose(*map(_as_double, pair), 0.1, 0.1, True) for pair in zip(*results, strict=True)):
        return "the reference's result depends on the strides"
    _write_calls(folder, run.place, [changed])
    return ""


def _as_double(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.float64)


def _write_calls(folder: Path, place: str, calls: Values) -> None:
    for call, inputs in enumerate(calls):
        write_values(folder / "given" / f"{place}-call{call}", inputs)


@dataclass(frozen=True)
class _Expected:
    """What the calls of a trial give: `kinds` of their values, and by kind why those that were asked for are not among
    them.
    """

    kinds: tuple[str, ...]
    found: effects.Expectation
    tolerances: list[Tolerance]
    left_out: dict[str, str]


def _expect(
    folder: Path, model: torch.nn.Module, calls: Values, job: Job, case: Case, run: Run, seed: int
) -> _Expected | str:
    """Write the calls of a trial. Returns what they give; of a trial that is left out, why.

    A kind that does not suit the reference is left out; if that is not enough, all inputs are as drawn.
    """
    disturb = bool({*run.values} & ILL_CONDITIONED)

    def attempt(several: Values, kinds: Sequence[str]) -> tuple[effects.Expectation, list[Tolerance]] | str:
        changed = [special_values.make_special(inputs, kind) for inputs, kind in zip(several, kinds, strict=True)]
        try:
            expected = effects.run_calls(model, changed, job, case.outputs, seed=seed, disturb=disturb)
            tolerances = measure_tolerances(expected.found, expected.specs)
        except (RuntimeError, ValueError) as error:  # for example probabilities that are above 1
            return _describe_refusal(error)
        return special_values.why_unsuitable(expected, tolerances) or (expected, tolerances)

    def choose(inputs: Values, kind: str) -> str:
        why = attempt([inputs], [kind]) if kind else ""
        if not kind or not isinstance(why, str):
            return kind
        if kind == FAINT and not isinstance(attempt([inputs], [FAINT_ONLY]), str):
            left_out[ZERO_ROWS] = why
            return FAINT_ONLY
        left_out[kind] = why
        return ""

    kinds, left_out = run.values, dict[str, str]()
    is_special = any(kinds) and special_values.has_floats(calls[0])
    made = attempt(calls, kinds) if is_special else ""
    if is_special and isinstance(made, str):
        kinds = tuple(map(choose, calls, kinds))
        made = attempt(calls, kinds) if any(kinds) else made
    if not isinstance(made, str):
        changed = [special_values.make_special(inputs, kind) for inputs, kind in zip(calls, kinds, strict=True)]
        _write_calls(folder, run.place, changed)
        return _Expected(kinds, *made, left_out)
    if run.may_be_left_out:
        return made or NO_INPUT
    _write_calls(folder, run.place, calls)  # before the reference runs, so that the candidate can begin
    expected = effects.run_calls(model, calls, job, case.outputs, seed=seed)
    others = (name_numbers(job.facts, run.case),) * len(calls)
    if made:
        left_out = {kind: made for kind in run.values if kind} | left_out
    return _Expected(others, expected, measure_tolerances(expected.found, expected.specs), left_out)


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
            checks = compare_by_law(folder, job, checks, int(reply["law_calls"]))
        except (OSError, ValueError, KeyError) as error:
            return {"error": f"the candidate's outputs of repeated calls cannot be read: {error}"}
    left_out = json.loads((folder / "private" / "left-out.json").read_text())
    return {"checks": [to_plain(check) for check in checks], "left_out": left_out}


def _check_not_finite(folder: Path, job: Job, run: Run, refused: str) -> Check:
    """What differs in NaN and infinity; it always passes, perhaps with a doubt."""
    doubt = f"fails on NaN and infinity: {refused}" if refused else ""
    if not refused:
        got = read_outputs(folder, f"scratch/{OUTPUTS}/{run.place}", find_case(job, run.case).outputs)
        wanted, count = read_values(folder / "private" / run.place), len(got)
        inputs = read_values(folder / "given" / f"{run.place}-call0")
        model = loading.build_model(load_case(job, run.case), "Model", job.problem)
        choices = partial(find_choices, model, inputs, read_values(folder / "given" / f"{run.place}-state"))
        doubt = not_finite.describe_kinds(got, wanted[:count]) or not_finite.describe_integers(
            got, wanted[count:], choices
        )
    return Check(
        case=run.case, trial=run.trial, timed=False, passed=True, values=NOT_FINITE, doubt=doubt[:DOUBT_LENGTH]
    )


def _check_trial(folder: Path, job: Job, run: Run, got: list[torch.Tensor]) -> list[Check]:
    """The comparisons of one trial with the outputs `got` of all its calls."""
    place = run.expected_place
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
    tolerances = Tolerance.from_values(read_values(tolerance_path(folder, place)))
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
