"""100 kills at random moments of the process that holds a session: nothing accepted is lost, no half record."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from workbench.store import Store
from workbench.wire import content_hash

KILLS = 100


def test_nothing_accepted_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "s" / "session.sqlite"
    script = Path(__file__).with_name("worker_double.py")
    random.seed(20261120)
    promised: dict[int, str] = {}
    for _ in range(KILLS):
        worker = subprocess.Popen([sys.executable, str(script), str(path.parent)], stdout=subprocess.PIPE, text=True)
        assert worker.stdout is not None and worker.stdout.readline().strip() == "ready"
        time.sleep(random.uniform(0.0, 0.2))
        worker.kill()
        for line in worker.stdout.read().splitlines():
            parts = line.split()
            if len(parts) == 3 and len(parts[2]) == 64:
                promised[int(parts[1])] = parts[2]
        worker.wait()
    store = Store(path)
    versions = {version.number: version for version in store.versions()}
    assert len(promised) > KILLS / 2
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


def test_log_is_append_only(tmp_path: Path) -> None:
    import pytest

    test_path = tmp_path / "s" / "session.sqlite"
    store = Store(test_path)
    from workbench.records import Event

    store.add_event(Event(kind="note", message="m"), "now")
    for statement in ("DELETE FROM event", "UPDATE event SET at = 'later'"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            store.db.execute(statement)
    store.close()
