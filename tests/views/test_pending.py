"""Loops and versions that wait for a person: one that a loop decides on is named with what was decided and why, and
what a person wrote stays pending.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from workbench.cli import main
from workbench.session import Session
from workbench.views.notebook.panel import Panel
from workbench.views.text.mime_bundle import format_seconds

Run = Callable[[str], str]
MINE = "elementwise(relu(x)) .arch(sm_90a) .unroll(1) .vector(4)"  # in the landscape of relu
SLOW = "elementwise(relu(x)) .arch(sm_90a) .threads(64) .vector(2)"
LIMIT_S = 60


@pytest.fixture
def magic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("CUTEGEN_ROOT", str(tmp_path))
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "workbench")
    yield lambda line: str(shell.run_line_magic("cutegen", line))
    shell.run_line_magic("unload_ext", "workbench")
    InteractiveShell.clear_instance()


def begin(magic: Run, problem: str) -> Session:
    """A session on recorded times with an accepted version and one of the planner's that is pending."""
    magic(f"problem {problem} --executor replay")
    magic("generate")
    magic("accept v1")
    magic("generate")
    session: Session = InteractiveShell.instance().user_ns["session"]
    assert [version.standing for version in session.versions] == ["accepted", "pending"]
    return session


def expected(session: Session) -> str:
    """What is to be said of v2, once it is decided."""
    made = session.version(2).decision
    assert made is not None and made.by == "policy" and made.reason
    return f"v2 was pending; it is {made.participle} now: {made.reason}"


@pytest.mark.parametrize("line", ["run --steps 1", "refine --until 1"])
def test_a_loop_says_what_it_decided_on_a_version_that_waited(magic: Run, line: str) -> None:
    session = begin(magic, "softmax")
    said = magic(line)
    assert said.splitlines()[0] == expected(session)
    assert said.count("was pending") == 1  # not the loop's own versions
    assert "was pending" not in magic("history") and "was pending" not in magic("run --steps 1")


@pytest.mark.parametrize("line", ["run --search tree --trials 6", "search-tree start --trials 6"])
def test_the_tree_of_a_search_says_it_where_it_stays(magic: Run, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    session, told = begin(magic, "softmax"), ""
    magic(line)
    deadline = time.monotonic() + LIMIT_S
    while not (ends := [one for one in told.splitlines(keepends=True) if "is used up; " in one and one[-1] == "\n"]):
        assert time.monotonic() < deadline, told
        time.sleep(0.05)
        told += capsys.readouterr().out  # of another thread: a line may be there in part, or without the decision
    assert ends[-1].startswith("search tree")
    assert ends[-1].rstrip().endswith(f"the budget of 6 trials is used up; {expected(session)}")


@pytest.mark.parametrize("more", [("--steps", "1"), ("--search", "tree", "--trials", "6")], ids=str)
def test_the_command_line_says_it_too(magic: Run, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    session = begin(magic, "softmax")
    magic("sessions")
    session.close()
    capsys.readouterr()
    assert main(("run", "--resume", str(session.folder), *more)) == 0
    said = capsys.readouterr().out
    with Session.open(session.folder, write=False) as again:
        assert f"  {expected(again)}\n" in said


@pytest.mark.parametrize("command", ["run", "search"])
def test_the_status_of_the_panel_says_it_too(magic: Run, command: str) -> None:
    session = begin(magic, "softmax")
    panel = Panel(session)
    panel._on_message(panel, {"command": command, "steps": 6}, [])
    deadline = time.monotonic() + LIMIT_S
    while panel.controller.live_state()["busy"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert expected(session) in panel.controller.live_state()["message"]["text"]
    panel.close()


def test_the_status_counts_what_waits_and_names_the_fastest(magic: Run) -> None:
    def pending() -> str:
        (line,) = (line for line in magic("status").splitlines() if line.startswith("pending "))
        return line.removeprefix("pending").strip()

    magic("problem relu --executor replay")
    assert pending() == "nothing"
    magic(f"program {SLOW}")
    assert pending() == "v1: accept it or reject it"
    magic(f"program {MINE}")
    magic(f"program {SLOW.replace('vector(2)', 'vector(8)')}")
    session: Session = InteractiveShell.instance().user_ns["session"]
    times = {version.number: version.trials[-1].verdict.time_s or 0.0 for version in session.versions}
    assert min(times, key=times.__getitem__) == 2
    best = f"the fastest is v2 ({format_seconds(times[2])}, measured)"
    assert pending() == f"3 versions; {best}: accept or reject each"
    magic("reject v2 no")
    assert pending().startswith("2 versions; the fastest is v")


def test_what_a_person_wrote_stays_pending(magic: Run) -> None:
    magic("problem relu --executor replay")
    magic("generate")
    magic("accept v1")
    magic(f"program {MINE}")
    session: Session = InteractiveShell.instance().user_ns["session"]
    for line in ("run --steps 8", "run --search tree --trials 30"):
        assert "was pending" not in magic(line)
        assert session.version(2).decision is None
    tree = session.search_tree()
    assert any(node.result is not None and node.result.version == 2 for node in tree.nodes)  # the search tried it
    assert tree.best is not None and tree.best.result is not None and tree.best.result.version == 2
    assert any(event.message.startswith("v2, which a person wrote, has the least time") for event in session.events())
    assert "not accepted: %cutegen accept v2" in magic("search-tree")
