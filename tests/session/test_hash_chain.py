"""What is changed in a session's log behind the workbench's back is named, and does not count."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.errors import UserError
from workbench.hash_chain import CHAINED, TABLE
from workbench.session import DATABASE, Session
from workbench.session.verifying import verify_log
from workbench.store_schema import MIGRATIONS
from workbench.views.text import tables


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("chain")
    with Session.create("relu", root=root, executor="emulator", name="session") as session:
        session.run(steps=1)
        session.accept("v2")
    yield root / "session"


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "session"))


def change(folder: Path, *statements: str) -> None:
    db = sqlite3.connect(folder / DATABASE)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def problems_of(folder: Path, head: str = "") -> tuple[str, ...]:
    with Session.open(folder, write=False, trusted=True) as session:
        return verify_log(session, head=head).problems


def head_of(folder: Path) -> str:
    with Session.open(folder, write=False, trusted=True) as session:
        return session.log.store.head()


def test_an_untouched_log_is_sound_and_its_head_moves_on(folder: Path) -> None:
    before = head_of(folder)
    assert re.fullmatch("[0-9a-f]{64}", before) and not problems_of(folder) and not problems_of(folder, before[:12])
    with Session.open(folder, trusted=True) as session:
        session.reject("v1", "slow") if session.version("v1").decision is None else session.undo()
        assert "nothing was changed" in str(tables.log_check(verify_log(session, head=before)))
    assert head_of(folder) != before and not problems_of(folder, before)


DROP = "DROP TRIGGER {0}_update"
EDITS = {
    "a verdict set by hand": (
        (DROP.format("trial"), """UPDATE trial SET record = replace(record, '"correct":true', '"correct": true')"""),
        ("trial 1 of v1 was changed", "against update of the table trial is gone"),
    ),
    "an accepted source": (
        (DROP.format("version"), "UPDATE version SET proposal = replace(proposal, 'fmax', 'fmin') WHERE number = 2"),
        ("v2 was changed", "not the one that its hash names", "against update"),
    ),
    "a decision of another program": (
        ("INSERT INTO decision (version, record, at) SELECT 1, record, at FROM decision WHERE version = 2 LIMIT 1",),
        ("decision", "of v1 was inserted by another program"),
    ),
    "a trial that is gone": (
        ("DROP TRIGGER trial_delete", "DELETE FROM trial WHERE version = 1"),
        ("trial 1 is gone", "against delete"),
    ),
    "an entry that was made to fit": (
        ("DROP TRIGGER chain_update", "UPDATE chain SET hash = 'f' || substr(hash, 2) WHERE position = 2"),
        ("has an entry in the chain that was changed", "against update of the table chain"),
    ),
    "entries in the middle": (
        ("DROP TRIGGER chain_delete", "DELETE FROM chain WHERE position = 3"),
        ("entries before entry 4 are gone", "was inserted by another program"),
    ),
    "the path of a version": (
        (DROP.format("version"), "UPDATE version SET path = '../../../etc/hostname' WHERE number = 1"),
        ("v1 was changed",),
    ),
    "a setting": (
        (DROP.format("setting"), "UPDATE setting SET value = '\"A100\"' WHERE key = 'device'"),
        ("setting 2 was changed", "against update of the table setting is gone"),
    ),
    "a setting that was added": (
        ("INSERT INTO setting (key, value) VALUES ('allow_torch', 'true')",),
        ("setting 4 was inserted by another program",),
    ),
    "a guard that lets everything pass": (
        (
            DROP.format("trial"),
            "CREATE TRIGGER trial_update BEFORE UPDATE ON trial WHEN 0 BEGIN SELECT RAISE(ABORT, 'append-only'); END",
        ),
        ("the trigger trial_update was changed by another program",),
    ),
    "a trigger that changes what is written": (
        (
            "CREATE TRIGGER more AFTER INSERT ON trial BEGIN "
            "INSERT INTO decision (version, record, at) SELECT version, record, at FROM decision; END",
        ),
        ("the trigger more was added by another program",),
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_named(folder: Path, edit: str) -> None:
    statements, expected = EDITS[edit]
    change(folder, *statements)
    said = "\n".join(problems_of(folder))
    assert all(part in said for part in expected), said
    with Session.open(folder, trusted=True) as session:
        assert "warning" in str(tables.status(session))


@pytest.mark.parametrize("edit", ["a setting", "a trigger that changes what is written"])
def test_nothing_is_run_where_what_is_written_cannot_be_believed(folder: Path, edit: str) -> None:
    change(folder, *EDITS[edit][0])
    with Session.open(folder, trusted=True) as session, pytest.raises(UserError, match="nothing of it is run"):
        session.test("v1")


def test_what_was_changed_is_not_believed(folder: Path) -> None:
    change(folder, *EDITS["a verdict set by hand"][0], *EDITS["a decision of another program"][0])
    with Session.open(folder, trusted=True) as session:
        first, second = session.versions
        assert not first.trials and not second.trials and second.decision is not None
        assert first.decision is None or first.decision.version == 1
        session.test("v2")
        assert session.version("v2").trials and session.best is not None


def test_an_end_that_was_cut_off_shows_against_a_head(folder: Path) -> None:
    head = head_of(folder)
    guards = [f"DROP TRIGGER {kind}_delete" for kind in ("decision", "event", "chain")]
    last = "SELECT row FROM chain WHERE kind = '{0}' ORDER BY position DESC LIMIT 1"
    change(
        folder,
        *guards,
        f"DELETE FROM event WHERE id = ({last.format('event')})",
        "DELETE FROM chain WHERE position = (SELECT MAX(position) FROM chain)",
    )
    assert not any("does not contain" in line for line in problems_of(folder))
    assert any(f"does not contain the entry {head}" in line for line in problems_of(folder, head))


def test_a_file_that_differs_from_the_log_is_named(folder: Path) -> None:
    first, second = sorted(folder.glob("v0*.py"))
    first.unlink()
    second.chmod(0o644)
    second.write_text("other")
    said = "\n".join(problems_of(folder))
    assert f"{first.name} of v1 is gone" in said and f"{second.name} of v2 holds another text" in said


def test_a_log_of_an_old_workbench_gets_a_chain_when_it_is_opened_to_work_on(folder: Path) -> None:
    names = [f"{kind}_{verb}" for kind in ("chain",) for verb in ("update", "delete")]
    change(
        folder,
        *(f"DROP TRIGGER {name}" for name in names),
        "DROP TABLE chain",
        "DROP TABLE profile",
        "DROP TABLE search",
        "INSERT INTO meta SELECT key, value FROM setting",
        "DROP TABLE setting",
        f"PRAGMA user_version={MIGRATIONS.index(TABLE)}",
    )
    assert "no hash chain" in problems_of(folder)[0]
    with Session.open(folder, trusted=True) as session:
        assert not verify_log(session).problems and session.log.store.count_entries() > len(CHAINED)


@pytest.mark.parametrize("head", ["xyz", "12", "G" * 64])
def test_a_head_that_is_none_is_refused(folder: Path, head: str) -> None:
    with Session.open(folder, write=False, trusted=True) as session, pytest.raises(UserError, match="is no head"):
        verify_log(session, head=head)


@pytest.mark.slow
def test_versions_are_run_again(folder: Path) -> None:
    with Session.open(folder, write=False, trusted=True) as session:
        found = verify_log(session, run=["all"])
    assert found.ran == ("v1", "v2") and not found.problems and "run again: v1, v2" in str(tables.log_check(found))
