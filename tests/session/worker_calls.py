"""Does one step on a session under `killing_calls.c`, which kills the process at its n-th call that changes a file."""

from __future__ import annotations

import ctypes
from pathlib import Path

from nursery import serve
from worker_double import decide, open_session, say


def work(folder: str, kind: str, number: int, torn: int) -> None:
    """Open (or make) a session and decide on a version; then say how many calls were left until the kill."""
    library = ctypes.CDLL(None)
    library.kill_at(number, torn)
    session = open_session(Path(folder))
    if kind != "create":
        say(session, decide(session, kind))
    session.close()
    left = library.calls_left()
    print(f"left {left}", flush=True)


if __name__ == "__main__":
    serve(work)
