"""A session's folder that was made to do harm: each of its files does nothing but be named."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench import trust
from workbench.cli import main
from workbench.errors import UserError
from workbench.records import Candidate, Problem, Proposal
from workbench.session import Session
from workbench.session.verifying import verify_log
from workbench.views.text import report

KEY = "sk-canary-1f2e3d4c"
PROBLEM = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(8, 64)]
def get_init_inputs():
    return []
"""
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS rowid, {} FROM n"


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_TRUST", str(tmp_path / "trusted"))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("a secret of the user")
    return path


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A received folder: code in every text, control characters, an address, a template that runs a command."""
    place = tmp_path / "executed"
    code = f"open({str(place)!r}, 'w').close()\n"
    problem = Problem(name="../\x1b]0;owned\x07<script>", source=PROBLEM + code)
    with Session.create(problem, root=tmp_path / "elsewhere", executor="emulator", name="x") as made:
        title = "\x1b[2J<script>alert(1)</script>"
        made.log.add_version(Proposal(candidate=Candidate(source=code), title=title, reason=title, by="llm"))
        made.log.store.set_meta({"llm": {"base_url": "http://127.0.0.1:9/v1", "model": "m"}, "constraints": [title]})
        (made.folder / "prompts").mkdir()
        template = "{{ cycler.__init__.__globals__.os.system('touch " + str(place) + "') }}"
        (made.folder / "prompts" / "system.jinja2").write_text(template)
        place.unlink()  # it ran when the session was made
        return shutil.copytree(made.folder, tmp_path / "received")


def change(folder: Path, *statements: str) -> None:
    with sqlite3.connect(folder / "session.sqlite") as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            db.execute(statement)


def test_looking_at_it_does_nothing_but_name_it(
    hostile: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sorted(hostile.rglob("*"))
    for command in (
        ["history", "--session", str(hostile)],
        ["diff", "v1", "v1", "--session", str(hostile)],
        ["export", "--version", "v1", "--session", str(hostile), str(tmp_path / "export.py")],
        ["verify", "--session", str(hostile)],
        ["verify", "--session", str(hostile), "--run", "all"],
        ["run", "--resume", str(hostile), "--steps", "1", "--by", "llm"],
        ["profile", "v1", "--session", str(hostile)],
    ):
        assert main(command) in (0, 1, 2), command
    said = capfd.readouterr()
    assert "Traceback" not in said.err and "\x1b" not in said.out + said.err and "\x07" not in said.out + said.err
    assert "cutegen trust" in said.err
    with Session.open(hostile) as session:
        (tmp_path / "report.html").write_text(report.html_page(session))
        report.write_notebook(session, tmp_path / "report.ipynb")
        session.save_recording(tmp_path / "recording.json", "theirs")
    assert not (tmp_path / "executed").exists()
    assert [path for path in sorted(hostile.rglob("*")) if path.suffix not in (".sqlite-shm", ".sqlite-wal")] == [
        path for path in before if path.suffix not in (".sqlite-shm", ".sqlite-wal")
    ]
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) >= 6 and not [path for path in written if KEY.encode() in path.read_bytes()]
    assert KEY not in said.out + said.err


def test_the_question_says_what_it_is_and_is_one_line(hostile: Path, tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(question: str) -> bool:
        asked.append(question)
        return False

    trust.ask_by(answer)
    try:
        Session.open(hostile).close()
    finally:
        trust.ask_by(None)
    assert all(word in asked[0] for word in ("1 version", "system.jinja2", "http://127.0.0.1:9/v1", "runs the problem"))
    assert not (tmp_path / "executed").exists()


def link_log(folder: Path, secret: Path) -> None:
    shutil.move(folder / "session.sqlite", secret.with_name("moved.sqlite"))
    (folder / "session.sqlite").symlink_to(secret.with_name("moved.sqlite"))


def link_prompts(folder: Path, secret: Path) -> None:
    shutil.rmtree(folder / "prompts")
    (folder / "prompts").symlink_to(secret.parent)


LINKS: dict[str, Callable[[Path, Path], None]] = {
    "the log": link_log,
    "the lock": lambda folder, secret: (
        (folder / "session.lock").unlink() or (folder / "session.lock").symlink_to(secret)
    ),
    "a prompt": lambda folder, secret: (folder / "prompts" / "menus.toml").symlink_to(secret),
    "all prompts": link_prompts,
    "a version": lambda folder, secret: (folder / "v002.py").symlink_to(secret),
    "a cycle": lambda folder, secret: (folder / "a").symlink_to("a"),
    "a pipe": lambda folder, secret: os.mkfifo(folder / "prompts" / "system"),
}


@pytest.mark.parametrize("kind", LINKS)
def test_what_leads_out_of_it_is_named(hostile: Path, secret: Path, kind: str) -> None:
    LINKS[kind](hostile, secret)
    for open_it in (
        lambda: Session.open(hostile),
        lambda: Session.open(hostile, write=False),
        lambda: Session.open(hostile, trusted=True),
    ):
        with pytest.raises(UserError, match="which a session that is not trusted cannot have") as caught:
            open_it()
        assert "\n" not in str(caught.value)
    assert secret.read_text() == "a secret of the user"


def test_a_lock_that_became_a_link_overwrites_nothing(hostile: Path, secret: Path) -> None:
    with Session.open(hostile, trusted=True):
        pass
    (hostile / "session.lock").unlink()
    (hostile / "session.lock").symlink_to(secret)
    with pytest.raises(UserError, match="is a link"):
        Session.open(hostile)
    assert secret.read_text() == "a secret of the user"


def test_a_path_in_the_log_stays_in_the_folder(hostile: Path, secret: Path) -> None:
    change(hostile, "UPDATE version SET path = '../secret'")
    with Session.open(hostile) as session:
        assert Path(session.version(1).path) == hostile / "secret"
        assert "a secret of the user" not in str(verify_log(session))


@pytest.mark.parametrize(
    "statements",
    [
        ("ALTER TABLE version RENAME TO v", f"CREATE VIEW version AS {ENDLESS.format('1 AS number')}"),
        ("ALTER TABLE chain RENAME TO c", f"CREATE VIEW chain AS {ENDLESS.format('1 AS position, 2 AS hash')}"),
        ("ALTER TABLE event ADD COLUMN more AS (hex(zeroblob(900000000)))",),
        ("CREATE VIRTUAL TABLE found USING fts5(x)",),
    ],
)
def test_a_log_that_computes_is_named(hostile: Path, statements: tuple[str, ...]) -> None:
    change(hostile, *statements)
    for trusted in (False, True):
        with pytest.raises(UserError, match="computes what it holds") as caught:
            Session.open(hostile, trusted=trusted)
        assert "\n" not in str(caught.value)
