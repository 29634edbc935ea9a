"""Rounds in which processes take turns, over the real hand-over of orders: who is asked when, what is checked, and what
becomes of it.

The first tests have plain functions where GPU processes would be. The last runs the real processes' code, with a
compiled kernel, on the emulated GPU.
"""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workbench import problems
from workbench.executors.gpu.benchmark import KEPT_TIMED, Run
from workbench.executors.gpu.contestants import CALLS
from workbench.executors.gpu.rounds import ROUNDS, round_shape
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs.folder import prepare
from workbench.executors.jobs.rpc import Ended, SocketChannel, derive_seed, requests
from workbench.records import Candidate, DeviceState, Job


@pytest.fixture(scope="module")
def job() -> Job:
    problem = problems.load("row_sum")
    return Job(
        problem=problem,
        facts=WorkerInspector().inspect(problem),
        candidate=Candidate(source=""),
        cases=("shrunk",),
        trials=2,
        timed_calls=40,
    )


class LoggedChannel(SocketChannel):
    """Notes each order before it is sent: processes that work side by side would note theirs in any order."""

    def __init__(self, connection: socket.socket, alive: Callable[[], bool], note: Callable[[dict[str, Any]], None]):
        super().__init__(connection, alive)
        self.note = note

    def send(self, request: dict[str, Any]) -> None:
        self.note(dict(request))
        super().send(request)


class Play:
    """A device that is not there: each role sleeps in no time and says what it took.

    `log` has every order in the order in which they were sent. `seconds` says what a role's sample takes, by its
    number. `clock` counts the samples of all roles.
    """

    def __init__(
        self,
        root: Path,
        seconds: dict[str, Callable[[int], float]],
        *,
        captured: bool = False,
        wrong_at: int = -1,
        lost: str = "",
        lost_at: str = "trial",
        full: bool = False,
        host_s: float = 10e-6,
        compiles: str = "",
        warm_up_s: float = 0.0,
    ) -> None:
        self.root, self.seconds, self.captured, self.wrong_at, self.lost, self.lost_at, self.full = (
            root,
            seconds,
            captured,
            wrong_at,
            lost,
            lost_at,
            full,
        )
        self.warm_up_s = warm_up_s
        self.host_s, self.compiles = host_s, compiles  # the latter: "" never, "yes", or why it fails
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.lines: dict[str, SocketChannel] = {}
        self.taken: dict[str, int] = dict.fromkeys(seconds, 0)
        self.clock = 0
        self.checked = 0
        self.refused: tuple[str, ...] = ()  # cases
        for role in (role for role in seconds if role != "compiled"):
            folder = root / role
            (folder / "given").mkdir(parents=True)
            (folder / "scratch").mkdir()
            mine, theirs = socket.socketpair()
            thread = threading.Thread(target=self.work, args=(role, theirs), daemon=True)
            thread.start()
            self.lines[role] = LoggedChannel(mine, thread.is_alive, functools.partial(self.note, role))

    def note(self, role: str, order: dict[str, Any]) -> None:
        self.log.append((role, order))

    def work(self, role: str, connection: socket.socket) -> None:
        with connection:
            for order, answer in requests(connection, 5.0):
                if self.lost == role and order["do"] == self.lost_at:
                    return
                answer(self.said("compiled" if order.get("program") == "compiled" else role, order))
                if order["do"] == "end":
                    return

    def said(self, role: str, order: dict[str, Any]) -> dict[str, Any]:
        if order["do"] == "trial" and order["case"] in self.refused:
            return {"refused": True}
        if order["do"] == "warm_up":
            time.sleep(self.warm_up_s)
            return {"estimate_s": self.sample(role)["s"], "host_s": 12e-6}
        if order["do"] == "begin":
            graph = order["method"] == "graph" and self.captured
            return {
                "why": "it allocates" if order["method"] == "graph" and not graph else "",
                "calls": 8 if graph else 1,
                "sets": 8 if graph else 0,
            }
        if order["do"] == "sample":
            return self.sample(role)
        if order["do"] == "call_times":
            return {"taken": [self.sample(role)["s"] + self.host_s for _ in range(order["count"])]}
        if order["do"] == "compile" and self.compiles != "yes":
            return {"error": self.compiles}
        if order["do"] == "samples" and self.full:
            return {"error": "out of memory"}
        if order["do"] == "samples":
            return {"taken": [self.sample(role) for _ in order["seeds"]]}
        if order["do"] == "probe":
            return {"s": 100e-6}
        if order["do"] == "check":
            self.checked += 1
            passed = self.checked - 1 != self.wrong_at
            return {
                "checks": [
                    {
                        "case": order["case"],
                        "trial": order["trial"],
                        "timed": order["timed"],
                        "passed": passed,
                        "message": "" if passed else "1 of 1 elements are wrong",
                    }
                ]
            }
        about = {"gpu": "a GPU", "cuda": "13", "compiles": bool(self.compiles)}
        return about if order["do"] == "open" else {}

    def sample(self, role: str) -> dict[str, float]:
        self.taken[role] += 1
        self.clock += 1
        return {"s": self.seconds[role](self.taken[role]), "wall": 1.0, "host": self.host_s}

    def run(self, job: Job, look: Callable[[], DeviceState | None] = lambda: None, *, in_turns: bool = False) -> Run:
        run = Run(
            job,
            self.root / "candidate",
            self.lines["candidate"],
            self.lines["eager"],
            self.lines.get("parent"),
            small=(self.lines["small"], self.root / "small") if "small" in self.lines else None,
            look=look,
            in_turns=in_turns,
        )
        run.run()
        return run


