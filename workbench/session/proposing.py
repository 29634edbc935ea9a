"""Versions come about: a proposer is asked, and what it wrote is appended and tested."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Generator

from workbench import plugins
from workbench.errors import UserError
from workbench.policies.chain import ChainSettings
from workbench.proposers.binding import candidate_of
from workbench.proposers.llm.prompts import workload
from workbench.protocols import Options, Proposer, RunContext
from workbench.records import Ask, Candidate, Event, Exchange, Proposal, Version
from workbench.session.log import Reference
from workbench.session.model_settings import ModelSettings
from workbench.session.profiling import Profiling
from workbench.session.testing import Testing, is_correct

NO_OPTIONS: Options = {}


class Proposing:
    """Asks proposers for versions of a session."""

    def __init__(self, testing: Testing, profiling: Profiling, model: ModelSettings) -> None:
        self.log, self.testing, self.profiling, self.model = testing.log, testing, profiling, model

    def generate(
        self,
        by: str,
        instruction: str = "",
        options: Options = NO_OPTIONS,
        *,
        test: bool = True,
        depth: int | None = None,
        chain: ChainSettings | None = None,
        start: Reference | None = None,
        largest_gain_first: bool = False,
    ) -> Version | None:
        """The next version from `start`, else from the baseline; None when the proposer has no further idea.

        `depth` counts optimisation steps. A language model is shown the profile from the depth on that `chain` says.
        """
        proposer = plugins.load("proposer", by)
        base = self.log.version(start) if start is not None else self.log.baseline
        if depth is None:
            depth = base.proposal.depth + 1 if base else 0
        shows = base is not None and proposer.needs_model and self._shows_profile(chain or ChainSettings(), depth)
        profile = self.profiling.findings(base) if base is not None and shows else ""
        ask = dataclasses.replace(self._ask(base), instruction=instruction, depth=depth, profile=profile)
        return self._make(proposer, ask, options, test=test, largest_gain_first=largest_gain_first)

    def _shows_profile(self, settings: ChainSettings, depth: int) -> bool:
        kind = self.log.facts.kind
        return settings.shows_profile("elementwise" if kind == "elementwise" else workload(kind), depth)

    def _ask(self, base: Version | None) -> Ask:
        return Ask(
            problem=self.log.problem,
            facts=self.log.facts,
            history=self.log.versions,
            baseline=base,
            constraints=self.log.constraints,
            arch=self.log.arch,
            device=self.log.device,
        )

    def repair(self, reference: Reference, by: str, options: Options = NO_OPTIONS) -> Version | None:
        """A tested version that repairs a failed one."""
        broken = self.log.version(reference)
        if not broken.trials or is_correct(broken):
            raise UserError(f"v{broken.number} has not failed, so there is nothing to repair")
        ask = dataclasses.replace(self._ask(self.log.baseline), depth=broken.proposal.depth, repair=broken)
        return self._make(plugins.load("proposer", by), ask, options)

    def answer(self, question: str, reference: Reference | None, by: str, options: Options = NO_OPTIONS) -> str:
        """An answer about a version (the baseline, or else the latest); nothing is changed."""
        log = self.log
        base = log.version(reference) if reference is not None else log.baseline or log.version("latest")
        notes: list[str] = []
        forget = log.subscribe(lambda event: notes.append(event.message) if event.kind == "note" else None)
        try:
            findings = self.profiling.findings(base)
            ask = dataclasses.replace(self._ask(base), question=question, profile=findings)
            self._make(plugins.load("proposer", by), ask, options, test=False)
        finally:
            forget()
        return notes[-1] if notes else ""

    def choices(self, count: int, by: str, instruction: str, options: Options = NO_OPTIONS) -> tuple[Version, ...]:
        """Several tested proposals from the same baseline."""
        if not 1 <= count <= 8:
            raise UserError(f"{count} proposals: ask for 1 to 8")
        base = self.log.baseline
        start = base.number if base else None
        found = [self.generate(by, instruction, options, start=start) for _ in range(count)]
        return tuple(self.log.version(version.number) for version in found if version is not None)

    def _make(
        self, proposer: Proposer, ask: Ask, options: Options, *, test: bool = True, largest_gain_first: bool = False
    ) -> Version | None:
        """Let a proposer answer: show its events, keep its calls of a model, append what it wrote as a version."""
        plugins.check_options(proposer, options)
        context = dataclasses.replace(
            self.testing.context,
            options=options,
            model=self.model.access() if proposer.needs_model else None,
            largest_gain_first=largest_gain_first,
        )
        doing = "answering" if ask.question else "writing a version"
        self.log.say(Event(kind="proposing", message=f"{proposer.name} is {doing}"))
        try:
            proposal, exchanges = self._listen(proposer, ask, context)
        finally:
            self.model.keep_spent()
        if proposal is None:
            return None
        return self.testing.add(dataclasses.replace(proposal, exchanges=exchanges), test=test)

    def _listen(self, proposer: Proposer, ask: Ask, context: RunContext) -> tuple[Proposal | None, tuple[int, ...]]:
        """The proposal, and the numbers of the calls behind it."""
        proposal: Proposal | None = None
        exchanges: list[int] = []
        items = proposer.propose(ask, context)
        try:
            for item in items:
                if isinstance(item, Exchange):
                    exchanges.append(self.log.add_exchange(item))
                    self.model.keep_spent()
                elif isinstance(item, Proposal):
                    proposal = item
                elif item.kind == "token":
                    self.log.show(item)
                else:
                    self.log.say(item)
                context.raise_if_stopped()
        finally:
            if isinstance(items, Generator):
                items.close()
        return proposal, tuple(exchanges)

    # ---- the person's own versions ----------------------------------------------------------------------------------

    def edit(self, source: str, title: str, reason: str, *, parent: Reference | None, test: bool) -> Version:
        """The person's own version of the whole file."""
        return self._add_own(Candidate(source=source), title or "edited by hand", reason, parent=parent, test=test)

    def program(self, text: str, title: str, reason: str, *, parent: Reference | None, test: bool) -> Version:
        """The person's own version as a program of muCUTLASS.

        What the program does not say (arch, layouts of operands) is taken from the session and the problem.
        """
        candidate = candidate_of(self.log.problem, self.log.facts, self.log.arch, text)
        return self._add_own(candidate, title or textwrap.shorten(text, 80), reason, parent=parent, test=test)

    def _add_own(
        self, candidate: Candidate, title: str, reason: str, *, parent: Reference | None, test: bool
    ) -> Version:
        base = self.log.version(parent) if parent is not None else self.log.baseline
        proposal = Proposal(
            candidate=candidate, title=title, reason=reason, by="human", parent=base.number if base else None
        )
        return self.testing.add(proposal, test=test)
