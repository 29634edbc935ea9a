"""Orders reach a GPU process one at a time; what an untrusted process answers is read with care."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from workbench.executors.jobs import rpc
from workbench.executors.jobs.rpc import Ended, FileChannel, requests


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "given").mkdir()
    (tmp_path / "scratch").mkdir()
    return tmp_path


def answering(folder: Path, count: int) -> threading.Thread:
    """A process's side that doubles what it is told, `count` times."""

    def work() -> None:
        for order, answer in requests(folder, 5.0):
            answer({"twice": 2 * order["n"]})
            if order["n"] == count:
                return

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_every_order_has_its_reply_and_leaves_no_file(folder: Path) -> None:
    thread = answering(folder, 5)
    line = FileChannel(folder, thread.is_alive)
    line.send({"do": "it", "n": 1})
    line.send({"do": "it", "n": 2})
    assert line.recv() == {"twice": 4}  # the last of those that were posted
    assert [line.call({"do": "it", "n": n})["twice"] for n in (3, 4, 5)] == [6, 8, 10]
    assert not list((folder / "given").iterdir()) and not list((folder / "scratch").iterdir())


def test_nothing_of_a_later_request_is_there_before_it_is_due(folder: Path) -> None:
    seen: list[list[str]] = []

    def work() -> None:
        for order, answer in requests(folder, 5.0):
            seen.append(sorted(path.name for path in (folder / "given").iterdir()))
            answer({})
            if order["n"] == 3:
                return

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    line = FileChannel(folder, thread.is_alive)
    for n in (1, 2, 3):
        line.call({"do": "it", "n": n})
    assert seen == [["request-1.json"], ["request-2.json"], ["request-3.json"]]


def test_a_process_that_ends_is_noticed_at_once(folder: Path) -> None:
    thread = answering(folder, 1)
    line = FileChannel(folder, thread.is_alive)
    line.call({"do": "it", "n": 1})
    start = time.monotonic()
    with pytest.raises(Ended, match="ended before"):
        line.call({"do": "it", "n": 2})
    assert time.monotonic() - start < 2


def test_what_ends_a_run_comes_out_of_the_wait(folder: Path) -> None:
    def stop() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FileChannel(folder, stop).call({"do": "it"})


@pytest.mark.parametrize("forged", ["not json", "[1]", "link", "pipe"])
def test_a_reply_that_is_no_plain_object_is_refused(folder: Path, forged: str) -> None:
    path = folder / "scratch" / "reply-1.json"
    if forged == "link":
        (folder / "secret.json").write_text("{}")
        path.symlink_to(folder / "secret.json")
    elif forged == "pipe":
        os.mkfifo(path)
    else:
        path.write_text(forged)
    with pytest.raises(Ended, match="answer"):
        FileChannel(folder, lambda: True).call({"do": "it"})


def test_seeds_of_one_order_differ_by_call() -> None:
    first = rpc.draw_seed()
    assert rpc.derive_seed(first, 0) == first
    assert len({rpc.derive_seed(first, n) for n in range(64)}) == 64
    assert all(0 <= rpc.derive_seed(first, n) < 1 << rpc.SEED_BITS for n in range(64))
