"""Holds a session and works with the real emulator: the planner's versions, tested, accepted.

Each accept is printed after it returned.
"""

from __future__ import annotations

import os
from pathlib import Path

from nursery import serve

from workbench.problems import load
from workbench.session import DATABASE, Session


def work(folder: Path) -> None:
    """Work until the test kills this process; edits of the best version follow when the planner has no more ideas."""
    if (folder / DATABASE).exists():
        session = Session.open(folder)
    else:
        session = Session.create(
            load("relu", settings={"batch_size": 8, "dim": 64}),
            root=folder.parent,
            name=folder.name,
            executor="emulator",
        )
    print(f"ready {os.getpid()}", flush=True)
    while True:
        version = session.generate() or session.edit(
            session.version("baseline").proposal.candidate.source + f"\n# {len(session.versions)}\n"
        )
        if version.trials[-1].verdict.correct:
            accepted = session.accept(version.number)
            print(f"accepted {accepted.number} {accepted.source_hash}", flush=True)


if __name__ == "__main__":
    serve(work)
