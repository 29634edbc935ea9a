"""Opens every problem file of a folder and runs the planner's first versions at all cases on the emulator.

    python tests/bench/kernelbench_sweep.py --folder KernelBench/level1 --folder KernelBench/level2 \\
        [--jobs 64] [--seconds 480] [--versions 3] [--limit 150] [--memory 8] [--out .cutegen/sweep] \\
        [--precision tf32] [--arch sm_90a]

KernelBench's files are not part of this repository: take them from a checkout of it. It needs no network and no GPU.
A row per version goes to rows.jsonl as it is made: status, largest error in tolerances, seconds. A problem whose text,
package, precision, architecture and number of versions are those of finished rows is not run again, so a sweep that
was stopped goes on; after --seconds it stops by itself. A problem that takes more than --limit seconds, or more than
--memory GiB with all of its processes, is ended. `--versions 0` only opens and plans. `--table` prints what is there
and runs nothing.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

import workbench
from workbench import problems
from workbench.errors import UserError
from workbench.records import Precision, Version
from workbench.session import Session

Row = dict[str, object]
KERNEL = re.compile(r"no kernel for (.*?)(?: in line |; |$)")
DONE = "done"  # the last message of a problem
WATCH_S = 2.0  # between two looks at the memory of the workers
RECORDED = Path(__file__).parent / "results" / "kernelbench_sweep.json"
ORDER = ("error", "wrong", "not opened", "timed out", "out of memory", "no kernel", "planned", "right")


def package_hash() -> str:
    """A hash of the package's sources that decide what the planner writes and whether it is right."""
    root = Path(workbench.__file__).parent
    digest = hashlib.sha256()
    for folder in ("proposers", "kernels", "codegen", "language", "problems", "emulator", "executors"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@dataclass(frozen=True)
class How:
    """How each problem is swept: versions, precision and architecture ("" is the emulator's own)."""

    versions: int
    precision: Precision
    arch: str


def sweep_problem(path: Path, root: Path, how: How) -> Iterator[Row]:
    """The rows of one problem as they are made: one per version, or one that says why there is none."""
    start, versions = time.perf_counter(), how.versions
    try:
        problem = problems.load(path.as_posix(), precision=how.precision)
        session = Session.create(problem, root=root, executor="emulator", arch=how.arch)
    except UserError as error:
        yield {"version": 0, "status": "not opened", "message": str(error)}
        return
    opened = {"opened_s": round(time.perf_counter() - start, 2)}
    with session:
        made, start = 0, time.perf_counter()
        while made < max(versions, 1):
            new = _next_versions(session, versions)
            for version in new:
                yield {**_describe(version), "seconds": round(time.perf_counter() - start, 1), **opened}
            made, start = made + len(new), time.perf_counter()
            if not new or not versions:
                break
        if not made:
            notes = [event.message for event in session.events() if event.kind == "note"]
            said = next((note for note in notes if "no kernel" in note or "planner" in note), "; ".join(notes))
            missing = KERNEL.search(said)
            yield {"version": 0, "status": "no kernel", "message": said, "missing": missing[1] if missing else ""} | (
                opened
            )


def _next_versions(session: Session, versions: int) -> tuple[Version, ...]:
    """The planner's next version, judged; only planned if no version is to be tested. Empty if it has no idea left."""
    if not versions:
        version = session.generate(test=False)
        return (version,) if version is not None else ()
    return session.run(steps=0 if session.baseline is None else 1)


def _describe(version: Version) -> Row:
    """A version's number, title, status, largest error in tolerances, and failure."""
    trial = version.trials[-1] if version.trials else None
    failure = trial.verdict.failure if trial is not None else None
    errors = [check.max_error for check in trial.outcome.checks] if trial is not None else []
    doubts = (*trial.verdict.suspect, *filter(None, [trial.verdict.refused])) if trial is not None else ()
    return {
        "version": version.number,
        "title": version.proposal.title,
        "status": "planned" if trial is None else "right" if trial.verdict.correct else "wrong",
        "max_error": round(max(errors), 4) if errors else None,
        "message": f"{failure.stage}/{failure.kind}: {failure.message}" if failure is not None else "",
        **({"doubts": list(doubts)} if doubts else {}),
    }


def serve(pipe: Connection, root: str, how: How) -> None:
    """A worker: sweeps the problems that come through the pipe and sends their rows."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            path = Path(pipe.recv())
            try:
                for row in sweep_problem(path, Path(root), how):
                    pipe.send(row)
            except Exception as error:  # one problem's fault must not end the sweep
                pipe.send({"version": 0, "status": "error", "message": f"{type(error).__name__}: {error}"})
            pipe.send(DONE)


@dataclass
class Worker:
    """A process for one problem after another, and the problem that it has now."""

    root: str
    how: How
    path: Path | None = None
    begun: float = 0.0
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.root, self.how), daemon=False)
        self.process.start()
        theirs.close()

    def begin(self, path: Path) -> None:
        """Hand over a problem."""
        self.path, self.begun, self.rows = path, time.monotonic(), []
        self.pipe.send(str(path))

    def end(self) -> None:
        """Kill the process; those that it started end when it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Sweep:
    """The problems that are left, the workers, and the file of rows."""

    def __init__(self, paths: list[Path], out: Path, arguments: argparse.Namespace) -> None:
        self.out, self.arguments, self.key = out, arguments, package_hash()
        self.how = How(arguments.versions, arguments.precision, arguments.arch)
        done = {row["key"] for row in read_rows(out) if row.get("last")}
        seconds = recorded_seconds()
        left = [path for path in paths if self.key_of(path) not in done]
        self.left = collections.deque(sorted(left, key=lambda path: -seconds.get(name_of(path), 1e9)))
        self.stop_at = time.monotonic() + arguments.seconds
        self.workers: list[Worker] = []

    def key_of(self, path: Path) -> str:
        """What rows depend on: the problem's text, the package and how it is swept."""
        return hashlib.sha256(f"{path.read_text()}{self.key}{self.how}".encode()).hexdigest()[:16]

    def run(self) -> None:
        """Sweep until nothing is left or the time is over."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
            count = min(self.arguments.jobs, len(self.left))
            self.workers = [Worker(root, self.how) for _ in range(count)]
            try:
                for n in range(count):
                    self._hand_over(n)
                looked = time.monotonic()
                while busy := [worker for worker in self.workers if worker.path is not None]:
                    if time.monotonic() > self.stop_at:
                        unfinished = len(self.left) + len(busy)
                        print(f"stopped after {self.arguments.seconds:.0f} s, {unfinished} problems are left")
                        break
                    for pipe in wait([worker.pipe for worker in busy], timeout=1):
                        self._receive(next(n for n, worker in enumerate(self.workers) if worker.pipe is pipe))
                    if time.monotonic() - looked > WATCH_S:
                        self._end_excessive()
                        looked = time.monotonic()
            finally:
                for worker in self.workers:
                    self._flush(worker, False)
                    worker.end()

    def _hand_over(self, n: int) -> None:
        """Give a worker the next problem, if there is one."""
        self.workers[n].path = None
        if self.left:
            self.workers[n].begin(self.left.popleft())

    def _receive(self, n: int) -> None:
        worker = self.workers[n]
        try:
            message = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._replace(n, "error", "the process ended")
            return
        if message != DONE:
            self._flush(worker, False)
            worker.rows = [message]
            return
        self._flush(worker, True)
        self._hand_over(n)

    def _flush(self, worker: Worker, last: bool) -> None:
        """Write a row that was kept back until it is known whether it is the problem's last."""
        if worker.path is None:
            return
        wall = round(time.monotonic() - worker.begun, 1)
        for row in worker.rows:
            about = {"problem": name_of(worker.path), "key": self.key_of(worker.path)}
            write_row(self.out, about | row | ({"wall_s": wall, "last": True} if last else {}))
        worker.rows = []

    def _end_excessive(self) -> None:
        """End the problems over their limits."""
        used = memory_bytes([worker.process.pid or 0 for worker in self.workers])
        for n, worker in enumerate(self.workers):
            if worker.path is None:
                continue
            if used[n] > self.arguments.memory * 2**30:
                self._replace(n, "out of memory", f"{used[n] / 2**30:.1f} GiB in its processes")
            elif time.monotonic() - worker.begun > self.arguments.limit:
                self._replace(n, "timed out", f"over {self.arguments.limit:.0f} s")

    def _replace(self, n: int, status: str, message: str) -> None:
        """End a worker, write why, and start another one."""
        worker = self.workers[n]
        worker.end()
        self._flush(worker, False)
        worker.rows = [{"version": 0, "status": status, "message": message}]
        self._flush(worker, True)
        self.workers[n] = Worker(worker.root, worker.how)
        self._hand_over(n)


def memory_bytes(roots: list[int]) -> list[int]:
    """Resident bytes of each process with all that it started, without pages that are shared."""
    parents: dict[int, int] = {}
    resident: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            shared = int((folder / "statm").read_text().split()[2])
            parents[int(folder.name)] = int(fields[1])
            resident[int(folder.name)] = (int(fields[21]) - shared) * os.sysconf("SC_PAGE_SIZE")
    found = dict.fromkeys(roots, 0)
    for process, size in resident.items():
        at = process
        while at not in found and at in parents:
            at = parents[at]
        if at in found:
            found[at] += size
    return [found[root] for root in roots]


def recorded_seconds() -> dict[str, float]:
    """Seconds that problems took in the recorded sweep: the longest ones go first."""
    if not RECORDED.exists():
        return {}
    rows = json.loads(RECORDED.read_text())["rows"]
    return {row["problem"]: float(row.get("wall_s", 1e3)) for row in rows}


def name_of(path: Path) -> str:
    """The problem's name: its level and its file."""
    return f"{path.parent.name}/{path.stem}"


def write_row(out: Path, row: Row) -> None:
    """Append one row."""
    with out.open("a") as file:
        file.write(json.dumps(row) + "\n")


def read_rows(out: Path) -> list[Row]:
    """The rows so far; a line that a crash cut off is none."""
    rows = []
    for line in out.read_text().splitlines() if out.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


def print_table(out: Path) -> None:
    """Print how many problems are right, wrong and so on, and each version that is not right."""
    latest: dict[str, list[Row]] = {}
    for row in read_rows(out):
        rows = latest.setdefault(str(row["problem"]), [])
        if rows and (rows[-1]["key"] != row["key"] or rows[-1].get("last") or row["version"] == rows[0]["version"]):
            rows.clear()  # it was swept again
        rows.append(row)
    worst = {name: min((str(row["status"]) for row in rows), key=ORDER.index) for name, rows in latest.items()}
    for status, count in collections.Counter(worst.values()).most_common():
        print(f"{status:12} {count:4} problems")
    for name, rows in sorted(latest.items()):
        for row in rows:
            if row["status"] not in ("right", "planned"):
                print(f"  {name} v{row['version']} {row['status']}: {row['message']}")


def main() -> None:
    """Sweep folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, action="append", default=[], help="of problem files, or one file")
    parser.add_argument("--jobs", type=int, default=2, help="problems at a time")
    parser.add_argument("--seconds", type=float, default=1e9, help="of the whole sweep")
    parser.add_argument("--versions", type=int, default=3)
    parser.add_argument("--precision", default="declared", help="declared, fp32, tf32, fp16 or bf16")
    parser.add_argument("--arch", default="", help="sm_80 or sm_90a; else the emulator's own")
    parser.add_argument("--limit", type=float, default=150, help="seconds of a problem")
    parser.add_argument("--memory", type=float, default=8, help="GiB of a problem, with all of its processes")
    parser.add_argument("--out", type=Path, default=Path(".cutegen/sweep"))
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = (arguments.out / "rows.jsonl").resolve()
    paths = [one for given in arguments.folder for one in ([given] if given.is_file() else sorted(given.glob("*.py")))]
    if not arguments.table:
        Sweep([path.resolve() for path in paths], rows, arguments).run()
    print_table(rows)


if __name__ == "__main__":
    main()
