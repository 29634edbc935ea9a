"""The search of a session in the panel: its rows, and a person's orders."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workbench import Session
from workbench.views.notebook.panel import Panel


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "not within a minute"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def panel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Panel]:
    """A panel after a search of five trials, on times that were recorded."""
    with Session.create("softmax", root=tmp_path_factory.mktemp("sessions"), executor="replay") as session:
        made = Panel(session)
        assert made.search == {"head": "", "rows": []}
        made._on_message(made, {"command": "search", "steps": 5}, [])
        wait_for(lambda: not made.live["busy"])
        yield made
        made.close()


def steer(panel: Panel, **order: object) -> str:
    """What the panel says to an order."""
    panel.controller.set_message("")
    before = panel.live["answered"]
    panel._on_message(panel, {"command": "steer", **order}, [])
    wait_for(lambda: panel.live["answered"] > before)  # an event of the session may be said first
    return str(panel.live["message"]["text"])


def test_a_search_of_the_panel_is_in_its_rows(panel: Panel) -> None:
    assert "5 of 5 trials" in panel.live["message"]["text"] == panel.search["head"] or panel.search["head"]
    rows = panel.search["rows"]
    assert rows[0]["status"] == "root" and rows[0]["visits"] == 5 and len([row for row in rows if row["tried"]]) == 5
    best = [row for row in rows if "best" in row["flags"]]
    assert len(best) == 1 and best[0]["kept"] and best[0]["time"].endswith("s")
    parents = {row["number"]: row for row in rows}
    assert all(row["depth"] == parents[row["parent"]]["depth"] + 1 for row in rows[1:])


def test_orders_change_the_tree(panel: Panel) -> None:
    last = panel.search["rows"][-1]["number"]
    assert "prune: node" in steer(panel, action="prune", node=last, text="by hand")
    assert [row["note"] for row in panel.search["rows"] if row["number"] == last] == ["pruned: by hand"]
    assert "revive" in steer(panel, action="revive", node=last) and "pin" in steer(panel, action="pin", node=1)
    assert next(row for row in panel.search["rows"] if row["number"] == 1)["flags"].count("pinned") == 1
    assert "the idea is node" in steer(panel, action="idea", node=0, text="use 256 threads per row")
    assert panel.search["rows"][-1]["note"] == "an idea in words, next"
    assert steer(panel, action="take", node=1) == "node 1 is the baseline"
    baseline = panel.controller.session.baseline
    assert baseline is not None and "node 1" in baseline.decision.reason


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({"action": "burn", "node": 1}, "a search cannot 'burn'; it can: pin"),
        ({"action": "pin", "node": 99}, "no node 99"),
        ({"action": "prune", "node": 0}, "the problem itself"),
        ({"action": "idea", "node": 0, "text": " "}, "needs words"),
    ],
)
def test_an_order_that_does_not_fit_is_one_line(panel: Panel, order: dict[str, object], said: str) -> None:
    assert said in steer(panel, **order) and panel.live["message"]["kind"] == "error"


def test_another_search_goes_on_for_so_many_trials(panel: Panel) -> None:
    before = panel.controller.session.search_tree().trials
    panel._on_message(panel, {"command": "search", "steps": 2}, [])
    wait_for(lambda: panel.live["busy"])
    wait_for(lambda: not panel.live["busy"])
    assert f"{before + 2} of {before + 2} trials" in panel.search["head"]


def test_without_a_search_orders_say_so(tmp_path: Path) -> None:
    with Session.create("softmax", root=tmp_path, executor="replay") as session:
        panel = Panel(session)
        assert "no search yet" in steer(panel, action="pin", node=1)
        panel.close()
