"""The class `Session`. Each method delegates to one of the parts, on the single thread of the session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Self

from workbench import executors, stored_sessions
from workbench.plugins import DEFAULTS
from workbench.policies import accept_rules
from workbench.policies.chain import ChainSettings
from workbench.policies.search import SearchTree
from workbench.proposers.llm.client import ChatClient
from workbench.protocols import Executor, Progress, RunContext
from workbench.records import Decision, Diagnosis, Event, Facts, Job, Problem, Profile, Spent, Trial, Version
from workbench.records.search import SearchBudget
from workbench.session import loops, recording
from workbench.session.chain import ChainLoop, parse_settings
from workbench.session.creating import find_folder, load_stored_executor, make_store, session_names
from workbench.session.deciding import Deciding
from workbench.session.device import calibrate_first, print_note
from workbench.session.log import LogReader, Reference, SessionLog
from workbench.session.model_settings import ModelSettings
from workbench.session.parts import Parts
from workbench.session.profiling import Diagnosing, Learning, Profiling
from workbench.session.proposing import Proposing
from workbench.session.searching.live import Searching, make_request
from workbench.session.searching.steering import Steer, SteerAction
from workbench.session.testing import Testing, TestSettings
from workbench.session.work_thread import WorkThread
from workbench.store import ModelValue, Store


class Session(LogReader, TestSettings):
    """One problem, its versions, and the decisions about them.

    Get one by `create` or `open`; use it as a context manager. Pieces of work run one after the other. Ctrl-C and
    `stop` end the running one and leave the session intact. `options` go to the proposer or profiler.
    """

    def __init__(self, log: SessionLog, executor: Executor, refusal: str = "") -> None:
        super().__init__(log)
        self.refusal = refusal
        self._thread = WorkThread(on_stopped=log.add_stop, refusal=refusal)
        self.queue = self._thread.queue  # work that another thread does later: `stop` ends it, also before it begins
        context = RunContext(stop=self._thread.stop, progress=log.notify)
        self._testing = Testing(log, executor, context)
        self._profiling = Profiling(self._testing)
        self._diagnosing = Diagnosing(self._testing, self._profiling)
        log.subscribe(Learning(self._diagnosing).handle_event)
        self._model = ModelSettings(log)
        self._proposing = Proposing(self._testing, self._profiling, self._diagnosing, self._model)
        self._deciding = Deciding(self._testing, self._profiling)
        self._parts = Parts(log=log, testing=self._testing, proposing=self._proposing, deciding=self._deciding)
        self._searching = Searching(self._parts, self._profiling)

    # ---- creating and opening ---------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        problem: Problem | str,
        *,
        root: str | Path | None = None,
        name: str | None = None,
        executor: str | Executor = DEFAULTS.executor,
        arch: str = "",
        device: str | None = None,
        facts: Facts | None = None,
        calibrate: bool = True,
        progress: Progress | None = None,
    ) -> Self:
        """Create a session for a problem: a record, a name in the package, a path or source text.

        It is inspected unless its `facts` are given. The first session on a GPU measures its ceilings (`calibrate`).
        """
        chosen = executors.choose(executor) if isinstance(executor, str) else executor
        if calibrate:
            calibrate_first(chosen, RunContext(progress=progress or print_note))
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
        trusted: bool = False,
    ) -> Self:
        """Open a stored session by name or folder; with `write=False` another process may have it open for writing.

        Without `executor` the stored one is used, or the default one if that cannot run here. A session that this user
        neither made here nor trusts (`trusted`, `cutegen trust`) is opened for reading; its `refusal` says so.
        """
        folder = find_folder(path, root)
        store, refusal = stored_sessions.open_store(folder, write=write, given=trusted)
        return cls._from_store(store, folder, executor, refusal)

    @classmethod
    def _from_store(cls, store: Store, folder: Path, executor: Executor | None, refusal: str = "") -> Self:
        with stored_sessions.reading(store):
            return cls(SessionLog(store, folder), executor or load_stored_executor(store.meta()["executor"]), refusal)

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
        """End the running work within a second, and what waits behind it. Can be called from any thread."""
        self._thread.stop_all()

    def close(self) -> None:
        """Stop running work, tell the views, and release the session's lock."""
        self._thread.close()
        self.log.notify(Event(kind="closed"))
        stored_sessions.close_store(self.log.store)

    @property
    def executor_name(self) -> str:
        """The name of the executor that tests versions."""
        return self._testing.executor.name

    # ---- the language model -----------------------------------------------------------------------------------------

    def model(self, **values: ModelValue) -> dict[str, ModelValue]:
        """Change settings of the model by name (model_settings.NAMES). Returns all settings, without the key."""
        return self._model.change(**values)

    def set_key(self, value: str) -> None:
        """Use a key for the model's endpoint until the process ends. It is not stored."""
        self._model.set_key(value)

    @property
    def has_model(self) -> bool:
        """Whether a model is set, here or in the environment."""
        return self._model.why_not() is None

    def client(self) -> ChatClient:
        """The client of the model. Its budget includes everything that this session has spent."""
        return self._model.client()

    def spent(self) -> Spent | None:
        """Tokens and dollars (None = unknown) of all model calls of this session; None before the first."""
        return self._model.spent

    def ask(
        self, question: str, version: Reference | None = None, by: str = DEFAULTS.model_proposer, **options: object
    ) -> str:
        """Answer a question about a version (default: the baseline, else the latest). Adds no version."""
        return self._thread.run(lambda: self._proposing.answer(question, version, by, options))

    # ---- versions ---------------------------------------------------------------------------------------------------

    def generate(
        self,
        by: str = DEFAULTS.proposer,
        instruction: str = "",
        *,
        test: bool = True,
        depth: int | None = None,
        chain: ChainSettings | None = None,
        start: Reference | None = None,
        **options: object,
    ) -> Version | None:
        """Make the next version from the baseline (or `start`) and test it. None if the proposer has no further idea.

        `depth` counts optimisation steps. `chain` decides from which depth on a language model sees the profile.
        """
        return self._thread.run(
            lambda: self._proposing.generate(by, instruction, options, test=test, depth=depth, chain=chain, start=start)
        )

    def refine(self, instruction: str = "", by: str = DEFAULTS.proposer, **options: object) -> Version | None:
        """Make one more version from the baseline and test it. `instruction` is text for the proposer."""
        return self._thread.run(lambda: self._proposing.generate(by, instruction, options))

    async def step(self, *, by: str = DEFAULTS.proposer, instruction: str = "") -> Version | None:
        """Like `refine`, but awaitable: a notebook can serve Stop, accept and reject meanwhile."""
        future = self._thread.submit(lambda: self._proposing.generate(by, instruction))
        try:
            return await asyncio.wrap_future(future, loop=asyncio.get_running_loop())
        except asyncio.CancelledError:
            self.stop()
            raise

    def repair(
        self, version: Reference = "latest", by: str = DEFAULTS.model_proposer, **options: object
    ) -> Version | None:
        """Make a version that repairs a failed one (diagnosis, then patches), and test it."""
        return self._thread.run(lambda: self._proposing.repair(version, by, options))

    def choices(
        self, count: int = 3, by: str = DEFAULTS.model_proposer, instruction: str = "", **options: object
    ) -> tuple[Version, ...]:
        """Make and test several versions from the same baseline, for the user to choose from."""
        return self._thread.run(lambda: self._proposing.choices(count, by, instruction, options))

    def edit(
        self, source: str, title: str = "", reason: str = "", *, parent: Reference | None = None, test: bool = True
    ) -> Version:
        """Add a version from the user's whole file."""
        return self._thread.run(lambda: self._proposing.edit(source, title, reason, parent=parent, test=test))

    def program(
        self, text: str, title: str = "", reason: str = "", *, parent: Reference | None = None, test: bool = True
    ) -> Version:
        """Add a version from the user's muCUTLASS program."""
        return self._thread.run(lambda: self._proposing.program(text, title, reason, parent=parent, test=test))

    # ---- testing ----------------------------------------------------------------------------------------------------

    def job(self, version: Version | None, *, want_sass: bool = False, rival: Version | None = None) -> Job:
        """The job that tests a version, or any, on this session's executor. `rival` is timed in alternation with it."""
        return self._testing.job(version, want_sass=want_sass, rival=rival)

    def test(self, version: Reference = "latest", *, want_sass: bool = False) -> Trial:
        """Compile, run and check a version. The trial is stored."""
        return self._thread.run(lambda: self._testing.test(version, want_sass=want_sass))

    def profile(
        self, version: Reference = "latest", by: str = DEFAULTS.profiler, *, again: bool = False, **options: object
    ) -> Profile:
        """Profile a version by one profiler or several ("ncu+timeline+energy"). Each one runs it once more.

        A profile that the session keeps, of the same device and options, is returned without a run, unless `again`.
        """
        return self._thread.run(lambda: self._profiling.profile(version, by, options, again=again))

    def diagnose(self, version: Reference = "latest", by: str = "", *, again: bool = False) -> Diagnosis:
        """What limits a version and what to change, best advice first (workbench.probes). Nothing is run where the
        counts of its test are enough; `by` names profilers instead.
        """
        known = None if by or again else self.known_diagnosis(version)
        return known or self._thread.run(lambda: self._diagnosing.diagnose(version, by, again=again))

    def known_diagnosis(self, version: Reference = "latest") -> Diagnosis | None:
        """The diagnosis from what a version's test counted, or from a kept profile of a GPU; None without both.

        It runs nothing and waits for nothing.
        """
        return self._diagnosing.find_known(self.version(version))

    def apply_advice(
        self, version: Reference = "latest", advice: int | str = 1, *, by: str = "", again: bool = False
    ) -> Version | None:
        """Make and test the version that follows an advice of `diagnose`, its parent being `version`. `advice` is its
        probe, or its number from 1.

        A program in muCUTLASS gets the advised setting; else the session's model gets the advice. None if neither is
        possible: the last note says why.
        """

        def apply() -> Version | None:
            found = self._diagnosing.diagnose(version, by, again=again)
            return self._proposing.apply_advice(found, self.version(version), advice)

        return self._thread.run(apply)

    def replay(self, *versions: Reference) -> tuple[str, ...]:
        """Run tested versions again, by default all. Returns a sentence for each outcome that differs from the log."""
        return self._thread.run(lambda: self._testing.replay(*versions))

    # ---- decisions ----------------------------------------------------------------------------------------------

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
        """Make a version the baseline. With `hunks`, make a new version with only those changes to its parent.

        A whole version that was tested is accepted at once, even during a step. A version that needs a test waits.
        """
        chosen = self.version(version)
        accept = partial(self._deciding.accept, chosen.number, hunks=hunks, source_hash=source_hash)
        accept = partial(accept, reason=reason, by=by, force=force)
        return accept() if hunks is None and chosen.trials else self._thread.run(accept)

    def reject(
        self, version: Reference = "latest", reason: str = "", *, source_hash: str | None = None, by: str = "person"
    ) -> Version:
        """Reject a version. The reason is stored, and later proposals take it into account."""
        return self.log.reject(version, reason, by=by, source_hash=source_hash)

    def judge(self, version: Reference = "latest") -> Version:
        """Accept a tested version that is correct and better than the baseline by `accept_rule`, reject any other.

        `run` does so. A rule that needs joules measures them, if a GPU is at hand and the session keeps none.
        """
        chosen = self.version(version)
        return self._thread.run(lambda: self._deciding.judge(chosen))

    @property
    def accept_rule(self) -> str:
        """By which rule `judge` and `run` accept: "time", "energy-at-equal-time" or "energy-delay"."""
        return self.log.accept_rule

    @accept_rule.setter
    def accept_rule(self, rule: str) -> None:
        self.log.store.set_meta({"accept_rule": accept_rules.check_rule(rule)})

    def undo(self) -> Decision:
        """Take back the last decision that still holds."""
        return self._deciding.undo()

    def pin(self, constraint: str) -> tuple[str, ...]:
        """Add an instruction for all later proposals, until `unpin`."""
        return self.log.pin(constraint)

    def unpin(self, constraint: str) -> tuple[str, ...]:
        """Remove a pinned instruction."""
        return self.log.unpin(constraint)

    # ---- many steps -------------------------------------------------------------------------------------------------

    def run(self, steps: int = 3, by: str = DEFAULTS.proposer, **options: object) -> tuple[Version, ...]:
        """Make a first version and `steps` refinements. Accept each if it is correct and faster, else reject it."""
        return self._thread.run(lambda: loops.run_steps(self._parts, steps, by, options))

    def run_until(
        self,
        until: str | int = "sol",
        by: str = DEFAULTS.proposer,
        *,
        epsilon: float | None = None,
        patience: int | None = None,
        **options: object,
    ) -> tuple[Version, ...]:
        """Make refinements until the policy `budget` stops ("sol"), or a number of them. An event gives the reason."""
        if (settings := loops.parse_until(until, epsilon, patience)) is None:
            return self.run(int(until), by, **options)
        return self._thread.run(lambda: loops.run_until(self._parts, settings, by, options))

    def run_chain(self, by: str = DEFAULTS.model_proposer, **settings: str | int) -> tuple[Version, ...]:
        """Run CuTeGen's loop (policies.chain); `settings` are fields of `ChainSettings`, with the paper's defaults."""
        return self._thread.run(lambda: ChainLoop(self._parts, parse_settings(settings), by).run())

    def search(
        self, strategy: str = "tree", budget: SearchBudget | int | None = None, seed: int = 0, **how: object
    ) -> SearchTree:
        """Search among versions by a strategy of `policies.search`, or go on with the last search that began so.

        A budget that is a number is of trials. `how`: fields of `SearchRequest` (by, aim, fresh, options, screen,
        workers), and constants of the strategy, such as priors=False. Each candidate that is tried becomes a version.
        """
        return self._thread.run(lambda: self._searching.run(make_request(strategy, budget, seed, how)))

    def start_search(
        self, strategy: str = "tree", budget: SearchBudget | int | None = None, seed: int = 0, **how: object
    ) -> Future[SearchTree]:
        """Like `search`, but returns at once: a person can look and steer meanwhile."""
        return self._thread.submit(lambda: self._searching.run(make_request(strategy, budget, seed, how)))

    def search_tree(self, search: int | None = None) -> SearchTree:
        """The tree of the last search, or of one by its number, as it is now. Raises `UserError` if there is none."""
        return self._searching.tree(search)

    def steer_search(
        self, action: SteerAction, node: int | None = None, text: str = "", budget: SearchBudget | None = None
    ) -> SearchTree:
        """Do one of `searching.steering.Steer` to the last search, from any thread, also while the search runs."""
        return self._searching.steer(Steer(action=action, node=node, text=text, budget=budget))

    def play(self, name: str | Path) -> tuple[str, ...]:
        """Play a trusted recording into this new session. Returns a sentence per different verdict."""
        return self._thread.run(lambda: recording.play_file(self._parts, name))

    def save_recording(self, path: str | Path, label: str) -> Path:
        """Write model calls, proposals and decisions to one file for `play`."""
        return recording.save(self.log, path, label, own=not self.refusal)

    def export(self, version: Reference = "best", path: str | Path | None = None, form: str = "kernelbench") -> str:
        """A version in a form of `codegen.exports.FORMS`, without the workbench; also written to `path` if given."""
        return self.log.export(version, path, form)
