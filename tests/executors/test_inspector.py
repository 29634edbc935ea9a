"""Facts of a problem that was inspected before are read from the cache, unless something that decides them changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workbench import problems
from workbench.executors import inspector
from workbench.executors.inspector import WorkerInspector
from workbench.records import Facts, Problem


@pytest.fixture
def inspected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    """The problems that were really inspected; the cache is empty at first."""
    monkeypatch.setenv("CUTEGEN_CACHE", str(tmp_path / "cache"))
    found, really = list[Problem](), inspector._inspect

    def inspect(problem: Problem) -> Facts:
        found.append(problem)
        return really(problem)

    monkeypatch.setattr(inspector, "_inspect", inspect)
    return found


def test_facts_are_kept_by_problem_and_inspection(inspected: list[Problem], monkeypatch: pytest.MonkeyPatch) -> None:
    small = problems.load("relu", settings=(("batch_size", 4), ("dim", 8)))
    larger = problems.load("relu", settings=(("batch_size", 4), ("dim", 16)))
    facts = WorkerInspector().inspect(small)
    assert WorkerInspector().inspect(small) == facts and inspected == [small]
    assert WorkerInspector().inspect(larger) != facts and inspected == [small, larger]
    monkeypatch.setattr(inspector, "_inspection_version", lambda: "another torch, or other code")
    assert WorkerInspector().inspect(small) == facts and inspected == [small, larger, small]


@pytest.mark.few(2)
@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"schema": 99}', "\x00"])
def test_a_file_that_cannot_be_read_is_written_again(inspected: list[Problem], tmp_path: Path, content: str) -> None:
    small = problems.load("relu", settings=(("batch_size", 4), ("dim", 8)))
    facts = WorkerInspector().inspect(small)
    (kept,) = (tmp_path / "cache" / "facts").iterdir()
    whole = kept.read_text()
    kept.write_text(content)
    assert WorkerInspector().inspect(small) == facts and kept.read_text() == whole and len(inspected) == 2


def test_the_oldest_of_too_many_are_removed(
    inspected: list[Problem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector, "MOST_KEPT", 2)
    for number, dim in enumerate((8, 16, 24)):
        WorkerInspector().inspect(problems.load("relu", settings=(("batch_size", 4), ("dim", dim))))
        for path in (tmp_path / "cache" / "facts").iterdir():
            os.utime(path, (number, number))
    assert len(list((tmp_path / "cache" / "facts").iterdir())) == 2
