"""Holds a session and works with the real emulator: the planner's versions, tested, accepted.

Each accept is printed after it returned.
"""

from __future__ import annotations

from pathlib import Path

from nursery import serve
from worker_double import say

from workbench.problems import load
from workbench.session import DATABASE, Session


def work(name: str) -> None:
    """Work until the test kills this process; edits of the best version follow when the planner has no more ideas."""
    folder = Path(name)
    if (folder / DATABASE).exists():
        session = Session.open(folder)
    else:
        session = Session.create(
            load("relu", settings={"batch_size": 8, "dim": 64}),
            root=folder.parent,
            name=folder.name,
            executor="emulator",
        )
    while True:
        version = session.generate() or session.edit(
            session.version("baseline").proposal.candidate.source + f"\n# {len(session.versions)}\n"
        )
        if version.trials[-1].verdict.correct:
            before = len(session.decisions())
            session.accept(version.number)
            say(session, list(session.decisions()[before:]))


if __name__ == "__main__":
    serve(work)
