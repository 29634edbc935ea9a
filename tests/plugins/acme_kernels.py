"""A worked third-party package: a proposer that asks the session's model, an executor, and a
probe. See its entry points in
test_third_party.py.

A proposer is a class with a name, what it needs, and `propose`. Deriving from the protocol gives the other attributes
their defaults. The session hands in the model client, the tools, the options and the stop event as a `RunContext`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from workbench.errors import NoUsableReply, UserError
from workbench.probes import KernelProbe, Signals
from workbench.probes.base import moves
from workbench.protocols import Executor, Proposer, RunContext
from workbench.records import (
    Advice,
    Ask,
    Bound,
    Candidate,
    Check,
    Event,
    Exchange,
    Facts,
    Job,
    Measure,
    Message,
    Outcome,
    Problem,
    Profile,
    Proposal,
)


class Acme(Proposer):
    """Asks the model for a kernel in the style that the option `style` names, and serves one round of tool calls."""

    name = "acme"
    needs_model = True
    option_names = ("style",)

    def why_not(self) -> str | None:
        """Always available, given a model."""
        return None

    def propose(self, ask: Ask, context: RunContext, /) -> Iterator[Event | Exchange | Proposal]:
        """One version; every call of the model is yielded, so that the session keeps it."""
        access = context.model
        if access is None:
            raise UserError("acme needs a model")
        style = context.options.get("style", "plain")
        messages: list[Message] = [
            {"role": "user", "content": f"Write a {style} kernel for this, for {ask.arch}:\n{ask.problem.source}"}
        ]
        talk, served = list(messages), list[tuple[str, str, str]]()
        reply = yield from _with_tokens(access.client.stream(talk, tools=access.tools.specifications))
        if reply.tool_calls:
            for call in reply.tool_calls:
                served.append((call.name, call.arguments, access.tools.call(call.name, call.arguments)))
            talk.append({"role": "user", "content": "The tools say:\n" + "\n".join(result for *_, result in served)})
            reply = yield from _with_tokens(access.client.stream(talk))
        yield Exchange(
            purpose="synthesis",
            model=access.client.model_name,
            messages=tuple((str(message["role"]), str(message["content"])) for message in messages),
            reply=reply.text,
            tools=tuple(served),
            tokens_in=reply.tokens_in,
            tokens_out=reply.tokens_out,
        )
        if "class ModelNew" not in reply.text:
            raise NoUsableReply("acme: the model wrote no ModelNew")
        yield Proposal(
            candidate=Candidate(source=reply.text),
            title=f"{style} kernel",
            reason="the model wrote it",
            by=self.name,
            parent=ask.baseline.number if ask.baseline else None,
        )


def _with_tokens(stream):  # type: ignore[no-untyped-def]
    """Show the text of a stream while it comes; returns its reply."""
    while True:
        try:
            yield Event(kind="token", message=next(stream) or "")
        except StopIteration as end:
            return end.value


class AlwaysRight(Executor):
    """An executor of one's own: it believes every candidate."""

    name = "always-right"
    default_arch = "sm_90a"

    def why_not(self) -> str | None:
        """Always available."""
        return None

    def admit(self, problem: Problem, facts: Facts, device: str) -> None:
        """Takes any problem but one."""
        if problem.name == "refused":
            raise UserError("always-right does not run this problem")

    def run(self, job: Job, context: RunContext, /) -> Outcome:
        """One check that passed."""
        context.progress(Event(kind="running", message="believing"))
        check = Check(case="c", trial=0, timed=False, passed=True)
        return Outcome(executor=self.name, arch=job.arch, device=job.device, checks=(check,))


class LargeBlocks(KernelProbe):
    """A probe of one's own. `KernelProbe` asks about each kernel of a profile and keeps the advice with the most to
    gain; `advise` sets severity and provenance. A metric that is None is unknown: say nothing then.
    """

    name = "acme_large_blocks"
    question = "Do large CTAs leave SMs with few of them?"
    classes = frozenset({"memory", "latency"})

    def examine(self, kernel: Signals, profile: Profile, bound: Bound | None, source: str) -> Advice | None:
        """Trigger: CTAs of 1024 threads, while the kernel waits for most of its time."""
        threads = math.prod(kernel.metrics.block)
        if threads < 1024 or kernel.waiting < 0.5:
            return None
        return self.advise(
            kernel,
            profile,
            gain=kernel.gain({"latency": 0.8}),  # the call's time if waiting took 0.8 of what it takes
            cause=f"CTAs of {threads} threads start and end together",
            action="use CTAs of 256 threads, so that one loads while another stores",
            evidence=(Measure(name="threads of a CTA", value=float(threads), limit=1024.0),),
            changes=moves(("threads", "less"), ("threads_per_row", "less")),
        )


class Halfway:
    """What somebody wrote against an older protocol."""

    name = "halfway"

    def why_not(self) -> str | None:
        """Always available."""
        return None
