"""Runs the processes of a tuning run: assigns files to compilers and batches to measurers, collects rows.

Files are compiled in the order of the plan: torch eager of every problem first, then the problems in turn. A file that
several problems share is compiled once. A problem belongs to the measurer that made its inputs and reference. The
problem with the fewest measured programs is next, once GRAIN of its programs, or all of them, are compiled. The inputs
of a large problem are freed after each batch, and only one large problem at a time is on a GPU. Processes that crash or
take too long are replaced.
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

from workbench.executors.gpu.presence import Gpu
from workbench.landscapes import table
from workbench.landscapes.table import Row, RowFields
from workbench.records import TensorSpec, record
from workbench.tuning import compiler, measurer
from workbench.tuning.measurer import PHASES, Batch, Item
from workbench.tuning.plan import Task, TuningPlan, list_tasks
from workbench.tuning.reference_cache import LARGE_BYTES, size_of

LIMITS_S = {"compile": 90.0, "load": 120.0, "wait": 240.0, "gpu": 40.0, "start": 120.0}
LEAVE_S = 12.0  # time left at the end for running work
GRAIN, MOST = 12, 24  # programs of a problem that make a batch, and the most in one (a large problem's has all)
SAY_S = 20.0
STARTS = 6  # processes that may end before they are ready
# stored results that were of no use (a broken context counts 3) before the first useful one: then the store is given up
USELESS = 9

Target = tuple[int, str]


class Process:
    """A compiler or a measurer, as the parent sees it."""

    def __init__(self, context: ForkContext, measures: bool, arguments: tuple[object, ...], gpu: int = -1) -> None:
        self.measures, self.gpu = measures, gpu
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=(measurer if measures else compiler).main, args=(theirs, *arguments), daemon=True
        )
        self.process.start()
        theirs.close()
        self.work: dict[Target, Item] = {}  # assigned and not answered
        self.at: Target | None = None
        self.number = -1  # the problem of a measurer
        self.counts: dict[str, int] = {}
        self.set_phase("start")
        self.ready = False

    def set_phase(self, phase: str, at: Target | None = None) -> None:
        """Note what the process does from now on."""
        self.phase, self.at, self.since = phase, at, time.monotonic()

    def assign(self, work: dict[Target, Item], message: object, number: int = -1) -> None:
        """Send the process new work."""
        self.work, self.number, self.ready = work, number, False
        self.set_phase("load" if self.measures else "compile")
        self.pipe.send(message)

    @property
    def is_late(self) -> bool:
        """Whether the current phase takes too long."""
        return not self.ready and time.monotonic() - self.since > LIMITS_S[self.phase]

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join(10)
        self.pipe.close()


@record
class RunOptions:
    """Time limit, processes and output of a run."""

    seconds: float
    workers: int  # processes in all
    measurers: int  # of these, measuring processes per GPU
    gpus: tuple[Gpu, ...]  # () for a dry run
    out: Path | None  # file to which rows are appended; None: they are printed
    run_number: int
    dry_run: bool = False


class Run:
    """The state of a run: all processes, the work that is left, and the rows."""

    def __init__(
        self, plans: list[TuningPlan], arguments: RunOptions, folder: Path, done: set[tuple[str, str]]
    ) -> None:
        self.plans, self.arguments, self.folder = plans, arguments, folder
        self.case = "shrunk" if arguments.dry_run else "full"
        todo = list_tasks(plans, done)
        self.queue = deque(task for task in todo if task.source)
        # programs that are not compiled yet, by problem
        self.left = Counter(number for task in self.queue for number, _ in task.targets)
        self.waiting: dict[int, list[Item]] = defaultdict(list)  # programs ready to measure, by problem
        for task in todo:
            if not task.source:
                self.waiting[task.targets[0][0]].append(Item(program="", source=""))
        self.large = {
            number for number, plan in enumerate(plans) if sum(map(size_of, self._tensors(plan))) > LARGE_BYTES
        }
        self.total = sum(len(task.targets) for task in todo)
        self.rows: list[Row] = []
        self.on_row: Callable[[Row], None] = lambda row: None
        self.seconds: dict[int, Counter[str]] = defaultdict(Counter)  # measurers' seconds by problem and phase
        self.served: Counter[int] = Counter()
        self.owner: dict[int, Process] = {}
        self.clusters: dict[int, int] | None = None
        self.counts: Counter[str] = Counter()
        self.compiling_s = 0.0
        self.use_kept = True
        self.context = multiprocessing.get_context("fork")
        self.start = time.monotonic()
        self.until = self.start + arguments.seconds
        self.gpus = max(len(arguments.gpus), 1)
        self.measurers = [self._start_measurer(number % self.gpus) for number in range(arguments.measurers * self.gpus)]
        self.compilers = [self._start_compiler() for _ in range(max(arguments.workers - len(self.measurers), 1))]
        self.out = arguments.out.open("a") if arguments.out is not None else None

    def _tensors(self, plan: TuningPlan) -> list[TensorSpec]:
        case = next(case for case in plan.facts.cases if case.name == self.case)
        return [*case.inputs, *case.outputs]

    def _start_measurer(self, gpu: int) -> Process:
        place = self.arguments.gpus[gpu] if self.arguments.gpus else None
        return Process(self.context, True, (self.plans, place, self.folder, self.case), gpu)

    def _start_compiler(self) -> Process:
        return Process(self.context, False, (self.plans, self.folder, self.case))

    # ---- messages from processes -----------------------------------------------------------------------------------

    def receive(self, one: Process) -> None:
        """Handle all messages of a process; replace it if it died."""
        try:
            while one.pipe.poll():
                self._handle(one, one.pipe.recv())
        except (EOFError, OSError):
            self.replace(one, "run/crashed: the process died")

    def _handle(self, one: Process, message: tuple[Any, ...]) -> None:
        kind, *said = message
        if kind == "phase":
            one.set_phase(said[1], said[0])
        elif kind == "clusters":
            self.clusters = said[0]
        elif kind == "compiled":
            self._handle_compiled(one, *said)
        elif kind == "row":
            item = one.work.pop(said[0])
            self.seconds[said[0][0]].update(said[2])
            self.counts["measured as kept"] += bool(said[3] and said[1].get("correct"))
            self.counts["measured otherwise"] += bool(item.source and not said[3])
            self.add_row(said[0], said[1])
            one.set_phase("load")
        elif kind == "broken":
            self._requeue_without_kept(one, said[0])
        elif kind == "ready":
            one.ready = True
            if one.measures:
                one.counts = said[0]
                for target, item in one.work.items():  # no time was left for them
                    self.waiting[target[0]].append(item)
                one.work = {}

    def _handle_compiled(self, one: Process, target: Target, made: compiler.CompiledFile) -> None:
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

    def _requeue_without_kept(self, one: Process, target: Target) -> None:
        item = one.work.pop(target)
        self.waiting[target[0]].append(Item(program=item.program, source=item.source))
        self.counts["broken by kept"] += 1
        one.at = None

    def add_row(self, target: Target, fields: RowFields) -> None:
        """Add a row, and write or print it."""
        row = Row(key=self.plans[target[0]].key, run=self.arguments.run_number, program=target[1], **fields)
        self.rows.append(row)
        self.on_row(row)
        self.served[target[0]] += 1
        if self.out is not None:
            self.out.write(table.format_row(row))
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
        """Kill and replace a process. Its current configuration fails, the rest of its work is queued again."""
        one.kill()
        self.counts["ended before they began"] += one.phase == "start"
        if self.counts["ended before they began"] >= STARTS:
            raise RuntimeError(f"{STARTS} processes ended before they had begun; their output is above")
        for number in [number for number, owner in self.owner.items() if owner is one]:
            del self.owner[number]
        if one.at is not None and one.at in one.work:
            del one.work[one.at]
            if not one.measures:
                self.left[one.at[0]] -= 1
            self.add_row(one.at, {"correct": False, "failure": failure})
        for target, item in one.work.items():
            if one.measures:
                self.waiting[target[0]].append(item)
            else:
                self.queue.append(Task(item.source, (target,)))
        self.counts["processes replaced"] += 1
        if one.measures:
            self.measurers[self.measurers.index(one)] = self._start_measurer(one.gpu)
        else:
            self.compilers[self.compilers.index(one)] = self._start_compiler()

    # ---- work for processes ----------------------------------------------------------------------------------------

    def is_over(self) -> bool:
        """Whether the time for starting work is over."""
        return time.monotonic() > self.until - LEAVE_S

    def compile_next(self, one: Process) -> None:
        """Give a compiler the next file of the plan."""
        task = self.queue.popleft()
        one.assign(
            {target: Item(program=target[1], source=task.source) for target in task.targets}, (task, self.clusters)
        )

    def measure_next(self, one: Process) -> None:
        """Give a measurer a batch of the problem with the fewest measured programs.

        Its own problems go first, and problems with enough compiled programs go before the others.
        """
        busy = {other.number for other in self.measurers if not other.ready and other.gpu == one.gpu}
        large_busy = bool(busy & self.large)
        able = [
            number
            for number, items in self.waiting.items()
            if items
            and number % self.gpus == one.gpu
            and number not in busy
            and not (number in self.large and (large_busy or not self._has_batch(number)))
        ]
        if not able:
            return
        number = min(able, key=lambda n: (self.owner.get(n, one) is not one, not self._has_batch(n), self.served[n], n))
        items = self.waiting[number]
        most = len(items) if number in self.large else MOST
        given, self.waiting[number] = items[:most], items[most:]
        self.owner.setdefault(number, one)
        one.assign(
            {(number, item.program): item for item in given},
            Batch(number=number, items=tuple(given), until=self.until - LEAVE_S),
            number,
        )

    def _has_batch(self, number: int) -> bool:
        """Whether enough programs of a problem are compiled for a batch."""
        return (
            len(self.waiting[number]) >= GRAIN
            or not self.left[number]
            or any(not item.program for item in self.waiting[number])
        )

    def run(self) -> None:
        """Run until everything is measured or the time is over."""
        said = self.start
        while time.monotonic() < self.until:
            for one in (*self.measurers, *self.compilers):
                self.receive(one)
            if not self.is_over():
                self._assign_work()
            idle = not (self.queue or any(self.waiting.values()) or any(one.work for one in self.compilers))
            if (idle or self.is_over()) and all(one.ready or one.phase == "start" for one in self.measurers):
                break
            for one in [one for one in (*self.measurers, *self.compilers) if one.is_late]:
                self.replace(one, f"limits/timeout: no answer within {LIMITS_S[one.phase]:g} s ({one.phase})")
            wait([one.pipe for one in (*self.measurers, *self.compilers)], timeout=0.2)
            if time.monotonic() - said > SAY_S:
                said = time.monotonic()
                self.print_status()
        for one in (*self.measurers, *self.compilers):
            one.kill()
        if self.out is not None:
            self.out.close()

    def _measure_all(self) -> None:
        """Give up the store: no stored result could be used, so every process compiles and measures itself."""
        print(
            "# nothing that was compiled without a GPU can be used: every process compiles and measures from now on",
            flush=True,
        )
        self.use_kept = False
        for one in self.compilers:
            one.kill()
            self.queue.extendleft(Task(item.source, (target,)) for target, item in one.work.items())
        self.measurers += [self._start_measurer(number % self.gpus) for number, _ in enumerate(self.compilers)]
        self.compilers = []
        for task in self.queue:
            for number, program in task.targets:
                self.waiting[number].append(Item(program=program, source=task.source))
        self.queue.clear()
        self.left.clear()
        for number, items in self.waiting.items():
            self.waiting[number] = [Item(program=item.program, source=item.source) for item in items]

    def _assign_work(self) -> None:
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

    # ---- reports -----------------------------------------------------------------------------------------------------

    def print_status(self) -> None:
        """Print rows and files so far, and the measurers' seconds by phase."""
        now = time.monotonic() - self.start
        phases = sum(self.seconds.values(), Counter())
        spent = ", ".join(f"{name} {phases[name]:.1f}" for name in PHASES if phases[name])
        own = sum((Counter(one.counts) for one in self.measurers), Counter())
        ready = sum(map(len, self.waiting.values()))
        doing = Counter("ready" if one.ready else one.phase for one in self.measurers)
        rows, correct = len(self.rows), sum(row.correct for row in self.rows)
        busy = sum(not one.ready for one in self.compilers)
        print(
            f"# {now:.0f} s: {rows} of {self.total} rows ({rows / max(now, 1):.1f}/s), {correct} correct; "
            f"{len(self.queue)} files not begun, {ready} programs wait, "
            f"{busy} of {len(self.compilers)} compilers busy {self.compiling_s:.0f} s; "
            f"measurers {dict(doing)}, seconds: {spent}; {dict(own)} {dict(self.counts)}",
            flush=True,
        )

    def print_report(self) -> None:
        """Print the measurers' time by problem and phase, in milliseconds per row."""
        self.print_status()
        print(f"# {'ms a row':28} {'rows':>5} " + " ".join(f"{name:>8}" for name in PHASES))
        for number, plan in enumerate(self.plans):
            rows, found = self.served[number], self.seconds[number]
            if rows:
                print(
                    f"# {plan.place.name:28} {rows:5} "
                    + " ".join(f"{1e3 * found[name] / rows:8.1f}" for name in PHASES),
                    flush=True,
                )
