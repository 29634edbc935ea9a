"""A session as users hold it: every method hands its work to one of the parts, on the session's one working thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from workbench import executors
from workbench.analysis import hunks as hunk_maths
from workbench.policies.chain import ChainSettings
from workbench.proposers.llm.client import ChatClient
from workbench.protocols import Executor, RunContext
from workbench.records import Decision, Event, Exchange, Facts, Job, Problem, Profile, Spent, Trial, Version
from workbench.session import loops, recording
from workbench.session.chain import ChainLoop, settings_from
from workbench.session.creating import default_root, find_folder, make_store, session_names, stored_executor
from workbench.session.deciding import Deciding
from workbench.session.log import DATABASE, Reference, SessionLog
from workbench.session.model_settings import ModelSettings
from workbench.session.parts import Parts
from workbench.session.profiling import Profiling
from workbench.session.proposing import Proposing
from workbench.session.testing import Testing
from workbench.session.work_thread import WorkThread
from workbench.store import ModelValue, Store

__all__ = ["Session", "default_root"]


class Session:
    """One problem, its versions, and what was decided.

    Make one with `create` or `open`; use it as a context manager or `close` it. Work is done one piece after the other;
    Ctrl-C and `stop` end the running piece and leave the session whole. Proposers and profilers take `options` by name.
    """

    def __init__(self, log: SessionLog, executor: Executor) -> None:
        self.log = log
        self._thread = WorkThread(self._say_stopped)
        context = RunContext(stop=self._thread.stop, progress=log.show)
        self._testing = Testing(log, executor, context)
        self._profiling = Profiling(self._testing)
        self._model = ModelSettings(log)
        self._proposing = Proposing(self._testing, self._profiling, self._model)
        self._deciding = Deciding(self._testing)
        self._parts = Parts(log=log, testing=self._testing, proposing=self._proposing, deciding=self._deciding)

    def _say_stopped(self) -> None:
        self.log.say(Event(kind="stopped", message="stopped; everything finished is kept"))

    # ---- making and finding -----------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        problem: Problem | str,
        *,
        root: str | Path | None = None,
        name: str | None = None,
        executor: str | Executor = "auto",
        arch: str = "",
        device: str | None = None,
        facts: Facts | None = None,
    ) -> Self:
        """A new session for a problem: a record, a shipped name, a path or source text.

        The problem is inspected first, unless `facts` of it are given. `executor` is a plug-in, by name or as an
        object.
        """
        chosen = executors.choose(executor) if isinstance(executor, str) else executor
        store, folder = make_store(problem, chosen, root=root, name=name, arch=arch, device=device, facts=facts)
        return cls._from_store(store, folder, chosen)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        root: str | Path | None = None,
        write: bool = True,
        executor: Executor | None = None,
    ) -> Self:
        """Reopen a session by name or folder; whatever was accepted is there.

        With `write=False` another process may go on writing. Without `executor` the stored one is used, or, where that
        cannot run (a session from a GPU on a laptop), the one at hand.
        """
        folder = find_folder(path, root)
        return cls._from_store(Store(folder / DATABASE, write=write), folder, executor)

    @classmethod
    def _from_store(cls, store: Store, folder: Path, executor: Executor | None) -> Self:
        try:
            return cls(SessionLog(store, folder), executor or stored_executor(store.meta()["executor"]))
        except BaseException:
            store.close()
            raise

    @staticmethod
    def names(root: str | Path | None = None) -> tuple[str, ...]:
        """Names of the sessions under `root`."""
        return session_names(root)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session {self.name}: {len(self.versions)} versions, {self.executor_name}, {self.arch}>"

    def stop(self) -> None:
        """End the running work within a second; from any thread."""
        self._thread.stop.set()

    def close(self) -> None:
        """Stop running work and give the session free."""
        self._thread.close()
        self.log.store.close()

    # ---- looking ----------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the session's folder."""
        return self.log.name

    @property
    def folder(self) -> Path:
        """Where the session is kept."""
        return self.log.folder

    @property
    def problem(self) -> Problem:
        """What is to be computed."""
        return self.log.problem

    @property
    def facts(self) -> Facts:
        """What was found out about the problem."""
        return self.log.facts

    @property
    def arch(self) -> str:
        """The architecture that is compiled for."""
        return self.log.arch

    @property
    def device(self) -> str:
        """The device whose limits and rates are used."""
        return self.log.device

    @property
    def executor_name(self) -> str:
        """The executor that tests versions."""
        return self._testing.executor.name

    @property
    def constraints(self) -> tuple[str, ...]:
        """Words that hold for every proposal."""
        return self.log.constraints

    @property
    def versions(self) -> tuple[Version, ...]:
        """All versions, oldest first."""
        return self.log.versions

    @property
    def baseline(self) -> Version | None:
        """The version accepted last; the next proposal starts from it."""
        return self.log.baseline

    @property
    def best(self) -> Version | None:
        """The fastest correct version that was accepted and whose time can be true."""
        return self.log.best

    @property
    def pending(self) -> Version | None:
        """The latest version that waits for a decision."""
        return self.log.pending

    def version(self, reference: Reference = "latest") -> Version:
        """A version by number, "v3", "latest", "pending", "best" or "baseline"."""
        return self.log.version(reference)

    def diff(self, old: Reference, new: Reference) -> tuple[hunk_maths.Hunk, ...]:
        """Hunks between the sources of two versions, numbered from 1."""
        return self.log.diff(old, new)

    def events(self) -> tuple[Event, ...]:
        """Everything that was said in this session."""
        return tuple(self.log.store.events(Event))

    def decisions(self) -> tuple[Decision, ...]:
        """Every decision, undone ones included."""
        return tuple(self.log.store.decisions())

    def exchanges(self) -> dict[int, Exchange]:
        """Every call of a language model, by number."""
        return self.log.store.exchanges()

    def subscribe(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call `callback` with every event, from whatever thread works; returns a function that ends it."""
        return self.log.subscribe(callback)

    # ---- the language model -----------------------------------------------------------------------------------------

    def model(self, **values: ModelValue) -> dict[str, ModelValue]:
        """Set where the model is and what it may cost (model_settings.NAMES); returns all settings but the key."""
        return self._model.change(**values)

    def set_key(self, value: str) -> None:
        """Use a key for the model's endpoint until the process ends; it is not stored."""
        self._model.set_key(value)

    def client(self) -> ChatClient:
        """The client of the model; its budget counts everything that this session has spent."""
        return self._model.client()

    def spent(self) -> Spent | None:
        """Tokens and dollars (None = unknown) of all calls of this session's model; None before the first."""
        return self._model.spent

    def ask(self, question: str, version: Reference | None = None, by: str = "llm", **options: object) -> str:
        """An answer about a version (the baseline, or else the latest); nothing is changed."""
        return self._thread.run(lambda: self._proposing.answer(question, version, by, options))

    # ---- versions ---------------------------------------------------------------------------------------------------

    def generate(
        self,
        by: str = "planner",
        instruction: str = "",
        *,
        test: bool = True,
        depth: int | None = None,
        chain: ChainSettings | None = None,
        start: Reference | None = None,
        **options: object,
    ) -> Version | None:
        """The next proposal from the baseline (or from `start`), tested; None, and an event, without a further idea.

        `depth` counts optimisation steps. A language model is shown the profile from the depth on that `chain` says.
        """
        return self._thread.run(
            lambda: self._proposing.generate(by, instruction, options, test=test, depth=depth, chain=chain, start=start)
        )

    def refine(self, instruction: str = "", by: str = "planner", **options: object) -> Version | None:
        """One more proposal from the baseline, tested; `instruction` is the person's words."""
        return self._thread.run(lambda: self._proposing.generate(by, instruction, options))

    async def step(self, *, by: str = "planner", instruction: str = "") -> Version | None:
        """`refine` as an awaitable, so that a notebook goes on serving Stop, accept and reject."""
        future = self._thread.submit(lambda: self._proposing.generate(by, instruction))
        try:
            return await asyncio.wrap_future(future, loop=asyncio.get_running_loop())
        except asyncio.CancelledError:
            self.stop()
            raise

    def repair(self, version: Reference = "latest", by: str = "llm", **options: object) -> Version | None:
        """A version that repairs a failed one (diagnosis, then patches), tested."""
        return self._thread.run(lambda: self._proposing.repair(version, by, options))

    def choices(self, count: int = 3, by: str = "llm", instruction: str = "", **options: object) -> tuple[Version, ...]:
        """Several proposals from the same baseline, tested, for the person to choose from."""
        return self._thread.run(lambda: self._proposing.choices(count, by, instruction, options))

    def edit(
        self, source: str, title: str = "", reason: str = "", *, parent: Reference | None = None, test: bool = True
    ) -> Version:
        """The person's own version of the whole file."""
        return self._thread.run(lambda: self._proposing.edit(source, title, reason, parent=parent, test=test))

    def program(
        self, text: str, title: str = "", reason: str = "", *, parent: Reference | None = None, test: bool = True
    ) -> Version:
        """The person's own version as a program of muCUTLASS."""
        return self._thread.run(lambda: self._proposing.program(text, title, reason, parent=parent, test=test))

    # ---- testing ----------------------------------------------------------------------------------------------------

    @property
    def cold_l2(self) -> bool:
        """Whether timed calls on a GPU find nothing of theirs in L2."""
        return self._testing.cold_l2

    @cold_l2.setter
    def cold_l2(self, cold: bool) -> None:
        self._testing.cold_l2 = cold

    def job(self, version: Version, *, want_sass: bool = False, rival: Version | None = None) -> Job:
        """The job that tests a version on this session's executor; `rival` is timed in turns with it."""
        return self._testing.job(version, want_sass=want_sass, rival=rival)

    def test(self, version: Reference = "latest", *, want_sass: bool = False) -> Trial:
        """Compile, run and check a version; the trial is kept."""
        return self._thread.run(lambda: self._testing.test(version, want_sass=want_sass))

    def profile(self, version: Reference = "latest", by: str = "counters", **options: object) -> Profile:
        """A closer look at a version, by one profiler or several ("ncu+timeline+energy"); runs it once more."""
        return self._thread.run(lambda: self._profiling.profile(version, by, options))

    def replay(self) -> tuple[str, ...]:
        """Run every version again; one sentence per version whose outcome differs from the recorded one."""
        return self._thread.run(self._testing.replay)

    # ---- decisions --------------------------------------------------------------------------------------------------

    def accept(
        self,
        version: Reference = "latest",
        *,
        hunks: Iterable[int] | None = None,
        source_hash: str | None = None,
        reason: str = "",
        by: str = "person",
        force: bool = False,
    ) -> Version:
        """Make a version the baseline. With `hunks`, only those changes to its parent: they become a new version.

        A whole version that was tested is accepted at once, even while a step is running; what needs a test waits.
        """
        chosen = self.version(version)

        def accept() -> Version:
            return self._deciding.accept(
                chosen.number, hunks=hunks, source_hash=source_hash, reason=reason, by=by, force=force
            )

        return accept() if hunks is None and chosen.trials else self._thread.run(accept)

    def reject(
        self, version: Reference = "latest", reason: str = "", *, source_hash: str | None = None, by: str = "person"
    ) -> Version:
        """Say no to a version; the reason is kept and steers what is proposed next."""
        return self.log.reject(version, reason, by=by, source_hash=source_hash)

    def judge(self, version: Reference = "latest") -> Version:
        """Accept a tested version that is correct and faster than the baseline, reject any other; as `run` does."""
        return self._deciding.judge(self.version(version))

    def undo(self) -> Decision:
        """Take the last standing decision back."""
        return self._deciding.undo()

    def pin(self, constraint: str) -> tuple[str, ...]:
        """Add words that hold for every proposal until `unpin`."""
        return self.log.pin(constraint)

    def unpin(self, constraint: str) -> tuple[str, ...]:
        """Remove a pinned constraint."""
        return self.log.unpin(constraint)

    # ---- many steps -------------------------------------------------------------------------------------------------

    def run(self, steps: int = 3, by: str = "planner", **options: object) -> tuple[Version, ...]:
        """A first version plus `steps` refinements, each judged: accepted if correct and faster, else rejected."""
        return self._thread.run(lambda: loops.run_steps(self._parts, steps, by, options))

    def run_until(
        self,
        until: str | int = "sol",
        by: str = "planner",
        *,
        epsilon: float | None = None,
        patience: int | None = None,
        **options: object,
    ) -> tuple[Version, ...]:
        """Refinements until the policy `budget` says stop ("sol"), or so many; an event says why it stopped."""
        settings = loops.until_settings(until, epsilon, patience)
        if settings is None:
            return self.run(int(until), by, **options)
        return self._thread.run(lambda: loops.run_until(self._parts, settings, by, options))

    def run_chain(self, by: str = "llm", **settings: str | int) -> tuple[Version, ...]:
        """CuTeGen's loop (policies.chain): synthesise, repair, optimise one step at a time.

        Settings by name; the paper's are the defaults.
        """
        return self._thread.run(lambda: ChainLoop(self._parts, settings_from(settings), by).run())

    # ---- files ------------------------------------------------------------------------------------------------------

    def play(self, name: str | Path) -> tuple[str, ...]:
        """Play a recorded session into this new one: each version is tested here; says where today differs."""
        return self._thread.run(lambda: recording.play(self._parts, recording.load(name)))

    def save_recording(self, path: str | Path, label: str) -> Path:
        """Everything that was exchanged, proposed and decided, as one file that `play` takes."""
        return recording.save(self.log, path, label)

    def export(self, version: Reference = "best", path: str | Path | None = None) -> str:
        """The source of a version, written to `path` when given. It needs no workbench: KernelBench loads it."""
        return self.log.export(version, path)
