"""The panel's controller with a language model: the reply streams into the log, Run repairs what fails, cost so far is
shown, Stop ends a call."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_chain import GOOD, LINE, WRONG, change, comment, whole

from workbench import problems
from workbench.session import Session, model_settings
from workbench.views.notebook.controller import SessionController, get_controller


@pytest.fixture
def controller(server: Any, tmp_path: Path) -> Iterator[SessionController]:
    with Session.create(
        problems.load("relu", settings={"batch_size": 8, "dim": 64}), root=tmp_path, executor="emulator"
    ) as session:
        session.model(base_url=server.base, model="scripted", max_tokens=4000, price_in=1.0, price_out=10.0)
        made = get_controller(session)
        made.proposer = ("llm", {})
        yield made


def finished(controller: SessionController, limit_s: float = 60.0) -> dict[str, Any]:
    deadline = time.monotonic() + limit_s
    while controller.live_state()["busy"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return controller.live_state()


def test_the_reply_streams_and_its_cost_is_shown(server: Any, controller: SessionController) -> None:
    server.play({"text": whole(GOOD), "cut": [200], "pace": 0.05})
    seen: list[str] = []
    controller.add_listener(
        lambda what: seen.append(
            "".join(entry["message"] for entry in controller.live_state()["log"] if entry["kind"] == "token")
        )
    )
    controller.handle_command({"command": "generate"})
    live = finished(controller)
    assert "v1" in live["message"]["text"]
    lengths = sorted({len(text) for text in seen})
    assert len(lengths) > 5 and lengths[-1] == len(whole(GOOD))  # it grew piece by piece
    assert controller.outline()["cost"] == {
        "usd": pytest.approx(100e-6 + 500e-6),
        "tokens_in": 100,
        "tokens_out": 50,
        "estimated": False,
    }


@pytest.mark.slow
def test_run_repairs_what_fails(server: Any, controller: SessionController) -> None:
    server.play(
        whole(WRONG),
        "The constant must be zero.",
        change(LINE, GOOD.splitlines()[LINE - 1]),
        *[json.dumps("nothing")] * 20,
    )
    controller.handle_command({"command": "run", "steps": 1})
    live = finished(controller)
    assert any("repair round 1 of 5" in entry["message"] for entry in live["log"])
    assert controller.outline()["baseline"] == 2


def test_stop_ends_the_call(server: Any, controller: SessionController) -> None:
    server.play({"text": whole(GOOD), "cut": [20], "pace": 2.0})
    controller.handle_command({"command": "generate"})
    time.sleep(1.0)
    start = time.monotonic()
    controller.handle_command({"command": "stop"})
    live = finished(controller, 30.0)
    assert time.monotonic() - start < 20 and "stopped" in live["message"]["text"]
    assert controller.session.versions == ()


def test_repair_ask_and_proposals_to_choose_from(server: Any, controller: SessionController) -> None:
    server.play(
        whole(WRONG),
        "The constant must be zero.",
        change(LINE, GOOD.splitlines()[LINE - 1]),
        "Because it is.",
        comment("one"),
        comment("two"),
    )
    controller.handle_command({"command": "generate"})
    assert "wrong result" in finished(controller)["message"]["text"] and controller.state()["llm"]
    controller.handle_command({"command": "repair", "version": 1})
    assert "v2 correct" in finished(controller)["message"]["text"]
    controller.session.accept(2)
    controller.handle_command({"command": "ask", "version": 2, "text": "why?"})
    assert finished(controller)["message"]["text"] == "Because it is."
    controller.handle_command({"command": "choices", "steps": 2})
    assert "v3 to v4" in finished(controller)["message"]["text"]
    state = controller.state()
    assert [(found["number"], len(found["hunks"])) for found in state["choices"]] == [(3, 1), (4, 1)] and state[
        "choices"
    ][1]["hunks"][0]["new"][0][1].strip() == "# two"
    assert state["cost"] == {
        "usd": pytest.approx(6 * 600e-6),
        "tokens_in": 600,
        "tokens_out": 300,
        "estimated": False,
    }  # the question too
    controller.handle_command({"command": "ask", "version": 2, "text": " "})
    assert "type the question first" in finished(controller)["message"]["text"]
    controller.handle_command({"command": "repair", "version": 2})
    assert "nothing to repair" in finished(controller)["message"]["text"]


def choose(controller: SessionController, **message: str) -> dict[str, str]:
    """The status line after the panel's form was sent."""
    controller.set_message("")
    controller.handle_command({"command": "model", **message})
    deadline = time.monotonic() + 30
    while not (said := controller.live_state()["message"])["text"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return said


def test_a_model_is_set_in_the_panel_and_its_key_is_neither_shown_nor_stored(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-panel-4711"
    monkeypatch.setenv("CUTEGEN_TRUST", str(tmp_path / "trusted"))
    monkeypatch.setenv("MY_KEY", secret)
    monkeypatch.setattr(model_settings, "_KEYS", {})  # a key is kept for the process
    problem = problems.load("relu", settings={"batch_size": 8, "dim": 64})
    with Session.create(problem, root=tmp_path / "sessions", executor="emulator") as session:
        made = get_controller(session)
        assert not made.outline()["llm"]
        form = {"address": server.base, "name": "scripted"}
        for wrong, said in (
            ({"address": ""}, "needs an address"),
            ({"address": "localhost"}, "no address of a model"),
            ({"variable": secret}, "never the key itself"),
            ({"variable": "NO_SUCH_KEY"}, "NO_SUCH_KEY is not set"),
        ):
            refused = choose(made, **{**form, **wrong})
            assert refused["kind"] == "error" and said in refused["text"] and secret not in refused["text"]
            assert not session.model() and not made.outline()["llm"]
        assert choose(made, **form, variable="MY_KEY")["text"].endswith("its key is from MY_KEY")
        model = made.outline()["model"]
        assert (model["name"], model["address"], model["key"]) == ("scripted", server.base, "key set")
        server.play({"text": whole(GOOD)})
        made.handle_command({"command": "generate"})
        finished(made)
        assert session.version(1).proposal.by == "llm"
        assert server.requests[-1]["authorization"] == f"Bearer {secret}"
        assert secret not in json.dumps([made.state(), made.live_state()])
        made.handle_command({"command": "planner"})
        deadline = time.monotonic() + 30
        while made.outline()["llm"]:
            assert time.monotonic() < deadline
    for path in (tmp_path / "sessions").rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes(), path
