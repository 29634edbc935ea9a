"""Processes that work until they are killed, one after the other, each forked from one that has imported everything."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path


class Nursery:
    """The process of a script that calls `serve`; it has one child at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.orders, self.replies = process.stdin, process.stdout

    def begin(self, *arguments: str | int) -> int:
        """Let a child work on arguments; returns its number as soon as it is there."""
        print(json.dumps(arguments), file=self.orders, flush=True)
        return int(self.replies.readline())

    def read_rest(self) -> list[str]:
        """What the child printed before it ended, by a signal or because its work was done.

        The last line may be cut off.
        """
        lines = []
        while (line := self.replies.readline()) != "gone\n":
            assert line, "the process that makes children has ended"
            lines.append(line.rstrip("\n"))
        return lines[:-1] if lines[-1] == "" else lines

    def kill(self, number: int) -> list[str]:
        """Kill the child, whatever it does; returns what it printed."""
        os.kill(number, signal.SIGKILL)
        return self.read_rest()


@contextlib.contextmanager
def start_nursery(script: str, *arguments: str, preload: Path | None = None) -> Iterator[Nursery]:
    """The process of a script beside this file, under a library that replaces calls of the C library."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name(script)), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | ({"LD_PRELOAD": str(preload)} if preload is not None else {}),
    )
    nursery = Nursery(process)
    try:
        yield nursery
    finally:
        nursery.orders.close()
        assert process.wait(60) == 0
        nursery.replies.close()


def serve(work: Callable[..., None]) -> None:
    """For each list of arguments on standard input one child, which prints its number and what it did.

    "gone", on a line of its own, once it has ended: without a buffer a line and its end are two writes, and a kill
    falls between them too.
    """
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                print(os.getpid(), flush=True)
                work(*json.loads(line))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.waitpid(child, 0)
        print("\ngone", flush=True)
