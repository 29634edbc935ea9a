"""The energy model: every event costs, nothing is invented without a fit, intervals widen where less is known; and the
fit finds the coefficients that made its rows.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import sys
from pathlib import Path

import pytest

from workbench import problems
from workbench.analysis import devices
from workbench.analysis.energy_model import UNFITTED, UNITS, Coefficient, EnergyModel, count_events, estimate_energy
from workbench.analysis.time_model import TimeEstimate
from workbench.policies import accept_rules
from workbench.records import (
    Candidate,
    CtaTimeline,
    EnergyEstimate,
    Launch,
    LineCounts,
    Outcome,
    Proposal,
    Trial,
    Verdict,
    Version,
    Work,
)
from workbench.session import Session

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import fit_energy
from fit_time_model import CountedRow

H200 = devices.find("H200")
WORK = Work(case="full", flops=1 << 30, least_bytes=1 << 30, dtype="float32", tensor_cores=False)
PACED = CtaTimeline(ctas=4, cycles=1000.0, issue=100.0, touched=1)
TIME = TimeEstimate(seconds=1e-3, low_s=0.8e-3, high_s=1.25e-3, limit="DRAM", features=(), terms_s=1e-3, device="H200")
LAUNCH = Launch(
    kernel="k", grid=(1320, 1, 1), block=(256, 1, 1), total=LineCounts(line=0, global_sectors=1000), paced=PACED
)
TRUE = dict(zip(UNITS, (8e-12, 6e-12, 2e-11, 4e-13, 9e-13, 1e-12, 5e-13, 6e-12, 3e-11, 120.0), strict=True))
MODEL = EnergyModel(
    fitted_on="NVIDIA H200",
    date="2026-01-01",
    rows=1,
    problems=1,
    coefficients={name: Coefficient(value=TRUE[name], low=0, high=1, unit=unit) for name, unit in UNITS.items()},
    error=0.2,
    ratio_error=0.05,
    limit_w=1e9,
)


def joules(launch: Launch, time: TimeEstimate = TIME, device: devices.Device = H200) -> EnergyEstimate:
    found = estimate_energy((launch,), device, WORK, time, MODEL)
    assert isinstance(found, EnergyEstimate)
    return found


@pytest.mark.parametrize(
    ("event", "launch"),
    [
        ("instructions", dataclasses.replace(LAUNCH, classes=(("int", 10**12),))),
        ("fp32", dataclasses.replace(LAUNCH, classes=(("f32", 10**12),))),
        ("special functions", dataclasses.replace(LAUNCH, classes=(("special function", 10**12),))),
        ("half tensor", dataclasses.replace(LAUNCH, tensor_flops=(("bfloat16", 10**13),))),
        ("tf32 tensor", dataclasses.replace(LAUNCH, tensor_flops=(("tfloat32", 10**13),))),
        ("shared", dataclasses.replace(LAUNCH, total=LineCounts(line=0, shared_wavefronts=10**10))),
        ("L1", dataclasses.replace(LAUNCH, paced=dataclasses.replace(PACED, l1_sectors=10**8))),
        ("L2", dataclasses.replace(LAUNCH, paced=dataclasses.replace(PACED, written=10**7))),
    ],
)
def test_each_event_costs_its_coefficient(event: str, launch: Launch) -> None:
    before, after = joules(LAUNCH), joules(launch)
    count = count_events((launch,), H200, WORK, 0)[event] - count_events((LAUNCH,), H200, WORK, 0)[event]
    assert count > 0 and after.parts[0][0] == event
    assert after.joules - before.joules == pytest.approx(count * TRUE[event], rel=1e-6)
    assert after.joules == pytest.approx(sum(part for _, part in after.parts) + after.static_joules)


def test_intervals_widen_with_the_time_and_on_another_device() -> None:
    here, slow = joules(LAUNCH), joules(LAUNCH, dataclasses.replace(TIME, low_s=0.2e-3, high_s=5e-3))
    assert here.low_joules < here.joules < here.high_joules and here.static_joules == pytest.approx(0.12)
    assert slow.high_joules / slow.low_joules > here.high_joules / here.low_joules > math.exp(2 * MODEL.error)
    there = joules(LAUNCH, device=devices.find("H100"))
    assert there.high_joules / there.low_joules > here.high_joules / here.low_joules
    assert there.ratio_error == 2 * here.ratio_error and there.fitted_on == "NVIDIA H200"


def test_at_the_power_limit_every_event_costs_less_and_only_on_the_gpu_of_the_fit() -> None:
    low = dataclasses.replace(MODEL, limit_w=700.0)
    heavy = dataclasses.replace(LAUNCH, tensor_flops=(("bfloat16", 10**13),))
    free, limited = (estimate_energy((heavy,), H200, WORK, TIME, model) for model in (MODEL, low))
    there = estimate_energy((heavy,), devices.find("H100"), WORK, TIME, low)
    assert (
        isinstance(free, EnergyEstimate) and isinstance(limited, EnergyEstimate) and isinstance(there, EnergyEstimate)
    )
    assert limited.joules == pytest.approx(0.7) and free.joules > 1
    assert dict(limited.parts)["half tensor"] / dict(free.parts)["half tensor"] == pytest.approx(0.7 / free.joules)
    assert there.joules > 1


def test_without_a_coefficient_or_a_fit_there_is_a_sentence_and_no_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    odd = dataclasses.replace(LAUNCH, tensor_flops=(("float8_e4m3fn", 10**9),))
    assert "no coefficient for float8_e4m3fn" in str(estimate_energy((odd,), H200, WORK, TIME, MODEL))
    from workbench.analysis.energy_model import load_model, model

    monkeypatch.setattr(model, "load_model", lambda: load_model(tmp_path / "none.json"))
    assert estimate_energy((LAUNCH,), H200, WORK, TIME) == UNFITTED


def version(number: int, joules: float, error: float) -> Version:
    found = EnergyEstimate(
        joules=joules, low_joules=joules / 2, high_joules=joules * 2, static_joules=0, ratio_error=error
    )
    verdict = Verdict(correct=True, time_s=1e-3, time_provenance="modelled", speedup=1.01, energy=found)
    trial = Trial(outcome=Outcome(executor="emulator", arch="sm_90a", device="H200"), verdict=verdict, at="")
    proposal = Proposal(candidate=Candidate(source=""), title="", reason="", by="planner", parent=1)
    return Version(number=number, parent=1, proposal=proposal, source_hash="", path="", trials=(trial,))


@pytest.mark.parametrize(("joules", "choice"), [(0.8, "accept"), (0.99, "open"), (1.3, "reject")])
def test_modelled_energies_decide_only_beyond_the_error_of_their_ratio(joules: float, choice: str) -> None:
    new = version(2, joules, 0.1)
    ratio = accept_rules.compare_energy(new, version(1, 1.0, 0.1))
    assert isinstance(ratio, accept_rules.EnergyRatio) and ratio.provenance == "modelled"
    found = accept_rules.judge_energy("energy-at-equal-time", new.trials[-1].verdict, ratio, 1)
    assert found is not None and found.choice == choice and "(modelled)" in found.reason


def test_static_energy_is_no_surer_than_the_time_that_it_comes_from() -> None:
    old, new = version(1, 1.0, 0.1), version(2, 0.7, 0.1)
    trial = new.trials[-1]
    assert trial.verdict.energy is not None
    static = dataclasses.replace(trial.verdict.energy, static_joules=0.7)
    verdict = dataclasses.replace(trial.verdict, energy=static, speedup_interval=(0.5, 2.0))
    ratio = accept_rules.compare_energy(
        dataclasses.replace(new, trials=(dataclasses.replace(trial, verdict=verdict),)), old
    )
    sure = accept_rules.compare_energy(new, old)
    assert not isinstance(ratio, str) and not isinstance(sure, str) and ratio.low < 1 < sure.low


def test_times_of_a_disturbed_run_are_not_equal() -> None:
    verdict = dataclasses.replace(version(2, 0.5, 0.1).trials[-1].verdict, time_provenance="measured")
    assert accept_rules.needs_energy("energy-at-equal-time", verdict)
    disturbed = dataclasses.replace(verdict, disturbed=("another process",))
    assert not accept_rules.needs_energy("energy-at-equal-time", disturbed)
    assert not accept_rules.needs_energy("energy-at-equal-time", dataclasses.replace(verdict, distinguishable=True))
    assert accept_rules.needs_energy("energy-delay", disturbed) and not accept_rules.needs_energy("time", verdict)


@pytest.mark.slow
def test_a_session_on_the_emulator_has_modelled_energies_and_does_not_decide_beyond_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from workbench.analysis.energy_model import model

    exact = dataclasses.replace(MODEL, ratio_error=1e-6)
    monkeypatch.setattr(model, "load_model", lambda: exact)
    problem = problems.load("softmax", settings=(("batch_size", 16), ("dim", 64)))
    with Session.create(problem, root=tmp_path, executor="emulator") as session:
        session.accept_rule = "energy-at-equal-time"
        session.run(steps=1)
        rows = session.frame()
        assert (rows["modelled_j"] > 0).all() and rows["measured_j"].isna().all()
        decided = session.version(2).decision
        assert decided is None  # 16 rows of 64: all static power, and the order of the times cannot be told
        notes = [event.message for event in session.events() if event.kind == "note"]
        assert "cannot be told without a GPU" in notes[-1]


def counted_row(problem: str, number: int, draw: random.Random) -> CountedRow:
    """A row with random counts."""
    launch = Launch(
        kernel="k",
        grid=(1000, 1, 1),
        block=(256, 1, 1),
        total=LineCounts(line=0, shared_wavefronts=draw.randrange(10**9), global_sectors=draw.randrange(10**7, 10**9)),
        classes=(
            ("int", draw.randrange(10**10)),
            ("f32", draw.randrange(10**10)),
            ("special function", draw.randrange(10**9)),
        ),
        tensor_flops=((draw.choice(["bfloat16", "tfloat32"]), draw.randrange(10**12)),),
        paced=dataclasses.replace(
            PACED, l1_sectors=draw.randrange(10**6), l1_missed=draw.randrange(10**5), written=draw.randrange(10**5)
        ),
    )
    work = dataclasses.replace(WORK, least_bytes=draw.randrange(10**8, 10**10))
    return CountedRow(problem, f"p{number}", draw.uniform(1e-4, 1e-2), 0, 0, (launch,), (), work)


def test_the_fit_finds_what_made_its_rows(tmp_path: Path) -> None:
    draw = random.Random(1)
    counted = [counted_row(f"problem {n % 8}", n, draw) for n in range(64)]
    lines = []
    for row in counted:
        events = count_events(row.launches, H200, row.work, row.seconds)
        free, limit = sum(TRUE[name] * count for name, count in events.items()), 700 * row.seconds
        made = min(free, limit) * math.exp(draw.gauss(0, 0.01))
        lines.append(
            {
                "kind": "kernel",
                "problem": row.problem,
                "program": row.program,
                "device": "NVIDIA H200",
                "joules_per_call": made,
                "joules_per_call_interval": [made * 0.99, made * 1.01],
                "seconds_per_call": row.seconds,
                "idle_w": TRUE["static"],
                "state": {"throttled": ["power_cap"] if free > limit else []},
            }
        )
    lines.append({"kind": "load", "load": "idle", "device": "NVIDIA H200"})
    lines.append({"kind": "kernel", "problem": "x", "program": "y", "device": "NVIDIA H200", "failed": "E"})
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = fit_energy.join_rows([path], counted)
    made = fit_energy.describe(rows, "NVIDIA H200")
    assert 5 < made["limited_rows"] < 60 and made["limit_w"] == pytest.approx(700, rel=0.02)
    assert made["rows"] == 64 and made["problems"] == 8 and made["held_out"]["within_1.3"] == 1
    for name in ("half tensor", "DRAM", "static", "L2"):
        assert made["coefficients"][name]["value"] == pytest.approx(TRUE[name], rel=0.1)
    assert all(one["value"] >= 0 and one["unit"] == UNITS[name] for name, one in made["coefficients"].items())
    assert 0 < made["error"] < 0.06
