"""Holds a session and works: versions are made, tested by a light double, accepted.

Each accept is printed after it returned.
"""

from __future__ import annotations

import os
from pathlib import Path

from nursery import serve

from workbench.protocols import Executor, RunContext
from workbench.records import Check, Facts, Job, Outcome, Problem
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


def work(folder: Path) -> None:
    """Work forever; the test kills this process."""
    if (folder / DATABASE).exists():
        session = Session.open(folder, executor=Double())
    else:
        session = Session.create(
            Problem(name="p", source="s"), root=folder.parent, name=folder.name, executor=Double(), facts=FACTS
        )
    print(f"ready {os.getpid()}", flush=True)
    while True:
        version = session.accept(session.edit(f"# version {len(session.versions) + 1}\n" + "x = 1\n" * 50).number)
        print(f"accepted {version.number} {version.source_hash}", flush=True)


if __name__ == "__main__":
    serve(work)
