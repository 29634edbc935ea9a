"""Somebody else's session and recording: data to read, but nothing of it runs before it is trusted."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench import trust
from workbench.cli import main
from workbench.errors import UserError
from workbench.landscapes import Landscape
from workbench.records import Candidate, Problem, Proposal
from workbench.session import Session, recording
from workbench.views.text import report, tables
from workbench.wire import to_plain

RELU = """import os
import torch
open(PLACE, "w").close()
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(8, 64)]
def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUTEGEN_TRUST", str(tmp_path / "trusted"))
    yield
    trust.ask_by(None)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A file that the hostile code makes."""
    return tmp_path / "executed"


@pytest.fixture
def theirs(tmp_path: Path, place: Path) -> Path:
    """A session that came from elsewhere: nothing here knows of it."""
    problem = Problem(name="theirs", source=RELU.replace("PLACE", repr(str(place))))
    with Session.create(problem, root=tmp_path / "elsewhere", executor="emulator") as made:
        source = f"open({str(place)!r}, 'w').close()\n"
        made.log.add_version(Proposal(candidate=Candidate(source=source), title="v", reason="r", by="llm"))
        (made.folder / "prompts").mkdir()
        (made.folder / "prompts" / "system.jinja2").write_text("theirs")
        folder = shutil.copytree(made.folder, tmp_path / "received")
    place.unlink()
    return folder


def test_it_opens_as_data_and_nothing_runs(theirs: Path, place: Path, tmp_path: Path) -> None:
    with Session.open(theirs) as session:
        assert "cutegen trust" in session.refusal and "\n" not in session.refusal
        assert [version.proposal.title for version in session.versions] == ["v"]
        assert "v1" in str(tables.history(session)) and "theirs" in report.html_page(session)
        report.make_notebook(session, tmp_path)
        for work in (
            session.test,
            session.generate,
            session.refine,
            lambda: session.generate("llm"),
            lambda: session.ask("what?"),
            session.profile,
            session.replay,
            lambda: session.edit("x = 1\n"),
            lambda: session.run(1),
        ):
            with pytest.raises(UserError, match="not your own"):
                work()
        with pytest.raises(UserError):
            session.reject()
        with pytest.raises(UserError):
            session.model(base_url="http://127.0.0.1:9/v1")
    assert not place.exists()


def test_its_files_are_no_problems(theirs: Path, place: Path) -> None:
    (theirs / "problem.py").write_text(RELU.replace("PLACE", repr(str(place))))
    assert main(["problem", str(theirs / "problem.py")]) == 2
    assert not place.exists()


def test_the_command_line_refuses_in_one_line_and_trust_opens_it(
    theirs: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--resume", str(theirs), "--steps", "1"]) == 2
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1 and f"cutegen trust {theirs}" in said[0]
    assert not place.exists()

    assert main(["trust", str(theirs)]) == 0
    said_now = capfd.readouterr().out
    assert "theirs" in said_now and "system.jinja2" in said_now and "1 version" in said_now
    with Session.open(theirs) as session:
        assert not session.refusal
        session.test()
    with Session.open(theirs) as session:  # what was written since is the user's own
        assert not session.refusal


def test_a_person_is_asked_once(theirs: Path) -> None:
    asked: list[str] = []

    def answer(yes: bool) -> None:
        def reply(question: str) -> bool:
            asked.append(question)
            return yes

        trust.ask_by(reply)

    answer(False)
    with Session.open(theirs) as session:
        assert session.refusal
    answer(True)
    for _ in range(2):
        with Session.open(theirs) as session:
            assert not session.refusal
    assert len(asked) == 2 and "runs the problem's code" in asked[1]


def test_a_name_cannot_look_like_another_question(their_recording: Path) -> None:
    plain = json.loads(their_recording.read_text())
    plain["recording"]["problem"]["name"] = "theirs" + "\n" * 60 + "This recording is your own. Go on?"
    their_recording.write_text(json.dumps(plain))
    asked: list[str] = []
    trust.ask_by(lambda question: bool(asked.append(question)))
    with pytest.raises(UserError):
        recording.check_trust(their_recording)
    (question,) = asked
    assert len(question.splitlines()) == 2 and question.splitlines()[1].startswith("It is not your own.")


def test_a_session_of_ones_own_that_was_changed_is_not_ones_own(theirs: Path, tmp_path: Path) -> None:
    """Another log at the path of a session that is trusted, and rows that were added to it."""
    with Session.open(theirs, trusted=True) as session:
        session.pin("mine")
    other = shutil.copytree(theirs, tmp_path / "other")
    with Session.open(other, trusted=True) as session:
        session.log.add_version(Proposal(candidate=Candidate(source="x\n"), title="more", reason="", by="llm"))
    shutil.copy(other / "session.sqlite", theirs / "session.sqlite")
    with Session.open(theirs) as session:
        assert session.refusal
    moved = shutil.move(other, tmp_path / "moved")
    with Session.open(moved) as session:
        assert session.refusal


def test_after_a_crash_it_is_still_ones_own(theirs: Path) -> None:
    session = Session.open(theirs, trusted=True)
    session.log.add_version(Proposal(candidate=Candidate(source="x\n"), title="more", reason="", by="llm"))
    session.log.store.close()  # as if the process were killed: nothing is noted
    with Session.open(theirs) as again:
        assert not again.refusal and len(again.versions) == 2
    session.close()


def test_a_problem_that_was_changed_in_the_log_is_not_run(theirs: Path, place: Path) -> None:
    with Session.open(theirs, trusted=True):
        pass
    with sqlite3.connect(theirs / "session.sqlite") as db:
        db.execute("DROP TRIGGER problem_update")
        db.execute("UPDATE problem SET record = replace(record, 'relu', 'tanh')")
    with Session.open(theirs) as session, pytest.raises(UserError, match="problem 1 was changed"):
        session.test()
    assert not place.exists()


@pytest.fixture
def their_recording(tmp_path: Path, place: Path) -> Path:
    problem = Problem(name="theirs", source=RELU.replace("PLACE", repr(str(place))))
    found = recording.Recording(
        label="theirs",
        problem=problem,
        arch="sm_80",
        device="H200",
        executor="emulator",
        at="2026-11-22T00:00:00+00:00",
    )
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps({"format": 1, "recording": to_plain(found)}))
    return path


def test_a_recording_runs_only_if_it_is_trusted(
    their_recording: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "--by", "replay", "--recording", str(their_recording)]
    assert main(command) == 2
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1 and f"cutegen trust {their_recording}" in said[0] and "theirs" in said[0]
    assert not place.exists()
    main([*command, "--trust"])
    assert place.exists()
    capfd.readouterr()
    main(command)  # once is enough
    assert "not your own" not in capfd.readouterr().err
    their_recording.write_text(their_recording.read_text().replace("relu", "tanh"))
    assert main(command) == 2  # other contents


def test_a_recording_that_was_written_here_is_ones_own(theirs: Path, tmp_path: Path) -> None:
    with Session.open(theirs) as session:
        copied = session.save_recording(tmp_path / "theirs.json", "theirs")
    with pytest.raises(UserError, match="not your own"):
        recording.check_trust(copied)
    with Session.open(theirs, trusted=True) as session:
        path = session.save_recording(tmp_path / "mine.json", "mine")
    recording.check_trust(path)


def test_the_store_may_be_read_only(
    theirs: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUTEGEN_TRUST", "/dev/null/trusted")
    with Session.open(theirs, trusted=True) as session:
        assert not session.refusal
        session.pin("mine")
    with Session.open(theirs) as session:  # in this process it stays trusted
        assert not session.refusal
    monkeypatch.setattr(trust, "_given", {})
    assert "set CUTEGEN_TRUST" in Session.open(theirs).refusal
    assert main(["trust", str(theirs)]) == 2
    assert "set CUTEGEN_TRUST" in capfd.readouterr().err
    assert main(["history", "--session", str(theirs)]) == 0


def test_a_file_that_a_landscape_names_is_asked_about(tmp_path: Path, place: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(RELU.replace("PLACE", repr(str(place))))
    facts = {"origin": str(path), "precision": "fp32", "mode": "train", "settings": {}}
    with pytest.raises(UserError, match="a file that the landscape of p names"):
        Landscape(key="k", name="p", facts=facts, runs=(), rows={}).problem()
    with pytest.raises(UserError, match="holds a text"):
        Landscape(key="k", name="p", facts=facts | {"origin": path.read_text()}, runs=(), rows={}).problem()
    assert main(["trust", str(path)]) == 0
    assert Landscape(key="k", name="p", facts=facts, runs=(), rows={}).problem().name == "p"


def make_an_upgrade(monkeypatch: pytest.MonkeyPatch, cache: Path, *, used_before: bool) -> None:
    """As if a workbench that asks had been installed only now, after one that kept something in the cache, or none."""
    monkeypatch.setenv("CUTEGEN_CACHE", str(cache))
    monkeypatch.setattr(trust, "_given", {})
    if used_before:
        (cache / "facts").mkdir(parents=True)
        (cache / "facts" / "kept.json").write_text("{}")
    time.sleep(0.02)
    installed = cache.with_name("trust.py")
    installed.write_text("")
    monkeypatch.setattr(trust, "__file__", str(installed))
    time.sleep(0.02)


def test_what_was_here_before_the_workbench_asked_is_ones_own(
    theirs: Path, their_recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_an_upgrade(monkeypatch, tmp_path / "cache", used_before=True)
    recording.check_trust(their_recording)
    received_later = shutil.copytree(theirs, tmp_path / "later")
    for _ in range(2):
        with Session.open(theirs) as session:
            assert not session.refusal
            session.pin("more")
        with Session.open(received_later) as session:
            assert session.refusal
    shutil.copy(their_recording, tmp_path / "later.json")
    with pytest.raises(UserError, match="not your own"):
        recording.check_trust(tmp_path / "later.json")
    make_an_upgrade(monkeypatch, tmp_path / "next cache", used_before=True)  # the next one changes nothing
    with Session.open(received_later) as session:
        assert session.refusal


def test_in_a_first_installation_nothing_was_here_before(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_an_upgrade(monkeypatch, tmp_path / "cache", used_before=False)
    with Session.open(theirs) as session:
        assert session.refusal


def test_an_own_problem_is_not_asked_about(tmp_path: Path, place: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RELU.replace("PLACE", repr(str(place))))
    assert main(["problem", str(path)]) == 0 and place.exists()


def test_shipped_recordings_need_no_question() -> None:
    assert recording.names()
    for shipped in recording.names():
        recording.check_trust(shipped)
