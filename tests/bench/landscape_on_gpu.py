"""Landscapes of at least 20 problems on a GPU: every configuration of the plan compiled, timed and checked at full size.

    python tests/bench/landscape_on_gpu.py --out $OUT/landscape.csv --seconds 540 [--done earlier.csv.gz ...] [--only matmul_bf16] [--workers 15]
    python tests/bench/landscape_on_gpu.py --plan                                      what would be measured; no GPU
    python tests/bench/landscape_on_gpu.py --dry-run --most 3 --only matmul_bf16_4096  reduced sizes on the emulator; no GPU, no times
    python tests/bench/landscape_on_gpu.py --join a.csv b.csv --to workbench/landscapes/h200.csv.gz

Many processes compile; one at a time has the GPU. Problems are served in turn, so that a run which is cut short has something of each; rows are appended as they come, and what
--out or --done holds is not measured again. A process that crashes, or takes longer than its limit, loses only the configuration at hand.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
import landscape_plan
from landscape_plan import MOST, RULE, Mapped, Task, mapped, places, tasks

from workbench.landscapes import table
from workbench.landscapes.table import Row

LIMITS_S = {"compile": 90.0, "wait": 240.0, "gpu": 30.0}
LEAVE_S = 12.0  # for what is under way at the end
OWNERS, AHEAD = 3, 600  # processes that keep a problem's inputs and reference on the GPU; files from the head of the queue among which a process looks for its own
PROTOCOL = (
    "CUDA events around one call, 12 calls (5 where one takes over 10 ms) after 4 more, the same inputs, L2 flushed before each by writing twice its size, a device-side sleep so that the host is ahead,"
    " one process on the GPU at a time while others compile; the last timed call's output is compared with torch's result in float64 (in strict float32 where inputs and that result take over 700 MiB)"
)


def machine() -> dict[str, Any]:
    """What the numbers are measured on."""
    said = ""
    if shutil.which("nvidia-smi"):
        said = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,power.limit,clocks.max.sm", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    name, driver, *rest = [part.strip() for part in said.split(",")] if said else ["", ""]
    versions = {"torch": version("torch"), "nvidia-cutlass-dsl": version("nvidia-cutlass-dsl"), "python": platform.python_version(), "driver": driver}
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), "device": name, "limits": ", ".join(rest), "versions": versions, "protocol": PROTOCOL, "sampling": RULE}


class Process:
    """A worker as the parent sees it."""

    def __init__(self, context: Any, arguments: tuple[Any, ...]) -> None:
        import landscape_worker

        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=landscape_worker.main, args=(theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.task: Task | None = None
        self.at: tuple[int, str] | None = None
        self.left: list[tuple[int, str]] = []
        self.phase, self.since = "compile", time.monotonic()
        self.ready = False
        self.own: set[int] = set()  # problems whose inputs and reference it has made

    def give(self, task: Task) -> None:
        """Start a task."""
        self.task, self.left, self.at, self.ready = task, list(task.targets), None, False
        self.own |= {number for number, _ in task.targets}
        self.phase, self.since = "compile", time.monotonic()
        self.pipe.send(task)

    @property
    def late(self) -> bool:
        """Whether what it does takes too long."""
        return not self.ready and time.monotonic() - self.since > LIMITS_S[self.phase]

    def end(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.join(10)
        self.pipe.close()


class Run:
    """One measuring run: hands out tasks, takes rows, replaces processes."""

    def __init__(self, plans: list[Mapped], arguments: argparse.Namespace, folder: Path, done: set[tuple[str, str]]) -> None:
        self.plans, self.arguments = plans, arguments
        self.queue = deque(tasks(plans, done))
        self.rows: list[Row] = []
        self.total = sum(len(task.targets) for task in self.queue)
        self.given = (plans, folder / "lock", folder, "shrunk" if arguments.dry_run else "full")
        self.context = multiprocessing.get_context("fork")
        self.start = time.monotonic()
        self.busy_s = 0.0
        self.workers = [Process(self.context, self.given) for _ in range(arguments.workers)]
        self.out = None if arguments.dry_run else arguments.out.open("a")

    def take(self, target: tuple[int, str], fields: dict[str, Any]) -> None:
        """A row has come."""
        row = Row(key=self.plans[target[0]].key, run=self.arguments.run_number, program=target[1], **fields)
        self.rows.append(row)
        if self.out is not None:
            self.out.write(table.line(row))
            self.out.flush()
        else:
            print(self.plans[target[0]].place.name, target[1], "ok" if row.correct else row.failure, row.error, row.registers, row.compile_s, flush=True)

    def hear(self, worker: Process) -> None:
        """Everything that a process has said."""
        try:
            while worker.pipe.poll():
                message = worker.pipe.recv()
                if message[0] == "phase":
                    worker.at, worker.phase, worker.since = message[1], message[2], time.monotonic()
                elif message[0] == "row":
                    self.busy_s += time.monotonic() - worker.since if worker.phase == "gpu" else 0.0
                    worker.left.remove(message[1])
                    worker.phase, worker.since, worker.at = "compile", time.monotonic(), None
                    self.take(message[1], message[2])
                elif message[0] == "ready":
                    worker.ready, worker.task = True, None
        except (EOFError, OSError):
            self.replace(worker, "run/crashed: the process died")

    def replace(self, worker: Process, failure: str) -> None:
        """End a process; the configuration at hand is lost, the rest of its task goes back."""
        worker.end()
        if worker.at is not None and worker.at in worker.left:
            worker.left.remove(worker.at)
            self.take(worker.at, {"correct": False, "failure": failure})
        elif worker.task is not None and worker.at is None and len(worker.left) == len(worker.task.targets):
            print(f"# a process ended before it had begun: {worker.left[0]}", flush=True)
            worker.left = worker.left[1:]
        if worker.left and worker.task is not None:
            self.queue.appendleft(Task(worker.task.source, tuple(worker.left)))
        self.workers[self.workers.index(worker)] = Process(self.context, self.given)

    def over(self) -> bool:
        """Whether no further task is to be started."""
        return time.monotonic() - self.start > self.arguments.seconds - LEAVE_S

    def next_for(self, worker: Process) -> Task:
        """The first file whose problems are this process's already, else with a problem of few processes, else the first of all: inputs and references are then made a few times, not for each file."""
        owners = Counter(number for one in self.workers for number in one.own)

        def cost(task: Task) -> tuple[int, int]:
            new = [number for number, _ in task.targets if number not in worker.own]
            return (sum(owners[number] >= OWNERS for number in new), len(new))

        near = min(range(min(AHEAD, len(self.queue))), key=lambda n: (*cost(self.queue[n]), n))
        task = self.queue[near]
        del self.queue[near]
        return task

    def go(self) -> None:
        """Until everything is measured or the time is over."""
        said = 0.0
        while (self.queue and not self.over()) or any(not worker.ready for worker in self.workers):
            if time.monotonic() - self.start > self.arguments.seconds:
                break
            for worker in list(self.workers):
                self.hear(worker)
            for worker in list(self.workers):
                if worker.ready and self.queue and not self.over():
                    worker.give(self.next_for(worker))
                elif worker.late:
                    self.replace(worker, f"limits/timeout: no answer within {LIMITS_S[worker.phase]:g} s ({worker.phase})")
            wait([worker.pipe for worker in self.workers], timeout=0.5)
            if time.monotonic() - said > 20:
                said = time.monotonic()
                phases = Counter("ready" if worker.ready else worker.phase for worker in self.workers)
                print(f"# {said - self.start:.0f} s: {len(self.rows)} of {self.total}, {sum(row.correct for row in self.rows)} correct, GPU in use {self.busy_s:.0f} s, {dict(phases)}", flush=True)
        for worker in self.workers:
            worker.end()
        if self.out is not None:
            self.out.close()


