"""Starts, resumes and steers the searches of a session."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

from workbench import plugins, probes
from workbench.analysis import devices, speed_of_light
from workbench.errors import UserError, WorkbenchError
from workbench.executors.emulator import EmulatorExecutor
from workbench.plugins import DEFAULTS
from workbench.policies.search import Screen, SearchTree, Space, Strategy, load_strategy, run_search
from workbench.policies.search.fitted import RecordedPriors, fit_recorded
from workbench.policies.search.protocols import ShouldStop
from workbench.policies.search.screening import OPTIMISM
from workbench.profilers.counters import profile_full_size
from workbench.protocols import Executor, Options
from workbench.records import Diagnosis, Event, record
from workbench.records.base import Scalar
from workbench.records.search import SearchAim, SearchBudget, SearchCandidate, SearchEvent, SearchSetup
from workbench.session.parts import Parts
from workbench.session.profiling import Profiling
from workbench.session.searching.evaluator import LiveEvaluator
from workbench.session.searching.guesses import guess_next, never
from workbench.session.searching.models import ModelSpace
from workbench.session.searching.prefetching import Prefetching, choose_on_gpu, choose_workers
from workbench.session.searching.priors import SessionPriors
from workbench.session.searching.programs import ProgramSpace
from workbench.session.searching.standing import crown
from workbench.session.searching.steering import Steer, steer
from workbench.session.searching.store_log import StoreLog

FIELDS = ("by", "aim", "options", "fresh", "screen", "workers")  # of a request, that a call may name
SearchScreen = Literal["priors", "emulator"]
RECORDED_ARCH = "sm_90a"  # of the programs in the shipped landscapes
TRIALS = 20  # of a search without a budget
SCREENED = 10  # candidates in a row that are screened out by priors, before one is tried all the same (inferred)


@record
class SearchRequest:
    """How a session is searched. `constants` are the strategy's. `screen` says by what candidates are screened out
    where trials are measured on a GPU: by what is expected of them (`policies.search.Screen`), or by the emulator.
    """

    strategy: str = "tree"
    budget: SearchBudget | None = None
    seed: int = 0
    aim: SearchAim = "time"
    by: str = DEFAULTS.proposer
    constants: tuple[tuple[str, Scalar], ...] = (("priors", True),)
    options: Options = dataclasses.field(default_factory=dict)  # of the proposer
    fresh: bool = False  # begin anew, also where such a search is in the log
    screen: SearchScreen = "priors"
    workers: int | None = None  # runs beside the one that is waited for; None: as cores and memory allow


def make_request(strategy: str, budget: SearchBudget | int | None, seed: int, how: Mapping[str, Any]) -> SearchRequest:
    """The request of a call. What is no field of a request is a constant of the strategy."""
    constants: dict[str, Scalar] = {"priors": True}
    constants |= {name: value for name, value in how.items() if name not in FIELDS}
    own: dict[str, Any] = {name: value for name, value in how.items() if name in FIELDS}
    if own.get("aim", "time") not in get_args(SearchAim):
        raise UserError(f"a search aims at {' or '.join(get_args(SearchAim))}, not at {own['aim']!r}")
    if own.get("screen", "priors") not in get_args(SearchScreen):
        raise UserError(f"a search screens by {' or '.join(get_args(SearchScreen))}, not by {own['screen']!r}")
    return SearchRequest(
        strategy=strategy,
        budget=SearchBudget(trials=budget) if isinstance(budget, int) else budget,
        seed=seed,
        constants=tuple(sorted(constants.items())),
        **own,
    )


def check_budget(budget: SearchBudget, expander: str, *, has_gpu: bool) -> None:
    """Raise `UserError` for a limit that would never be reached, since nothing counts towards it."""
    if budget.joules is not None and not has_gpu:
        raise UserError("a budget in joules needs a GPU, whose counter tells them: give trials or seconds")
    if (budget.tokens is not None or budget.usd is not None) and not plugins.load("proposer", expander).needs_model:
        raise UserError(f"{expander} spends no tokens and no dollars: give trials or seconds")


class Searching:
    """The searches of a session."""

    def __init__(self, parts: Parts, profiling: Profiling) -> None:
        self.parts, self.log, self.profiling = parts, parts.log, profiling
        self._logs: dict[int, StoreLog] = {}
        self._running: Space | None = None
        self._advice: dict[int, Diagnosis | None] = {}

    # ---- running ----------------------------------------------------------------------------------------------------

    def run(self, request: SearchRequest) -> SearchTree:
        """Run a search, or go on with the last one if it began in the same way; returns its tree."""
        self.parts.testing.follow_gpu()
        strategy = load_strategy(request.strategy, **dict(request.constants))
        search, setup = self._find(request, strategy)
        stop = self.parts.testing.context.stop
        space, log = self._make_space(setup, request.options, stop.is_set), self._log_of(search)
        own = self.parts.testing.executor
        is_quick = own.runs_quick and setup.aim == "time"
        inner = own if is_quick and request.screen != "emulator" else self._choose_emulator()
        budget = request.budget or (SearchBudget(trials=TRIALS) if not log.events() else None)
        self._check_budget(budget, setup)
        self._running = space
        try:
            workers = choose_workers() if request.workers is None else request.workers
            on_gpu = choose_on_gpu(self.log.facts, self.log.device, workers) if is_quick else 0
            with (
                Prefetching(inner, 0 if is_quick and inner is own else workers) as emulator,
                Prefetching(own, on_gpu) as gpu,
            ):

                def guess() -> list[SearchCandidate]:
                    count = max(emulator.workers, gpu.workers)
                    return guess_next(space, strategy, log.events(), count, screen.why_not if screen else never)

                evaluator = LiveEvaluator(self.parts, self.profiling, emulator, gpu, guess, setup.aim)
                optimism = OPTIMISM if dict(request.constants).get("priors") else math.inf  # none: only by the bound
                screen = (
                    Screen(evaluator, space, optimism, SCREENED) if is_quick and request.screen == "priors" else None
                )
                best = self.log.best
                given = evaluator.judge_given(best, space.roots()) if best is not None else None
                tree = run_search(
                    space,
                    screen or evaluator,
                    strategy,
                    log,
                    seed=setup.seed,
                    budget=budget,
                    should_stop=stop.is_set,
                    aim=setup.aim,
                    expander=setup.expander,
                    start=setup.start,
                    given=given,
                    verify=evaluator.verify,
                )
                evaluator.settle_open(tree)
        finally:
            self._running = None
        said = crown(self.parts.deciding, tree, search)
        if said:
            self.log.add_event(Event(kind="note", message=said))
        return tree

    def _check_budget(self, budget: SearchBudget | None, setup: SearchSetup) -> None:
        """Raise `UserError` for a limit that would never be reached, since nothing counts towards it."""
        if budget is None:
            return
        check_budget(budget, setup.expander, has_gpu=self.parts.testing.executor.device_name() is not None)
        prices = self.parts.proposing.model.values
        if budget.usd is not None and None in (prices.get("price_in"), prices.get("price_out")):
            raise UserError("a budget in dollars needs the model's prices: --price-in and --price-out")

    def _find(self, request: SearchRequest, strategy: Strategy) -> tuple[int, SearchSetup]:
        """(number, setup) of the last search if it began as is asked for, else of a new one."""
        best = self.log.best
        setup = SearchSetup(
            strategy=strategy.name,
            seed=request.seed,
            constants=tuple(sorted(strategy.constants.items())),
            aim=request.aim,
            expander=request.by,
            start=best.number if best is not None else None,
        )
        known = self.log.store.searches()
        last = max(known, default=0)
        if last and known[last] and not request.fresh:
            before = self._log_of(last).tree().setup
            if before is not None and dataclasses.replace(before, start=setup.start) == setup:
                return last, before
        return last + 1, setup

    def _log_of(self, search: int) -> StoreLog:
        """The log of a search; in a session that is open for reading, as another process has written it by now."""
        if search not in self._logs or not self.log.store.write:
            self._logs[search] = StoreLog(self.log, search)
        return self._logs[search]

    def _make_space(self, setup: SearchSetup, options: Options, should_stop: ShouldStop = lambda: False) -> Space:
        work = next((one for one in self.log.facts.work if one.case == "full"), None)
        bound = speed_of_light.bound(work, devices.find(self.log.device)) if work is not None else None
        least_s = (bound.floor_s or bound.bound_s) if bound is not None else None  # what no kernel can beat
        proposer = plugins.load("proposer", setup.expander)
        if proposer.name != DEFAULTS.proposer:
            return ModelSpace(self.parts, setup.expander, options, least_s)
        base = self.log.version(setup.start) if setup.start is not None else None
        program = base.proposal.candidate.program if base is not None else None
        verdict = base.trials[0].verdict if base is not None and base.trials else None
        executor, log = self.parts.testing.executor, self.log
        return ProgramSpace(
            self.parts.proposing.make_ask(None),
            SessionPriors(bound.bound_s if bound is not None else None, self._advise, self._fit_recorded(setup)),
            (program, verdict.time_s if verdict is not None else None) if program is not None else None,
            least_s,
            answers=lambda program: executor.can_answer(log.problem, log.device, log.arch, program),
            should_stop=should_stop,
        )

    def _fit_recorded(self, setup: SearchSetup) -> RecordedPriors | None:
        """Priors from the recorded times of other problems, where times are measured on a Hopper GPU as those were."""
        is_like = self.parts.testing.executor.device_name() is not None and self.log.arch == RECORDED_ARCH
        if not is_like or not dict(setup.constants).get("priors"):
            return None
        self.log.notify(Event(kind="running", message="learning from the recorded times of other problems"))
        return fit_recorded(self.log.problem, self.log.facts)

    def _advise(self, number: int) -> Diagnosis | None:
        """What probes advise on a version by the counts of its first test that has them. Nothing that other sessions
        taught counts, so that a search that goes on finds the same.
        """
        if number not in self._advice:
            version = self.log.version(number)
            source, made = version.proposal.candidate.source, None
            trial = next((one for one in version.trials if one.outcome.full_launches), None)
            if trial is not None and (profile := profile_full_size(self.log.facts, source, trial.outcome)) is not None:
                made = probes.diagnose(profile, trial.verdict.bound, source, seconds=trial.verdict.time_s)
            self._advice[number] = made
        return self._advice[number]

    def _choose_emulator(self) -> Executor:
        """What judges candidates first: the emulator for a session on a GPU where it can run the problem, else the
        session's own executor.
        """
        own = self.parts.testing.executor
        if own.device_name() is None:
            return own
        emulator = EmulatorExecutor()
        try:
            if (why := emulator.why_not()) is not None:
                raise UserError(why)
            emulator.admit(self.log.problem, self.log.facts, self.log.device)
        except WorkbenchError as reason:
            self.log.add_event(Event(kind="note", message=f"nothing is screened without the GPU: {reason}"))
            return own
        return emulator

    # ---- looking and steering ---------------------------------------------------------------------------------------

    def tree(self, search: int | None = None) -> SearchTree:
        """The tree of a search by number, else of the last one. Raises `UserError` if there is none."""
        return self._log_of(self._choose(search)).tree()

    def _choose(self, search: int | None) -> int:
        known = self.log.store.searches()
        if not known:
            raise UserError("this session has no search yet; start one with search-tree start, or run --search")
        chosen = max(known) if search is None else search
        if chosen not in known:
            raise UserError(f"no search {chosen}; there are: {', '.join(map(str, known))}")
        if not known[chosen]:
            raise UserError(f"search {chosen} was changed by another program, so it is not shown; start another one")
        return chosen

    def steer(self, order: Steer, search: int | None = None) -> SearchTree:
        """Do what a person wants of a search, also while it runs; returns the tree afterwards."""
        order.check()
        log = self._log_of(self._choose(search))
        if order.action == "take":
            self._take(order, log)
            return log.tree()
        space = self._running
        if order.action == "expand" and space is not None and space.writes:
            raise UserError(
                f"the search is running: pin node {order.node}, which it then expands next; or stop it first"
            )
        if order.action == "expand" and space is None:
            setup = log.tree().setup
            assert setup is not None
            space = self._make_space(setup, {})
        if order.action == "budget":
            setup = log.tree().setup
            assert setup is not None
            self._check_budget(order.budget, setup)
        steer(log, order, space, self.parts.testing.context.stop.is_set)
        return log.tree()

    def _take(self, order: Steer, log: StoreLog) -> None:
        """Make a node's version the baseline."""
        node = log.tree().node(order.node)
        if node.result is None or node.result.version is None:
            raise UserError(f"node {node.number} was not tried, so it has no version; pin it, and it is tried next")
        reason = f"taken from search {log.search}, node {node.number}"
        self.parts.deciding.accept(node.result.version, by="person", reason=reason)
        log.append(SearchEvent(number=0, kind="taken", node=node.number, by="person"))
