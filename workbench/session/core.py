"""A session: select, propose, evaluate, judge, decide, record; yields events. Views only show what is here and pass decisions in."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from workbench import evaluate, executors, plugins, problems
from workbench.analysis import hunks as hunk_maths
from workbench.errors import StaleDecision, Stopped, Unavailable, UserError
from workbench.executors.inspector import WorkerInspector
from workbench.records import Ask, Candidate, Decision, Event, Exchange, Facts, Job, Problem, Profile, Proposal, Trial, Version
from workbench.session import chain, model, recording
from workbench.store import Store
from workbench.wire import content_hash

P = ParamSpec("P")
R = TypeVar("R")
Reference = int | str
DATABASE = "session.sqlite"
SAID = {"accept": "accepted", "reject": "rejected", "undo": "decision taken back"}


def default_root() -> Path:
    """Where sessions live: $CUTEGEN_ROOT, else .cutegen in the current folder."""
    return Path(os.environ.get("CUTEGEN_ROOT", ".cutegen"))


def owned(method: Callable[P, R]) -> Callable[P, R]:
    """Run a method on the session's one working thread; Ctrl-C stops the work and leaves the session whole."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        session: Any = args[0]
        if threading.current_thread() is session._thread:
            return method(*args, **kwargs)
        future = session._pool.submit(session._enter, method, args, kwargs)
        try:
            return future.result()  # type: ignore[no-any-return]
        except KeyboardInterrupt:
            session.stop()
            with contextlib.suppress(Stopped, CancelledError):
                future.cancel()
                future.result()
            raise Stopped("stopped; everything finished is kept") from None

    return call


