"""Holds a session and works: versions are made, tested by a light double, accepted whole or in part, rejected, undone.

Each decision is printed after the call that made it returned.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from nursery import serve

from workbench.errors import WorkbenchError
from workbench.protocols import Executor, RunContext
from workbench.records import Check, Decision, Facts, Job, Outcome, Problem, Version
from workbench.session import DATABASE, Session

FACTS = Facts(
    problem_hash="h", kind="other", init_source="", forward_arguments=(), graph=(), parameters=(), cases=(), work=()
)


class Double(Executor):
    """An executor that says of every candidate that it is right."""

    name = "double"

    def why_not(self) -> str | None:
        return None

    def admit(self, problem: Problem, facts: Facts, device: str) -> None:
        """Runs anything."""

    def run(self, job: Job, context: RunContext, /) -> Outcome:
        return Outcome(
            executor=self.name,
            arch=job.arch,
            device=job.device,
            checks=(Check(case="c", trial=0, timed=False, passed=True),),
        )


def open_session(folder: Path) -> Session:
    """The session in a folder, made anew if there is none or if it was interrupted while it was made."""
    if (folder / DATABASE).exists():
        try:
            return Session.open(folder, executor=Double())
        except WorkbenchError as error:
            if "interrupted while it was made" not in str(error):
                raise
            print("removed", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    return Session.create(
        Problem(name="p", source="s"), root=folder.parent, name=folder.name, executor=Double(), facts=FACTS
    )


def edit(session: Session, number: int) -> Version:
    """A version that differs from its parent in two hunks."""
    return session.edit(f"# version {number}\n" + "x = 1\n" * 50 + f"y = {number}\n")


def decide(session: Session, kind: str) -> list[Decision]:
    """Make a version and decide on it, or undo. Returns the decisions that came with that."""
    before = len(session.decisions())
    if kind == "undo":
        session.undo()
    else:
        number = edit(session, len(session.versions) + 1).number
        if kind == "reject":
            session.reject(number, "slow")
        else:
            session.accept(number, hunks=(1,) if kind == "accept hunks" and session.baseline else None)
    return list(session.decisions()[before:])


def say(session: Session, decisions: list[Decision]) -> None:
    """Print decisions that were made, and the head of the log that has them."""
    for decision in decisions:
        print(f"{decision.kind} {decision.version} {decision.source_hash} {session.log.store.head()}", flush=True)


def work(folder: str, seed: int) -> None:
    """Work forever; the test kills this process."""
    session, draw = open_session(Path(folder)), random.Random(seed)
    while True:
        kind = draw.choice(("accept", "accept", "accept hunks", "reject", "undo"))
        if kind != "undo" or session.log.last_decision:
            say(session, decide(session, kind))


if __name__ == "__main__":
    serve(work)
