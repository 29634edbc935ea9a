"""The controller, the panel's traits and the static record, on a real session with real kernels."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell

from workbench import Session, problems
from workbench.errors import UserError
from workbench.records import Candidate, Decision, Proposal, Version
from workbench.views.notebook import decision_record, view_model
from workbench.views.notebook.controller import get_controller
from workbench.views.notebook.panel import Panel

CANDIDATES = Path(__file__).parents[1] / "browser/candidates"
LIMIT_S = 60


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session.create("relu", root=tmp_path_factory.mktemp("sessions"), executor="emulator") as made:
        made.edit((CANDIDATES / "relu_first.py").read_text(), title="one element per thread")
        yield made


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


def decision(session: Session, /, **changed: Any) -> dict[str, Any]:
    version = session.version("latest")
    return {
        "command": "accept",
        "session": session.name,
        "version": version.number,
        "sourceHash": version.source_hash,
        **changed,
    }


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"session": "another"}, "is for session 'another'"),
        ({"sourceHash": "0" * 64}, "not the source that was shown"),
        ({"sourceHash": None}, "not the source that was shown"),
        ({"version": 99}, "no version '99'"),
        ({"version": None}, "must name a version"),
    ],
)
def test_stale_or_incomplete_decision_changes_nothing(session: Session, changed: dict[str, Any], said: str) -> None:
    controller = get_controller(session)
    before = session.decisions()
    controller.set_message("")
    controller.handle_command(decision(session, **changed))
    wait_for(lambda: said in controller.live_state()["message"]["text"])
    assert controller.live_state()["message"]["kind"] == "error"
    assert session.decisions() == before


def test_unknown_command_is_said(session: Session) -> None:
    controller = get_controller(session)
    controller.handle_command({"command": "__class__"})
    assert "unknown command" in controller.live_state()["message"]["text"]


def test_commands_from_another_thread_are_done_on_the_owned_one(session: Session) -> None:
    panel = Panel(session, by="scripted", sources=[(CANDIDATES / "relu_wrong.py").read_text()])
    caller = threading.Thread(target=panel._on_message, args=(panel, {"command": "generate"}, []))
    caller.start()
    caller.join(30)
    assert not caller.is_alive(), "the callback must only enqueue"
    panel._on_message(panel, {"command": "test"}, [])
    assert "still running" in panel.live["message"]["text"]
    wait_for(lambda: not panel.live["busy"])
    assert "wrong result" in panel.live["message"]["text"]
    rejected = session.version("latest").number
    panel._on_message(panel, decision(session, command="reject", reason="<b>not</b> relu"), [])
    wait_for(lambda: [row["status"] for row in panel.state["versions"] if row["number"] == rejected] == ["rejected"])
    panel.close()


def test_a_command_that_the_page_sends_again_is_confirmed_and_done_once(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = Panel(session)
    confirmed: list[object] = []
    monkeypatch.setattr(panel, "send", confirmed.append)
    undone: list[object] = []
    monkeypatch.setattr(panel.controller, "handle_command", undone.append)
    for key in ("page-1", "page-1", "page-2"):
        panel._on_message(panel, {"command": "undo", "id": key}, [])
    assert confirmed == [{"received": "page-1"}, {"received": "page-1"}, {"received": "page-2"}]
    assert [message["id"] for message in undone] == ["page-1", "page-2"]
    panel.close()


def test_a_decision_stays_at_its_version_and_undo_names_what_it_takes_back(tmp_path: Path) -> None:
    with Session.create("softmax", root=tmp_path, executor="replay") as made:
        first, second = made.generate(), made.refine("", "planner")
        assert first is not None and second is not None
        panel = Panel(made)

        def send(command: str, version: Version | None = None, **values: object) -> str:
            about = {} if version is None else {"version": version.number, "sourceHash": version.source_hash}
            panel._on_message(panel, {"command": command, "session": made.name, **about, **values}, [])
            wait_for(lambda: panel.controller._decisions.submit(bool).result() is False)
            wait_for(lambda: not panel.live["busy"])
            return panel.live["message"]["text"]

        assert panel.state["undo"] is None
        send("select", first)
        assert send("accept", first) == "v1 accepted; v2 is waiting for a decision (Alt+Shift+N shows it)"
        assert panel.state["shown"] == 1 and panel.state["undo"] == {"version": 1, "what": "accepted"}
        assert send("next") == "v2 is waiting for a decision" and panel.state["shown"] == 2
        assert send("reject", second) == "v2 rejected" and panel.state["shown"] == 2
        send("select", first)
        assert panel.state["undo"] == {"version": 2, "what": "rejected"}
        assert send("undo") == "taken back: v2 rejected" and panel.state["shown"] == 2
        assert [row["status"] for row in panel.state["versions"]] == ["accepted", "pending"]
        version, against, undone = panel.controller.last_decision()
        assert (version.number, against, undone.participle) == (2, None, "rejected")
        assert panel.live["log"][-1]["message"] == "taken back: v2 rejected"
        made.reject(2, "in a cell")
        assert panel.live["message"]["text"] == "v2 rejected: in a cell" and panel.state["shown"] == 2
        panel.close()


def test_the_advice_on_the_shown_version_becomes_a_version_by_its_button(tmp_path: Path) -> None:
    with Session.create("relu", root=tmp_path, executor="emulator", arch="sm_80") as made:
        made.program("elementwise(relu(x)) .threads(32)")
        panel = Panel(made)
        top = panel.state["advice"]["top"]
        assert top["way"] == "apply" and top["cause"] and panel.state["advice"]["head"].startswith("v1 is bound by")
        panel._on_message(panel, {"command": "apply", "version": 1, "advice": top["probe"]}, [])
        wait_for(lambda: not panel.live["busy"] and len(made.versions) == 2)
        assert made.version(2).proposal.reason.startswith(f"probe {top['probe']}") and panel.state["shown"] == 2
        panel.close()


def test_profile_and_advice_of_a_version_that_did_not_run_say_so_in_a_sentence(tmp_path: Path) -> None:
    with Session.create("relu", root=tmp_path, executor="emulator") as made:
        source = (CANDIDATES / "relu_first.py").read_text()
        kernel = source.index("@cute.kernel")
        made.edit(source[:kernel] + source[kernel:].replace("cute.arch.thread_idx", "cute.arch.no_such", 1))
        made.edit("def (:\n")
        made.edit((CANDIDATES / "relu_wrong.py").read_text())
        panel = Panel(made)
        said = []
        for number in (1, 2, 3):
            panel._on_message(panel, {"command": "select", "version": number}, [])
            said.append((panel.state["profile"]["note"], panel.state["advice"]["note"]))
            with pytest.raises(UserError):  # as the panel says
                made.diagnose(number)
        assert said == [
            ("nothing was counted: v1 does not compile", "nothing to diagnose: v1 does not compile"),
            ("nothing was counted: v2 is refused as a source", "nothing to diagnose: v2 is refused as a source"),
            (
                "v3 is NOT CORRECT: its counts and times are those of a wrong kernel",
                "nothing to diagnose: v3 is not correct",
            ),
        ]
        panel.close()


@pytest.mark.parametrize("steps", [0, -1, 51, "many", 1e99])
def test_a_number_of_steps_that_cannot_be_is_refused(session: Session, steps: object) -> None:
    panel, held = Panel(session), len(session.versions)
    for command, most in (("run", 50), ("search", 1000)):
        given = steps if steps != 51 else most + 1
        panel._on_message(panel, {"command": command, "steps": given}, [])
        wait_for(lambda: not panel.live["busy"] and panel.live["message"]["kind"] == "error")
        assert panel.live["message"]["text"] == f"give a whole number from 1 to {most}"
        panel.controller.set_message("")
    assert len(session.versions) == held
    panel.close()


def test_a_text_that_the_planner_does_not_read_is_said_in_the_status(tmp_path: Path) -> None:
    problem = problems.load("relu", settings=(("batch_size", 8), ("dim", 64)))
    with Session.create(problem, root=tmp_path, executor="emulator") as made:
        panel = Panel(made)
        for number, (text, said) in enumerate((("make it purple", True), ("64 threads", False), ("", False)), 1):
            panel._on_message(panel, {"command": "refine", "text": text}, [])
            wait_for(lambda n=number: not panel.live["busy"] and len(made.versions) == n)  # type: ignore[misc]
            assert ("does not read this text" in panel.live["message"]["text"]) == said, text
        panel.close()


def test_stop_ends_a_run_keeps_what_there_is_and_the_next_step_runs(tmp_path: Path) -> None:
    problem = problems.load("relu", settings=(("batch_size", 8), ("dim", 64)))
    with Session.create(problem, root=tmp_path, executor="emulator") as made:
        panel = Panel(made)
        panel._on_message(panel, {"command": "run", "steps": 50}, [])
        wait_for(lambda: len(made.versions) >= 2)
        assert panel.live["busy"]
        panel._on_message(panel, {"command": "stop"}, [])
        wait_for(lambda: not panel.live["busy"])
        held = len(made.versions)
        assert "stopped" in panel.live["message"]["text"] and 2 <= held < 50
        panel._on_message(panel, {"command": "generate"}, [])
        wait_for(lambda: not panel.live["busy"] and len(made.versions) == held + 1)
        panel.close()


@pytest.mark.parametrize(
    "message",
    [
        {"command": "profile", "version": 1},
        {"command": "run", "steps": 0},
        {"command": "search", "steps": -3},
        {"command": "generate"},
        {"command": "accept"},
        {"command": "steer", "action": "fly"},
        {"command": "next"},
        {"command": "select", "version": 1},
        {"command": "select"},
        {"command": "stop"},
        {"command": "what"},
    ],
    ids=str,
)
def test_each_command_is_answered_by_a_change_also_if_it_is_given_again(
    session: Session, message: dict[str, object]
) -> None:
    panel = Panel(session, by="scripted", sources=[])
    page: list[object] = []
    panel._loop, panel._thread_id = asyncio.new_event_loop(), 0  # as in a kernel: changes are sent together
    panel.observe(page.append, "live")  # what is no change is not sent to the page
    for times in (1, 2, 3):
        panel._on_message(panel, message, [])
        wait_for(lambda: not panel.controller.live_state()["busy"])
        panel.controller._decisions.submit(int).result()
        panel._loop.run_until_complete(asyncio.sleep(0.15))
        assert len(page) == times and not panel.live["busy"]
    panel._loop.close()
    panel.close()


def test_stop_says_what_came_of_the_step_and_nothing_more_after_its_end(session: Session) -> None:
    panel = Panel(session)
    panel._on_message(panel, {"command": "profile", "version": 1}, [])
    wait_for(lambda: not panel.live["busy"])
    said = panel.live["message"]
    panel._on_message(panel, {"command": "stop"}, [])  # pressed as the step came to its end
    assert panel.live["message"] == said and not panel.live["busy"]
    panel.close()


def test_panel_has_the_same_text_on_every_run(session: Session) -> None:
    panel = Panel(session)
    data, metadata = panel._repr_mimebundle_()
    assert data["text/plain"] == repr(panel) == f"<Panel of session {session.name}>"
    assert "application/vnd.jupyter.widget-view+json" in data and metadata == {}
    panel.close()


def test_a_closed_session_is_said_not_raised(tmp_path: Path) -> None:
    made = Session.create("relu", root=tmp_path, executor="emulator")
    panel = Panel(made)
    made.close()
    panel._on_message(panel, {"command": "generate"}, [])
    wait_for(lambda: not panel.live["busy"] and "closed" in panel.live["message"]["text"])
    panel.close()


def close_while_the_kernel_is_busy(root: Path) -> Panel:
    """A panel whose session was closed before its second version could be sent to the page."""
    made = Session.create("softmax", root=root, executor="replay")
    made.generate()
    panel = Panel(made)
    kept = asyncio.new_event_loop()
    panel._loop = kept  # as in a kernel that runs a cell: what is to be sent waits
    threading.Thread(target=made.program, args=("softmax(x) .threads_per_row(32)",)).start()
    wait_for(lambda: len(made.versions) == 2 and bool(made.versions[-1].trials))
    panel._loop = None
    kept.close()
    made.close()
    return panel


def test_a_page_that_comes_after_the_session_was_closed_is_shown_no_error(tmp_path: Path) -> None:
    panel = close_while_the_kernel_is_busy(tmp_path)
    gc.collect()  # the panel does not keep a session alive
    shown = panel.state
    assert len(shown["versions"]) == 2
    panel._on_message(panel, {"command": "hello"}, [])
    assert panel.live["closed"] and panel.live["message"]["kind"] == "info" and panel.state == shown
    panel.close()


def test_a_page_that_says_hello_is_sent_everything_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Session.create("softmax", root=tmp_path, executor="replay") as made:
        panel = Panel(made)
        sent: list[str] = []
        monkeypatch.setattr(
            panel, "_send", lambda message, buffers=None: sent.extend(message.get("state", {})), raising=True
        )
        panel._on_message(panel, {"command": "hello"}, [])
        assert sorted(sent) == ["live", "search", "state"]
        sent.clear()
        panel._remove_listener()  # what the page does not know yet
        made.generate(test=False)
        panel._on_message(panel, {"command": "hello"}, [])
        assert sorted(sent) == ["live", "search", "state"] and len(panel.state["versions"]) == 1
        panel.close()


@pytest.mark.parametrize("by_a_cell", [False, True])
def test_open_again_shows_the_session_also_if_a_cell_has_opened_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_a_cell: bool
) -> None:
    made = Session.create("softmax", root=tmp_path, executor="replay")
    made.generate()
    panel = Panel(made)
    made.close()
    shell = InteractiveShell.instance()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    opened = Session.open(tmp_path / "softmax") if by_a_cell else made
    shell.user_ns["session"] = opened  # without the magics the one that was closed stays
    panel._on_message(panel, {"command": "open"}, [])
    assert "closed" not in panel.live and panel.live["message"]["kind"] == "info"
    assert panel.controller.session is opened or not by_a_cell
    panel._on_message(panel, {"command": "generate"}, [])
    wait_for(lambda: not panel.live["busy"] and len(panel.state["versions"]) == 2)
    panel.controller.session.close()
    panel.close()
    InteractiveShell.clear_instance()


def version(number: int, parent: int | None, source: str = "x\n", **proposal: Any) -> Version:
    made = Proposal(candidate=Candidate(source=source), title=f"title {number}", reason="", by="test", **proposal)
    return Version(number=number, parent=parent, proposal=made, source_hash=str(number), path="")


def test_tree_puts_children_after_their_parent() -> None:
    rows = view_model.version_tree([version(1, None), version(2, 1), version(3, 1), version(4, 2)])
    assert [(row["number"], row["depth"]) for row in rows] == [(1, 0), (2, 1), (4, 2), (3, 1)]


def test_unknown_cost_stays_unknown() -> None:
    free, priced = version(1, None), version(2, 1, tokens_in=10, tokens_out=5, cost_usd=0.25)
    unknown = version(3, 2, tokens_in=7, tokens_out=1)
    assert view_model.total_cost([free])["usd"] == 0
    assert view_model.total_cost([free, priced]) == {"usd": 0.25, "tokens_in": 10, "tokens_out": 5}
    assert view_model.total_cost([free, priced, unknown]) == {"usd": None, "tokens_in": 17, "tokens_out": 6}


LINES = st.lists(st.sampled_from(["a", "b", "c", "d = 1", "", "  e"]), max_size=40)


@given(LINES, LINES)
def test_blocks_hold_every_line_of_both_sides_in_order(old: list[str], new: list[str]) -> None:
    blocks = view_model.diff_blocks("".join(f"{line}\n" for line in old), "".join(f"{line}\n" for line in new))
    i = k = 0
    for block in blocks:
        if block["kind"] == "skip":
            i, k = i + block["count"], k + block["count"]
        elif block["kind"] == "same":
            for left, right, text in block["lines"]:
                i, k = i + 1, k + 1
                assert (left, right) == (i, k) and old[i - 1] == new[k - 1] == text
        else:
            assert block["old"] == [[i + n, old[i + n - 1]] for n in range(1, len(block["old"]) + 1)]
            assert block["new"] == [[k + n, new[k + n - 1]] for n in range(1, len(block["new"]) + 1)]
            i, k = i + len(block["old"]), k + len(block["new"])
    if old != new:
        assert (i, k) == (len(old), len(new))


def test_record_says_what_was_taken_back(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []

    class Output:
        def update(self, bundle: dict[str, str], **_: object) -> None:
            shown.append(bundle)

    monkeypatch.setattr("IPython.display.display", lambda *_, **__: Output())
    record = decision_record.DecisionRecord(session)
    taken_back = Decision(kind="accept", version=1, source_hash="", at="")
    record.add_decision(session, version(1, None), None, taken_back)
    assert shown[0]["text/plain"] == "taken back: v1 accepted; v1 is pending"
    assert "taken back: v1 accepted" in shown[0]["text/html"]


def test_record_shows_sources_as_text_only() -> None:
    first, second = (
        version(1, None, "a\n<script>alert(1)</script>\n"),
        version(2, 1, "a\n<img src=x onerror=alert(1)>\n"),
    )
    page = decision_record.decision_html(second, first)
    assert "<script" not in page and "<img" not in page and "&lt;img" in page
    assert "+<img src=x" in decision_record.decision_text(second, first)
