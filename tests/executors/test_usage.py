"""The processes of a job: found by looking at the younger ones only, and what they use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import psutil
import pytest

from workbench.executors.jobs import usage

HOLD = "import sys; held = bytearray(64 << 20); print('there', flush=True); sys.stdin.read()"
PARENT = f"""
import subprocess, sys
for line in sys.stdin:
    child = subprocess.Popen([sys.executable, "-c", {HOLD!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    print(child.pid, flush=True)
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process that starts one of 64 MiB for each line that it is sent."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    yield process
    usage.kill_tree(process.pid)
    process.wait()


def start_child(parent: subprocess.Popen[str]) -> int:
    assert parent.stdin is not None and parent.stdout is not None
    parent.stdin.write("\n")
    return int(parent.stdout.readline())


def test_children_are_found_when_they_start_and_gone_when_they_end(parent: subprocess.Popen[str]) -> None:
    tree = usage.Tree(parent.pid)
    assert tree.look() == [parent.pid]
    started = []
    for _ in range(3):
        started.append(start_child(parent))
        subprocess.run(["true"], check=True)  # a stranger
        assert tree.look() == sorted([parent.pid, *started])
    assert sorted(one.pid for one in usage.list_tree(parent.pid)) == tree.look()
    count, resident, seconds = tree.resident_and_seconds()
    used = [psutil.Process(number) for number in (parent.pid, *started)]
    assert count == 4 and resident >= 3 * (64 << 20) and seconds > 0
    assert resident == pytest.approx(sum(one.memory_info().rss for one in used), rel=0.05)
    gone = started.pop()
    os.kill(gone, 9)
    for _ in range(200):
        if psutil.Process(gone).status() == psutil.STATUS_ZOMBIE:
            break
    assert tree.resident_and_seconds()[1] < resident - (32 << 20)


def test_looks_at_all_processes_and_at_the_younger_ones_find_the_same(parent: subprocess.Popen[str]) -> None:
    tree, found = usage.Tree(parent.pid), []
    for n in range(2 * usage.FULL + 1):
        if n % 5 == 1:
            found.append(start_child(parent))
        assert tree.look() == sorted([parent.pid, *found]), n


def test_the_children_of_children_are_found() -> None:
    with subprocess.Popen(["sh", "-c", "read x; sh -c 'sleep 60; true' & wait"], stdin=subprocess.PIPE) as shell:
        tree = usage.Tree(shell.pid)
        assert tree.look() == [shell.pid] and shell.stdin is not None
        shell.stdin.write(b"\n")
        shell.stdin.flush()
        while len(psutil.Process(shell.pid).children(recursive=True)) < 2:
            pass
        assert tree.look() == sorted(one.pid for one in usage.list_tree(shell.pid)) and len(tree.members) == 3
        usage.kill_tree(shell.pid)


def test_a_thread_is_no_process() -> None:
    tree, done = usage.Tree(os.getpid()), threading.Event()
    before = tree.look()
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert tree.look() == before and thread.native_id not in before
    done.set()
    thread.join()


def test_a_process_that_is_gone_uses_nothing() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert usage.Tree(process.pid).resident_and_seconds() == (0, 0, 0.0)
