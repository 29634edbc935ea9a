"""Requests reach a GPU process one at a time; the parent reads replies of an untrusted process with care."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from workbench import problems
from workbench.executors.inspector import WorkerInspector
from workbench.executors.jobs import rpc
from workbench.executors.jobs.client import server
from workbench.executors.jobs.folder import prepare
from workbench.executors.jobs.rpc import Ended, SocketChannel, encode_message, requests
from workbench.records import Candidate, Job

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        yield mine, theirs


def answering(connection: socket.socket, count: int) -> threading.Thread:
    """A process's end that doubles what it is told, `count` times, and then closes the connection."""

    def work() -> None:
        with connection:
            for order, answer in requests(connection, 5.0):
                answer({"twice": 2 * order["n"]})
                if order["n"] == count:
                    return

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_every_order_has_its_reply(pair: Pair) -> None:
    mine, theirs = pair
    thread = answering(theirs, 5)
    line = SocketChannel(mine, thread.is_alive)
    line.send({"do": "it", "n": 1})
    line.send({"do": "it", "n": 2})
    assert line.recv() == {"twice": 4}  # the last of those that were posted
    assert [line.call({"do": "it", "n": n})["twice"] for n in (3, 4, 5)] == [6, 8, 10]


def test_a_wait_reads_nothing_and_ends_with_a_reply_or_the_process(pair: Pair) -> None:
    mine, theirs = pair
    left, asked = [3], threading.Event()

    def alive() -> bool:
        left[0] -= 1
        return left[0] > 0

    line = SocketChannel(mine, alive)
    line.send({"do": "it", "n": 1})
    line.wait()  # nobody answers, and the process is gone at the third look
    assert left == [0]
    left[0] = 1 << 30
    thread = threading.Thread(target=lambda: (asked.wait(5), answering(theirs, 1)), daemon=True)
    thread.start()
    threading.Timer(0.2, asked.set).start()
    started = time.monotonic()
    line.wait()
    assert 0.1 < time.monotonic() - started < 3 and line.received == 0
    line.wait()  # it is there still
    assert line.recv() == {"twice": 2}
    with pytest.raises(Ended):
        line.call({"do": "it", "n": 2})


def test_nothing_of_a_later_request_is_there_before_it_is_due(pair: Pair) -> None:
    mine, theirs = pair
    ahead: list[bool] = []

    def work() -> None:
        for order, answer in requests(theirs, 5.0):
            ahead.append(bool(select.select([theirs], [], [], 0)[0]))
            answer({})
            if order["n"] == 3:
                return

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    line = SocketChannel(mine, thread.is_alive)
    for n in (1, 2, 3):
        line.call({"do": "it", "n": n})
    assert ahead == [False, False, False]


def test_a_process_that_ends_is_noticed_at_once(pair: Pair) -> None:
    mine, theirs = pair
    thread = answering(theirs, 1)
    line = SocketChannel(mine, thread.is_alive)
    line.call({"do": "it", "n": 1})
    start = time.monotonic()
    with pytest.raises(Ended, match="ended before"):
        line.call({"do": "it", "n": 2})
    assert time.monotonic() - start < 30  # of the 600 seconds that an answer may take


def test_a_process_that_is_gone_while_its_socket_is_held_is_noticed(pair: Pair) -> None:
    """A child of a candidate may keep its copy of the socket open."""
    with pytest.raises(Ended, match="ended before"):
        SocketChannel(pair[0], lambda: False).call({"do": "it"})


def test_the_process_ends_when_the_parent_closes_or_says_nothing(pair: Pair) -> None:
    mine, theirs = pair
    assert list(requests(theirs, 0.05)) == []
    mine.close()
    assert list(requests(theirs, 60.0)) == []


def test_what_ends_a_run_comes_out_of_the_wait(pair: Pair) -> None:
    def stop() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SocketChannel(pair[0], stop).call({"do": "it"})


