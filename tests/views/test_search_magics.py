"""`%cutegen run --search` and `%cutegen search-tree` in a real IPython shell, on recorded times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from workbench.cli import main
from workbench.records import Decision
from workbench.session import Session
from workbench.views.notebook.search_view import search_view
from workbench.views.text import tables
from workbench.views.text.mime_bundle import format_seconds

Run = Callable[[str], str]
SLOW = "elementwise(relu(x)) .arch(sm_90a) .threads(64) .vector(2)"  # in the landscape of relu
FAST = "elementwise(relu(x)) .arch(sm_90a) .unroll(1) .vector(4)"  # the fastest of it


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
    with pytest.raises(UsageError, match=r"which node\? give its number; the tree has nodes 0 to 3"):
        magic("search-tree open")
    assert "pinned" in magic("search-tree pin 2") and "too slow" in magic("search-tree prune 3 too slow")
    assert "use 512 threads" in magic("search-tree idea use 512 threads, don't ask")
    assert "taken" in magic("search-tree take 1")
    assert "3 of 5 trials" in magic("search-tree budget --trials 5")
    assert "runs in the background" in magic("search-tree start --strategy greedy --trials 6 --seed 1")
    wait_for(magic, "6 of 6 trials")
    assert "stopped" in magic("search-tree stop")


def wait_for(magic: Run, said: str) -> None:
    deadline = time.monotonic() + 30
    while said not in (shown := magic("search-tree")):
        assert time.monotonic() < deadline, shown
        time.sleep(0.05)


def test_a_start_without_options_goes_on_with_the_last_search(magic: Run) -> None:
    magic("run --search greedy --trials 3 --seed 5")
    magic("search-tree idea use 512 threads")
    magic("search-tree budget --trials 4")
    magic("search-tree start")
    for trials, line in (
        (4, "search-tree start"),
        (5, "search-tree start --trials 5"),
        (6, "run --search greedy --trials 6"),
    ):
        magic(line)
        wait_for(magic, f"{trials} of {trials} trials")
        shown = magic("search-tree")
        assert "search greedy, seed 5;" in shown and "use 512 threads" in shown, line
    magic("run --search greedy --trials 1 --fresh")
    assert "search greedy, seed 0;" in magic("search-tree")


def test_wrong_orders_are_one_line(magic: Run) -> None:
    for line, said in (
        ("search-tree", "no search yet"),
        ("run --search tree --patience 2", "leave out --patience"),
        ("search-tree pin", "pin which node"),
        ("search-tree budget 50", "search-tree budget --trials 50"),
        ("run --search tree --steps 5", "leave out --steps"),
        ("run --search tree --steps 3", "leave out --steps"),
        ("run --trials 3", "only with"),
    ):
        with pytest.raises(UsageError) as error:
            magic(line)
        assert said in str(error.value) and "\n" not in str(error.value)


def test_what_is_faster_and_pending_is_named_beside_the_best(
    magic: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session: Session = InteractiveShell.instance().user_ns["session"]
    session.accept(session.program(SLOW).number)
    assert "faster" not in magic("status") and magic(f"export {tmp_path}/a.py").endswith(
        "v1 is the best accepted version"
    )
    fast = session.program(FAST)
    faster = f"v2 is faster ({format_seconds(fast.trials[-1].verdict.time_s)}, measured) and pending"
    status = magic("status")
    assert faster in status and any(line.startswith("best accepted  v1 ") for line in status.splitlines())
    said = f"; v1 is the best accepted version; {faster}"
    assert magic(f"export {tmp_path}/b.py").endswith(f"b.py{said}")
    assert magic(f"export {tmp_path}/c.py --version v1").endswith("c.py")
    session.close()
    for version, end in (("best", said), ("v1", "")):
        capsys.readouterr()
        assert main(("export", "--session", str(session.folder), f"{tmp_path}/{version}.py", "--version", version)) == 0
        assert capsys.readouterr().out.rstrip().endswith(f"{version}.py{end}")
    with Session.open(session.folder) as again:
        again.accept(2)
        assert tables.describe_faster(again) == "" and again.best is not None and again.best.number == 2


def test_a_search_says_what_was_decided_on_its_fastest(magic: Run) -> None:
    session: Session = InteractiveShell.instance().user_ns["session"]
    ran = magic("run --search greedy --trials 6 --seed 1")
    best = session.search_tree().best
    assert best is not None and best.result is not None and best.result.version is not None
    version = session.version(best.result.version)
    fastest = f"fastest tried is v{version.number} (node {best.number}): {format_seconds(best.result.time_s)}"
    assert version.standing in ("accepted", "rejected")
    assert f"{fastest}, {version.standing};" in ran and f"{fastest}, {version.standing};" in magic("search-tree")
    session.log.add_decisions(Decision(kind="undo", version=version.number, source_hash=version.source_hash))
    said = f"{fastest}, not accepted: %cutegen accept v{version.number};"
    assert said in magic("search-tree") and said in search_view(session)["head"]
