"""Predictions and answers of exercises: right ones, wrong ones with a reason, and hints instead of tracebacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from workbench.session import Session
from workbench.views.notebook.exercises import EXERCISES, check, compare_prediction, hint


@pytest.fixture(scope="module")
def softmax(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session with a version, its copy with a comment (v2), and one that keeps its rows in registers."""
    folder: Path = tmp_path_factory.mktemp("exercises")
    with Session.create("softmax", root=folder, executor="emulator") as session:
        first = session.program("softmax(x) .threads_per_row(32)", title="warp")
        session.accept(first.number)
        session.edit(first.proposal.candidate.source + "# the same\n", title="copy")
        session.program("softmax(x) .threads_per_row(256) .vector(4) .kept()", title="kept")
        yield session


@pytest.fixture
def _notebook(softmax: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.views.notebook.exercises._current_session", lambda: softmax)


@pytest.mark.few(5)
@pytest.mark.usefixtures("_notebook")
@pytest.mark.parametrize(
    ("name", "right", "wrong", "reason"),
    [
        ("least-bytes", 256 * 256 * 4 * 2, 256 * 256 * 4, "is not it"),
        ("sectors", 1, 8, "8 is not it"),
        ("bytes-per-element", 8, 16, "16 is not it"),
        ("bytes-per-element", 8, "eight", "give a number"),
        ("undecided", "v2", "v3", "has an answer"),
        ("undecided", "v2", "v99", "give a version"),
        ("undecided", "v2", None, "give a version"),
        ("pitch", 33, 32, "lies in 1 of 32 banks"),
        ("pitch", 35, 40, "lies in 4 of 32 banks"),
        ("pitch", 33, 31, "at least the 32"),
        ("pitch", 33, "33", "give a whole number"),
        ("re-use", 64, 128, "128 is not it"),
        ("knobs", (0.25, 0.9), (1.0, 1.0), "of the rows, with"),
        ("knobs", (0.2, 0.9), (0.0, 1.0), "bits of labels"),
        ("knobs", (0.25, 0.9), (2, 0.9), "mix=2: it goes from 0 to 1"),
        ("knobs", (0.25, 0.9), 0.25, "give a pair"),
        ("cache-rows", 512, 500, "500 is not it"),
        ("what-limits", {"warp": "dram"}, {"warp": "L1"}, "counters of 'warp'"),
        ("what-limits", {"kept": " DRAM "}, {"none": "L1"}, "no tested version"),
        ("what-limits", {"kept": "DRAM"}, {}, "empty"),
        ("what-limits", {"kept": "DRAM"}, "DRAM", "give a dict"),
        ("house-ego", 4, 5, "5 is not it"),
        ("search-value", 0.25, 0.5, "0.5 is not it"),
        ("search-value", 0.25, None, "give a number"),
        ("search-trials", 15, 10, "10 is not it"),
        ("slowest-setting", "parts", "unroll", "another setting"),
        ("slowest-setting", "parts", "tile", "give the name"),
    ],
)
def test_right_answers_are_accepted_and_wrong_ones_get_a_reason(
    name: str, right: object, wrong: object, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check(name, right)
    check(name, wrong)
    solved, not_yet = capsys.readouterr().out.splitlines()
    assert solved == f"{name}: solved"
    assert not_yet.startswith(f"{name}: not yet, ") and reason in not_yet and f"hint({name!r})" in not_yet


@pytest.mark.usefixtures("_notebook")
def test_a_version_of_your_own_must_be_near_the_bound_and_new(
    softmax: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def latest(*numbers: int) -> str:
        chosen = tuple(softmax.version(number) for number in numbers)
        with monkeypatch.context() as patch:
            patch.setattr(Session, "versions", chosen)
            check("near-bound")
        return capsys.readouterr().out.strip()

    assert latest(1, 2, 3) == "near-bound: solved"
    assert "of the bound (modelled), not 80%" in latest(1, 2)
    assert "not new" in latest(3, 3)
    assert "not your own" in latest()


def test_hints_come_one_after_the_other_and_start_again(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = EXERCISES["pitch"].hints
    for _ in range(3):
        hint("pitch")
    shown = capsys.readouterr().out.splitlines()
    assert shown == [f"hint 1 of 2: {first}", f"hint 2 of 2: {second}", f"hint 1 of 2: {first}"]


def test_an_unknown_name_lists_the_exercises(capsys: pytest.CaptureFixture[str]) -> None:
    check("nothing", 1)
    hint("nothing")
    assert all("no exercise is called 'nothing'" in line for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("guess", "result", "sentence"),
    [
        ("dram", "DRAM", "predicted: dram; result: DRAM: right"),
        ("latency", "DRAM", "predicted: latency; result: DRAM: not what you expected"),
        (4 / 3, 1.3, "predicted: 1.33; result: 1.3: right"),
        (8, 4.0, "predicted: 8; result: 4: 2 times too high"),
        (2, np.float64(4), "predicted: 2; result: 4: 2 times too low"),
        (0, 4, "predicted: 0; result: 4: not what you expected"),
        (None, 4.0, "predicted: None; result: 4.0: not what you expected"),
    ],
)
def test_a_prediction_is_compared_in_one_sentence(
    guess: object, result: object, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compare_prediction(guess, result)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(sentence)


def test_a_number_of_numpy_is_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    check("ridge", np.float32(989.4e12 / 4.8e12))
    check("ridge", np.int64(7))
    solved, wrong = capsys.readouterr().out.splitlines()
    assert solved == "ridge: solved" and "7 is not it" in wrong


def test_without_a_session_a_line_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    check("without-cluster", 1.7)
    check("sectors", 8)
    assert all("there is no session yet" in line for line in capsys.readouterr().out.splitlines())


def test_a_fault_of_a_check_is_not_taken_for_a_missing_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.views.notebook.exercises._current_session", object)
    with pytest.raises(AttributeError):
        check("without-cluster", 1.7)