def framed(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        (framed(b"not json"), "cannot be read"),
        (framed(b"\xff\xfe"), "cannot be read"),
        (framed(b"[" * 100_000), "cannot be read"),
        (framed(b'{"n": ' + b"9" * 10_000 + b"}"), "cannot be read"),
        (framed(b"[1]"), "no JSON object"),
        (b"\xff\xff\xff\xff", "4294967295 bytes"),
        ((rpc.REPLY_BYTES + 1).to_bytes(4, "big"), "more than"),
        (b"\0", "ended before"),
    ],
)
def test_a_reply_that_is_no_object_of_bounded_size_is_refused(pair: Pair, forged: bytes, why: str) -> None:
    mine, theirs = pair
    theirs.sendall(forged)
    theirs.close()
    with pytest.raises(Ended, match=why):
        SocketChannel(mine, lambda: True).call({"do": "it"})


def test_a_reply_that_never_ends_is_given_up(pair: Pair) -> None:
    """Bytes that trickle in must not keep the parent from its clock and its stop button."""
    mine, theirs = pair
    looks: list[float] = []

    def alive() -> bool:
        looks.append(time.monotonic())
        return True

    def trickle() -> None:
        theirs.sendall((1000).to_bytes(4, "big"))
        while True:
            try:
                theirs.sendall(b" ")
            except OSError:
                return
            time.sleep(0.002)

    threading.Thread(target=trickle, daemon=True).start()
    with pytest.raises(Ended, match="no answer came"):
        SocketChannel(mine, alive, answer_limit_s=0.5).call({"do": "it"})
    assert len(looks) >= 3


def test_descriptors_that_come_with_a_reply_are_dropped(pair: Pair, tmp_path: Path) -> None:
    mine, theirs = pair
    before = len(list(Path("/proc/self/fd").iterdir()))
    with open(tmp_path / "file", "w") as file:
        socket.send_fds(theirs, [encode_message({"n": 1})], [file.fileno()])
        assert SocketChannel(mine, lambda: True).call({"do": "it"}) == {"n": 1}
    assert len(list(Path("/proc/self/fd").iterdir())) == before


ESCAPES = """
import os, pickle, socket
import torch


class ModelNew(torch.nn.Module):
    pass


handles = sorted(int(name) for name in os.listdir("/proc/self/fd"))
line = socket.socket(fileno=3)
class Evil:
    def __reduce__(self):
        return (os.system, ("touch hacked",))
text = pickle.dumps(Evil()) if {pickled} else repr(handles).replace("[", '{{"handles": [').replace("]", "]}}").encode()
line.sendall(len(text).to_bytes(4, "big") + text)
line.recv(1)
"""


@pytest.mark.parametrize("pickled", [False, True])
def test_a_confined_candidate_has_one_connection_and_nothing_it_sends_is_run(tmp_path: Path, pickled: bool) -> None:
    """Through the real server: its worker inherits the socket and no other descriptor of its parent's."""
    problem = problems.load("relu", settings=(("batch_size", 4), ("dim", 8)))
    facts = WorkerInspector().inspect(problem)
    job = Job(problem=problem, facts=facts, candidate=Candidate(source="pass"), cases=("shrunk",))
    source = ESCAPES.format(pickled=pickled)
    folder = prepare(tmp_path, replace(job, candidate=Candidate(source=source)))
    mine, theirs = socket.socketpair()
    workers = server()
    with theirs:
        number = workers.start_job("candidate", str(folder), wall_s=30.0, device="cuda", connection=theirs)
    line = SocketChannel(mine, lambda: workers.is_running(number))
    try:
        if pickled:
            with pytest.raises(Ended, match="cannot be read"):
                line.call({"do": "trial"})
            assert not list(tmp_path.rglob("hacked"))
        else:
            handles = line.call({"do": "trial"})["handles"]
            assert handles[:4] == [0, 1, 2, 3] and len(handles) <= 6  # one of its own folder in /proc, one of the list
    finally:
        line.close()
        workers.cancel(number)


def test_seeds_of_one_order_differ_by_call() -> None:
    first = rpc.draw_seed()
    assert rpc.derive_seed(first, 0) == first
    assert len({rpc.derive_seed(first, n) for n in range(64)}) == 64
    assert all(0 <= rpc.derive_seed(first, n) < 1 << rpc.SEED_BITS for n in range(64))
