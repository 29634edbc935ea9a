"""Intervals that hold between runs, ratios of paired rounds, doubts about disturbed runs, and what a verdict makes of
them.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench
from workbench.analysis import statistics, steadiness
from workbench.evaluate import judge
from workbench.records import (
    Candidate,
    Check,
    DeviceState,
    Facts,
    Job,
    Outcome,
    Problem,
    Ratio,
    Timing,
    Trial,
    Verdict,
)
from workbench.wire import content_hash, dumps, from_plain, loads, to_plain

SPREAD = st.floats(0.0, 0.01)


def run(
    rng: np.random.Generator, median: float, within: float, between: float, rounds: int = 8, size: int = 5
) -> list[float]:
    """Samples of one run: rounds that differ by `between`, calls in them that differ by `within` (both relative)."""
    return [
        median * (1 + shift + noise)
        for shift in rng.normal(0, between, rounds)
        for noise in rng.normal(0, within, size)
    ]


@given(within=SPREAD, between=SPREAD, rounds=st.integers(5, 10), seed=st.integers(0, 2**16))
@settings(max_examples=8, deadline=None)
def test_the_interval_covers_the_truth_nine_times_of_ten(within: float, between: float, rounds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    hits = 0
    for _ in range(60):
        truth = 1e-4 * (
            1 + rng.normal(0, statistics.BETWEEN_RUNS / 2.5)
        )  # what differs from run to run and cannot be seen in one
        _, low, high = statistics.median_interval(
            run(rng, truth, within, between, rounds), 5, between_runs=statistics.BETWEEN_RUNS
        )
        hits += low <= 1e-4 <= high
    assert hits >= 54


def test_calls_taken_for_independent_would_be_too_sure() -> None:
    rng = np.random.default_rng(3)
    hits = {0: 0, 5: 0}
    for _ in range(200):
        samples = run(rng, 1.0, 0.001, 0.01)
        for per_round in hits:
            _, low, high = statistics.median_interval(samples, per_round)
            hits[per_round] += low <= 1 <= high
    assert hits[5] >= 180 > hits[0]


@given(gap=st.sampled_from([0.0, 0.02, -0.02, 0.1]), seed=st.integers(0, 2**16))
@settings(max_examples=12, deadline=None)
def test_two_percent_are_told_apart_whatever_drifts(gap: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    common = np.cumsum(rng.normal(0, 0.01, 8))  # both meet it
    a, b = (
        [[median * (1 + shift) * (1 + noise) for noise in rng.normal(0, 0.004, 5)] for shift in common]
        for median in (1 + gap, 1.0)
    )
    ratio, low, high = statistics.ratio_interval(a, b, between_runs=statistics.BETWEEN_RUNS)
    assert low <= ratio <= high and abs(ratio - 1 - gap) < 0.015
    assert (low > 1 or high < 1) == bool(gap)


def test_the_ratio_turned_round_is_one_over_it() -> None:
    rng = np.random.default_rng(0)
    a, b = ([list(rng.normal(median, 0.01, 5)) for _ in range(8)] for median in (1.0, 1.3))
    assert statistics.ratio_interval(a, b)[0] == pytest.approx(1 / statistics.ratio_interval(b, a)[0])


def test_students_quantiles() -> None:
    assert [round(statistics.student_t(df), 2) for df in (5, 7, 9, 30)] == [2.57, 2.36, 2.26, 2.04]


# ---- doubts ---------------------------------------------------------------------------------------------------------

QUIET = (DeviceState(at_s=0.0, utilisation=0.0, others=0), DeviceState(at_s=0.1, utilisation=0.9, others=0))


@given(seed=st.integers(0, 2**16), median=st.sampled_from([5e-6, 1e-4, 1e-2]))
@settings(max_examples=20, deadline=None)
def test_a_quiet_run_raises_no_doubt(seed: int, median: float) -> None:
    rng = np.random.default_rng(seed)
    assert steadiness.doubts(run(rng, median, 0.005, 0.003), 5, list(rng.normal(1e-4, 1e-6, 9)), QUIET) == ()


@pytest.mark.parametrize(
    ("samples", "probes", "seen", "said"),
    [
        ([1.0] * 40, [1e-4] * 8 + [1.3e-4], QUIET, "from round to round"),
        ([1 + 0.01 * (n // 5) for n in range(40)], [1e-4] * 9, QUIET, "drifted by"),
        ([1.0 + 0.3 * (n // 5 % 2) for n in range(40)], [1e-4] * 9, QUIET, "medians of rounds"),
        ([1.0, 1.0, 1.0, 1.0, 1.6] * 8, [1e-4] * 9, QUIET, "one call in ten"),
        ([1.0] * 40, [], (QUIET[0], DeviceState(at_s=1.0, others=2)), "2 other processes"),
        ([1.0] * 40, [], (DeviceState(at_s=0.0, utilisation=0.7), QUIET[1]), "70% busy"),
        ([1.0] * 40, [], (QUIET[0], DeviceState(at_s=1.0, throttled=("thermal",))), "slowed itself down"),
    ],
)
def test_each_disturbance_is_named(
    samples: list[float], probes: list[float], seen: tuple[DeviceState, ...], said: str
) -> None:
    found = steadiness.doubts(samples, 5, probes, seen)
    assert len(found) == 1 and said in found[0]


def test_a_load_that_was_there_all_the_time_is_noticed() -> None:
    assert steadiness.doubts([1.0] * 40, 5, [1e-4] * 9, QUIET, quiet_s=0.99e-4) == ()
    (doubt,) = steadiness.doubts([1.0] * 40, 5, [2e-4] * 9, QUIET, quiet_s=1e-4)
    assert "200 us between the rounds, 100 us at best" in doubt


def test_our_own_earlier_run_is_no_neighbour() -> None:
    assert not steadiness.doubts([1.0] * 40, 5, [], (DeviceState(at_s=0.0, utilisation=0.7),), busy_before=False)


# ---- verdicts -------------------------------------------------------------------------------------------------------

PROBLEM = Problem(name="p", source="")
JOB = Job(
    problem=PROBLEM,
    facts=Facts(
        problem_hash="", kind="other", init_source="", forward_arguments=(), graph=(), parameters=(), cases=(), work=()
    ),
    candidate=Candidate(source=""),
    timed_calls=40,
)


def timing(median: float, **more: object) -> Timing:
    return Timing(
        case="full",
        device="a GPU",
        samples_s=(median,) * 40,
        median_s=median,
        low_s=median,
        high_s=median,
        per_round=5,
        **more,
    )  # type: ignore[arg-type]


def outcome(median: float, ratios: tuple[Ratio, ...] = (), **more: object) -> Outcome:
    return Outcome(
        executor="gpu",
        arch="sm_90a",
        device="H200",
        checks=(Check(case="full", trial=0, timed=True, passed=True),),
        timing=timing(median, **more),
        ratios=ratios,
    )


def verdict(new: Outcome, old: Outcome) -> Verdict:
    return judge(JOB, new, Trial(outcome=old, verdict=judge(JOB, old, None), at=""))


def test_the_ratio_of_one_run_counts_and_not_that_of_two() -> None:
    found = verdict(outcome(1e-3, (Ratio(against="parent", ratio=1.0, low=0.99, high=1.01),)), outcome(1.1e-3))
    assert found.speedup == 1.0 and found.distinguishable is False and found.speedup_interval == (0.99, 1.01)


def test_without_it_the_stored_samples_are_compared() -> None:
    assert verdict(outcome(1e-3), outcome(1.02e-3)).distinguishable is True
    assert verdict(outcome(1e-3), outcome(1.001e-3)).distinguishable is False  # under what differs between runs anyway
    assert verdict(outcome(1e-3), outcome(1.02e-3, cold_l2=False)).speedup is None


def test_in_a_disturbed_run_only_a_large_difference_counts() -> None:
    for ratio, real in ((1.1, False), (3.0, True), (0.9, False), (0.3, True)):
        found = verdict(
            outcome(
                1e-3,
                (Ratio(against="parent", ratio=ratio, low=ratio * 0.99, high=ratio * 1.01),),
                doubts=("1 other process on the GPU during the run",),
            ),
            outcome(1e-3),
        )
        assert found.distinguishable is real and found.disturbed == ("1 other process on the GPU during the run",)


# ---- what is stored -------------------------------------------------------------------------------------------------


def test_what_was_stored_before_is_read_and_hashed_as_before() -> None:
    old = {
        "case": "full",
        "device": "NVIDIA H200",
        "samples_s": [1e-3, 2e-3],
        "median_s": 1e-3,
        "low_s": 1e-3,
        "high_s": 2e-3,
        "wall_ratio": 1.0,
        "cold_l2": True,
        "provenance": "measured",
    }
    found = from_plain(old, Timing)
    assert found.method == "events" and found.per_round == 0 and found.launch_overhead_s is None and found.doubts == ()
    plain = to_plain(JOB)
    later = ("cold_l2", "allow_torch", "full_sample", "rival", "compiled", "quick")
    assert set(later) <= set(plain)
    before = {key: value for key, value in plain.items() if key not in later}
    facts = (
        "sizes",
        "form",
        "structure",
        "plain_arguments",
        "given",
        "unreached",
        "made",
        "constants",
        "places",
        "between",
    )
    inner = {"problem": ("tie", "vary", "keep", "modules"), "facts": facts}
    for name, fields in inner.items():
        assert set(fields) <= set(before[name])
        before[name] = {key: value for key, value in before[name].items() if key not in fields}
    import hashlib

    assert (
        content_hash(JOB)
        == hashlib.sha256(json.dumps(before, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    )
    assert (
        content_hash(dataclasses.replace(JOB, cold_l2=False))
        != content_hash(JOB)
        != content_hash(dataclasses.replace(JOB, rival=Candidate(source="x")))
    )


def whole_calls(kernels: float, calls: float, host_s: float) -> Outcome:
    """A run beside a parent: the ratios of the kernels' times and of whole calls, and what a launch takes the host."""
    ratios = (
        Ratio(against="parent", ratio=kernels, low=kernels * 0.99, high=kernels * 1.01),
        Ratio(against="parent", ratio=calls, low=calls * 0.99, high=calls * 1.01, of="calls"),
    )
    return outcome(1e-3, ratios, launch_overhead_s=host_s, call_s=1e-3 + host_s)


