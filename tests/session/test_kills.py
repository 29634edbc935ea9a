"""Kills of the process that holds a session, at random moments and at each call that changes a file: nothing accepted
is lost, no half record, and the chain holds."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from nursery import start_nursery
from worker_double import decide, open_session

from workbench import hash_chain
from workbench.errors import WorkbenchError
from workbench.folders import trusted_folder
from workbench.records import Decision, Event
from workbench.store import Store
from workbench.trust import DATABASE
from workbench.wire import content_hash

KINDS = ("accept", "reject", "part", "undo")


class Promises:
    """What the killed processes said that they had done with a session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.decisions: list[tuple[str, int, str]] = []
        self.head = hash_chain.START
        self.kills = 0

    def add(self, lines: list[str]) -> None:
        """Add what one process printed; its last line may be cut off."""
        self.kills += 1
        for line in lines:
            words = line.split()
            if len(words) == 4 and words[0] in KINDS and len(words[3]) == 64:
                self.decisions.append((words[0], int(words[1]), words[2]))
                self.head = words[3]
            elif line == "removed":
                assert not self.decisions, "a session with decisions was taken for one that was never made"

    def check(self) -> None:
        """The log holds what was promised, in that order, and is sound; every decision and version is whole."""
        if not is_made(self.folder / DATABASE):
            assert not self.decisions
            return
        with contextlib.closing(Store(self.folder / DATABASE, write=False)) as store:
            assert not store.damage
            assert hash_chain.holds_head(store.db, self.head)
            decisions = store.decisions()
            self._check_order(decisions)
            check_whole(store, decisions)

    def _check_order(self, decisions: list[Decision]) -> None:
        kept = iter([(decision.kind, decision.version, decision.source_hash) for decision in decisions])
        assert all(promise in kept for promise in self.decisions)
        assert len(decisions) <= len(self.decisions) + 2 * self.kills  # a step makes at most two that it did not say


def is_made(path: Path) -> bool:
    """Whether there is a session; what was interrupted while it was made says so."""
    if not path.exists():
        return False
    try:
        with contextlib.closing(Store(path, write=False)) as store:
            store.problem()
    except WorkbenchError as error:
        assert "interrupted while it was made" in str(error)
        return False
    return True


def check_whole(store: Store, decisions: list[Decision]) -> None:
    """Each version is its file's text, a part is accepted with what it became, each decision has its event."""
    for version in store.versions():
        text = Path(version.path).read_text()
        assert content_hash(text) == version.source_hash and text == version.proposal.candidate.source
    for decision, following in itertools.zip_longest(decisions, decisions[1:]):
        if decision.kind == "part":
            assert (
                following is not None and following.kind == "accept" and decision.reason == f"as v{following.version}"
            )
    assert sum(event.kind == "decided" for event in store.events(Event)) == len(decisions)


def check_base(folder: Path) -> None:
    """SQLite finds the file sound, and a writer takes it as it is and goes on."""
    session = open_session(folder)
    assert not session.log.store.damage and decide(session, "accept")
    session.close()
    check = sqlite3.connect(folder / DATABASE)
    assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    check.close()
    with sqlite3.connect(folder / DATABASE) as check:
        known = {name for (name,) in check.execute("SELECT path FROM version")}
    assert {path.name for path in folder.glob("*v[0-9]*")} == known


@pytest.mark.timeout(300)
@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(21))
def test_nothing_is_lost_by_50_kills_at_random_moments(tmp_path: Path, seed: int) -> None:
    """Every seed has other decisions and moments; the kills hit the opening of the session as well as the work."""
    promises, draw, longest_s = Promises(tmp_path / "s"), random.Random(seed), 0.2
    deadline = time.monotonic() + 200
    with start_nursery("worker_double.py") as nursery:
        while promises.kills < 50 or (len(promises.decisions) < 25 and time.monotonic() < deadline):
            number = nursery.begin(str(promises.folder), draw.getrandbits(32))
            time.sleep(draw.uniform(0.0, longest_s))
            promises.add(nursery.kill(number))
            promises.check()
            if promises.kills >= 50:
                longest_s *= 1.1  # a busy machine gets less far before each kill
    assert len(promises.decisions) >= 25
    check_base(promises.folder)


@pytest.fixture(scope="module")
def killing_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("the library that kills at a call needs gcc")
    library = tmp_path_factory.mktemp("calls") / "killing_calls.so"
    source = Path(__file__).with_name("killing_calls.c")
    subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["accept hunks", "create", "undo"])
def test_nothing_is_lost_by_a_kill_at_any_call_that_changes_a_file(
    tmp_path: Path, killing_calls: Path, kind: str
) -> None:
    """Killed before the first, the second, ... such call until the step is over; each write also in its middle."""
    folder, prepared, trusted, said = tmp_path / "s", tmp_path / "prepared", tmp_path / "trusted", list[str]()
    if kind != "create":
        session = open_session(folder)
        for first in ("accept", "accept hunks"):
            decide(session, first)
        said = [f"{d.kind} {d.version} {d.source_hash} {session.log.store.head()}" for d in session.decisions()]
        session.close()
        shutil.copytree(folder, prepared)
        shutil.copytree(trusted_folder(), trusted)
    calls = 0
    with start_nursery("worker_calls.py", preload=killing_calls) as nursery:
        for number in range(1, 1000):
            for torn in (0, 1):
                shutil.rmtree(folder, ignore_errors=True)
                if kind != "create":
                    shutil.copytree(prepared, folder)
                    shutil.copytree(trusted, trusted_folder(), dirs_exist_ok=True)
                promises = Promises(folder)
                promises.add(said)
                nursery.begin(str(folder), kind, number, torn)
                lines = nursery.read_rest()
                promises.add(lines)
                promises.check()
                check_base(folder)
            if lines and lines[-1].startswith("left"):
                break
            calls = number
    assert calls >= 20


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_accepted_is_lost_with_the_real_emulator(tmp_path: Path) -> None:
    """The same with candidates that are really compiled and run.

    The worker server and its children die with their parent.
    """
    promises, draw, longest_s = Promises(tmp_path / "s"), random.Random(25), 14.0
    deadline = time.monotonic() + 900
    with start_nursery("worker_real.py") as nursery:
        while promises.kills < 25 or (len(promises.decisions) < 10 and time.monotonic() < deadline):
            number = nursery.begin(str(promises.folder))
            time.sleep(draw.uniform(0.0, longest_s))
            promises.add(nursery.kill(number))
            promises.check()
    assert len(promises.decisions) >= 10
    deadline = time.monotonic() + 60
    while left := [
        p
        for p in psutil.process_iter(["cmdline"])
        if p.info["cmdline"] and str(promises.folder) in " ".join(p.info["cmdline"])
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def test_log_is_append_only(tmp_path: Path) -> None:
    store = Store(tmp_path / "s" / DATABASE)
    store.add_event(Event(kind="note", message="m"), "now")
    for statement in ("DELETE FROM event", "UPDATE event SET at = 'later'"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            store.db.execute(statement)
    store.close()
