"""Damaged, huge, deep, cyclic and binary files: one line each, that names the file."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench import landscapes, problems
from workbench.cli import main
from workbench.errors import WorkbenchError
from workbench.landscapes import table
from workbench.records import Candidate, Facts, Problem, Proposal
from workbench.session import Session, recording

DEEP = "[" * 100_000 + "]" * 100_000
FACTS = Facts(
    problem_hash="h", kind="other", init_source="", forward_arguments=(), graph=(), parameters=(), cases=(), work=()
)
RECORDINGS = {
    "empty": b"",
    "binary": bytes(range(256)) * 10,
    "a list": b"[]",
    "deep": DEEP.encode(),
    "deep inside": b'{"format": 1, "recording": ' + DEEP.encode() + b"}",
    "without a recording": b'{"format": 1}',
    "null": b'{"format": 1, "recording": null}',
    "cut off": b'{"format": 1, "recording": {"label": "x",',
    "wrong types": b'{"format": 1, "recording": {"label": {}, "problem": 3, "steps": {}}}',
    "huge numbers": b'{"format": 1, "recording": {"label": ' + b"9" * 10_000 + b"}}",
    "UTF-16": '{"format": 1}'.encode("utf-16"),
}
LANDSCAPES = {
    "empty": b"",
    "binary": bytes(range(256)) * 10,
    "no JSON": b"# {x\n" + ",".join(table.COLUMNS).encode() + b"\n",
    "deep": b'# {"a":' + DEEP.encode() + b"}\n" + ",".join(table.COLUMNS).encode() + b"\n",
    "no runs": b'# {"problems": {}}\n' + ",".join(table.COLUMNS).encode() + b"\n",
    "bad facts": b'# {"runs": [], "problems": {"k": {}}}\n' + ",".join(table.COLUMNS).encode() + b"\n",
    "a list": b'# {"runs": [], "problems": []}\n' + ",".join(table.COLUMNS).encode() + b"\n",
    "a run that is not there": b'# {"runs": [], "problems": {}}\n'
    + ",".join(table.COLUMNS).encode()
    + b"\nk,7,p,1,,,1,1,1,1,1,,,,\n",
    "no numbers": b'# {"runs": [{}], "problems": {}}\n'
    + ",".join(table.COLUMNS).encode()
    + b"\nk,0,p,1,,x,1,1,1,1,1,,,,\n",
}
PROBLEMS = {
    "binary": b"\x80\x81",
    "a null byte": b"import torch\x00",
    "deep parentheses": b"x = " + b"(" * 5000 + b")" * 5000,
    "a long sum": b"x = " + b"1 + " * 50_000 + b"1",
    "long attributes": b"x = a" + b".a" * 3000,
    "huge": b"#" * (2 << 20),
}


def said(work: Callable[[], object], path: Path) -> str:
    with pytest.raises(WorkbenchError) as caught:
        work()
    text = str(caught.value)
    assert "\n" not in text and path.name in text and len(text) < 600, text
    return text


@pytest.mark.parametrize("kind", RECORDINGS)
def test_a_damaged_recording(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(RECORDINGS[kind])
    said(lambda: recording.load(path), path)


@pytest.mark.parametrize("kind", LANDSCAPES)
@pytest.mark.parametrize("packed", [False, True])
def test_a_damaged_landscape(tmp_path: Path, kind: str, packed: bool) -> None:
    path = tmp_path / ("x.csv.gz" if packed else "x.csv")
    path.write_bytes(gzip.compress(LANDSCAPES[kind]) if packed else LANDSCAPES[kind])
    said(lambda: table.read(path), path)


def test_a_landscape_that_is_not_packed_or_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    for raw in (b"plain", gzip.compress(b"# {}" * 1000)[:-20]):
        path.write_bytes(raw)
        said(lambda: table.read(path), path)


def test_the_command_line_names_a_damaged_landscape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(landscapes.OWN, str(tmp_path))
    (tmp_path / "bad.csv").write_bytes(LANDSCAPES["deep"])
    assert main(["landscape"]) == 2
    assert "bad.csv" in capfd.readouterr().err


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_damaged_problem(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.py"
    path.write_bytes(PROBLEMS[kind])
    said(lambda: problems.load(str(path)), path)


def test_sizes_have_a_limit_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(recording.MOST_BYTES + 1)
    assert "64 MiB" in said(lambda: recording.load(path), path)
    monkeypatch.setattr(table, "MOST_BYTES", 1 << 20)
    bomb = tmp_path / "x.csv.gz"
    bomb.write_bytes(gzip.compress(b"# {" + b" " * (2 << 20)))
    assert "1 MiB" in said(lambda: table.read(bomb), bomb)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Session.create(Problem(name="p", source="s"), root=tmp_path, executor="emulator", facts=FACTS) as made:
        for number in range(3):
            candidate = Candidate(source=f"x = {number}\n")
            made.log.add_version(Proposal(candidate=candidate, title="v", reason="", by="llm", parent=number or None))
        return made.folder


def damage(folder: Path, *statements: str) -> None:
    with sqlite3.connect(folder / "session.sqlite") as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            db.execute(statement, (DEEP,) if "?" in statement else ())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE problem SET record = 'x'",
        "UPDATE problem SET record = ?",
        "UPDATE problem SET facts = '[]'",
        "UPDATE version SET proposal = '{}'",
        "UPDATE version SET proposal = x'80ff'",
        "UPDATE version SET path = x'80ff'",
        "UPDATE setting SET value = '{'",
        "DELETE FROM setting",
        "DROP TABLE version",
        "DELETE FROM problem",
    ],
)
@pytest.mark.parametrize("trusted", [False, True])
def test_a_damaged_session(folder: Path, statement: str, trusted: bool, tmp_path: Path) -> None:
    damage(folder, statement)
    with pytest.raises(WorkbenchError) as caught:
        Session.open(folder, trusted=trusted)
    assert "\n" not in str(caught.value)
    Session.create(Problem(name="p", source="s"), root=tmp_path, executor="emulator", facts=FACTS).close()


@pytest.mark.parametrize("raw", [b"", b"SQLite format 3\0" + bytes(5000), bytes(range(256)) * 40])
def test_what_is_no_database(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "session.sqlite").write_bytes(raw)
    with pytest.raises(WorkbenchError) as caught:
        Session.open(tmp_path / "s")
    assert "\n" not in str(caught.value)


def test_versions_that_are_each_others_parents(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    damage(folder, "UPDATE version SET parent = 3 WHERE number = 1")
    assert main(["history", "--session", str(folder)]) in (0, 2)
    said = capfd.readouterr()
    assert "Traceback" not in said.err