class Session:
    """One problem, its versions, and what was decided. Make one with `create` or `open`; use it as a context manager or `close` it."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self.folder = folder
        self.name = folder.name
        self.problem, self.facts = store.problem()
        meta = store.meta()
        self.arch: str = meta["arch"]
        self.device: str = meta["device"]
        self.executor_name: str = meta["executor"]
        self.constraints: tuple[str, ...] = tuple(meta.get("constraints", ()))
        self._executor = self._choose()
        self._stop = threading.Event()
        self._executor.stop = self._stop
        self._callbacks: list[Callable[[Event], None]] = []
        self._lock = threading.RLock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cutegen-session")
        self._thread: threading.Thread | None = None
        self._versions = store.versions()
        self._client: Any = None

    # ---- making and finding -----------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, problem: Problem | str, *, root: str | Path | None = None, name: str | None = None, executor: str = "auto", arch: str = "", device: str | None = None, facts: Facts | None = None,
    ) -> Session:  # fmt: skip
        """A new session for a problem (a record, a shipped name, a path or source text); inspects the problem first."""
        found = problems.load(problem) if isinstance(problem, str) else problem
        chosen = executors.choose(executor)
        facts = facts or WorkerInspector().inspect(found)
        base = Path(root) if root is not None else default_root()
        folder = _new_folder(base, name or re.sub(r"\W+", "-", found.name))
        store = Store(folder / DATABASE)
        store.set_meta({"arch": arch or ("sm_90a" if chosen.name == "gpu" else "sm_80"), "device": device or "H200", "executor": chosen.name})
        store.add_problem(found, facts)
        return cls._over(store, folder)

    def _choose(self) -> Any:
        """The executor that the session was made with, or, where that cannot run, the one at hand (a session from a GPU opens on a laptop)."""
        try:
            return executors.choose(self.executor_name)
        except Unavailable:
            chosen = executors.choose("auto")
            self.executor_name = chosen.name
            return chosen

    @classmethod
    def open(cls, path: str | Path, *, root: str | Path | None = None, write: bool = True) -> Session:
        """Reopen a session by name or folder; whatever was accepted is there. With `write=False` another process may go on writing."""
        folder = Path(path)
        if not (folder / DATABASE).exists():
            folder = (Path(root) if root is not None else default_root()) / str(path)
        if not (folder / DATABASE).exists():
            known = ", ".join(cls.names(root)) or "none"
            raise UserError(f"no session is called {str(path)!r}; there are: {known}")
        return cls._over(Store(folder / DATABASE, write=write), folder)

    @classmethod
    def _over(cls, store: Store, folder: Path) -> Session:
        try:
            return cls(store, folder)
        except BaseException:
            store.close()
            raise

    @staticmethod
    def names(root: str | Path | None = None) -> tuple[str, ...]:
        """Names of the sessions under `root`."""
        base = Path(root) if root is not None else default_root()
        return tuple(sorted(path.parent.name for path in base.glob(f"*/{DATABASE}"))) if base.is_dir() else ()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self.name}: {len(self.versions)} versions, {self.executor_name}, {self.arch}>"

    def close(self) -> None:
        """Stop running work and give the session free."""
        self.stop()
        self._pool.shutdown(wait=True)
        self._store.close()

    # ---- looking ----------------------------------------------------------------------------------------------------

    @property
    def versions(self) -> tuple[Version, ...]:
        """All versions, oldest first."""
        return self._versions

    @property
    def baseline(self) -> Version | None:
        """The version accepted last; the next proposal starts from it."""
        accepted = {version.number: version for version in self._versions if version.decision and version.decision.kind == "accept"}
        order = [decision.version for decision in self._store.decisions() if decision.kind == "accept" and decision.version in accepted]
        return accepted[order[-1]] if order else None

    @property
    def best(self) -> Version | None:
        """The fastest correct version that was accepted."""
        timed = [v for v in self._versions if v.decision and v.decision.kind == "accept" and v.trials and v.trials[-1].verdict.correct and v.trials[-1].verdict.time_s]
        timed = [v for v in timed if v.trials[-1].verdict.time_provenance == "measured"] or timed  # never a modelled time against a measured one
        return min(timed, key=lambda v: v.trials[-1].verdict.time_s or 0.0, default=self.baseline)

    @property
    def pending(self) -> Version | None:
        """The latest version that waits for a decision."""
        return next((version for version in reversed(self._versions) if version.decision is None), None)

    def version(self, reference: Reference = "latest") -> Version:
        """A version by number, "v3", "latest", "pending", "best" or "baseline"."""
        text = str(reference).strip()
        named = {"latest": self._versions[-1] if self._versions else None, "best": self.best, "baseline": self.baseline, "pending": self.pending}
        if text in named:
            found = named[text]
            if found is None:
                raise UserError(f"there is no {text} version yet" + ("" if self._versions else "; make one with generate or edit"))
            return found
        digits = text.removeprefix("v")
        match = next((version for version in self._versions if digits.isdigit() and version.number == int(digits)), None)
        if match is None:
            raise UserError(f"no version {text!r}; there are: {', '.join(f'v{v.number}' for v in self._versions) or 'none'}")
        return match

    def diff(self, old: Reference, new: Reference) -> tuple[hunk_maths.Hunk, ...]:
        """Hunks between the sources of two versions, numbered from 1."""
        return hunk_maths.hunks(self.version(old).proposal.candidate.source, self.version(new).proposal.candidate.source)

    def events(self) -> tuple[Event, ...]:
        """Everything that was said in this session."""
        return tuple(self._store.events(Event))

    def decisions(self) -> tuple[Decision, ...]:
        """Every decision, undone ones included."""
        return tuple(self._store.decisions())

    # ---- events and threads -----------------------------------------------------------------------------------------

    def subscribe(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call `callback` with every event, from whatever thread works; returns a function that ends it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def _say(self, event: Event, *, keep: bool = True) -> None:
        if keep:
            self._store.add_event(event, evaluate.now())
        for callback in tuple(self._callbacks):
            try:
                callback(event)
            except Exception:  # a view that fails must not take the work with it
                logging.getLogger(__name__).exception("a subscriber of session %s failed", self.name)

    def _progress(self, event: Event) -> None:
        self._say(event, keep=False)

    def _enter(self, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._thread = threading.current_thread()
        self._stop.clear()
        try:
            return method(*args, **kwargs)
        except Stopped:
            self._say(Event(kind="stopped", message="stopped; everything finished is kept"))
            raise

    def stop(self) -> None:
        """End the running work within a second; from any thread."""
        self._stop.set()

    async def step(self, *, by: str = "planner", instruction: str = "") -> Version | None:
        """`refine` as an awaitable, so that a notebook goes on serving Stop, accept and reject."""
        loop = asyncio.get_running_loop()
        future = self._pool.submit(self._enter, Session.refine, (self,), {"by": by, "instruction": instruction})
        try:
            return await asyncio.wrap_future(future, loop=loop)
        except asyncio.CancelledError:
            self.stop()
            raise

    def _reload(self) -> None:
        with self._lock:  # or an older list, read by another thread, could replace a newer one
            self._versions = self._store.versions()

    # ---- the loop ---------------------------------------------------------------------------------------------------

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
            from workbench.search import call_tool, tool_specs

            return proposer.configure(client=self.client(), templates=self.folder / "prompts", tools=tool_specs(), call_tool=call_tool, **options)
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
                elif isinstance(item, Proposal):
                    proposal = item
                else:
                    self._say(item, keep=item.kind != "token")
                if self._stop.is_set():
                    raise Stopped("stopped; everything finished is kept")
        finally:
            proposing.close()
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

    def _findings(self, version: Version) -> str:
        """What counters say about a version, as sentences; empty where nothing was counted."""
        try:
            profile = self.profile(version.number)
        except (UserError, Unavailable):
            return ""
        lines = [profile.summary, *[f"line {f.line}: {f.message}" for f in profile.findings[:8]]]
        lines += [f"kernel {name}: occupancy {fraction:.0%}, limited by {limiter}" for name, fraction, limiter in profile.occupancy]
        return "\n".join(f"- {line}" for line in lines if line)

    # ---- the language model -----------------------------------------------------------------------------------------

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
            self._client = model.client(self.model(), list(self._store.exchanges().values()))
        return self._client

    def exchanges(self) -> dict[int, Exchange]:
        """Every call of a language model, by number."""
        return self._store.exchanges()

    def _append(self, proposal: Proposal, *, test: bool) -> Version:
        version = self._store.add_version(proposal, evaluate.now())
        self._reload()
        self._say(Event(kind="proposed", version=version.number, message=f"v{version.number}: {proposal.title}"))
        if test:
            self.test(version.number)
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

    def job(self, version: Version, *, want_sass: bool = False) -> Job:
        """The job that tests a version on this session's executor."""
        gpu = self.executor_name == "gpu"
        return Job(
            problem=self.problem, facts=self.facts, candidate=version.proposal.candidate, arch=self.arch, device=self.device, want_sass=want_sass,
            cases=("full",) if gpu else ("shrunk", "odd"), trials=2, timed_calls=20 if gpu else 0, wall_limit_s=300.0 if gpu else 60.0, memory_limit_bytes=(64 << 30) if gpu else (4 << 30),
        )  # fmt: skip

    @owned
    def test(self, version: Reference = "latest", *, want_sass: bool = False) -> Trial:
        """Compile, run and check a version; the trial is kept."""
        chosen = self.version(version)
        parent = self._compared(chosen)
        job = self.job(chosen, want_sass=want_sass)
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
    def profile(self, version: Reference = "latest") -> Profile:
        """Counters per line, occupancy and instruction mix of a version; runs it once more with its SASS."""
        chosen = self.version(version)
        trial = chosen.trials[-1] if chosen.trials else None
        if trial is None or not trial.outcome.launches or not any(build.sass for build in trial.outcome.builds):
            executor = executors.choose("emulator")
            executor.stop = self._stop
            job = dataclasses.replace(self.job(chosen, want_sass=True), cases=("shrunk",), trials=1, timed_calls=0)
            outcome = executor.run(job, progress=self._progress)
        else:
            outcome = trial.outcome
        if outcome.failure is not None and not outcome.launches:
            raise UserError(f"v{chosen.number} cannot be profiled: {outcome.failure.message}")
        return plugins.load("profiler", "counters").profile(self.job(chosen), outcome)  # type: ignore[no-any-return]

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
        for _ in range(steps + (1 if self.baseline is None else 0)):
            version = self.generate(by, **options)
            if version is None:
                break
            made.append(version)
            self._judge(version)
        return tuple(self.version(version.number) for version in made)

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


def _new_folder(root: Path, name: str) -> Path:
    """ROOT/NAME, or NAME-2, NAME-3, ... when taken."""
    root.mkdir(parents=True, exist_ok=True)
    for number in range(1, 10_000):
        folder = root / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise UserError(f"too many sessions are called {name}; remove some from {root}")
