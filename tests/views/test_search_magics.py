"""`%cutegen run --search` and `%cutegen search-tree` in a real IPython shell, on recorded times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

Run = Callable[[str], str]


@pytest.fixture
def magic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("CUTEGEN_ROOT", str(tmp_path))
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "workbench")
    shell.run_line_magic("cutegen", "problem relu --executor replay")
    yield lambda line: str(shell.run_line_magic("cutegen", line))
    shell.run_line_magic("unload_ext", "workbench")
    InteractiveShell.clear_instance()


def test_a_search_is_run_looked_at_and_steered(magic: Run) -> None:
    shown = magic("run --search greedy --trials 3 --seed 1")
    assert "search greedy, seed 1; 3 nodes, 3 of 3 trials" in shown and "★" in magic("search-tree")
    opened = magic("search-tree open 1")
    assert "elementwise(relu(x))" in opened and "expected: log speed-up" in opened and "v1 of the session" in opened
    assert "pinned" in magic("search-tree pin 2") and "too slow" in magic("search-tree prune 3 too slow")
    assert "use 512 threads" in magic("search-tree idea use 512 threads, don't ask")
    assert "taken" in magic("search-tree take 1")
    assert "3 of 5 trials" in magic("search-tree budget --trials 5")
    assert "runs in the background" in magic("search-tree start --strategy greedy --trials 6 --seed 1")
    deadline = time.monotonic() + 30
    while "6 of 6 trials" not in (shown := magic("search-tree")):
        assert time.monotonic() < deadline, shown
        time.sleep(0.05)
    assert "stopped" in magic("search-tree stop")


def test_wrong_orders_are_one_line(magic: Run) -> None:
    for line, said in (
        ("search-tree", "no search yet"),
        ("search-tree pin", "pin which node"),
        ("run --trials 3", "only with"),
    ):
        with pytest.raises(UsageError) as error:
            magic(line)
        assert said in str(error.value) and "\n" not in str(error.value)
