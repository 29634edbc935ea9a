"""Processes that carry out orders: the referee stays for one problem, and whoever is to leave is gone at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from workbench.errors import Stopped
from workbench.executors.client import Server, server
from workbench.executors.crew import Bench, family


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.clear()


def test_the_referee_stays_for_one_problem_and_makes_room_for_another(bench: Bench) -> None:
    workers = server()
    first = bench.seat(workers, "a", None)
    assert first.line.tell({"do": "open", "job": "/no/such/file"})["error"].startswith("FileNotFoundError")  # told, and it goes on
    assert first.line.tell({"do": "close"}) == {}
    assert bench.seat(workers, "a", None) is first
    start = time.monotonic()
    second = bench.seat(workers, "b", None)
    assert second is not first and not workers.running(first.number) and time.monotonic() - start < 4
    assert second.line.tell({"do": "close"}) == {}


def test_a_referee_that_died_is_replaced(bench: Bench) -> None:
    workers = server()
    first = bench.seat(workers, "a", None)
    first.line.tell({"do": "close"})
    for process in psutil.Process(workers.process.pid).children(recursive=True):
        process.kill()
    deadline = time.monotonic() + 5
    while workers.running(first.number) and time.monotonic() < deadline:
        time.sleep(0.01)
    second = bench.seat(workers, "a", None)
    assert second is not first and second.line.tell({"do": "close"}) == {}


def test_a_stop_comes_out_of_the_wait(bench: Bench) -> None:
    stop = threading.Event()
    referee = bench.seat(server(), "a", stop)
    referee.line.tell({"do": "close"})
    stop.set()
    with pytest.raises(Stopped):
        referee.alive()


def test_the_family_holds_the_processes_that_were_started(bench: Bench) -> None:
    workers = server()
    bench.seat(workers, "a", None).line.tell({"do": "close"})
    ids = family(workers)()
    assert workers.process.pid in ids and len(ids) >= 2 and psutil.Process().pid not in ids


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_no_process_is_left_when_the_server_ends(bench: Bench, how: str) -> None:
    workers = Server()
    bench.seat(workers, "a", None).line.tell({"do": "close"})
    family_of = [psutil.Process(pid) for pid in family(workers)()]
    assert len(family_of) >= 3
    if how == "killed":
        workers.process.kill()
    workers.close()
    _, left = psutil.wait_procs(family_of, timeout=3)
    assert not left