def planned(arguments: argparse.Namespace) -> list[Mapped]:
    """The plans of all chosen problems that the planner recognises."""
    if arguments.most:
        landscape_plan.MOST = arguments.most
    chosen = [place for place in places() if any(place.name.startswith(name) for name in arguments.only.split(","))]
    with multiprocessing.get_context("fork").Pool(min(arguments.workers, len(chosen), os.cpu_count() or 1)) as pool:
        found = pool.map(mapped, chosen, chunksize=1)
    plans: dict[str, Mapped] = {}
    for place, plan in zip(chosen, found, strict=True):
        if isinstance(plan, str):
            print(f"# {place.name}: {plan}", flush=True)
        else:
            programs = plan.programs[: arguments.most or MOST]
            plans.setdefault(plan.key, Mapped(plan.place, plan.problem, plan.facts, plan.key, programs, plan.legal))
    return list(plans.values())


def begin(path: Path, plans: list[Mapped]) -> int:
    """Start the file, or go on with it; the number of this run in it."""
    header = {"runs": [machine()], "problems": {plan.key: plan.header for plan in plans}}
    rows: list[Row] = []
    if path.exists():
        before, rows = table.read(path)
        header = {"runs": [*before["runs"], *header["runs"]], "problems": before["problems"] | header["problems"]}
    table.write(path, header, rows)
    return len(header["runs"]) - 1


