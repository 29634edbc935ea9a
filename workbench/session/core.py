"""A session: select, propose, evaluate, judge, decide, record; yields events. Views only show what is here and pass decisions in."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbench import evaluate
from workbench.analysis import hunks as hunk_maths
from workbench.errors import StaleDecision, Unrecorded, UserError
from workbench.policies.budget import BudgetSettings
from workbench.records import Candidate, Decision, Event, Proposal, Version
from workbench.session import budget, chain, recording
from workbench.session.base import Reference, owned
from workbench.session.working import Working

UNRECORDED = 40  # programs that a run passes over because nothing was recorded of them; more than any ladder has
SAID = {"accept": "accepted", "reject": "rejected", "undo": "decision taken back"}


def until_settings(until: str | int, epsilon: float | None, patience: int | None) -> BudgetSettings | None:
    """When to stop: settings of the policy `budget` for "sol", None for a number of steps; raises `UserError` for anything else."""
    given = {name: value for name, value in (("epsilon", epsilon), ("patience", patience)) if value is not None}
    if str(until) == "sol":
        return dataclasses.replace(BudgetSettings(), **given)  # type: ignore[arg-type]
    if not str(until).isdigit():
        raise UserError(f"until is {until!r}; it must be sol (near the speed of light, or no gain any more) or a number of steps")
    if given:
        raise UserError("epsilon and patience belong to --until sol")
    return None


class Session(Working):
    """One problem, its versions, and what was decided. Make one with `create` or `open`; use it as a context manager or `close` it."""

    async def step(self, *, by: str = "planner", instruction: str = "") -> Version | None:
        """`refine` as an awaitable, so that a notebook goes on serving Stop, accept and reject."""
        loop = asyncio.get_running_loop()
        future = self._pool.submit(self._enter, Session.refine, (self,), {"by": by, "instruction": instruction})
        try:
            return await asyncio.wrap_future(future, loop=loop)
        except asyncio.CancelledError:
            self.stop()
            raise

    @owned
    def ask(self, question: str, version: Reference | None = None, by: str = "llm", **options: Any) -> str:
        """An answer about a version (the baseline, or else the latest); nothing is changed."""
        base = self.version(version) if version is not None else self.baseline or self.version("latest")
        said: list[str] = []
        forget = self.subscribe(lambda event: said.append(event.message) if event.kind == "note" else None)
        try:
            self._make(self._ask(base, question=question, profile=self._findings(base)), by, options, test=False)
        finally:
            forget()
        return said[-1] if said else ""

    @owned
    def choices(self, count: int = 3, by: str = "llm", instruction: str = "", **options: Any) -> tuple[Version, ...]:
        """Several proposals from the same baseline, tested, for the person to choose from."""
        if not 1 <= count <= 8:
            raise UserError(f"{count} proposals: ask for 1 to 8")
        base = self.baseline
        found = [self.generate(by, instruction, start=base.number if base else None, **options) for _ in range(count)]
        return tuple(self.version(version.number) for version in found if version is not None)

    @owned
    def run_chain(self, by: str = "llm", **settings: Any) -> tuple[Version, ...]:
        """CuTeGen's loop (policies.chain): synthesise, repair, optimise one step at a time; settings by name, the paper's as defaults."""
        return chain.run(self, chain.settings_from(settings), by)

    @owned
    def play(self, name: str | Path) -> tuple[str, ...]:
        """Play a recorded session into this new one: each version is built and checked here; says where today differs."""
        return recording.play(self, recording.load(name))

    def save_recording(self, path: str | Path, label: str) -> Path:
        """Everything that was exchanged, proposed and decided, as one file that `play` takes."""
        return recording.save(self, path, label)
    # ---- decisions --------------------------------------------------------------------------------------------------

    def _decide(self, version: Version, kind: str, source_hash: str | None, **fields: Any) -> Version:
        if source_hash is not None and source_hash != version.source_hash:
            raise StaleDecision(f"v{version.number} is not the source that was shown; look at it again and decide then")
        decision = Decision(kind=kind, version=version.number, source_hash=version.source_hash, at=evaluate.now(), **fields)  # type: ignore[arg-type]
        with self._lock:
            self._store.add_decision(decision)
            self._reload()
        self._say(Event(kind="decided", version=version.number, message=f"v{version.number} {SAID[kind]}" + (f": {decision.reason}" if decision.reason else "")))
        return self.version(version.number)

    def accept(
        self, version: Reference = "latest", *, hunks: Iterable[int] | None = None, source_hash: str | None = None, reason: str = "", by: str = "person", force: bool = False
    ) -> Version:
        """Make a version the baseline. With `hunks`, only those changes to its parent: they become a new version, which is tested first.

        A whole version that was tested is accepted at once, even while a step is running; what needs a test waits its turn.
        """
        chosen = self.version(version)
        if hunks is None and chosen.trials:
            return self._accept(chosen.number, None, source_hash, reason, by, force)
        return self._accept_in_turn(chosen.number, hunks, source_hash, reason, by, force)

    @owned
    def _accept_in_turn(self, *arguments: Any) -> Version:
        return self._accept(*arguments)

    def _accept(self, version: Reference, hunks: Iterable[int] | None, source_hash: str | None, reason: str, by: str, force: bool) -> Version:
        chosen = self.version(version)
        if source_hash is not None and source_hash != chosen.source_hash:
            raise StaleDecision(f"v{chosen.number} is not the source that was shown; look at it again and decide then")
        picked = None if hunks is None else sorted(set(hunks))
        if picked is not None:
            chosen = self._merge(chosen, picked)
        if not chosen.trials:
            self.test(chosen.number)
            chosen = self.version(chosen.number)
        verdict = chosen.trials[-1].verdict
        if not verdict.correct and not force:
            raise UserError(f"v{chosen.number} is not correct ({verdict.failure.message if verdict.failure else 'failed'}); reject it, edit it, or accept with force")
        if verdict.refused and not (force and by == "person"):
            what = "look at what it leaves out, and reject it; accept it with force only if you know why" if by == "person" else f"{by} may not accept it"
            raise UserError(f"v{chosen.number} is refused as suspect: {verdict.refused}; {what}")
        return self._decide(chosen, "accept", None, reason=reason, by=by, hunks=tuple(picked) if picked is not None else None)

    def _merge(self, chosen: Version, picked: list[int]) -> Version:
        if not picked:
            raise UserError(f"no hunk of v{chosen.number} was picked: name some, or reject it")
        if chosen.parent is None:
            raise UserError(f"v{chosen.number} has no parent, so it has no hunks; accept it whole")
        parent = self.version(chosen.parent)
        source = hunk_maths.apply(parent.proposal.candidate.source, chosen.proposal.candidate.source, picked)
        if source == chosen.proposal.candidate.source:
            return chosen
        names = ", ".join(map(str, picked))
        source = hunk_maths.renamed(source, (parent.proposal.candidate.program, chosen.proposal.candidate.program), f"v{parent.number} with hunk{'s' * (len(picked) > 1)} {names} of v{chosen.number}")
        title = f"{chosen.proposal.title} (hunks {names} of v{chosen.number})"
        proposal = Proposal(candidate=Candidate(source=source), title=title, reason=f"accepted in part: hunks {names}", by="person", parent=parent.number)
        return self._append(proposal, test=True)

    def reject(self, version: Reference = "latest", reason: str = "", *, source_hash: str | None = None, by: str = "person") -> Version:
        """Say no to a version; the reason is kept and steers what is proposed next."""
        return self._decide(self.version(version), "reject", source_hash, reason=reason, by=by)

    def undo(self) -> Decision:
        """Take the last standing decision back."""
        standing = {version.number: version.decision for version in self._versions if version.decision}
        last = next((decision for decision in reversed(self._store.decisions()) if standing.get(decision.version) == decision), None)
        if last is None:
            raise UserError("there is no decision to undo")
        self._decide(self.version(last.version), "undo", None)
        return last

    @owned
    def run(self, steps: int = 3, by: str = "planner", **options: Any) -> tuple[Version, ...]:
        """First version plus `steps` refinements, accepting what is correct and faster and rejecting the rest, with reasons."""
        made: list[Version] = []
        skipped, wanted = 0, steps + (1 if self.baseline is None else 0)
        while len(made) < wanted and skipped <= UNRECORDED:
            try:
                version = self.generate(by, **options)
            except Unrecorded as missing:  # replay knows no time of it: rejected with the reason, and the next one is asked for
                self._say(Event(kind="note", message=str(missing)))
                skipped += 1
                continue
            if version is None:
                break
            made.append(version)
            self._judge(version)
        return tuple(self.version(version.number) for version in made)

    @owned
    def run_until(self, until: str | int = "sol", by: str = "planner", *, epsilon: float | None = None, patience: int | None = None, **options: Any) -> tuple[Version, ...]:
        """Refinements until the policy `budget` says stop ("sol"), or that many of them; an event says why it stopped."""
        settings = until_settings(until, epsilon, patience)
        if settings is not None:
            return budget.run(self, settings, by, **options)
        return self.run(int(until), by, **options)

    def _judge(self, version: Version) -> None:
        verdict = version.trials[-1].verdict
        base = self.baseline
        if not verdict.correct:
            self.reject(version.number, verdict.failure.message if verdict.failure else "not correct", by="policy")
        elif verdict.suspect:
            self.reject(version.number, f"suspect: {verdict.suspect[0]}", by="policy")
        elif base is None:
            self.accept(version.number, reason="first correct version", by="policy")
        elif verdict.speedup is not None and verdict.speedup > 1 and verdict.distinguishable:
            self.accept(version.number, reason=f"{verdict.speedup:.2f}x faster than v{base.number} ({verdict.time_provenance})", by="policy")
        else:
            said = "no time to compare" if verdict.speedup is None else f"{verdict.speedup:.2f}x of v{base.number} ({verdict.time_provenance}), no gain"
            self.reject(version.number, said, by="policy")
    # ---- keeping ----------------------------------------------------------------------------------------------------

    def pin(self, constraint: str) -> tuple[str, ...]:
        """Add words that hold for every proposal until `unpin`."""
        return self._pins((*self.constraints, constraint))

    def unpin(self, constraint: str) -> tuple[str, ...]:
        """Remove a pinned constraint."""
        if constraint not in self.constraints:
            raise UserError(f"{constraint!r} is not pinned; pinned: {', '.join(self.constraints) or 'nothing'}")
        return self._pins(tuple(item for item in self.constraints if item != constraint))

    def _pins(self, pins: tuple[str, ...]) -> tuple[str, ...]:
        self.constraints = pins
        self._store.set_meta({"constraints": list(pins)})
        return pins

    def export(self, version: Reference = "best", path: str | Path | None = None) -> str:
        """The source of a version; written to `path` when given. It needs nothing of the workbench: KernelBench loads it."""
        source = self.version(version).proposal.candidate.source
        if path is not None:
            target = Path(path)
            if target.exists() and target.read_text() != source:
                raise UserError(f"{target} exists and differs; remove it or choose another name")
            target.write_text(source)
        return source

    @owned
    def replay(self) -> tuple[str, ...]:
        """Run every version again on the executor at hand; one sentence per version whose outcome differs from the recorded one."""
        said = []
        for version in self._versions:
            if not version.trials:
                continue
            before, now = version.trials[-1].verdict, evaluate.evaluate(self.job(version), self._executor, progress=self._progress).verdict
            if before.correct != now.correct:
                said.append(f"v{version.number} was {'correct' if before.correct else 'not correct'}, today it is not" if before.correct else f"v{version.number} failed before and is correct today")
            elif before.failure and now.failure and before.failure.kind != now.failure.kind:
                said.append(f"v{version.number} failed as {before.failure.kind} before and as {now.failure.kind} today")
        return tuple(said)