def test_whole_calls_decide_where_the_gpu_waits_for_the_host() -> None:
    parent = Trial(outcome=outcome(2e-3), verdict=judge(JOB, outcome(2e-3), None), at="")
    busy, idle = (judge(JOB, whole_calls(2.0, 0.8, host), parent) for host in (1e-5, 4e-3))
    assert busy.speedup == 2.0 and busy.basis == "measured"
    assert idle.speedup == 0.8 and idle.distinguishable
    assert idle.basis == "measured, of whole calls, because the GPU waits for the host"


def test_a_call_that_is_shorter_than_its_kernels_is_suspect() -> None:
    found = judge(JOB, outcome(1e-3, call_s=5e-4), None)
    assert any("less than the 1000.0 us of its kernels" in doubt for doubt in found.suspect)
    assert not any("its kernels" in doubt for doubt in judge(JOB, outcome(1e-3, call_s=1.1e-3), None).suspect)


def test_a_new_timing_survives_the_store() -> None:
    full = outcome(
        1e-3,
        (Ratio(against="eager", ratio=1.0, low=0.9, high=1.1),),
        surroundings=QUIET,
        doubts=("a",),
        notes=("b",),
        probes_s=(1e-4,),
        method="graph",
        calls_per_sample=8,
        launch_overhead_s=1e-5,
    )
    assert loads(dumps(full), Outcome) == full


