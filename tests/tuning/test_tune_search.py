"""A search among the configurations of a tuning plan, measured by recorded rows; `cutegen tune --search`."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import landscapes, problems
from workbench.cli import main
from workbench.errors import Stopped
from workbench.landscapes import Landscape
from workbench.landscapes.table import Row
from workbench.policies.search import FileLog
from workbench.records.search import SearchEvent
from workbench.tuning.plan import TuningPlan
from workbench.tuning.searching import PlanSpace, TuneSearch, search_plan
from workbench.tuning.tune import TuneRequest, make_plan


@pytest.fixture(scope="module")
def plan() -> TuningPlan:
    return make_plan(TuneRequest(problem=problems.load("relu"), budget=40), "H200")


@pytest.fixture(scope="module")
def place() -> Landscape:
    found = landscapes.find(problems.load("relu"), "H200")
    assert found is not None
    return found


def test_a_search_measures_what_its_strategy_chooses_and_goes_on(
    plan: TuningPlan, place: Landscape, tmp_path: Path
) -> None:
    asked: list[str] = []

    def measure(program: str) -> Row:
        asked.append(program)
        row = place.row(program)
        return row or Row(key=plan.key, run=0, program=program, correct=False, failure="run/unrecorded: not recorded")

    def stop(program: str) -> Row:
        if len(asked) == 5:
            raise Stopped
        return measure(program)

    wanted = TuneSearch(strategy="annealing", trials=12, seed=3, priors=False)
    heard: list[SearchEvent] = []
    log = tmp_path / "relu.search.jsonl"
    first = search_plan(plan, stop, FileLog(log), wanted, heard.append)
    assert first.tree.trials == 5 and heard[-1].kind == "stopped"
    found = search_plan(plan, measure, FileLog(log), wanted, heard.append)
    assert found.tree.trials == 12 and len(asked) == len(set(asked)) == 12
    best = min((row.median_s for row in map(place.row, asked) if row is not None and row.median_s), default=None)
    assert found.tree.best_s == best and found.source and "class ModelNew" in found.source


def test_neighbours_differ_in_one_setting_and_the_order_is_a_prior(
    plan: TuningPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "workbench.tuning.searching.fit_recorded", lambda problem, facts: None
    )  # as without scikit-learn
    space = PlanSpace(plan, priors=True)
    roots = space.roots()
    assert [one.text for one in roots] == list(plan.programs)
    expected = [one.prior.log_speedup for one in roots]
    assert expected == sorted(expected, reverse=True) and roots[0].prior.source == "planner"
    assert 0 < (space.bound_s(roots[0]) or 0) < 0.01


def test_the_command_searches_recorded_times(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("tune", "relu", "--search", "random", "--recorded", "--trials", "5", "--no-priors")) == 0
    said = capsys.readouterr().out
    assert "5 of 5 trials" in said and "of the speed of the best of all" in said
    for arguments, why in (
        (("--trials", "5"), "--trials: only with --search NAME"),
        (("--search", "random", "--dry-run"), "--search needs times, and --dry-run has none"),
        (("--search", "deep"), "no search is called 'deep'"),
    ):
        assert main(("tune", "relu", *arguments)) == 2
        assert why in capsys.readouterr().err
