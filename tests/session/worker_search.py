"""Searches a session on recorded times, from where it was, until it is killed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from nursery import serve

from workbench.session import DATABASE, Session

SEED = 3


def open_session(folder: Path) -> Session:
    """The session in a folder, a new one on relu's landscape if there is none."""
    if (folder / DATABASE).exists():
        return Session.open(folder)
    return Session.create("relu", root=folder.parent, name=folder.name, executor="replay")


def work(folder: str) -> None:
    """Search, and at its end wait; the test kills this process."""
    with open_session(Path(folder)) as session:
        session.search(sys.argv[3], int(sys.argv[2]), seed=SEED)
        signal.pause()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with open_session(folder.with_name("whole")) as first:  # what it imports and computes, each fork has then
        first.search(sys.argv[3], int(sys.argv[2]), seed=SEED)
    open_session(folder).close()
    serve(work)
