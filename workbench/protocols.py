"""The protocols of plug-ins. Their methods take and return records. plugins.py finds plug-ins by entry point.

Each call gets its settings, its model and its stop event as a `RunContext`; the core sets nothing on a plug-in. The
core does not decide by the name of a plug-in but by its attributes. A class that derives from a protocol inherits
their defaults.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Protocol, runtime_checkable

from workbench.errors import Stopped
from workbench.records import (
    Advice,
    Ask,
    Bound,
    Event,
    Exchange,
    Facts,
    Job,
    Message,
    Opened,
    Outcome,
    Problem,
    Profile,
    Proposal,
    Reply,
    record,
)

Progress = Callable[[Event], None]
Options = Mapping[str, object]  # name -> value from the user; the plug-in checks the values


class ModelClient(Protocol):
    """A language model at an endpoint, within the budget of the session."""

    @property
    def model_name(self) -> str:
        """The name of the model at the endpoint."""

    def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        schema: Mapping[str, object] | None = None,
    ) -> Generator[str | None, None, Reply]:
        """Yield text as it arrives (None while there is none) and return the `Reply`.

        Closing the generator ends the call. `tools` lists the tools that the model may call, `schema` is the JSON
        schema of the answer; both are omitted for a server that refuses them. Raises `BudgetExceeded` before a call
        and `LlmError` after a failure.
        """


@record
class Tools:
    """Tools that a model may call."""

    specifications: tuple[Mapping[str, object], ...]  # as a chat completion request lists them
    call: Callable[[str, str], str]  # (name, arguments as JSON text) -> text for the model; never raises


@record
class ModelAccess:
    """A session's language model with its tools and prompt settings."""

    client: ModelClient
    tools: Tools
    templates: Path | None = None  # folder of prompt templates that replace shipped ones of the same name
    language: str = "cute"  # that the model writes: cute or mucutlass


def _ignore(event: Event) -> None:
    """Discard an event."""


@record
class RunContext:
    """Everything that a plug-in gets for one call besides its job."""

    stop: threading.Event = field(default_factory=threading.Event)  # set to end the work
    progress: Progress = _ignore  # shows an event during the work
    options: Options = field(default_factory=dict)  # its keys are among the plug-in's `option_names`
    model: ModelAccess | None = None  # set for a proposer with `needs_model`
    largest_gain_first: bool = False  # propose the best step first: the caller may stop after any step

    def raise_if_stopped(self) -> None:
        """Raise `Stopped` if `stop` is set."""
        if self.stop.is_set():
            raise Stopped


PLAIN = RunContext()  # without options; its events are discarded


@runtime_checkable
class Executor(Protocol):
    """Runs jobs."""

    name: str
    full_size: bool = False  # runs the sizes of the problem file with a GPU's limits; else the emulated sizes
    times_rivals: bool = False  # times the parent version in turns with the candidate
    runs_quick: bool = False  # heeds `Job.quick`, and runs several such jobs at a time from several threads
    default_arch: str = "sm_80"  # for a session without an arch
    auto_rank: int = 0  # `executors.choose("auto")` takes the available one with the highest rank; 0 = never

    def why_not(self) -> str | None:
        """None if this executor can run here, else one sentence: why not, and how to get it."""

    def device_name(self) -> str | None:
        """The name of the GPU on which it measures (`analysis.devices.find`); None if it can stand for any device."""
        return None

    def admit(self, problem: Problem, facts: Facts, device: str) -> None:
        """Raise `UserError` if the problem cannot run for `device`. Called before a session is created."""

    def can_answer(self, problem: Problem, device: str, arch: str, program: str) -> bool:
        """Whether it can run a program of muCUTLASS for a problem; one that replays recordings knows some only."""
        return True

    def run(self, job: Job, context: RunContext, /) -> Outcome:
        """Run the candidate on the job's cases and compare its outputs with the reference.

        A failure of the candidate is part of the outcome. Raises `Unavailable`, `Stopped` or `WorkerLost`, and
        `ProblemError` if the problem itself does not run here.
        """


@runtime_checkable
class Inspector(Protocol):
    """Determines the facts of a problem in a trusted worker, without any candidate."""

    def open(self, problem: Problem, /) -> Opened:
        """The problem as it is understood, and its facts. Raises `ProblemError` with its line if it cannot be used."""


@runtime_checkable
class Proposer(Protocol):
    """Writes candidates."""

    name: str
    needs_model: bool = False  # gets `context.model`; after an unusable reply it may be called again
    needs_source: bool = False  # generates nothing itself: the user gives the source as an option
    option_names: tuple[str, ...] = ()  # what `context.options` may hold

    def why_not(self) -> str | None:
        """None if it can run here, else one sentence: why not, and how to get it. Ignores a missing model."""

    def propose(self, ask: Ask, context: RunContext, /) -> Iterator[Event | Exchange | Proposal]:
        """Yield events and calls of a model during the work, and at the end one proposal.

        Without a further idea, or for a question, it yields no proposal; the last item is an event of kind `note`.
        """


@runtime_checkable
class Profiler(Protocol):
    """Profiles one version."""

    name: str
    reads_emulation: bool = False  # needs the outcome of one more run on the emulator, with SASS
    option_names: tuple[str, ...] = ()  # what `context.options` may hold

    def why_not(self) -> str | None:
        """None if it can run here, else one sentence: why not, and how to get it."""

    def profile(self, job: Job, outcome: Outcome, context: RunContext, /) -> Profile:
        """The profile of the job's candidate; `outcome` is the result of a run (see `reads_emulation`).

        Values that it cannot determine are omitted and listed in the notes. Raises `Unavailable`, `Stopped` or
        `WorkerLost`, and `UserError` for a candidate that cannot be profiled.
        """


@runtime_checkable
class Probe(Protocol):
    """A micro-profiling tool: looks at one question about a profile, trigger -> analysis -> recommendation."""

    name: str
    question: str  # that it answers, with a question mark
    classes: frozenset[str] = frozenset({"memory", "compute", "latency"})  # of kernels that it suits

    def why_not(self) -> str | None:
        """None if it can run here, else one sentence: why not, and how to get it."""
        return None

    def look(self, profile: Profile, bound: Bound | None, source: str, /) -> Advice | None:
        """The advice on a version, `source` being its file; None if there is nothing to say.

        The answer depends on the arguments alone. A field of the profile that is None is unknown.
        """