def noisy(seed: int, median: float) -> Callable[[int], float]:
    rng = random.Random(seed)
    return lambda n: median * (1 + rng.gauss(0, 0.002))


def test_turns_alternate_and_reverse(job: Job, tmp_path: Path) -> None:
    play = Play(tmp_path, {"candidate": noisy(1, 1e-3), "eager": noisy(2, 2e-3), "parent": noisy(3, 1.02e-3)})
    result = play.run(job).result
    turns = [role for role, order in play.log if order["do"] == "begin"]
    assert turns == ["candidate", "parent", "eager", "eager", "parent", "candidate"] * (ROUNDS // 2)
    assert len([1 for _, order in play.log if order["do"] == "probe"]) == ROUNDS + 1
    assert {name: len(timing.samples_s) for name, timing in result.timings.items()} == {
        "candidate": 40,
        "parent": 40,
        "eager": 40,
    }
    ratios = {ratio.against: ratio for ratio in result.ratios if ratio.of == "kernels"}
    assert ratios["parent"].low > 1 and ratios["parent"].ratio == pytest.approx(
        1.02, rel=2e-3
    )  # two percent are told apart
    assert ratios["eager"].ratio == pytest.approx(2, rel=1e-2)
    timing = result.timings["candidate"]
    assert (
        timing.method == "events"
        and timing.launch_overhead_s == pytest.approx(10e-6)
        and not timing.doubts
        and timing.per_round == 5
    )


def test_whole_calls_are_timed_beside_kernels_and_compared(job: Job, tmp_path: Path) -> None:
    seconds = {"candidate": noisy(1, 1e-3), "eager": noisy(2, 2e-3), "compiled": noisy(3, 1.5e-3)}
    result = Play(tmp_path, seconds, host_s=1e-3, compiles="yes").run(job).result
    timing = result.timings["candidate"]
    assert timing.call_s == pytest.approx(2e-3, rel=1e-2) and timing.median_s == pytest.approx(1e-3, rel=1e-2)
    assert timing.call_low_s is not None and timing.call_high_s is not None
    assert timing.call_low_s < timing.call_s < timing.call_high_s and len(timing.call_samples_s) == ROUNDS * CALLS
    ratios = {(ratio.against, ratio.of): ratio.ratio for ratio in result.ratios}
    assert ratios == {
        ("eager", "kernels"): pytest.approx(2, rel=1e-2),
        ("eager", "calls"): pytest.approx(1.5, rel=1e-2),
        ("compiled", "kernels"): pytest.approx(1.5, rel=1e-2),
        ("compiled", "calls"): pytest.approx(1.25, rel=1e-2),
    }


def test_where_torch_cannot_compile_the_rest_is_timed_and_it_is_said(job: Job, tmp_path: Path) -> None:
    play = Play(tmp_path, {"candidate": noisy(1, 1e-3), "eager": noisy(2, 2e-3)}, compiles="no C compiler")
    result = play.run(job).result
    assert set(result.timings) == {"candidate", "eager"}
    assert result.timings["eager"].notes == ("torch.compile could not be timed: no C compiler",)


@pytest.mark.parametrize(("in_turns", "before"), [(False, True), (True, False)])
def test_torch_compiles_beside_the_candidate_unless_both_need_the_memory(
    job: Job, tmp_path: Path, in_turns: bool, before: bool
) -> None:
    seconds = {"candidate": noisy(1, 1e-3), "eager": noisy(2, 2e-3), "compiled": noisy(3, 1.5e-3)}
    play = Play(tmp_path, seconds, compiles="yes")
    play.run(job, in_turns=in_turns)
    asked = [order["do"] for role, order in play.log if role == "eager"]
    assert asked.count("compile") == 1 and (asked.index("compile") < asked.index("expect")) is before


def test_smaller_tensors_have_two_trials(job: Job, tmp_path: Path) -> None:
    small = next(case for case in job.facts.cases if case.name == "odd")
    facts = replace(job.facts, cases=(replace(small, name="full"),))
    play = Play(tmp_path, {"candidate": noisy(1, 1e-3), "eager": noisy(2, 2e-3)})
    play.run(replace(job, facts=facts, cases=("full",)))
    assert checked_cases(play) == ["full", "full"]


def checked_cases(play: Play) -> list[str]:
    return [order["case"] for _, order in play.log if order["do"] == "check" and not order["timed"]]


def test_odd_sizes_are_checked_once_and_only_full_ones_are_timed(job: Job, tmp_path: Path) -> None:
    play = Play(tmp_path, {"candidate": noisy(1, 1e-3), "eager": noisy(2, 2e-3)})
    result = play.run(replace(job, cases=("odd", "full"))).result
    assert checked_cases(play) == ["odd", "full"]  # 12.9 GB of tensors: a trial, besides two timed calls
    assert {timing.case for timing in result.timings.values()} == {"full"}


def test_a_kernel_that_is_wrong_at_odd_sizes_is_not_timed(job: Job, tmp_path: Path) -> None:
    play = Play(tmp_path, {"candidate": noisy(1, 1e-3), "eager": noisy(2, 2e-3)}, wrong_at=0)
    result = play.run(replace(job, cases=("odd", "full"))).result
    assert checked_cases(play) == ["odd"] and not result.timings and not result.checks[-1].passed


def test_a_kernel_that_refuses_odd_sizes_is_checked_and_timed_at_full_size(job: Job, tmp_path: Path) -> None:
    play = Play(tmp_path, {"candidate": noisy(1, 1e-3), "eager": noisy(2, 2e-3)})
    play.refused = ("odd",)
    assert play.run(replace(job, cases=("odd", "full"))).result.timings
    assert checked_cases(play) == ["full"]


def test_the_same_version_twice_is_not_told_apart(job: Job, tmp_path: Path) -> None:
    ratios = (
        Play(tmp_path, {"candidate": noisy(1, 1e-3), "eager": noisy(2, 2e-3), "parent": noisy(3, 1e-3)})
        .run(job)
        .result.ratios
    )
    parent = next(ratio for ratio in ratios if ratio.against == "parent")
    assert parent.low < 1 < parent.high


def test_drift_cancels_out_of_the_ratio_and_is_said(job: Job, tmp_path: Path) -> None:
    play = Play(tmp_path, {"candidate": lambda n: 1e-3 * drift(), "eager": lambda n: 2e-3 * drift()})

    def drift() -> float:  # with time: the candidate has taken more samples, for the outputs that are checked
        return 1 + 0.0015 * play.clock

    result = play.run(job).result
    (ratio,) = (one for one in result.ratios if one.of == "kernels")
    assert ratio.low < 2 < ratio.high and ratio.high - ratio.low < 0.08
    assert any("drifted" in doubt for doubt in result.timings["candidate"].doubts)


def test_every_seed_is_used_once_and_two_timed_outputs_are_checked(job: Job, tmp_path: Path) -> None:
    chosen = set()
    for attempt in range(3):
        play = Play(tmp_path / str(attempt), {"candidate": noisy(1, 1e-3), "eager": noisy(2, 2e-3)})
        play.run(job)
        seeds = [order["seed"] for role, order in play.log if "seed" in order] + [
            seed for _, order in play.log for seed in order.get("seeds", ())
        ]
        assert len(set(seeds)) == len(seeds)
        checks = [
            {**order, **expected}
            for (_, order), (_, expected) in zip(
                [one for one in play.log if one[1]["do"] == "check"],
                [one for one in play.log if one[1]["do"] == "expect"],
                strict=True,
            )
        ]
        assert len(checks) == job.trials + KEPT_TIMED and sum(order["timed"] for order in checks) == KEPT_TIMED
        sampled = [order["seed"] for role, order in play.log if order["do"] == "sample"]
        assert all(order["input_seeds"][0] in sampled for order in checks if order["timed"])
        chosen |= {order["trial"] for order in checks if order["timed"]}
        for at, (_, order) in enumerate(play.log):
            if order["do"] == "hand" and at:  # whether an output is wanted is said only after its call
                assert [o["do"] for r, o in play.log[:at] if r == "candidate"][-1] in ("trial", "sample")
    assert len(chosen) > KEPT_TIMED


def test_short_calls_are_timed_in_a_graph_and_one_of_its_calls_is_checked(job: Job, tmp_path: Path) -> None:
    play = Play(tmp_path, {"candidate": noisy(1, 10e-6), "eager": noisy(2, 20e-6)}, captured=True)
    timing = play.run(job).result.timings["candidate"]
    assert (
        timing.method == "graph" and timing.calls_per_sample == 8 and timing.launch_overhead_s == pytest.approx(12e-6)
    )
    hands = [order["call"] for _, order in play.log if order["do"] == "hand"][job.trials :]
    sampled = {order["seed"] for role, order in play.log if order["do"] == "sample"}
    checked = [order["input_seeds"][0] for _, order in play.log if order["do"] == "expect" and order["timed"]]
    assert all(0 <= call < 8 for call in hands)
    assert all(
        any(derive_seed(first, call) == seed for first in sampled) for call, seed in zip(hands, checked, strict=True)
    )


def test_where_a_graph_fails_all_are_timed_with_events_and_it_is_said(job: Job, tmp_path: Path) -> None:
    timings = Play(tmp_path, {"candidate": noisy(1, 10e-6), "eager": noisy(2, 20e-6)}).run(job).result.timings
    assert {timing.method for timing in timings.values()} == {"events"}
    assert (
        timings["candidate"].notes == ("timed with events, not a graph: it allocates",)
        and len(timings["candidate"].samples_s) == 40
    )


@pytest.mark.parametrize(("at", "expected"), [(0, "trial"), (2, "sample")])
def test_a_wrong_output_ends_the_run(job: Job, tmp_path: Path, at: int, expected: str) -> None:
    play = Play(tmp_path, {"candidate": noisy(1, 1e-3), "eager": noisy(2, 2e-3)}, wrong_at=at)
    result = play.run(job).result
    assert not result.checks[-1].passed and not result.timings
    assert [order["do"] for role, order in play.log if role == "candidate"][-2:] == [expected, "hand"]


@pytest.mark.parametrize("lost_at", ["trial", "warm_up", "begin", "sample"])
def test_a_parent_that_fails_now_is_left_out_and_named(job: Job, tmp_path: Path, lost_at: str) -> None:
    play = Play(
        tmp_path,
        {"candidate": noisy(1, 1e-3), "eager": noisy(2, 2e-3), "parent": noisy(3, 1e-3)},
        lost="parent",
        lost_at=lost_at,
    )
    result = play.run(job).result
    assert {ratio.against for ratio in result.ratios} == {"eager"}
    assert any("parent version was not timed again" in note for note in result.timings["candidate"].notes)


def test_where_torch_eager_cannot_be_timed_the_candidate_still_is(job: Job, tmp_path: Path) -> None:
    result = Play(tmp_path, {"candidate": noisy(1, 1e-3), "eager": noisy(2, 2e-3)}, full=True).run(job).result
    assert result.ratios == () and len(result.timings["candidate"].samples_s) == 40
    assert result.timings["candidate"].notes == ("torch eager could not be timed: out of memory",)


@pytest.mark.parametrize(("calls", "shape"), [(40, (8, 5)), (20, (8, 3)), (3, (3, 1)), (1, (1, 1))])
def test_rounds_hold_at_least_the_calls_asked_for(job: Job, calls: int, shape: tuple[int, int]) -> None:
    assert round_shape(replace(job, timed_calls=calls)) == shape
    assert shape[0] * shape[1] >= calls


def test_small_cases_have_a_process_of_their_own_which_ends_before_the_timed_one_is_checked(
    job: Job, tmp_path: Path
) -> None:
    seconds = {"candidate": noisy(1, 1e-3), "small": noisy(2, 1e-3), "eager": noisy(3, 2e-3)}
    play = Play(tmp_path, seconds)
    result = play.run(replace(job, cases=("odd", "shrunk"))).result
    orders = [(role, order["do"], order.get("case", "")) for role, order in play.log]
    assert orders.index(("candidate", "trial", "shrunk")) < orders.index(("small", "hand", ""))  # both compile
    assert [one for one in orders if one[0] == "small"] == [
        ("small", "trial", "odd"),
        ("small", "hand", ""),
        ("small", "end", ""),
    ]
    assert orders.index(("small", "end", "")) < orders.index(("candidate", "hand", ""))
    assert [check.case for check in result.checks][:2] == ["odd", "shrunk"] and "candidate" in result.timings


def test_a_wrong_small_case_ends_a_run_that_the_timed_case_has_begun(job: Job, tmp_path: Path) -> None:
    seconds = {"candidate": noisy(1, 1e-3), "small": noisy(2, 1e-3), "eager": noisy(3, 2e-3)}
    play = Play(tmp_path, seconds, wrong_at=0)
    run = play.run(replace(job, cases=("odd", "shrunk")))
    assert not run.small_is_done and not run.result.timings
    assert [(check.case, check.passed) for check in run.result.checks] == [("odd", False)]


@pytest.mark.parametrize(("sample_s", "shape"), [(0.01, (8, 5)), (0.03, (4, 5)), (0.1, (4, 1)), (2.0, (4, 1))])
def test_fewer_samples_are_taken_of_calls_that_take_long(job: Job, sample_s: float, shape: tuple[int, int]) -> None:
    assert round_shape(job, sample_s) == shape


def test_slow_calls_take_four_rounds_of_few_samples(job: Job, tmp_path: Path) -> None:
    play = Play(tmp_path, {"candidate": noisy(1, 0.2), "eager": noisy(2, 0.3)}, warm_up_s=0.2)
    timing = play.run(job).result.timings["candidate"]
    assert (len(timing.samples_s), timing.per_round, len(timing.call_samples_s)) == (4, 1, 4)


# ---- the real processes on the emulated GPU ------------------------------------------------------------------------


def _process(role: str, folder: Path, connection: socket.socket) -> None:
    """What a GPU worker does, in a forked process, with torch.cuda answered by the emulator."""
    import torch

    from workbench.emulator import emulated

    torch.cuda._sleep = lambda cycles: None
    os.chdir(folder / "scratch")
    with emulated(arch="sm_80", cuda=True):
        from workbench.executors.workers import candidate, referee, trusted

        if role == "referee":
            referee.PROBE_SIDE, referee.PROBE_BYTES = 32, 1 << 10
            referee.serve(connection)
        else:
            (folder / "scratch" / "reply.json").write_text(
                json.dumps(candidate.attempt(trusted.read_job(folder), folder, gpu=True, connection=connection))
            )


def planned(job: Job) -> Candidate:
    """The planner's first kernel."""
    from workbench.proposers.planner import Planner
    from workbench.records import Ask, Proposal

    ask = Ask(problem=job.problem, facts=job.facts)
    return [item for item in Planner().propose(ask) if isinstance(item, Proposal)][-1].candidate


@contextlib.contextmanager
def started(job: Job, root: Path, roles: tuple[str, ...]) -> Iterator[dict[str, SocketChannel]]:
    """The channels to the processes of a run, which have ended after the block."""
    workers = multiprocessing.get_context("forkserver")  # one process imports torch and CuTe DSL for all of them
    workers.set_forkserver_preload([__name__, "torch", "cutlass.cute", "workbench.emulator"])
    lines, processes = {}, {}
    for role in roles:
        (root / role).mkdir()
        prepare(root / role, job)
        mine, theirs = socket.socketpair()
        with theirs:
            processes[role] = workers.Process(target=_process, args=(role, root / role, theirs), daemon=True)
            processes[role].start()
        lines[role] = SocketChannel(mine, processes[role].is_alive)
    try:
        yield lines
    finally:
        for line in lines.values():
            with contextlib.suppress(Ended):
                line.call({"do": "end"})
        for process in processes.values():
            process.join(60)


def read_reply(root: Path) -> dict[str, Any]:
    """What the candidate's process says in the end."""
    return dict(json.loads((root / "candidate" / "scratch" / "reply.json").read_text()))


@pytest.mark.slow
def test_the_processes_of_a_gpu_run_on_the_emulated_gpu(job: Job, tmp_path: Path) -> None:
    job = replace(job, candidate=planned(job), trials=1, timed_calls=2, compiled="now")
    with started(job, tmp_path, ("candidate", "referee", "parent")) as lines:
        run = Run(job, tmp_path / "candidate", lines["candidate"], lines["referee"], lines["parent"], look=lambda: None)
        result = run.run()
    assert result.failure is None and [check.passed for check in result.checks] == [True, True, True]
    assert sum(check.timed for check in result.checks) == 2
    assert {name: len(timing.samples_s) for name, timing in result.timings.items()} == {
        "candidate": 2,
        "parent": 2,
        "eager": 2,
        "compiled": 2,
    }
    assert all((timing.call_s or 0) > 0 for timing in result.timings.values())
    assert result.timings["candidate"].median_s > 0 and "H200" in result.timings["candidate"].device
    reply = read_reply(tmp_path)
    assert reply["failure"] is None and reply["builds"]


@pytest.mark.slow
def test_two_processes_of_a_candidate_share_the_cases_on_the_emulated_gpu(job: Job, tmp_path: Path) -> None:
    job = replace(job, candidate=planned(job), trials=1, timed_calls=2, compiled="never", cases=("odd", "shrunk"))
    with started(job, tmp_path, ("candidate", "small", "referee")) as lines:
        small = (lines["small"], tmp_path / "small")
        run = Run(job, tmp_path / "candidate", lines["candidate"], lines["referee"], small=small, look=lambda: None)
        result = run.run()
    assert result.failure is None and run.small_is_done
    assert [(check.case, check.passed, check.timed) for check in result.checks] == [
        ("odd", True, False),
        ("shrunk", True, False),
        ("shrunk", True, True),
        ("shrunk", True, True),
    ]


IN_PLACE_WHEN_TIMED = """
plain, calls = ModelNew.forward, [0]


def forward(self, x):
    calls[0] += 1
    y = plain(self, x)
    if calls[0] > 5:  # after a trial and the calls that warm up
        x.copy_(y)
    return y


ModelNew.forward = forward
"""


@pytest.mark.slow
def test_an_input_that_only_timed_calls_change_is_noticed(job: Job, tmp_path: Path) -> None:
    candidate = planned(job)
    job = replace(job, candidate=replace(candidate, source=candidate.source + IN_PLACE_WHEN_TIMED), trials=1)
    job = replace(job, timed_calls=2, compiled="never")
    with started(job, tmp_path, ("candidate", "referee")) as lines, pytest.raises(Ended):
        Run(job, tmp_path / "candidate", lines["candidate"], lines["referee"], look=lambda: None).run()
    failure = read_reply(tmp_path)["failure"]
    assert (failure["stage"], failure["kind"]) == ("check", "input_modified")
