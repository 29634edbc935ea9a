"""The panel's desk with a language model: the reply streams into the log, Run repairs what fails, cost so far is shown, Stop ends a call."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_chain import GOOD, LINE, WRONG, change, comment, whole

from workbench import problems
from workbench.session import Session
from workbench.views.notebook.controller import Desk, desk_of


@pytest.fixture
def desk(server: Any, tmp_path: Path) -> Iterator[Desk]:
    with Session.create(
        problems.load("relu", settings={"batch_size": 8, "dim": 64}), root=tmp_path, executor="emulator"
    ) as session:
        session.model(base_url=server.base, model="scripted", max_tokens=4000, price_in=1.0, price_out=10.0)
        made = desk_of(session)
        made.proposer = ("llm", {})
        yield made


def finished(desk: Desk, limit_s: float = 60.0) -> dict[str, Any]:
    deadline = time.monotonic() + limit_s
    while desk.live()["busy"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return desk.live()


def test_the_reply_streams_and_its_cost_is_shown(server: Any, desk: Desk) -> None:
    server.play({"text": whole(GOOD), "cut": [200], "pace": 0.05})
    seen: list[str] = []
    desk.listen(
        lambda what: seen.append("".join(entry["message"] for entry in desk.live()["log"] if entry["kind"] == "token"))
    )
    desk.command({"command": "generate"})
    live = finished(desk)
    assert "v1" in live["message"]["text"]
    lengths = sorted({len(text) for text in seen})
    assert len(lengths) > 5 and lengths[-1] == len(whole(GOOD))  # it grew piece by piece
    assert desk.outline()["cost"] == {
        "usd": pytest.approx(100e-6 + 500e-6),
        "tokens_in": 100,
        "tokens_out": 50,
        "estimated": False,
    }


def test_run_repairs_what_fails(server: Any, desk: Desk) -> None:
    server.play(
        whole(WRONG),
        "The constant must be zero.",
        change(LINE, GOOD.splitlines()[LINE - 1]),
        *[json.dumps("nothing")] * 20,
    )
    desk.command({"command": "run", "steps": 1})
    live = finished(desk)
    assert any("repair round 1 of 5" in entry["message"] for entry in live["log"])
    assert desk.outline()["baseline"] == 2


def test_stop_ends_the_call(server: Any, desk: Desk) -> None:
    server.play({"text": whole(GOOD), "cut": [20], "pace": 0.3})
    desk.command({"command": "generate"})
    time.sleep(1.0)
    start = time.monotonic()
    desk.command({"command": "stop"})
    live = finished(desk, 5.0)
    assert time.monotonic() - start < 1.5 and "stopped" in live["message"]["text"]
    assert desk.session.versions == ()


def test_repair_ask_and_proposals_to_choose_from(server: Any, desk: Desk) -> None:
    server.play(
        whole(WRONG),
        "The constant must be zero.",
        change(LINE, GOOD.splitlines()[LINE - 1]),
        "Because it is.",
        comment("one"),
        comment("two"),
    )
    desk.command({"command": "generate"})
    assert "wrong result" in finished(desk)["message"]["text"] and desk.state()["llm"]
    desk.command({"command": "repair", "version": 1})
    assert "v2 correct" in finished(desk)["message"]["text"]
    desk.session.accept(2)
    desk.command({"command": "ask", "version": 2, "text": "why?"})
    assert finished(desk)["message"]["text"] == "Because it is."
    desk.command({"command": "choices", "steps": 2})
    assert "v3 to v4" in finished(desk)["message"]["text"]
    state = desk.state()
    assert [(found["number"], len(found["hunks"])) for found in state["choices"]] == [(3, 1), (4, 1)] and state[
        "choices"
    ][1]["hunks"][0]["new"][0][1].strip() == "# two"
    assert state["cost"] == {
        "usd": pytest.approx(6 * 600e-6),
        "tokens_in": 600,
        "tokens_out": 300,
        "estimated": False,
    }  # the question too
    desk.command({"command": "ask", "version": 2, "text": " "})
    assert "type the question first" in finished(desk)["message"]["text"]
    desk.command({"command": "repair", "version": 2})
    assert "nothing to repair" in finished(desk)["message"]["text"]
