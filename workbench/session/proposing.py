"""Makes versions: runs a proposer, or takes the user's text, and adds the result to the log."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Generator

from workbench import lessons, plugins, search
from workbench.errors import UserError
from workbench.plugins import DEFAULTS
from workbench.policies.chain import ChainSettings
from workbench.probes import directives
from workbench.proposers.advised import choose_advice
from workbench.proposers.binding import candidate_of
from workbench.proposers.llm.prompts import workload
from workbench.protocols import ModelAccess, Options, Proposer, RunContext
from workbench.records import Ask, Candidate, Diagnosis, Event, Exchange, Proposal, Version
from workbench.records.proposal import HUMAN
from workbench.session.log import Reference
from workbench.session.model_settings import ModelSettings
from workbench.session.profiling import Diagnosing, Profiling
from workbench.session.testing import Testing, is_correct
from workbench.structure.kernels.kernel_rules import write_rules
from workbench.structure.kernels.landscape_rows import problem_attributes

NO_OPTIONS: Options = {}


class Proposing:
    """Makes versions of a session by proposers or from the user's text."""

    def __init__(self, testing: Testing, profiling: Profiling, diagnosing: Diagnosing, model: ModelSettings) -> None:
        self.log, self.testing, self.profiling, self.model = testing.log, testing, profiling, model
        self.diagnosing = diagnosing

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
        learnt: tuple[str, ...] = (),
    ) -> Version | None:
        """Make the next version from `start`, else from the baseline. None if the proposer has no further idea.

        `depth` counts optimisation steps. `chain` decides from which depth on a language model sees the profile.
        `learnt`: what a search has found so far.
        """
        proposer = plugins.load("proposer", by)
        base = self.log.version(start) if start is not None else self.log.baseline
        if depth is None:
            depth = base.proposal.depth + 1 if base else 0
        ask = dataclasses.replace(self.make_ask(base), instruction=instruction, depth=depth, learnt=learnt)
        if base is not None and proposer.needs_model and self._shows_profile(chain or ChainSettings(), depth):
            ask = self._add_feedback(ask, base)
        return self._run_proposer(proposer, ask, options, test=test, largest_gain_first=largest_gain_first)

    def _shows_profile(self, settings: ChainSettings, depth: int) -> bool:
        kind = self.log.facts.kind
        return settings.shows_profile("elementwise" if kind == "elementwise" else workload(kind), depth)

    def _add_feedback(self, ask: Ask, base: Version) -> Ask:
        """The request with what the model is shown of the profile of `base`, by the model setting `feedback`, of
        earlier sessions, and of recorded times.
        """
        feedback = self.model.feedback
        if feedback == "none":
            return ask
        ask = dataclasses.replace(ask, lessons=self._recall(ask), rules=self._find_rules(base))
        if feedback == "raw":
            return dataclasses.replace(ask, profile=self.profiling.findings(base))
        if feedback == "tools":
            return dataclasses.replace(ask, questions=self.diagnosing.questions(base))
        found = ask.diagnosis or self.diagnosing.try_diagnose(base)
        made = directives.write_directives(found, base.proposal.candidate, _show_example)
        return dataclasses.replace(ask, directives=made)

    def _recall(self, ask: Ask) -> tuple[str, ...]:
        """What other sessions of this user taught of such kernels, in sentences."""
        known = [lesson for lesson in lessons.read() if lesson.session != self.log.name]
        bottleneck = ask.diagnosis.bottleneck if ask.diagnosis is not None else ""
        return tuple(map(lessons.describe, lessons.find_similar(known, self.log.facts.kind, bottleneck)))

    def _find_rules(self, base: Version) -> tuple[str, ...]:
        """Rules on recorded times of problems of this kind, unless the model setting `rules` is off."""
        facts = self.log.facts
        work = next((work for work in facts.work if work.case == "full"), None)
        if work is None or not self.model.shows_rules:
            return ()
        context = problem_attributes(work.flops, work.least_bytes, self.log.problem.precision, facts.kind)
        return write_rules(facts.kind, base.proposal.candidate.program, context)

    def make_ask(self, base: Version | None) -> Ask:
        """The request to a proposer that improves `base`, else writes the first version."""
        self.testing.follow_gpu()
        return Ask(
            problem=self.log.problem,
            facts=self.log.facts,
            history=self.log.versions,
            baseline=base,
            constraints=self.log.constraints,
            arch=self.log.arch,
            device=self.log.device,
            diagnosis=self.diagnosing.find_known(base) if base is not None else None,
        )

    def apply_advice(self, found: Diagnosis, base: Version, which: int | str) -> Version | None:
        """Make and test the version that follows one advice of a diagnosis of `base`: a probe's, or by number from 1.

        For a version in muCUTLASS the planner moves the advised setting. Where that gives no program, the session's
        model gets the advice as a directive. Without a model None; the last note says what to do.
        """
        advice = choose_advice(found, which)
        ask = dataclasses.replace(self.make_ask(base), diagnosis=found, depth=base.proposal.depth + 1)
        made = self._run_proposer(plugins.load("proposer", DEFAULTS.proposer), ask, {"advice": which})
        if made is not None:
            return made
        if self.model.why_not() is not None:
            example = search.find_example(advice.pattern)
            note = f"edit v{base.number} by hand (%%cutegen edit), or set a model (%cutegen model): {advice.action}" + (
                f"; an example is {example.place}" if example is not None else ""
            )
            self.log.add_event(Event(kind="note", version=base.number, message=note))
            return None
        shown = _show_example(advice.pattern)
        text = directives.write_directive(advice, base.proposal.candidate.source)
        instruction = "\n".join(filter(None, (text, shown and f"For example, {shown}")))
        ask = dataclasses.replace(ask, instruction=instruction)
        return self._run_proposer(
            plugins.load("proposer", DEFAULTS.model_proposer), ask, NO_OPTIONS, advice=advice.probe
        )

    def repair(
        self, reference: Reference, by: str, options: Options = NO_OPTIONS, *, test: bool = True
    ) -> Version | None:
        """Make and test a version that repairs a failed one."""
        broken = self.log.version(reference)
        if not broken.trials or is_correct(broken):
            raise UserError(f"v{broken.number} has not failed, so there is nothing to repair")
        ask = dataclasses.replace(self.make_ask(self.log.baseline), depth=broken.proposal.depth, repair=broken)
        return self._run_proposer(plugins.load("proposer", by), ask, options, test=test)

    def answer(self, question: str, reference: Reference | None, by: str, options: Options = NO_OPTIONS) -> str:
        """Answer a question about a version (default: the baseline, else the latest). Adds no version."""
        log = self.log
        base = log.version(reference) if reference is not None else log.baseline or log.version("latest")
        notes: list[str] = []
        forget = log.subscribe(lambda event: notes.append(event.message) if event.kind == "note" else None)
        try:
            ask = self._add_feedback(dataclasses.replace(self.make_ask(base), question=question), base)
            self._run_proposer(plugins.load("proposer", by), ask, options, test=False)
        finally:
            forget()
        return notes[-1] if notes else ""

    def choices(self, count: int, by: str, instruction: str, options: Options = NO_OPTIONS) -> tuple[Version, ...]:
        """Make and test several versions from the same baseline."""
        if not 1 <= count <= 8:
            raise UserError(f"{count} proposals: ask for 1 to 8")
        base = self.log.baseline
        start = base.number if base else None
        found = [self.generate(by, instruction, options, start=start) for _ in range(count)]
        return tuple(self.log.version(version.number) for version in found if version is not None)

    def _run_proposer(
        self,
        proposer: Proposer,
        ask: Ask,
        options: Options,
        *,
        test: bool = True,
        largest_gain_first: bool = False,
        advice: str = "",
    ) -> Version | None:
        """Run a proposer, store its events and its model calls, and add its proposal as a version.

        `advice` names the probe whose advice the request gives the proposer as the one to follow.
        """
        plugins.check_options(proposer, options)
        context = dataclasses.replace(
            self.testing.context,
            options=options,
            model=self._access(ask) if proposer.needs_model else None,
            largest_gain_first=largest_gain_first,
        )
        doing = "answering" if ask.question else "writing a version"
        self.log.add_event(Event(kind="proposing", message=f"{proposer.name} is {doing}"))
        try:
            proposal, exchanges = self._collect_items(proposer, ask, context)
        finally:
            self.model.store_spent()
        if proposal is None:
            return None
        made = dataclasses.replace(proposal, exchanges=exchanges, advice=proposal.advice or advice)
        return self.testing.add(made, test=test)

    def _access(self, ask: Ask) -> ModelAccess:
        """The model with its tools, with the probes among them if it is to choose which look."""
        access = self.model.access()
        if not ask.questions or ask.baseline is None:
            return access
        return dataclasses.replace(access, tools=self.diagnosing.add_probe_tool(access.tools, ask.baseline))

    def _collect_items(
        self, proposer: Proposer, ask: Ask, context: RunContext
    ) -> tuple[Proposal | None, tuple[int, ...]]:
        """Consume the items of a proposer. Returns its proposal and the numbers of its model calls."""
        proposal: Proposal | None = None
        exchanges: list[int] = []
        items = proposer.propose(ask, context)
        try:
            for item in items:
                if isinstance(item, Exchange):
                    exchanges.append(self.log.add_exchange(item))
                    self.model.store_spent()
                elif isinstance(item, Proposal):
                    proposal = item
                elif item.kind == "token":
                    self.log.notify(item)
                else:
                    self.log.add_event(item)
                context.raise_if_stopped()
        finally:
            if isinstance(items, Generator):
                items.close()
        return proposal, tuple(exchanges)

    # ---- versions by the user ---------------------------------------------------------------------------------------

    def edit(self, source: str, title: str, reason: str, *, parent: Reference | None, test: bool) -> Version:
        """Add a version from the user's whole file."""
        return self._add_human_version(
            Candidate(source=source), title or "edited by hand", reason, parent=parent, test=test
        )

    def program(self, text: str, title: str, reason: str, *, parent: Reference | None, test: bool) -> Version:
        """Add a version from the user's muCUTLASS program.

        Arch and operand layouts default to those of the session and the problem.
        """
        candidate = candidate_of(self.log.problem, self.log.facts, self.log.arch, text)
        return self._add_human_version(candidate, title or textwrap.shorten(text, 80), reason, parent=parent, test=test)

    def _add_human_version(
        self, candidate: Candidate, title: str, reason: str, *, parent: Reference | None, test: bool
    ) -> Version:
        base = self.log.version(parent) if parent is not None else self.log.baseline
        proposal = Proposal(
            candidate=candidate, title=title, reason=reason, by=HUMAN, parent=base.number if base else None
        )
        return self.testing.add(proposal, test=test)


def _show_example(pattern: str) -> str | None:
    """The best example of a pattern as text for a model; None if there is none, or no index of the sources yet."""
    found = search.find_example(pattern)
    return "\n".join((f"{found.place}:", *found.lines)) if found is not None else None
