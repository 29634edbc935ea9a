"""Every seam of the workbench: records in, records out. Plug-ins are found by entry point (plugins.py).

A plug-in gets what it needs for one call as a `RunContext`. Nothing is set on a plug-in from outside, and the core
knows no plug-in by its name: what it must know of one is an attribute of the plug-in. A class that derives from a
protocol inherits the defaults of these attributes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Protocol, runtime_checkable

from workbench.errors import Stopped
from workbench.records import (
    Ask,
    Event,
    Exchange,
    Facts,
    Job,
    Message,
    Outcome,
    Problem,
    Profile,
    Proposal,
    Reply,
    record,
)

Progress = Callable[[Event], None]
Options = Mapping[str, object]  # what a person gave a plug-in by name; the plug-in checks the values


class ModelClient(Protocol):
    """A language model at an endpoint, within the budget of the session."""

    @property
    def model_name(self) -> str:
        """What the endpoint calls the model."""

    def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        schema: Mapping[str, object] | None = None,
    ) -> Generator[str | None, None, Reply]:
        """Yield text as it arrives (None while there is none) and return the `Reply`.

        Closing the generator ends the call. `tools` are specifications of tools that the model may call, `schema` is
        the JSON schema of the answer; both are left out where the server refuses them. Raises `BudgetExceeded` before a
        call and `LlmError` after a failure.
        """


@record
class Tools:
    """Tools that a model may call."""

    specifications: tuple[Mapping[str, object], ...]  # as a chat completion request lists them
    call: Callable[[str, str], str]  # (name, arguments as JSON text) -> text for the model; never raises


@record
class ModelAccess:
    """A session's language model, and how the session wants it asked."""

    client: ModelClient
    tools: Tools
    templates: Path | None = None  # a folder whose prompt templates replace the shipped ones, file by file
    language: str = "cute"  # what the model writes: cute or mucutlass


def _ignore(event: Event) -> None:
    """Where nobody listens."""


@record
class RunContext:
    """What a plug-in is given for one call beside its job."""

    stop: threading.Event = field(default_factory=threading.Event)  # set when the person wants the work to end
    progress: Progress = _ignore  # shows an event while the work goes on
    options: Options = field(default_factory=dict)  # by `option_names` of the plug-in
    model: ModelAccess | None = None  # of every proposer with `needs_model`
    largest_gain_first: bool = False  # the caller may stop after any step, so the best step comes first

    def raise_if_stopped(self) -> None:
        """Raise `Stopped` when the work is to end."""
        if self.stop.is_set():
            raise Stopped


PLAIN = RunContext()  # nobody listens and nobody stops


@runtime_checkable
class Executor(Protocol):
    """Runs jobs."""

    name: str
    full_size: bool = False  # runs the problem's own sizes under a GPU's limits; else the emulated sizes
    times_rivals: bool = False  # times the parent version in turns with the candidate
    default_arch: str = "sm_80"  # of a session that names none
    auto_rank: int = 0  # `executors.choose("auto")` takes the highest that can run here; 0 is never taken

    def why_not(self) -> str | None:
        """None if this executor can run here, else one sentence: why not, and how to get it."""

    def admit(self, problem: Problem, facts: Facts, device: str) -> None:
        """Raise `UserError` for a problem that cannot run for `device`; called before a session is made."""

    def run(self, job: Job, context: RunContext, /) -> Outcome:
        """Run the candidate at the job's cases and compare with the reference.

        A candidate's failure is in the outcome. Raises `Unavailable`, `Stopped` or `WorkerLost`, and `ProblemError` for
        a problem that turns out not to run here.
        """


@runtime_checkable
class Inspector(Protocol):
    """Finds out about a problem in a trusted worker, without any candidate."""

    def inspect(self, problem: Problem, /) -> Facts:
        """Facts of the problem; raises `ProblemError` with file and line when it cannot be used."""


@runtime_checkable
class Proposer(Protocol):
    """Writes candidates."""

    name: str
    needs_model: bool = False  # `context.model` is set; a reply that cannot be used may be asked for again
    needs_source: bool = False  # writes nothing of its own: a person gives the source as an option
    option_names: tuple[str, ...] = ()  # what `context.options` may hold

    def why_not(self) -> str | None:
        """None if it can run here, else one sentence: why not, and how to get it. A missing model is not its matter."""

    def propose(self, ask: Ask, context: RunContext, /) -> Iterator[Event | Exchange | Proposal]:
        """The next candidate for `ask`: events and calls of a model while it works, then exactly one proposal.

        Without a further idea, or for a question, the last item is an event of kind `note` and there is no proposal.
        """


@runtime_checkable
class Profiler(Protocol):
    """Looks closer at one version."""

    name: str
    reads_emulation: bool = False  # needs the outcome of one more run on the emulator, with SASS
    option_names: tuple[str, ...] = ()  # what `context.options` may hold

    def why_not(self) -> str | None:
        """None if it can run here, else one sentence: why not, and how to get it."""

    def profile(self, job: Job, outcome: Outcome, context: RunContext, /) -> Profile:
        """The profile of the job's candidate; `outcome` is what a run left (see `reads_emulation`).

        What cannot be seen is left out and named in the notes. Raises `Unavailable`, `Stopped` or `WorkerLost`, and
        `UserError` for a candidate that cannot be profiled.
        """
