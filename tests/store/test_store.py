"""The log: random operations then reopening give the same state; readers beside a writer; leftovers and damage."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from workbench.errors import UserError, WorkbenchError
from workbench.records import Candidate, Check, Decision, Event, Facts, Outcome, Problem, Proposal, Trial, Verdict
from workbench.store import Store
from workbench.wire import content_hash

PROBLEM = Problem(name="p", source="s")
FACTS = Facts(
    problem_hash="h", kind="other", init_source="", forward_arguments=(), graph=(), parameters=(), cases=(), work=()
)
TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=60)


def proposal(source: str, parent: int | None = None) -> Proposal:
    return Proposal(candidate=Candidate(source=source), title="t", reason="r", by="test", parent=parent, tokens_in=3)


class StoreMachine(RuleBasedStateMachine):
    """A store against plain lists."""

    @initialize()
    def create(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "odd # name?%20" / "session.sqlite"
        self.store = Store(self.path)
        self.store.begin({}, PROBLEM, FACTS, str)
        self.sources: list[str] = []
        self.parents: list[int | None] = []
        self.trials: dict[int, list[Trial]] = {}
        self.standing: dict[int, list[Decision]] = {}
        self.events: list[Event] = []

    @rule(source=TEXT, data=st.data())
    def add_version(self, source: str, data: st.DataObject) -> None:
        parent = data.draw(st.none() | st.integers(1, len(self.sources))) if self.sources else None
        version = self.store.add_version(proposal(source, parent), "now")
        self.sources.append(source)
        self.parents.append(parent)
        assert version.number == len(self.sources)

    @precondition(lambda self: self.sources)
    @rule(data=st.data(), correct=st.booleans(), error=st.none() | st.floats(allow_nan=False, allow_infinity=False))
    def add_trial(self, data: st.DataObject, correct: bool, error: float | None) -> None:
        number = data.draw(st.integers(1, len(self.sources)))
        outcome = Outcome(
            executor="double",
            arch="sm_80",
            device="H200",
            checks=(Check(case="c", trial=0, timed=False, passed=correct),),
        )
        trial = Trial(outcome=outcome, verdict=Verdict(correct=correct, worst_error=error), at="now")
        self.store.add_trial(number, f"job{number}", trial)
        self.trials.setdefault(number, []).append(trial)
        assert self.store.outcome(f"job{number}") == outcome

    @precondition(lambda self: self.sources)
    @rule(data=st.data(), kind=st.sampled_from(["accept", "reject", "undo"]), reason=TEXT)
    def decide(self, data: st.DataObject, kind: str, reason: str) -> None:
        number = data.draw(st.integers(1, len(self.sources)))
        decision = Decision(
            kind=kind, version=number, source_hash=content_hash(self.sources[number - 1]), reason=reason, at="now"
        )  # type: ignore[arg-type]
        event = Event(kind="decided", version=number, message=reason)
        self.store.add_decisions([decision], [event], "now")
        self.events.append(event)
        stack = self.standing.setdefault(number, [])
        if kind != "undo":
            stack.append(decision)
        elif stack:
            stack.pop()

    @rule(message=TEXT, fraction=st.none() | st.floats(0, 1))
    def say(self, message: str, fraction: float | None) -> None:
        event = Event(kind="note", message=message, fraction=fraction)
        self.store.add_event(event, "now")
        self.events.append(event)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = Store(self.path)

    @precondition(lambda self: self.sources)
    @rule(data=st.data())
    def unknown_version_is_refused_whole(self, data: st.DataObject) -> None:
        known, unknown = (
            Decision(kind="accept", version=number, source_hash="", at="now")
            for number in (len(self.sources), len(self.sources) + 1)
        )
        with pytest.raises(sqlite3.IntegrityError):
            self.store.add_decisions([known, unknown], [], "now")

    @invariant()
    def same_state_for_writer_and_reader(self) -> None:
        reader = Store(self.path, write=False)
        for store in (self.store, reader):
            versions = store.versions()
            assert [v.proposal.candidate.source for v in versions] == self.sources and [
                v.parent for v in versions
            ] == self.parents
            for version in versions:
                stack = self.standing.get(version.number)
                assert version.decision == (stack[-1] if stack else None)
                assert version.trials == tuple(self.trials.get(version.number, ()))
                assert Path(version.path).read_bytes().decode() == version.proposal.candidate.source
            assert store.events(Event) == self.events and store.problem() == (PROBLEM, FACTS)
        reader.close()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=12, stateful_step_count=12, deadline=None)


def test_second_writer_is_told_the_owner_and_readers_are_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "s" / "session.sqlite"
    store = Store(path)
    with pytest.raises(UserError, match=f"open in process {os.getpid()}"):
        Store(path)
    readers = [Store(path, write=False) for _ in range(3)]
    store.begin({}, PROBLEM, FACTS, str)
    assert all(reader.problem() == (PROBLEM, FACTS) for reader in readers)
    with pytest.raises(UserError, match="reading only"):
        readers[0].add_event(Event(kind="note"), "now")
    for reader in (*readers, store):
        reader.close()
    Store(path, write=False).close()


def test_leftovers_of_a_kill_are_swept_and_other_files_stay(tmp_path: Path) -> None:
    path = tmp_path / "s" / "session.sqlite"
    store = Store(path)
    kept = store.add_version(proposal("x = 1\n"), "now")
    store.close()
    orphan, half, mine = (
        path.parent / name for name in ("v002_0123abcd.py", ".v002_0123abcd.py.77", "notes_of_mine.py")
    )
    for file in (orphan, half, mine):
        file.write_text("y = 2\n")
    store = Store(path)
    assert not orphan.exists() and not half.exists() and mine.exists() and Path(kept.path).read_text() == "x = 1\n"
    store.close()


def test_paths_hold_when_the_working_folder_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(Path("s/session.sqlite"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Path(store.add_version(proposal("x = 1\n"), "now").path).read_text() == "x = 1\n"
    store.close()


def test_damaged_and_newer_files_are_one_clear_line(tmp_path: Path) -> None:
    damaged = tmp_path / "a" / "session.sqlite"
    damaged.parent.mkdir()
    damaged.write_bytes(b"not a database at all, but long enough to look like one" * 100)
    for write in (True, False):
        with pytest.raises(UserError, match="cannot be used as a session"):
            Store(damaged, write=write)
    newer = tmp_path / "b" / "session.sqlite"
    newer.parent.mkdir()
    database = sqlite3.connect(newer)
    database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(WorkbenchError, match="newer workbench"):
        Store(newer)
