"""The policy `budget`: when it stops and what it says; a session driven by it, on the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worker_double import FACTS

from workbench import problems
from workbench.errors import UserError
from workbench.policies.budget import BudgetSettings, Standing, why_stop
from workbench.proposers.planner import Planner, return_on_investment
from workbench.protocols import RunContext
from workbench.records import Ask, Event, Problem
from workbench.session import Session

SETTINGS = BudgetSettings(epsilon=0.25, patience=3, most=10)


@pytest.mark.parametrize(
    ("standing", "said"),
    [
        (
            Standing(best_s=1.2, bound_s=1.0, reference_s=2.0),
            "within 25% of the bound (1.20 times it), and torch is beaten (1.67x)",
        ),
        (Standing(best_s=1.2, bound_s=1.0), "torch was not timed here"),
        (Standing(best_s=2.0, bound_s=1.0, reference_s=3.0, idle=3), "3 attempts in a row gave no gain"),
        (
            Standing(best_s=2.0, bound_s=1.0, reference_s=1.5, idle=9, attempts=10),
            "10 attempts are used up; torch is 1.33x faster",
        ),
        (Standing(attempts=10), "nothing is correct yet"),
    ],
)
def test_why_it_stops(standing: Standing, said: str) -> None:
    assert said in (why_stop(SETTINGS, standing) or "")


@pytest.mark.parametrize(
    "standing",
    [
        Standing(),
        Standing(best_s=1.1, bound_s=1.0, reference_s=1.0),
        Standing(best_s=1.3, bound_s=1.0, reference_s=2.0, idle=2),
        Standing(best_s=5.0, bound_s=1.0, reference_s=1.0, idle=9, attempts=9),
        Standing(attempts=9),
    ],
)
def test_when_it_goes_on(standing: Standing) -> None:
    assert why_stop(SETTINGS, standing) is None


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.integers(0, 5), st.integers(0, 20))
def test_it_always_ends_and_never_before_torch_is_beaten(
    best: float, reference: float, idle: int, attempts: int
) -> None:
    reason = why_stop(SETTINGS, Standing(best_s=best, bound_s=0.1, reference_s=reference, idle=idle, attempts=attempts))
    assert (reason is not None) if attempts >= SETTINGS.most else (reason is None or best < reference)


def test_settings_are_checked() -> None:
    for wrong in ({"epsilon": -0.1}, {"patience": 0}, {"most": 0}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            BudgetSettings(**wrong)  # type: ignore[arg-type]


def test_roi_is_the_papers() -> None:
    assert (
        return_on_investment(2.0, 1.0) == return_on_investment(2.0, 5.0) == 2.0
        and return_on_investment(2.0, 50.0) == pytest.approx(4.0)
        and return_on_investment(2.0, 50.0, (1.6, 1.25)) == pytest.approx(2.0)
    )
    assert return_on_investment(4.0, 50.0, (2.0, 1.5)) > return_on_investment(2.0, 50.0) and return_on_investment(
        2.0, 2.0
    ) > return_on_investment(4.0, 2.0, (2.0, 1.5))  # a large gap favours the bold change


def test_a_rank_that_there_is_not_is_refused() -> None:
    ask = Ask(problem=Problem(name="p", source="s"), facts=FACTS)
    with pytest.raises(UserError, match="ladder, roi or advice"):
        next(Planner().propose(ask, RunContext(options={"rank": "luck"})))


def test_a_session_stops_by_itself_and_says_why(tmp_path: Path) -> None:
    said: list[Event] = []
    problem = problems.load("relu", settings={"batch_size": 8, "dim": 64})
    with Session.create(problem, root=tmp_path, executor="emulator") as session:
        session.subscribe(said.append)
        made = session.run_until("sol", epsilon=0.0, patience=1)
        with pytest.raises(UserError, match="sol"):
            session.run_until("tomorrow")
        with pytest.raises(UserError, match="belong to"):
            session.run_until("1", patience=3)
    stops = [event for event in said if event.kind == "stopped"]
    assert (
        len(stops) == 1
        and stops[0].message.startswith("stopped: ")
        and dict(stops[0].data)["attempts"] == len(made) > 0
    )
