"""What `cutegen tune` tells the time model: recorded times of an H200 stand for those of another GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from workbench import landscapes, problems
from workbench.analysis import devices
from workbench.analysis.time_model import find_refinement
from workbench.analysis.time_model.measured import find_user_programs, user_file
from workbench.cli import main, tuning
from workbench.landscapes.table import Row
from workbench.tuning import refining
from workbench.tuning.plan import TuningPlan
from workbench.tuning.refining import choose_rows, refine_model
from workbench.tuning.tune import Progress, Tuned, TuneRequest, make_plan


@pytest.fixture(autouse=True)
def _own_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture(scope="module")
def plan() -> TuningPlan:
    return make_plan(TuneRequest(problem=problems.load("softmax"), budget=12), "H100")


@pytest.fixture(scope="module")
def rows(plan: TuningPlan) -> tuple[Row, ...]:
    place = landscapes.find(problems.load("softmax"), "H200")
    assert place is not None
    found = [place.row(program) for program in plan.programs]
    return tuple(row for row in found if row is not None)


def test_rows_are_chosen_from_the_fastest_to_the_slowest(rows: tuple[Row, ...]) -> None:
    assert len(rows) >= 7
    chosen = choose_rows((*rows, Row(key="", run=0, program="", correct=True, median_s=1e-9)), most=3)
    times = sorted(row.median_s or 0 for row in rows if row.correct)
    assert [row.median_s for row in chosen] == [times[0], times[round((len(times) - 1) / 2)], times[-1]]
    assert len(choose_rows(rows, most=99)) == sum(row.correct for row in rows)


def test_measured_programs_are_counted_once(
    plan: TuningPlan, rows: tuple[Row, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    before = find_refinement(devices.find("H100"))
    assert refine_model(dataclasses.replace(plan, device="H200"), rows, said.append) == 0 and not said
    two = sorted((row for row in rows if row.correct), key=lambda row: row.median_s or 1)[:2]
    assert refine_model(plan, two, said.append) == 2
    kept = find_user_programs("H100")
    assert [(one.program, one.seconds, one.key) for one in kept] == [
        (one.program, one.median_s, plan.key) for one in two
    ]
    assert all(one.launches[0].paced is not None and one.work.case == "full" for one in kept)
    after = find_refinement(devices.find("H100"))
    assert (after.problems, after.rows) == (before.problems + 1, before.rows + 2)
    assert "program 1 of 2 on the emulator" in said[0] and "--no-refine" in said[0]
    assert f"rests on {after.problems} problems" in said[-1] and str(user_file("H100")) in said[-1]
    said.clear()
    assert refine_model(plan, two, said.append) == 0 and not said
    monkeypatch.setattr(refining, "LIMIT_S", 1.0)
    assert refine_model(plan, rows, said.append) == 0 and not said


def test_a_program_that_does_not_run_is_left_out(plan: TuningPlan, rows: tuple[Row, ...]) -> None:
    said: list[str] = []
    one = dataclasses.replace(plan, programs=plan.programs[:1], sources=("raise ValueError('broken')",))
    row = dataclasses.replace(rows[0], program=plan.programs[0])
    assert refine_model(one, (row,), said.append) == 0
    assert "not counted" in said[-1] and "broken" in said[-1] and not user_file("H100").exists()


def test_the_command_refines_and_the_doctor_says_so(
    plan: TuningPlan, rows: tuple[Row, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(request: TuneRequest, progress: Progress) -> Tuned:
        best = min(rows, key=lambda row: row.median_s or 1)
        return Tuned(
            path=Path("softmax.csv"),
            plan=plan,
            rows=(best,),
            planned=1,
            best=best,
            best_source=None,
            eager_s=None,
        )

    monkeypatch.setattr(tuning, "tune", measured)
    assert main(("tune", "softmax", "--no-refine")) == 0
    assert "time model" not in capsys.readouterr().out and not user_file("H100").exists()
    assert main(("tune", "softmax", "--json")) == 0
    heard = capsys.readouterr()
    assert "program 1 of 1 on the emulator" in heard.err and heard.out.count("\n") == 1
    assert len(find_user_programs("H100")) == 1
    assert main(("doctor",)) == 0
    problems_known = find_refinement(devices.find("H100")).problems
    assert f"its intervals for H100 rest on {problems_known} measured problems" in capsys.readouterr().out
    user_file("H100").write_text("broken")
    assert main(("tune", "softmax")) == 0
    assert "time model: as it was" in capsys.readouterr().out