def main() -> int:
    """Measure, or one of the other things that the module's text names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--workers", type=int, default=max((os.cpu_count() or 2) - 1, 1))
    parser.add_argument("--only", default="", help="names of problems, or how they begin")
    parser.add_argument("--most", type=int, default=0, help="configurations of a problem")
    parser.add_argument("--done", type=Path, nargs="*", default=[], help="files whose rows are not measured again")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--join", type=Path, nargs="+")
    parser.add_argument("--to", type=Path)
    arguments = parser.parse_args()
    if arguments.join:
        table.write(arguments.to, *table.join(map(table.read, arguments.join)))
        print(f"{arguments.to}: {len(table.read(arguments.to)[1])} rows, {arguments.to.stat().st_size} bytes")
        return 0
    start = time.monotonic()
    plans = planned(arguments)
    before = (*arguments.done, *([arguments.out] if arguments.out and arguments.out.exists() else []))
    done = {(row.key, row.program) for path in before for row in table.read(path)[1] if "OutOfMemory" not in row.failure}
    if arguments.plan:
        for plan in plans:
            print(f"{plan.place.name:28} {plan.key} {len(plan.programs):4} programs of {plan.legal:5} legal combinations; first {plan.programs[0]}")
        left = tasks(plans, done)
        print(f"{len(plans)} problems, {sum(len(task.targets) for task in left)} measurements of {len(left)} files")
        return 0
    if arguments.out is None and not arguments.dry_run:
        parser.error("--out FILE says where the rows go")
    arguments.run_number = 0 if arguments.dry_run else begin(arguments.out, plans)
    with tempfile.TemporaryDirectory() as folder:
        arguments.seconds -= time.monotonic() - start
        run = Run(plans, arguments, Path(folder), done)
        run.go()
    failures = Counter(row.failure.split(":")[0] for row in run.rows if row.failure)
    by_problem = Counter(row.key for row in run.rows if row.correct)
    for plan in plans:
        times = [row.median_s for row in run.rows if row.key == plan.key and row.median_s and row.program]
        eager = next((row.median_s for row in run.rows if row.key == plan.key and not row.program), None)
        said = f"best {min(times) * 1e6:9.1f} us" if times else ""
        print(f"{plan.place.name:28} {by_problem[plan.key]:4} correct of {len(plan.programs):4}  {said}  eager {(eager or 0) * 1e6:9.1f} us", flush=True)
    print(f"# {len(run.rows)} rows in {time.monotonic() - start:.0f} s, {len(run.queue)} files not begun; failures: {dict(failures)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
