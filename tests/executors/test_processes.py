"""Processes that carry out orders: the referee stays for one problem, and whoever is to leave is gone at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from workbench.errors import Stopped
from workbench.executors.gpu.processes import RefereePool, process_ids
from workbench.executors.jobs import client
from workbench.executors.jobs.client import Server, server
from workbench.executors.jobs.rpc import Gone


@pytest.fixture
def pool() -> Iterator[RefereePool]:
    made = RefereePool()
    yield made
    made.clear()


def test_the_referee_stays_for_one_problem_and_makes_room_for_another(
    pool: RefereePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "GONE_LIMIT_S", 60.0)
    workers = server()
    first = pool.get(workers, "a", None)
    assert first.channel.call({"do": "open", "job": {"problem": "/no/such/file"}})["error"].startswith(
        "WorkbenchError: stored Job cannot be read"
    )  # told, and it goes on
    assert first.channel.call({"do": "close"}) == {}
    assert pool.get(workers, "a", None) is first
    start = time.monotonic()
    second = pool.get(workers, "b", None)
    assert second is not first and not workers.is_running(first.number)
    assert time.monotonic() - start < 30  # of the 60 s after which it gives up waiting
    assert second.channel.call({"do": "close"}) == {}


def test_a_referee_that_died_is_replaced(pool: RefereePool) -> None:
    workers = server()
    first = pool.get(workers, "a", None)
    first.channel.call({"do": "close"})
    for process in psutil.Process(workers.process.pid).children(recursive=True):
        process.kill()
    deadline = time.monotonic() + 50
    while workers.is_running(first.number) and time.monotonic() < deadline:
        time.sleep(0.01)
    second = pool.get(workers, "a", None)
    assert second is not first and second.channel.call({"do": "close"}) == {}


def test_a_stop_comes_out_of_the_wait(pool: RefereePool) -> None:
    stop = threading.Event()
    referee = pool.get(server(), "a", stop)
    referee.channel.call({"do": "close"})
    stop.set()
    with pytest.raises(Stopped):
        referee.alive()


def test_the_family_holds_the_processes_that_were_started(pool: RefereePool) -> None:
    workers = server()
    pool.get(workers, "a", None).channel.call({"do": "close"})
    ids = process_ids(workers)()
    assert workers.process.pid in ids and len(ids) >= 2 and psutil.Process().pid not in ids


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["closed", "killed"])
def test_no_process_is_left_when_the_server_ends(pool: RefereePool, how: str) -> None:
    workers = Server()
    pool.get(workers, "a", None).channel.call({"do": "close"})
    family_of = [psutil.Process(pid) for pid in process_ids(workers)()]
    assert len(family_of) >= 3
    if how == "killed":
        workers.process.kill()
    workers.close()
    _, left = psutil.wait_procs(family_of, timeout=30)
    assert not left


def test_a_process_that_closed_its_connection_is_waited_for_and_one_that_goes_on_is_not(pool: RefereePool) -> None:
    workers = server()
    referee = pool.get(workers, "a", None)
    start = time.monotonic()
    referee.wait_for_end(0.2)
    assert time.monotonic() - start < 5 and workers.is_running(referee.number)
    referee.channel.send({"do": "end"})
    with pytest.raises(Gone):
        referee.channel.call({"do": "close"})
    referee.wait_for_end(50)
    assert not workers.is_running(referee.number)
