"""Every seam of the workbench: one or two methods, records in, records out. Plug-ins are found by entry point (plugins.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

from workbench.records import Ask, Event, Facts, Job, Outcome, Problem, Profile, Proposal

Progress = Callable[[Event], None]


@runtime_checkable
class Executor(Protocol):
    """Runs jobs. A candidate's failure is in the outcome; raises `Unavailable`, `Stopped` or `WorkerLost` only."""

    name: str

    def why_not(self) -> str | None:
        """None if this executor can run here, else one sentence: why not, and how to get it."""

    def run(self, job: Job, /, *, progress: Progress | None = None) -> Outcome:
        """Run the candidate at the job's cases and compare with the reference."""


@runtime_checkable
class Inspector(Protocol):
    """Finds out about a problem in a trusted worker, without any candidate."""

    def inspect(self, problem: Problem, /) -> Facts:
        """Facts of the problem; raises `ProblemError` with file and line when it cannot be used."""


@runtime_checkable
class Proposer(Protocol):
    """Writes candidates. Yields events while it works and exactly one proposal, last."""

    name: str

    def why_not(self) -> str | None:
        """None if it can run here, else one sentence: why not, and how to get it."""

    def propose(self, ask: Ask, /) -> Iterator[Event | Proposal]:
        """The next candidate for `ask`; yields no proposal (only a final `note` event) when it has no further idea."""


@runtime_checkable
class Profiler(Protocol):
    """Looks closer at one version. What cannot be seen is left out and named in the profile's notes; raises `Unavailable`, `Stopped` or `WorkerLost` only."""

    name: str

    def why_not(self) -> str | None:
        """None if it can run here, else one sentence: why not, and how to get it."""

    def profile(self, job: Job, outcome: Outcome, /) -> Profile:
        """The profile of the job's candidate; `outcome` is what its last run left, for what needs no second run."""
