"""Answers of exercises: any kind of number, and a line instead of a traceback where there is no session."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.views.notebook.exercises import check


def test_a_number_of_numpy_is_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    check("ridge", np.float32(989.4e12 / 4.8e12))
    check("ridge", np.int64(7))
    solved, wrong = capsys.readouterr().out.splitlines()
    assert solved == "ridge: solved" and "7 is not it" in wrong


def test_without_a_session_a_line_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    check("without-cluster", 1.7)
    assert "there is no session yet" in capsys.readouterr().out


def test_a_fault_of_a_check_is_not_taken_for_a_missing_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.views.notebook.exercises._current_session", object)
    with pytest.raises(AttributeError):
        check("without-cluster", 1.7)
