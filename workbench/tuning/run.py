"""One run of a tuning run: hands files to compiling processes and batches of what they kept to measuring ones, takes rows, replaces processes.

Files are compiled in the order of the plan: torch eager of every problem first, then the problems in turn, what several share once. A problem belongs to the measurer that made its inputs and reference;
the problem of which least is measured is served next, when GRAIN of its programs are compiled, or all that there are. A large problem's inputs are given back after each batch, one such at a time on a GPU.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import ForkContext
from pathlib import Path
from typing import Any

from workbench.landscapes import table
from workbench.landscapes.table import Row, RowFields
from workbench.records import TensorSpec, record
from workbench.tuning import compiler, measurer
from workbench.tuning.measurer import PHASES, Batch, Item
from workbench.tuning.plan import Task, TuningPlan, tasks
from workbench.tuning.reference_cache import LARGE_BYTES, size_of

LIMITS_S = {"compile": 90.0, "load": 120.0, "wait": 240.0, "gpu": 40.0, "start": 120.0}
LEAVE_S = 12.0  # for what is under way at the end
GRAIN, MOST = (
    12,
    24,
)  # programs of a problem that are waited for, and that one batch has at most (of a large problem all)
SAY_S = 20.0
STARTS = 6  # processes that may end before they are ready
USELESS = 9  # programs that were of no use as they were kept (a broken context counts 3) before any was: from then on nothing is kept

Target = tuple[int, str]


class Process:
    """A process as the parent sees it: a compiler, or a measurer."""

    def __init__(self, context: ForkContext, measures: bool, arguments: tuple[object, ...], gpu: int = -1) -> None:
        self.measures, self.gpu = measures, gpu
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=(measurer if measures else compiler).main, args=(theirs, *arguments), daemon=True
        )
        self.process.start()
        theirs.close()
        self.work: dict[Target, Item] = {}  # what it was given and has not answered
        self.at: Target | None = None
        self.number = -1  # a measurer's problem
        self.counts: dict[str, int] = {}
        self.to("start")
        self.ready = False

    def to(self, phase: str, at: Target | None = None) -> None:
        """It does something else now."""
        self.phase, self.at, self.since = phase, at, time.monotonic()

    def give(self, work: dict[Target, Item], message: object, number: int = -1) -> None:
        """Start something."""
        self.work, self.number, self.ready = work, number, False
        self.to("load" if self.measures else "compile")
        self.pipe.send(message)

    @property
    def late(self) -> bool:
        """Whether what it does takes too long."""
        return not self.ready and time.monotonic() - self.since > LIMITS_S[self.phase]

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.join(10)
        self.pipe.close()


@record
class RunOptions:
    """How a run works."""

    seconds: float
    workers: int  # processes in all
    measurers: int  # of them, those that use a GPU, for each GPU
    gpus: int
    out: Path | None  # where rows go; None in a dry run that only prints
    run_number: int
    dry_run: bool = False


class Run:
    """All processes, what is to be done, and what is known."""

    def __init__(
        self, plans: list[TuningPlan], arguments: RunOptions, folder: Path, done: set[tuple[str, str]]
    ) -> None:
        self.plans, self.arguments, self.folder = plans, arguments, folder
        self.case = "shrunk" if arguments.dry_run else "full"
        todo = tasks(plans, done)
        self.queue = deque(task for task in todo if task.source)
        self.left = Counter(
            number for task in self.queue for number, _ in task.targets
        )  # programs of each problem that are to be compiled
        self.waiting: dict[int, list[Item]] = defaultdict(list)  # of each problem, what can be measured
        for task in todo:
            if not task.source:
                self.waiting[task.targets[0][0]].append(Item(program="", source=""))
        self.large = {
            number for number, plan in enumerate(plans) if sum(map(size_of, self._tensors(plan))) > LARGE_BYTES
        }
        self.total = sum(len(task.targets) for task in todo)
        self.rows: list[Row] = []
        self.on_row: Callable[[Row], None] = lambda row: None
        self.seconds: dict[int, Counter[str]] = defaultdict(Counter)  # of the measurers, by problem and phase
        self.served: Counter[int] = Counter()
        self.owner: dict[int, Process] = {}
        self.clusters: dict[int, int] | None = None
        self.counts: Counter[str] = Counter()
        self.compiling_s = 0.0
        self.use_kept = True
        self.context = multiprocessing.get_context("fork")
        self.start = time.monotonic()
        self.until = self.start + arguments.seconds
        self.gpus = arguments.gpus
        self.measurers = [self._measurer(number % self.gpus) for number in range(arguments.measurers * self.gpus)]
        self.compilers = [self._compiler() for _ in range(max(arguments.workers - len(self.measurers), 1))]
        self.out = arguments.out.open("a") if arguments.out is not None else None

    def _tensors(self, plan: TuningPlan) -> list[TensorSpec]:
        case = next(case for case in plan.facts.cases if case.name == self.case)
        return [*case.inputs, *case.outputs]

    def _measurer(self, gpu: int) -> Process:
        return Process(self.context, True, (self.plans, gpu, self.folder, self.case), gpu)

    def _compiler(self) -> Process:
        return Process(self.context, False, (self.plans, self.folder, self.case))

    # ---- what processes say ---------------------------------------------------------------------------------------------

    def hear(self, one: Process) -> None:
        """Everything that a process has said."""
        try:
            while one.pipe.poll():
                self._heard(one, one.pipe.recv())
        except (EOFError, OSError):
            self.replace(one, "run/crashed: the process died")

    def _heard(self, one: Process, message: tuple[Any, ...]) -> None:
        kind, *said = message
        if kind == "phase":
            one.to(said[1], said[0])
        elif kind == "clusters":
            self.clusters = said[0]
        elif kind == "compiled":
            self._compiled(one, *said)
        elif kind == "row":
            item = one.work.pop(said[0])
            self.seconds[said[0][0]].update(said[2])
            self.counts["measured as kept"] += bool(said[3] and said[1].get("correct"))
            self.counts["measured otherwise"] += bool(item.source and not said[3])
            self.take(said[0], said[1])
            one.to("load")
        elif kind == "broken":
            self._without_kept(one, said[0])
        elif kind == "ready":
            one.ready = True
            if one.measures:
                one.counts = said[0]
                for target, item in one.work.items():  # no time was left for them
                    self.waiting[target[0]].append(item)
                one.work = {}

    def _compiled(self, one: Process, target: Target, made: compiler.Made) -> None:
        item = one.work.pop(target)
        self.left[target[0]] -= 1
        self.compiling_s += made.seconds
        self.counts["compiled files"] += 1
        if made.why:
            self.counts["not compiled without a GPU"] += 1
            if self.counts["not compiled without a GPU"] <= 5:
                print(
                    f"# not compiled without a GPU: {self.plans[target[0]].place.name} {target[1]}: {made.why}",
                    flush=True,
                )
        self.waiting[target[0]].append(
            Item(program=item.program, source=item.source, made=made if made.keys and self.use_kept else None)
        )

    def _without_kept(self, one: Process, target: Target) -> None:
        item = one.work.pop(target)
        self.waiting[target[0]].append(Item(program=item.program, source=item.source))
        self.counts["broken by kept"] += 1
        one.at = None

    def take(self, target: Target, fields: RowFields) -> None:
        """A row has come."""
        row = Row(key=self.plans[target[0]].key, run=self.arguments.run_number, program=target[1], **fields)
        self.rows.append(row)
        self.on_row(row)
        self.served[target[0]] += 1
        if self.out is not None:
            self.out.write(table.line(row))
            self.out.flush()
        else:
            print(
                self.plans[target[0]].place.name,
                target[1],
                "ok" if row.correct else row.failure,
                row.error,
                row.registers,
                row.compile_s,
                flush=True,
            )

    def replace(self, one: Process, failure: str) -> None:
        """End a process; the configuration at hand is lost, the rest of its work goes back."""
        one.end()
        self.counts["ended before they began"] += one.phase == "start"
        if self.counts["ended before they began"] >= STARTS:
            raise RuntimeError(f"{STARTS} processes ended before they had begun; what they said is above")
        for number in [number for number, owner in self.owner.items() if owner is one]:
            del self.owner[number]
        if one.at is not None and one.at in one.work:
            del one.work[one.at]
            if not one.measures:
                self.left[one.at[0]] -= 1
            self.take(one.at, {"correct": False, "failure": failure})
        for target, item in one.work.items():
            if one.measures:
                self.waiting[target[0]].append(item)
            else:
                self.queue.append(Task(item.source, (target,)))
        self.counts["processes replaced"] += 1
        if one.measures:
            self.measurers[self.measurers.index(one)] = self._measurer(one.gpu)
        else:
            self.compilers[self.compilers.index(one)] = self._compiler()

    # ---- what processes are given ---------------------------------------------------------------------------------------

    def over(self) -> bool:
        """Whether nothing more is to be started."""
        return time.monotonic() > self.until - LEAVE_S

    def compile_next(self, one: Process) -> None:
        """The next file of the plan."""
        task = self.queue.popleft()
        one.give(
            {target: Item(program=target[1], source=task.source) for target in task.targets}, (task, self.clusters)
        )

    def measure_next(self, one: Process) -> None:
        """A batch of the problem of which least is measured; its own problems first, and none of which little is compiled yet if another has more."""
        busy = {other.number for other in self.measurers if not other.ready and other.gpu == one.gpu}
        large_busy = bool(busy & self.large)
        able = [
            number
            for number, items in self.waiting.items()
            if items
            and number % self.gpus == one.gpu
            and number not in busy
            and not (number in self.large and (large_busy or not self._whole(number)))
        ]
        if not able:
            return
        number = min(able, key=lambda n: (self.owner.get(n, one) is not one, not self._whole(n), self.served[n], n))
        items = self.waiting[number]
        most = len(items) if number in self.large else MOST
        given, self.waiting[number] = items[:most], items[most:]
        self.owner.setdefault(number, one)
        one.give(
            {(number, item.program): item for item in given},
            Batch(number=number, items=tuple(given), until=self.until - LEAVE_S),
            number,
        )

    def _whole(self, number: int) -> bool:
        """Whether enough of a problem is compiled for a batch."""
        return (
            len(self.waiting[number]) >= GRAIN
            or not self.left[number]
            or any(not item.program for item in self.waiting[number])
        )

    def go(self) -> None:
        """Until everything is measured or the time is over."""
        said = self.start
        while time.monotonic() < self.until:
            for one in (*self.measurers, *self.compilers):
                self.hear(one)
            if not self.over():
                self._hand_out()
            idle = not (self.queue or any(self.waiting.values()) or any(one.work for one in self.compilers))
            if (idle or self.over()) and all(one.ready or one.phase == "start" for one in self.measurers):
                break
            for one in [one for one in (*self.measurers, *self.compilers) if one.late]:
                self.replace(one, f"limits/timeout: no answer within {LIMITS_S[one.phase]:g} s ({one.phase})")
            wait([one.pipe for one in (*self.measurers, *self.compilers)], timeout=0.2)
            if time.monotonic() - said > SAY_S:
                said = time.monotonic()
                self.say()
        for one in (*self.measurers, *self.compilers):
            one.end()
        if self.out is not None:
            self.out.close()

    def _measure_all(self) -> None:
        """Nothing that was compiled without a GPU can be used: all processes measure what they compile themselves."""
        print(
            "# nothing that was compiled without a GPU can be used: every process compiles and measures from now on",
            flush=True,
        )
        self.use_kept = False
        for one in self.compilers:
            one.end()
            self.queue.extendleft(Task(item.source, (target,)) for target, item in one.work.items())
        self.measurers += [self._measurer(number % self.gpus) for number, _ in enumerate(self.compilers)]
        self.compilers = []
        for task in self.queue:
            for number, program in task.targets:
                self.waiting[number].append(Item(program=program, source=task.source))
        self.queue.clear()
        self.left.clear()
        for number, items in self.waiting.items():
            self.waiting[number] = [Item(program=item.program, source=item.source) for item in items]

    def _hand_out(self) -> None:
        useless = max(
            self.counts["broken by kept"] * 3,
            self.counts["measured otherwise"],
            self.counts["not compiled without a GPU"],
        )
        if self.use_kept and useless >= USELESS and not self.counts["measured as kept"]:
            self._measure_all()
        for one in self.measurers:
            if one.ready:
                self.measure_next(one)
        for one in self.compilers:
            if one.ready and self.queue and self.clusters is not None:
                self.compile_next(one)

    # ---- what is printed ------------------------------------------------------------------------------------------------

    def say(self) -> None:
        """Where it stands: rows, files, and where the measurers' time goes."""
        now = time.monotonic() - self.start
        phases = sum(self.seconds.values(), Counter())
        spent = ", ".join(f"{name} {phases[name]:.1f}" for name in PHASES if phases[name])
        own = sum((Counter(one.counts) for one in self.measurers), Counter())
        ready = sum(map(len, self.waiting.values()))
        doing = Counter("ready" if one.ready else one.phase for one in self.measurers)
        print(
            f"# {now:.0f} s: {len(self.rows)} of {self.total} rows ({len(self.rows) / max(now, 1):.1f}/s), {sum(row.correct for row in self.rows)} correct; {len(self.queue)} files not begun, {ready} programs wait, "
            f"{sum(not one.ready for one in self.compilers)} of {len(self.compilers)} compilers busy {self.compiling_s:.0f} s; measurers {dict(doing)}, seconds: {spent}; {dict(own)} {dict(self.counts)}",
            flush=True,
        )

    def report(self) -> None:
        """The measurers' seconds by problem, in milliseconds a row."""
        self.say()
        print(f"# {'ms a row':28} {'rows':>5} " + " ".join(f"{name:>8}" for name in PHASES))
        for number, plan in enumerate(self.plans):
            rows, found = self.served[number], self.seconds[number]
            if rows:
                print(
                    f"# {plan.place.name:28} {rows:5} "
                    + " ".join(f"{1e3 * found[name] / rows:8.1f}" for name in PHASES),
                    flush=True,
                )
