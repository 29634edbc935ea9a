"""Processes that work until they are killed, one after the other, each forked from one that has imported everything."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path


def serve(work: Callable[[Path], None]) -> None:
    """For each line of standard input one process, which prints "ready" and its number and what it did.

    "gone" once it was killed.
    """
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                work(Path(sys.argv[1]))
            finally:
                os._exit(1)
        os.waitpid(child, 0)
        print("gone", flush=True)
