"""Controls a GPU run from the parent: trials, then rounds in which candidate, torch eager and parent take turns.

Each of them has a process of its own. A round is a few calls of each, in one order in even rounds and in the reverse
order in odd ones, so that a linear drift affects all alike. Before each round the referee times a fixed kernel, and
NVML reads the state of the device. The outputs of timed calls to check are drawn after those calls.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from workbench.analysis import statistics, steadiness
from workbench.errors import ProblemError
from workbench.executors.gpu.memory import preallocate
from workbench.executors.jobs.rpc import Channel, Ended, derive_seed, draw_seed
from workbench.executors.jobs.trials import count_calls, input_seed
from workbench.records import Check, DeviceState, Failure, Job, Ratio, Timing, record
from workbench.wire import Json, from_plain

ROUNDS = 8
WARM_UP = 4
KEPT_TIMED = 2  # timed samples whose outputs are checked, drawn for each run
GRAPH_BELOW_S = 50e-6  # a shorter call is timed in a graph: two events are a few percent of it
PADS = 32  # memory is displaced by up to so many pages from round to round


class Hold(Protocol):
    """Holds the device during a block, alone or shared (turns.py)."""

    def __call__(self, *, shared: bool = False) -> AbstractContextManager[None]:
        """The context manager of the block."""


def hold_nothing(*, shared: bool = False) -> AbstractContextManager[None]:
    """For a device that nobody else uses."""
    return nullcontext()


class WrongResult(Exception):
    """A checked result is wrong, or could not be read. The run is over."""

    def __init__(self, failure: Failure | None = None) -> None:
        super().__init__(failure.message if failure else "wrong result")
        self.failure = failure


@dataclass(slots=True)
class Contestant:
    """One of the programs that take turns, with its times."""

    name: str
    channel: Channel
    estimate_s: float = 0.0
    host_s: list[float] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    calls: int = 1
    sets: int = 0


@record
class Turn:
    """One turn of a contestant: `size` samples in round `number`, of which those in `kept` are checked."""

    case: str
    model_seed: int
    method: str
    size: int
    kept: frozenset[int]
    number: int


@dataclass(slots=True)
class RunResult:
    """Checks, times and ratios of a run."""

    checks: list[Check] = field(default_factory=list)
    timings: dict[str, Timing] = field(default_factory=dict)
    ratios: tuple[Ratio, ...] = ()
    notes: list[str] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    failure: Failure | None = None


def round_shape(job: Job) -> tuple[int, int]:
    """Rounds, and samples of each contestant in a round: at least `timed_calls` in all."""
    rounds = max(min(ROUNDS, job.timed_calls), 1)
    return rounds, -(-job.timed_calls // rounds)


class Run:
    """One run of a candidate, with the referee and perhaps a rival.

    `root` is the candidate's folder; `look` gives the state of the device. `hold()` holds the device alone,
    `hold(shared=True)` against those that hold it alone (turns.py). The rival's first call is made beside the
    candidate's trials, or after them if the tensors are so large that they have to use the memory `in_turns`.
    """

    def __init__(
        self,
        job: Job,
        root: Path,
        candidate: Channel,
        referee: Channel,
        rival: Channel | None = None,
        *,
        look: Callable[[], DeviceState | None],
        hold: Hold = hold_nothing,
        busy_before: bool = True,
        in_turns: bool = False,
    ) -> None:
        self.in_turns = in_turns
        self.job, self.root, self.candidate, self.referee, self.rival = job, root, candidate, referee, rival
        self.look, self.hold, self.busy_before = look, hold, busy_before
        self.about: Json = {}  # the referee's device and versions
        self.rng = random.SystemRandom()
        self.result = RunResult()
        seen = look()
        self.surroundings: list[DeviceState] = [seen] if seen is not None else []
        self.probes: list[float] = []
        self.quiet_s: float | None = None
        self.carried = False  # whether the outputs of a call depend on the calls before

    def run(self) -> RunResult:
        """Run trials and timing at every case. Stops at the first wrong result."""
        known = {case.name for case in self.job.facts.cases}
        try:
            for case in (name for name in self.job.cases if name in known):
                start = time.perf_counter()
                model_seed = self.run_trials(case)
                self._add_phase("trials", start)
                if self.job.timed_calls and case == self.job.cases[-1]:
                    start = time.perf_counter()
                    with self.hold():
                        self.time_case(case, model_seed)
                    self._add_phase("timing", start)
        except WrongResult as wrong:
            self.result.failure = wrong.failure
        return self.result

    def _add_phase(self, name: str, start: float) -> None:
        self.result.phases[name] = self.result.phases.get(name, 0.0) + time.perf_counter() - start

    # ---- results ----------------------------------------------------------------------------------------------------

    def run_trials(self, case: str) -> int:
        """Run every trial of a case and check it before the next. Returns the seed of the last parameters."""
        model_seed = 0
        timed = case == self.job.cases[-1]
        if self.job.timed_calls and timed and not self.in_turns:
            self._try_rival(case)  # it compiles meanwhile
        for trial in range(max(self.job.trials, 1) if timed else 1):
            model_seed = draw_seed()
            calls = count_calls(self.job, case, trial)
            self.candidate.send({"do": "trial", "case": case, "seed": model_seed, "calls": calls})
            if not self.about:
                self._open(case)
            if self.candidate.recv().get("refused"):  # the candidate's reply has the words
                continue
            inputs = [input_seed(model_seed, call) for call in range(calls)]
            with self.hold(shared=True):
                self._check(case, trial, model_seed, inputs, timed=False, call=0)
        return model_seed

    def _try_rival(self, case: str) -> None:
        if self.rival is not None:
            self.rival.send({"do": "trial", "case": case, "seed": draw_seed()})
            self.rival.send({"do": "rest"})

    def _open(self, case: str) -> None:
        """While the candidate compiles, start the referee's context and allocate files for the outputs."""
        self.referee.send({"do": "open", "job": str(self.root / "given" / "job.json")})
        preallocate(
            self.root / "scratch" / "out", next(one.outputs for one in self.job.facts.cases if one.name == case)
        )
        self.about = self.referee.recv()
        if "error" in self.about:
            raise ProblemError(str(self.about["error"]))

    def _check(self, case: str, trial: int, model_seed: int, input_seeds: list[int], *, timed: bool, call: int) -> None:
        start = time.perf_counter()
        self.candidate.call({"do": "hand", "call": call})
        said = self.referee.call(
            {
                "do": "check",
                "case": case,
                "trial": trial,
                "model_seed": model_seed,
                "input_seeds": input_seeds,
                "timed": timed,
                "root": str(self.root),
                "relative": "scratch/out",
            }
        )
        self._add_phase("checks", start)
        if "memory" in said:
            raise ProblemError(
                f"the reference of case {case} does not fit the GPU's memory: {said['memory']} Make sizes smaller with "
                "--set NAME=VALUE, or end other programs on the GPU"
            )
        if "error" in said:
            raise WrongResult(
                Failure(
                    stage="check",
                    kind="no_output",
                    message=f"the output for case {case} cannot be checked: {said['error']}",
                )
            )
        made = [from_plain(item, Check) for item in said["checks"]]
        self.result.checks += made
        if said.get("carried") and not self.carried:
            self.carried = True
            self.result.notes.append(
                "outputs of timed calls were not compared: the reference's depend on the calls before"
            )
        if not all(one.passed for one in made):
            raise WrongResult

    # ---- timing -----------------------------------------------------------------------------------------------------

    def time_case(self, case: str, model_seed: int) -> None:
        """Warm up, choose the method, run rounds; with events if a graph does not work for all contestants."""
        players = self._warm_up_contestants(case, model_seed)
        method, why = self._choose_method(players), ""
        if method == "graph":
            why = self._run_rounds(case, model_seed, players, "graph")
            if why:
                self.result.notes.append(f"timed with events, not a graph: {why}")
                method = "events"
        if method == "events":
            self._run_rounds(case, model_seed, players, "events")
        self._summarise(case, players, method)

    def _warm_up_contestants(self, case: str, model_seed: int) -> list[Contestant]:
        players = [Contestant("candidate", self.candidate), Contestant("eager", self.referee)]
        if self.rival is not None:
            players.insert(1, Contestant("parent", self.rival))
        for player in list(players):
            request: Json = {"do": "warm_up", "seeds": [draw_seed() for _ in range(WARM_UP)]}
            try:
                if player.name == "parent" and self.in_turns:
                    self._try_rival(case)
                said = player.channel.call(
                    request | ({"case": case, "model_seed": model_seed} if player.name == "eager" else {})
                )
                player.channel.call({"do": "rest"})
            except Ended as ended:
                if player.name != "parent":
                    raise
                self._drop_rival(str(ended))
                players.remove(player)
                continue
            if "error" in said:
                self.result.notes.append(f"torch eager could not be timed: {said['error']}")
                players.remove(player)
                continue
            player.estimate_s, player.host_s = float(said["estimate_s"]), [float(said["host_s"])]
        return players

    def _drop_rival(self, why: str) -> None:
        self.rival = None
        self.result.notes.append(f"the parent version was not timed again: {why}")

    def _choose_method(self, players: list[Contestant]) -> str:
        return "graph" if players[0].estimate_s < GRAPH_BELOW_S else "events"

    def _run_rounds(self, case: str, model_seed: int, players: list[Contestant], method: str) -> str:
        """Run all rounds with one method. Returns the reason if the method cannot be used, else ""."""
        rounds, size = round_shape(self.job)
        kept = {divmod(n, size) for n in self.rng.sample(range(rounds * size), min(KEPT_TIMED, rounds * size))}
        probes: list[float] = []
        for player in players:
            player.samples, player.walls, player.calls = [], [], 1
        self.surroundings = self.surroundings[:1]  # that of before
        for number in range(rounds):
            self._probe_device(probes)
            for player in list(players if number % 2 == 0 else reversed(players)):
                try:
                    chosen = frozenset(n for r, n in kept if r == number and player.name == "candidate")
                    turn = Turn(case=case, model_seed=model_seed, method=method, size=size, kept=chosen, number=number)
                    why = self._take_turn(player, turn)
                    player.channel.call({"do": "rest"})
                except Ended as ended:
                    if player.name != "parent":
                        raise
                    self._drop_rival(str(ended))
                    players.remove(player)
                    continue
                if why and player.name == "eager" and method == "events":
                    self.result.notes.append(f"torch eager could not be timed: {why}")
                    players.remove(player)
                elif why:
                    return f"{player.name}: {why}" if player.name != "candidate" else why
        self._probe_device(probes)
        self.probes = probes
        for player in players:
            player.channel.send({"do": "drop"})
        return ""

    def _probe_device(self, probes: list[float]) -> None:
        said = self.referee.call({"do": "probe"})
        if "s" in said:
            probes.append(float(said["s"]))
            self.quiet_s = float(said.get("quiet_s") or said["s"])
        seen = self.look()
        if seen is not None:
            self.surroundings.append(seen)

    def _take_turn(self, player: Contestant, turn: Turn) -> str:
        """Take the samples of one contestant in one round. Returns the reason if that fails, else ""."""
        request = {"do": "begin", "pad": self.rng.randrange(PADS), "method": turn.method, "first": draw_seed()}
        begun = player.channel.call(request)
        if begun.get("why") or begun.get("error"):
            return str(begun.get("why") or begun["error"])
        player.calls, player.sets = max(int(begun["calls"]), 1), int(begun["sets"])
        if player.name == "eager":
            reply = player.channel.call({"do": "samples", "seeds": [draw_seed() for _ in range(turn.size)]})
            for one in reply.get("taken", ()):
                self._keep_sample(player, one, turn.method)
            return str(reply.get("error", ""))
        for n in range(turn.size):
            first = draw_seed()
            self._keep_sample(player, player.channel.call({"do": "sample", "seed": first}), turn.method)
            if n in turn.kept and not self.carried:
                call = self.rng.randrange(player.calls)
                inputs = derive_seed(first, call % player.sets) if player.sets else first
                trial = turn.number * turn.size + n
                self._check(turn.case, trial, turn.model_seed, [inputs], timed=True, call=call)
                # not counted: the referee has just used the device
                player.channel.call({"do": "sample", "seed": draw_seed()})
        return ""

    def _keep_sample(self, player: Contestant, said: Json, method: str) -> None:
        player.samples.append(float(said["s"]))
        player.walls.append(float(said["wall"]))
        if method == "events":
            player.host_s.append(float(said["host"]))

    def _summarise(self, case: str, players: list[Contestant], method: str) -> None:
        size = round_shape(self.job)[1]
        cold = self.job.cold_l2
        for player in players:
            resolution = statistics.EVENT_S / player.calls
            median, low, high = statistics.median_interval(
                player.samples, size, between_runs=statistics.BETWEEN_RUNS, resolution_s=resolution
            )
            self.result.timings[player.name] = Timing(
                case=case,
                device=str(self.about.get("gpu", "")),
                samples_s=tuple(player.samples),
                median_s=median,
                low_s=low,
                high_s=high,
                wall_ratio=_median(player.walls),
                cold_l2=cold,
                per_round=size,
                method=method,
                calls_per_sample=player.calls,
                launch_overhead_s=_median(player.host_s),
                probes_s=tuple(self.probes),
                surroundings=tuple(self.surroundings),
                notes=tuple(self.result.notes),
                doubts=steadiness.doubts(
                    player.samples,
                    size,
                    self.probes,
                    self.surroundings,
                    busy_before=self.busy_before,
                    quiet_s=self.quiet_s,
                ),
            )
        mine = statistics.split_rounds(players[0].samples, size)
        self.result.ratios = tuple(
            _make_ratio(
                "parent" if player.name == "parent" else "eager",
                statistics.ratio_interval(
                    statistics.split_rounds(player.samples, size), mine, between_runs=statistics.BETWEEN_RUNS
                ),
            )
            for player in players[1:]
        )


def _make_ratio(against: Literal["eager", "parent"], interval: tuple[float, float, float]) -> Ratio:
    return Ratio(against=against, ratio=interval[0], low=interval[1], high=interval[2])


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
