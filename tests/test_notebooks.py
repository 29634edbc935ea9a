"""Committed notebooks: every code cell was executed, no widget state, small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

BOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.name)
def test_notebook_is_executed_small_and_without_widget_state(path: Path) -> None:
    book = json.loads(path.read_text())
    assert all(cell["execution_count"] for cell in book["cells"] if cell["cell_type"] == "code")
    assert "widgets" not in book["metadata"] and path.stat().st_size < 350_000


def test_they_are_numbered_from_one() -> None:
    assert [path.name[:2] for path in BOOKS] == [f"{number:02}" for number in range(1, len(BOOKS) + 1)] and len(
        BOOKS
    ) >= 6