def test_the_recordings_are_read() -> None:
    from workbench.session import recording

    names = sorted((Path(workbench.__file__).parent / "recordings").glob("*.json"))
    assert names and all(recording.load(str(path)).problem.name for path in names)


def test_cold_or_warm_is_the_sessions_choice_and_is_kept(tmp_path: Path) -> None:
    from workbench.session import Session
    from workbench.views.commands.dispatch import make_parser
    from workbench.views.commands.problems import choose_testing

    facts = dataclasses.replace(JOB.facts, problem_hash=content_hash(PROBLEM))
    with Session.create(PROBLEM, root=tmp_path, name="s", executor="emulator", facts=facts) as session:
        choose_testing(session, make_parser("test").parse_args([]))
        assert session.cold_l2 and not session.job(None).allow_torch  # nothing said: cold, no torch
        choose_testing(session, make_parser("test").parse_args(["--allow", "torch"]))
        assert session.job(None).allow_torch
        choose_testing(session, make_parser("run").parse_args(["--allow", "nothing"]))
        assert not session.job(None).allow_torch
        choose_testing(session, make_parser("test").parse_args(["--l2", "warm"]))
    with Session.open("s", root=tmp_path) as session:
        assert not session.cold_l2
        choose_testing(session, make_parser("problem").parse_args(["relu", "--l2", "cold"]))
        assert session.cold_l2


def test_a_measured_verdict_says_how_and_what_it_leaves_out() -> None:
    from workbench.records import Proposal, Version
    from workbench.views.text import tables

    new = outcome(
        1e-3,
        (Ratio(against="eager", ratio=1.5, low=1.49, high=1.51),),
        launch_overhead_s=12e-6,
        call_s=1.012e-3,
        surroundings=(DeviceState(at_s=0.0, sm_clock_mhz=1980, power_w=300.0, temperature_c=40),),
        doubts=("it was loud",),
        notes=("timed with events, not a graph: it allocates",),
    )
    version = Version(
        number=1,
        parent=None,
        proposal=Proposal(candidate=Candidate(source=""), title="t", reason="", by="human"),
        source_hash="",
        path="",
        trials=(Trial(outcome=new, verdict=judge(JOB, new, None), at=""),),
    )
    text = str(tables.verdict(version))
    for said in (
        "1.50x torch eager (measured; 1.490 to 1.510)",
        "events, cold L2, 40 samples in 8 rounds",
        "the host 12 µs; no part of the time",
        "1980 MHz",
        "from an idle GPU, host included: 1.012 ms",
        "disturbed: it was loud",
        "note: timed with events",
    ):
        assert said in text, text
