"""Select, propose, evaluate: how versions of a session come about."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from typing import Any

from workbench import evaluate, plugins
from workbench.errors import Stopped, Unavailable, Unrecorded, UserError
from workbench.profilers import counters
from workbench.profilers.recorded import merged
from workbench.proposers.binding import candidate_of
from workbench.records import Ask, Candidate, Event, Exchange, Job, Outcome, Profile, Proposal, Trial, Version
from workbench.session import model
from workbench.session.base import Base, Reference, owned
from workbench.wire import content_hash


class Working(Base):
    """Proposes and evaluates versions; the calls of a language model belong here too."""

    @owned
    def generate(self, by: str = "planner", instruction: str = "", *, test: bool = True, depth: int | None = None, chain: Any = None, start: Reference | None = None, **options: Any) -> Version | None:
        """The next proposal from the baseline (or from `start`), tested at once; None when the proposer has no further idea (an event says why).

        `depth` counts optimisation steps; `chain` is the `ChainSettings` that say from which depth on a model is shown the profile.
        """
        base = self.version(start) if start is not None else self.baseline
        deep = depth if depth is not None else base.proposal.depth + 1 if base else 0
        profile = self._findings(base) if base is not None and by == "llm" and self._shows_profile(chain, deep) else ""
        return self._make(self._ask(base, instruction, depth=deep, profile=profile), by, options, test=test)

    def _shows_profile(self, settings: Any, depth: int) -> bool:
        from workbench.policies.chain import ChainSettings
        from workbench.proposers.llm.prompts import workload

        return (settings or ChainSettings()).shows_profile("elementwise" if self.facts.kind == "elementwise" else workload(self.facts.kind), depth)

    def _ask(self, base: Version | None, instruction: str = "", **more: Any) -> Ask:
        return Ask(
            problem=self.problem, facts=self.facts, history=self._versions, baseline=base, instruction=instruction, constraints=self.constraints, arch=self.arch, device=self.device, **more,
        )  # fmt: skip

    def _proposer(self, by: str, options: dict[str, Any]) -> Any:
        if by == "llm":
            proposer = plugins.load("proposer", by, check=False)
            if not model.is_set(self.model()) and (why := proposer.why_not()):
                raise UserError(why)
            from workbench.search import call_tool, tool_specs

            return proposer.configure(client=self.client(), templates=self.folder / "prompts", tools=tool_specs(), call_tool=call_tool, language=self.model().get("language", "cute"), **options)
        proposer = plugins.load("proposer", by)
        return proposer.configure(**options) if options else proposer

    def _make(self, ask: Ask, by: str, options: dict[str, Any], *, test: bool) -> Version | None:
        """Let a proposer answer; what it says is shown, what it exchanged with a model is kept, what it wrote becomes a version."""
        self._say(Event(kind="proposing", message=f"{by} is writing a version" if not ask.question else f"{by} is answering"))
        proposal: Proposal | None = None
        spent: list[int] = []
        proposing = self._proposer(by, options).propose(ask)
        try:
            for item in proposing:
                if isinstance(item, Exchange):
                    spent.append(self._store.add_exchange(item, evaluate.now()))
                    self._keep_spent()
                elif isinstance(item, Proposal):
                    proposal = item
                else:
                    self._say(item, keep=item.kind != "token")
                if self._stop.is_set():
                    raise Stopped("stopped; everything finished is kept")
        finally:
            proposing.close()
            self._keep_spent()
        if proposal is None:
            return None
        return self._append(dataclasses.replace(proposal, exchanges=tuple(spent)), test=test)

    @owned
    def repair(self, version: Reference = "latest", by: str = "llm", **options: Any) -> Version | None:
        """A version that repairs a failed one (diagnosis, then patches), tested."""
        broken = self.version(version)
        if not broken.trials or broken.trials[-1].verdict.correct:
            raise UserError(f"v{broken.number} has not failed, so there is nothing to repair")
        return self._make(self._ask(self.baseline, depth=broken.proposal.depth, repair=broken), by, options, test=True)

    def _findings(self, version: Version) -> str:
        """What counters say about a version, as sentences; empty where nothing was counted."""
        try:
            profile = self.profile(version.number)
        except (UserError, Unavailable):
            return ""
        lines = [profile.summary, *[f"line {f.line}: {f.message}" for f in profile.findings[:8]]]
        lines += [f"kernel {name}: occupancy {fraction:.0%}, limited by {limiter}" for name, fraction, limiter in profile.occupancy]
        return "\n".join(f"- {line}" for line in lines if line)

    def model(self, **values: Any) -> dict[str, Any]:
        """Set where the model is and what it may cost (session.model.NAMES); returns all settings. No key among them."""
        kept = {**self._store.meta().get("llm", {}), **model.checked(values)}
        if values:
            self._store.set_meta({"llm": kept})
            self._client = None
        return kept

    def client(self) -> Any:
        """The session's `ChatClient`; its budget counts everything that this session has spent."""
        if self._client is None:
            self._client = model.client(self.model(), self.spent())
        return self._client

    def _keep_spent(self) -> None:
        """What calls have cost so far, those that failed or were stopped as well: a budget holds across reopening."""
        if self._client is not None:
            self._store.set_meta({"spent": self._client.budget.kept()})

    def spent(self) -> dict[str, Any]:
        """Tokens and dollars (None = unknown) of all calls of this session's model; empty before the first."""
        return dict(self._store.meta().get("spent", {}))

    def exchanges(self) -> dict[int, Exchange]:
        """Every call of a language model, by number."""
        return self._store.exchanges()

    def _append(self, proposal: Proposal, *, test: bool) -> Version:
        version = self._store.add_version(proposal, evaluate.now())
        self._reload()
        self._say(Event(kind="proposed", version=version.number, message=f"v{version.number}: {proposal.title}"))
        if test:
            try:
                self.test(version.number)
            except Unrecorded as missing:
                if proposal.by != "human":  # a person's own version waits for the person
                    self.reject(version.number, str(missing), by="policy")  # type: ignore[attr-defined]
                raise
        return self.version(version.number)

    def refine(self, instruction: str = "", by: str = "planner", **options: Any) -> Version | None:
        """One more proposal from the baseline, tested; `instruction` is the person's words."""
        return self.generate(by, instruction, **options)

    @owned
    def edit(self, source: str, title: str = "", reason: str = "", *, parent: Reference | None = None, test: bool = True) -> Version:
        """The person's own version of the whole file."""
        base = self.version(parent) if parent is not None else self.baseline
        proposal = Proposal(candidate=Candidate(source=source), title=title or "edited by hand", reason=reason, by="human", parent=base.number if base else None)
        return self._append(proposal, test=test)

    @owned
    def program(self, text: str, title: str = "", reason: str = "", *, parent: Reference | None = None, test: bool = True) -> Version:
        """The person's own version as a program of muCUTLASS; what it does not say (arch, layouts of operands) is the session's and the problem's."""
        base = self.version(parent) if parent is not None else self.baseline
        candidate = candidate_of(self.problem, self.facts, self.arch, text)
        proposal = Proposal(candidate=candidate, title=title or textwrap.shorten(text, 80), reason=reason, by="human", parent=base.number if base else None)
        return self._append(proposal, test=test)

    @property
    def cold_l2(self) -> bool:
        """Whether timed calls on a GPU find nothing of theirs in L2."""
        return bool(self._store.meta().get("cold_l2", True))

    @cold_l2.setter
    def cold_l2(self, cold: bool) -> None:
        self._store.set_meta({"cold_l2": cold})

    def job(self, version: Version, *, want_sass: bool = False, rival: Version | None = None) -> Job:
        """The job that tests a version on this session's executor; `rival`, correct before, is timed in turns with it."""
        gpu = self.executor_name in ("gpu", "replay")  # what was recorded on a GPU is of full size too
        timed = self.executor_name == "gpu" and rival is not None and rival.trials and rival.trials[-1].verdict.correct and rival.trials[-1].outcome.executor == "gpu"
        return Job(
            problem=self.problem, facts=self.facts, candidate=version.proposal.candidate, arch=self.arch, device=self.device, want_sass=want_sass,
            cases=("full",) if gpu else ("shrunk", "odd"), trials=2, timed_calls=40 if gpu else 0, wall_limit_s=300.0 if gpu else 60.0, memory_limit_bytes=(64 << 30) if gpu else (4 << 30),
            cold_l2=self.cold_l2 if gpu else True, rival=rival.proposal.candidate if timed and rival is not None else None,
        )  # fmt: skip

    @owned
    def test(self, version: Reference = "latest", *, want_sass: bool = False) -> Trial:
        """Compile, run and check a version; the trial is kept."""
        chosen = self.version(version)
        parent = self._compared(chosen)
        job = self.job(chosen, want_sass=want_sass, rival=parent)
        trial = evaluate.evaluate(job, self._executor, parent=parent.trials[-1] if parent and parent.trials else None, progress=self._progress)
        self._store.add_trial(chosen.number, content_hash(job), trial)
        self._reload()
        verdict = trial.verdict
        said = "correct" if verdict.correct else f"{verdict.failure.stage}: {verdict.failure.message}" if verdict.failure else "not correct"
        self._say(Event(kind="judged", version=chosen.number, message=f"v{chosen.number}: {said}"))
        return trial

    def _compared(self, version: Version) -> Version | None:
        """What a version's time is set against: its parent, or, for a repair, the last correct version before it."""
        parent = self.version(version.parent) if version.parent is not None else None
        if parent is not None and version.proposal.repairs is not None and not (parent.trials and parent.trials[-1].verdict.correct):
            return self._compared(parent) if parent.parent is not None else self.baseline
        return parent

    @owned
    def profile(self, version: Reference = "latest", by: str = "counters", *, sections: Sequence[str] = ()) -> Profile:
        """A closer look at a version, by one profiler or several ("ncu+timeline+energy"); runs it once more. What cannot be seen is named in the notes."""
        chosen = self.version(version)
        names = by.split("+")
        found = [self._profile(chosen, name, sections if name == "ncu" else ()) for name in names]
        return merged(found) if len(found) > 1 else found[0]

    def _profile(self, version: Version, by: str, sections: Sequence[str]) -> Profile:
        self._say(Event(kind="running", message=f"profiling v{version.number} by {by}"), keep=False)
        job = self.job(version, want_sass=True)
        profiler = plugins.load("profiler", by)
        profiler.stop = self._stop
        if sections:
            profiler = profiler.configure(sections=sections)
        if by not in ("counters", "sass"):
            return profiler.profile(job, Outcome(executor=self.executor_name, arch=self.arch, device=self.device))  # type: ignore[no-any-return]
        try:
            outcome = counters.followed(job, self._stop)
        except UserError as error:
            raise UserError(f"v{version.number}: {error}") from None
        return profiler.profile(dataclasses.replace(job, cases=("shrunk",)), outcome)  # type: ignore[no-any-return]
