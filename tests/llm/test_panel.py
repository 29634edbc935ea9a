"""The panel's desk with a language model: the reply streams into the log, Run repairs what fails, cost so far is shown, Stop ends a call."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_chain import GOOD, LINE, WRONG, change, whole

from workbench import problems
from workbench.session import Session
from workbench.views.desk import Desk, desk_of


@pytest.fixture
def desk(server: Any, tmp_path: Path) -> Iterator[Desk]:
    with Session.create(problems.load("relu", settings={"batch_size": 8, "dim": 64}), root=tmp_path, executor="emulator") as session:
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
    desk.listen(lambda what: seen.append("".join(entry["message"] for entry in desk.live()["log"] if entry["kind"] == "token")))
    desk.command({"command": "generate"})
    live = finished(desk)
    assert "v1" in live["message"]["text"]
    lengths = sorted({len(text) for text in seen})
    assert len(lengths) > 5 and lengths[-1] == len(whole(GOOD))  # it grew piece by piece
    assert desk.outline()["cost"] == {"usd": pytest.approx(100e-6 + 500e-6), "tokens_in": 100, "tokens_out": 50}


def test_run_repairs_what_fails(server: Any, desk: Desk) -> None:
    server.play(whole(WRONG), "The constant must be zero.", change(LINE, GOOD.splitlines()[LINE - 1]), *[json.dumps("nothing")] * 20)
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
