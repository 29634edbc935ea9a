"""Controls a GPU run from the parent: trials, then rounds in which candidate, parent and torch take turns.

Torch runs eagerly, and compiled where that is asked for.

Each of them has a process of its own. A round is a few calls of each, in one order in even rounds and in the reverse
order in odd ones, so that a linear drift affects all alike. Before each round the referee times a fixed kernel, and
NVML reads the state of the device. The outputs of timed calls to check are drawn after those calls.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from workbench.analysis import steadiness
from workbench.errors import GpuMemoryError, ProblemError
from workbench.executors.gpu.contestants import CALLS, REFERENCES, Contestant, compare_contestants, summarise
from workbench.executors.gpu.memory import describe_shortage, preallocate
from workbench.executors.gpu.rounds import (
    MOST_TIMING_S,
    Hold,
    RunResult,
    Turn,
    WrongResult,
    hold_nothing,
    round_shape,
)
from workbench.executors.jobs.rpc import Channel, Ended, derive_seed, draw_seed
from workbench.executors.jobs.trials import count_calls, gpu_trials, input_seed, is_large
from workbench.records import Check, DeviceState, Failure, Job, Timing
from workbench.wire import Json, from_plain, to_plain

WARM_UP = 4
KEPT_TIMED, KEPT_LARGE = 4, 2  # timed samples whose outputs are checked, drawn for each run; of large tensors
GRAPH_BELOW_S = 50e-6  # a shorter call is timed in a graph: two events are a few percent of it
PADS = 32  # memory is displaced by up to so many pages from round to round


class Run:
    """One run of a candidate, with the referee and perhaps a rival.

    `root` is the candidate's folder; `look` gives the state of the device. `hold()` holds the device alone,
    `hold(shared=True)` against those that hold it alone (turns.py). The rival's first call is made beside the
    candidate's trials, or after them if the tensors are so large that they have to use the memory `in_turns`.
    `small` is another process of the candidate, with its folder: it makes the trials of the cases that are not timed,
    while the candidate's process compiles for the timed one. `begun` are the seeds of first trials that the candidate
    makes already, by case and number.
    """

    def __init__(
        self,
        job: Job,
        root: Path,
        candidate: Channel,
        referee: Channel,
        rival: Channel | None = None,
        *,
        small: tuple[Channel, Path] | None = None,
        look: Callable[[], DeviceState | None],
        hold: Hold = hold_nothing,
        busy_before: bool = True,
        in_turns: bool = False,
        begun: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        self.in_turns = in_turns
        self.small = small
        self.small_is_done = small is None
        self.sent = dict(begun or {})  # seeds of trials that were begun ahead, by case and number
        self.job, self.root, self.candidate, self.referee, self.rival = job, root, candidate, referee, rival
        self.look, self.hold, self.busy_before = look, hold, busy_before
        self.about: Json = {}  # the referee's device and versions
        self.rng = random.SystemRandom()
        self.result = RunResult()
        seen = look()
        self.surroundings: list[DeviceState] = [seen] if seen is not None else []
        self.probes: list[float] = []
        self.quiet_s: float | None = None
        self.compiles = False  # whether torch.compile takes part
        self.shape, self.calls = round_shape(job), CALLS  # of the rounds; whole calls in each
        self.carried = False  # whether the outputs of a call depend on the calls before

    def run(self) -> RunResult:
        """Run trials and timing at every case. Stops at the first wrong result."""
        known = {case.name for case in self.job.facts.cases}
        timed = self.job.cases[-1]
        if self.small is not None and (timed, 0) not in self.sent:
            self._begin_trial(timed, 0, ahead=True)
        if self.job.timed_calls and timed in known and not self.in_turns:
            self._try_rival(timed)  # it compiles meanwhile
        try:
            for case in (name for name in self.job.cases if name in known):
                start = time.perf_counter()
                if case == timed:
                    self._end_small()
                model_seed = self.run_trials(case)
                self._add_phase("trials", start)
                if self.job.timed_calls and case == timed:
                    self._compile_reference()
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
        candidate, _ = self._seat(case)
        for trial in gpu_trials(self.job, case):
            model_seed = self.sent.pop((case, trial), 0) or self._begin_trial(case, trial)
            if not self.about:
                self._open(case)
                self._compile_reference(beside=True)
            if candidate.recv().get("refused"):  # the candidate's reply has the words
                continue
            inputs = [input_seed(model_seed, call) for call in range(count_calls(self.job, case, trial))]
            with self.hold(shared=True):
                self._check(case, trial, model_seed, inputs, timed=False, call=0)
        return model_seed

    def _seat(self, case: str) -> tuple[Channel, Path]:
        """The process of the candidate for a case, and its folder."""
        if self.small is not None and case != self.job.cases[-1]:
            return self.small
        return self.candidate, self.root

    def _begin_trial(self, case: str, trial: int, *, ahead: bool = False) -> int:
        """Let the candidate make the calls of a trial. Returns the seed of its parameters."""
        seed = draw_seed()
        calls = count_calls(self.job, case, trial)
        self._seat(case)[0].send({"do": "trial", "case": case, "seed": seed, "calls": calls})
        if ahead:
            self.sent[case, trial] = seed
        return seed

    def _end_small(self) -> None:
        """The cases that are not timed are done: their process leaves the device."""
        if self.small is not None and not self.small_is_done:
            self.small[0].call({"do": "end"})
        self.small_is_done = True

    def _try_rival(self, case: str) -> None:
        if self.rival is not None:
            self.rival.send({"do": "trial", "case": case, "seed": draw_seed()})
            self.rival.send({"do": "rest"})

    def _open(self, case: str) -> None:
        """While the candidate compiles, start the referee's context and allocate files for the outputs."""
        self.referee.send({"do": "open", "job": to_plain(self.job)})
        preallocate(
            self._seat(case)[1] / "scratch" / "out",
            next(one.outputs for one in self.job.facts.cases if one.name == case),
        )
        self.about = self.referee.recv()
        if "memory" in self.about:
            raise _describe_shortage(case, self.about)
        if "error" in self.about:
            raise ProblemError(str(self.about["error"]))

    def _check(self, case: str, trial: int, model_seed: int, input_seeds: list[int], *, timed: bool, call: int) -> None:
        start = time.perf_counter()
        candidate, root = self._seat(case)
        candidate.send({"do": "hand", "call": call})  # meanwhile the referee computes what is right
        of = {"case": case, "model_seed": model_seed, "input_seeds": input_seeds, "timed": timed}
        said = self.referee.call({"do": "expect", **of})
        candidate.recv()
        if "error" not in said:
            place = {"root": str(root), "relative": "scratch/out"}
            said |= self.referee.call({"do": "check", "case": case, "trial": trial, "timed": timed, **place})
        self._add_phase("checks", start)
        if "memory" in said:
            raise _describe_shortage(case, said)
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
        self.shape = round_shape(self.job, sum(player.sample_s for player in players))
        call_s = sum(player.estimate_s for player in players)
        self.calls = CALLS if CALLS * self.shape[0] * call_s <= MOST_TIMING_S else 1
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
        players = [Contestant("candidate", self.candidate)]
        if not self.job.quick:
            players.append(Contestant("eager", self.referee))
        if self.rival is not None:
            players.insert(1, Contestant("parent", self.rival))
        if self.compiles:
            players.append(Contestant("compiled", self.referee))
        for player in list(players):
            request: Json = {"do": "warm_up", "seeds": [draw_seed() for _ in range(WARM_UP)]}
            try:
                if player.name == "parent" and self.in_turns:
                    self._try_rival(case)
                of = {"case": case, "model_seed": model_seed} if player.name in REFERENCES else {}
                start = time.perf_counter()
                said = player.ask(request | of)
                if player.name != "parent":  # which may still compile
                    player.sample_s = (time.perf_counter() - start) / WARM_UP
                player.channel.call({"do": "rest"})
            except Ended as ended:
                if player.name != "parent":
                    raise
                self._drop_rival(str(ended))
                players.remove(player)
                continue
            if "error" in said:
                self._leave_out(players, player, said["error"])
                continue
            player.estimate_s, player.host_s = float(said["estimate_s"]), [float(said["host_s"])]
        return players

    def _compile_reference(self, *, beside: bool = False) -> None:
        """Compile the reference by torch.compile, if the job asks for its time: `beside` the candidate's compilation,
        or after the trials where both need the memory.
        """
        if not self.about.get("compiles") or beside == self.in_turns:
            return
        start = time.perf_counter()
        request = {"do": "compile", "case": self.job.cases[-1], "model_seed": draw_seed(), "seed": draw_seed()}
        with self.hold(shared=True):
            said = self.referee.call(request)
        self.compiles = "error" not in said
        if not self.compiles:
            self.result.notes.append(f"torch.compile could not be timed: {said['error']}")
        self._add_phase("torch.compile", start)

    def _leave_out(self, players: list[Contestant], player: Contestant, why: object) -> None:
        """Go on without torch, eager or compiled."""
        name = "torch.compile" if player.name == "compiled" else "torch eager"
        self.result.notes.append(f"{name} could not be timed: {why}")
        players.remove(player)

    def _drop_rival(self, why: str) -> None:
        self.rival = None
        self.result.notes.append(f"the parent version was not timed again: {why}")

    def _choose_method(self, players: list[Contestant]) -> str:
        return "graph" if players[0].estimate_s < GRAPH_BELOW_S else "events"

    def _run_rounds(self, case: str, model_seed: int, players: list[Contestant], method: str) -> str:
        """Run all rounds with one method. Returns the reason if the method cannot be used, else ""."""
        rounds, size = self.shape
        checked = min(KEPT_LARGE if is_large(self.job, case) else KEPT_TIMED, rounds * size) * (not self.job.quick)
        kept = {divmod(n, size) for n in self.rng.sample(range(rounds * size), checked)}
        probes: list[float] = []
        for player in players:
            player.start_again()
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
                if why and (player.name == "compiled" or (player.name == "eager" and method == "events")):
                    self._leave_out(players, player, why)
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
        begun = player.ask(request)
        if begun.get("why") or begun.get("error"):
            return str(begun.get("why") or begun["error"])
        player.calls, player.sets = max(int(begun["calls"]), 1), int(begun["sets"])
        if player.name in REFERENCES:
            reply = player.ask({"do": "samples", "seeds": [draw_seed() for _ in range(turn.size)]})
            for one in reply.get("taken", ()):
                player.keep(one, host=turn.method == "events")
            return str(reply.get("error", "")) or self._take_calls(player)
        for n in range(turn.size):
            first = draw_seed()
            player.keep(player.channel.call({"do": "sample", "seed": first}), host=turn.method == "events")
            if n in turn.kept and not self.carried:
                call = self.rng.randrange(player.calls)
                inputs = derive_seed(first, call % player.sets) if player.sets else first
                trial = turn.number * turn.size + n
                self._check(turn.case, trial, turn.model_seed, [inputs], timed=True, call=call)
                # not counted: the referee has just used the device
                player.channel.call({"do": "sample", "seed": draw_seed()})
        return self._take_calls(player)

    def _take_calls(self, player: Contestant) -> str:
        """Time a few calls as a model sees them, unless the job is quick. Returns the reason if that fails, else ""."""
        if self.job.quick:
            return ""
        said = player.ask({"do": "call_times", "seed": draw_seed(), "count": self.calls})
        player.called += map(float, said.get("taken", ()))
        return str(said.get("error", ""))

    def _summarise(self, case: str, players: list[Contestant], method: str) -> None:
        size, cold = self.shape[1], self.job.cold_l2
        for player in players:
            found = summarise(player, size, self.calls)
            self.result.timings[player.name] = Timing(
                case=case,
                device=str(self.about.get("gpu", "")),
                samples_s=tuple(player.samples),
                median_s=found.kernels[0],
                low_s=found.kernels[1],
                high_s=found.kernels[2],
                wall_ratio=found.wall_ratio,
                cold_l2=cold,
                per_round=size,
                method=method,
                calls_per_sample=player.calls,
                launch_overhead_s=found.launch_overhead_s,
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
                call_samples_s=tuple(player.called),
                call_s=found.calls[0],
                call_low_s=found.calls[1],
                call_high_s=found.calls[2],
            )
        self.result.ratios = compare_contestants(players, size, self.calls)


def _describe_shortage(case: str, said: Json) -> GpuMemoryError:
    return GpuMemoryError(
        f"the reference of case {case} does not fit the GPU's memory: {describe_shortage(said['memory'])}; make sizes "
        "smaller with --set NAME=VALUE, or end other programs on the GPU"
    )
