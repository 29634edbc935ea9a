"""Kills at random moments of the process that holds a session: nothing accepted is lost, no half record."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from workbench.store import Store
from workbench.wire import content_hash


def kill_often(folder: Path, script: str, kills: int, longest_s: float, least: int, limit_s: float) -> dict[int, str]:
    """Start a process of the script, kill it at a random moment after it is ready, so often and until it said of
    `least` versions that they are accepted (fewer after `limit_s`): these."""
    random.seed(20261120)
    promised: dict[int, str] = {}
    done, deadline = 0, time.monotonic() + limit_s
    nursery = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name(script)), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert nursery.stdin is not None and nursery.stdout is not None
    while done < kills or (
        len(promised) < least and time.monotonic() < deadline
    ):  # a busy machine gets less far before each kill
        done += 1
        print("another", file=nursery.stdin, flush=True)
        said, number = nursery.stdout.readline().split()
        assert said == "ready"
        time.sleep(
            random.uniform(0.0, longest_s * max(done / kills, 1.0))
        )  # more time for each where that was too short
        os.kill(int(number), signal.SIGKILL)
        for line in iter(nursery.stdout.readline, "gone\n"):
            parts = line.split()
            if len(parts) == 3 and len(parts[2]) == 64:
                promised[int(parts[1])] = parts[2]
    nursery.stdin.close()
    assert nursery.wait(60) == 0
    return promised


def check_kept(path: Path, promised: dict[int, str]) -> None:
    """Everything that was said to be accepted is there, and every version is whole."""
    store = Store(path)
    versions = {version.number: version for version in store.versions()}
    for number, digest in promised.items():
        version = versions[number]
        assert version.decision is not None and version.decision.kind == "accept" and version.source_hash == digest
    for version in versions.values():
        text = Path(version.path).read_text()
        assert content_hash(text) == version.source_hash and text == version.proposal.candidate.source
    store.close()
    check = sqlite3.connect(path)
    assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    check.close()


@pytest.mark.timeout(300)
@pytest.mark.few(1)
@pytest.mark.parametrize(("kills", "least"), [(12, 6), (35, 18), (100, 51)])
def test_nothing_accepted_is_lost(tmp_path: Path, kills: int, least: int) -> None:
    folder = tmp_path / "s"
    promised = kill_often(folder, "worker_double.py", kills, 0.2, least=least, limit_s=200)
    assert len(promised) >= least
    check_kept(folder / "session.sqlite", promised)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_accepted_is_lost_with_the_real_emulator(tmp_path: Path) -> None:
    """The same with candidates that are really compiled and run.

    The worker server and its children die with their parent.
    """
    folder = tmp_path / "s"
    promised = kill_often(folder, "worker_real.py", 25, 14.0, least=10, limit_s=900)
    assert len(promised) >= 10
    check_kept(folder / "session.sqlite", promised)
    deadline = time.monotonic() + 60
    while left := [
        p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] and str(folder) in " ".join(p.info["cmdline"])
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def test_log_is_append_only(tmp_path: Path) -> None:
    test_path = tmp_path / "s" / "session.sqlite"
    store = Store(test_path)
    from workbench.records import Event

    store.add_event(Event(kind="note", message="m"), "now")
    for statement in ("DELETE FROM event", "UPDATE event SET at = 'later'"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            store.db.execute(statement)
    store.close()
