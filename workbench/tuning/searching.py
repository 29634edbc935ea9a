"""`cutegen tune --search`: a strategy chooses which configurations are measured, or looks recorded ones up.

A search on a GPU keeps its events beside the landscape's file, so that the same command goes on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from workbench import landscapes
from workbench.analysis import devices, speed_of_light
from workbench.errors import UserError
from workbench.executors.gpu.presence import device_at_hand, gpus_to_use, why_no_gpu
from workbench.landscapes import own_folder
from workbench.landscapes.keys import format_settings
from workbench.landscapes.table import Row
from workbench.policies.search import (
    FileLog,
    LandscapeEvaluator,
    LandscapeSpace,
    MemoryLog,
    SearchNode,
    SearchTree,
    load_strategy,
    run_search,
)
from workbench.policies.search.fitted import fit_on_others, fit_recorded
from workbench.policies.search.landscape_space import group_neighbours, result_of
from workbench.policies.search.priors import order_priors
from workbench.policies.search.protocols import Evaluator, SearchLog, ShouldStop, Space
from workbench.records import record
from workbench.records.search import NodeResult, Prior, SearchBudget, SearchCandidate, SearchEvent
from workbench.tuning.files import start_file
from workbench.tuning.plan import DEVICE, TuningPlan
from workbench.tuning.tune import TuneRequest, measure_alone, measured_rows, plan_apart
from workbench.wire import content_hash

TRIALS = 20  # of a search that says no number
Measure = Callable[[str], Row]  # a program's row, measured now or before
Say = Callable[[SearchEvent], None]


@record
class TuneSearch:
    """Which strategy, how long, from which seed, and whether with priors."""

    strategy: str
    trials: int = TRIALS
    seed: int = 0
    priors: bool = True


@record
class Searched:
    """A search among configurations; `best_s` is the best of all, where all were recorded."""

    tree: SearchTree
    place: str
    best_s: float | None = None
    source: str | None = None  # of the best configuration
    plan: TuningPlan | None = None  # of what was measured, if it was not recorded
    rows: tuple[Row, ...] = ()  # of the programs that were measured


def search_recorded(request: TuneRequest, wanted: TuneSearch, say: Say) -> Searched:
    """Search on the recorded times of the problem's landscape. Raises `UserError` if there is none."""
    here = device_at_hand()
    place = landscapes.find_near(request.problem, here.name if here is not None else DEVICE)
    if place is None:
        raise UserError(landscapes.not_recorded(request.problem))
    priors: Mapping[str, Prior] = {}
    if wanted.priors:
        fitted = fit_on_others(place.key)
        priors = fitted.predict_place(place) if fitted is not None else order_priors(tuple(place.rows))
    tree = _run(LandscapeSpace(place, priors), LandscapeEvaluator(place), MemoryLog(), wanted, say)
    best = place.best
    return Searched(tree=tree, place=f"{place.name}, {place.provenance}", best_s=best.median_s if best else None)


def search_on_gpu(request: TuneRequest, wanted: TuneSearch, say: Say) -> Searched:
    """Search among the configurations of a request on the GPUs that are here; each try is one short measuring run.

    Rows go to the landscape's file. Raises `UserError` without a GPU or for a bad space.
    """
    gpus = gpus_to_use()
    if not gpus:
        raise UserError(
            f"tune measures on a GPU, and none is here ({why_no_gpu()}); --recorded searches recorded times"
        )
    here = device_at_hand()
    plan = plan_apart(request, here.name if here is not None else DEVICE)
    path = request.out or own_folder() / f"{request.problem.name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {row.program: row for row in measured_rows(path, gpus[0].attributes.name) if row.key == plan.key}
    number = start_file(path, [plan], gpus)
    sources = dict(zip(plan.programs, plan.sources, strict=True))

    def measure(program: str) -> Row:
        if program not in known:
            one = dataclasses.replace(plan, programs=(program,), sources=(sources[program],))
            known.update({row.program: row for row in measure_alone(request, one, path, number, gpus, {*known})})
        return known[program]

    log = FileLog(path.with_name(f"{path.stem}.{wanted.strategy}-{wanted.seed}.search.jsonl"))
    found = search_plan(plan, measure, log, wanted, say)
    return dataclasses.replace(found, plan=plan, rows=tuple(known.values()))


