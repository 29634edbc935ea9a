"""Shared fixtures: sessions go to a temporary folder, and the worker server ends with the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def sessions_in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_ROOT", str(tmp_path / "sessions"))


@pytest.fixture(scope="session", autouse=True)
def workers_end_with_the_tests() -> Iterator[None]:
    yield
    from workbench import executors

    executors.shutdown()