def search_plan(plan: TuningPlan, measure: Measure, log: SearchLog, wanted: TuneSearch, say: Say) -> Searched:
    """Search among the programs of a plan; `measure` gives a program's row."""
    tree = _run(PlanSpace(plan, wanted.priors), _Measuring(measure), log, wanted, say)
    best = tree.best.candidate.text if tree.best is not None and tree.best.candidate is not None else ""
    source = dict(zip(plan.programs, plan.sources, strict=True)).get(best)
    return Searched(tree=tree, place=plan.place.name, source=source)


class PlanSpace:
    """The configurations of a tuning plan. Two are neighbours if they differ in one setting.

    Priors are of a forest on other problems' recorded times, else of the plan's order, which begins with the planner's.
    """

    writes = False

    def __init__(self, plan: TuningPlan, priors: bool) -> None:
        work = next((one for one in plan.facts.work if one.case == "full"), None)
        bound = speed_of_light.bound(work, devices.find(plan.device)) if work is not None else None
        self._least_s = (bound.floor_s or bound.bound_s) if bound is not None else None
        expected = _expect(plan) if priors else {}
        self._candidates = {
            program: SearchCandidate(
                key=content_hash(program)[:16], text=program, title=program, prior=expected.get(program)
            )
            for program in plan.programs
        }
        self._near = group_neighbours(plan.programs)

    def roots(self) -> Sequence[SearchCandidate]:
        """All configurations, in the plan's order."""
        return tuple(self._candidates.values())

    def children(self, node: SearchNode, tree: SearchTree) -> Sequence[SearchCandidate]:
        """The configurations that differ in one setting."""
        near = self._near.get(node.candidate.text, ()) if node.candidate is not None else ()
        return tuple(self._candidates[program] for program in near)

    def expand(self, node: SearchNode, tree: SearchTree, should_stop: ShouldStop) -> Sequence[SearchCandidate]:
        """Nothing: all configurations are known."""
        return ()

    def bound_s(self, candidate: SearchCandidate) -> float | None:
        """The problem's speed of light at the most permissive rates."""
        return self._least_s

    def settings(self, candidate: SearchCandidate) -> Mapping[str, str]:
        """Its settings by name."""
        return format_settings(candidate.text)


def _expect(plan: TuningPlan) -> Mapping[str, Prior]:
    fitted = fit_recorded(plan.problem, plan.facts)
    if fitted is None:
        return order_priors(plan.programs)
    return dict(zip(plan.programs, fitted.predict(plan.programs), strict=True))


class _Measuring:
    """Judges a configuration by its row."""

    def __init__(self, measure: Measure) -> None:
        self.measure = measure

    def judge(self, candidate: SearchCandidate, tree: SearchTree, should_stop: ShouldStop) -> NodeResult:
        return result_of(self.measure(candidate.text))


class _Telling:
    """A log that says each event as it is kept."""

    def __init__(self, log: SearchLog, say: Say) -> None:
        self.log, self.say = log, say

    def events(self, start: int = 0) -> Sequence[SearchEvent]:
        return self.log.events(start)

    def append(self, event: SearchEvent) -> SearchEvent:
        kept = self.log.append(event)
        self.say(kept)
        return kept


def _run(space: Space, evaluator: Evaluator, log: SearchLog, wanted: TuneSearch, say: Say) -> SearchTree:
    strategy = load_strategy(wanted.strategy, priors=wanted.priors)
    budget = SearchBudget(trials=wanted.trials)
    return run_search(space, evaluator, strategy, _Telling(log, say), seed=wanted.seed, budget=budget)
