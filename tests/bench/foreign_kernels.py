"""Kernels that the planner did not write: counts at full size without a GPU, and measured times.

    python tests/bench/foreign_kernels.py count --out counts.jsonl --nvidia DIR           no GPU; long
    python tests/bench/foreign_kernels.py time --out times.json --nvidia DIR [--seconds 330]       on a GPU; minutes
    python tests/bench/foreign_kernels.py time --out dry.json --nvidia DIR --dry    tiny sizes on the emulator, no times
    python tests/bench/foreign_kernels.py list --nvidia DIR

DIR is examples/python/CuTeDSL of github.com/NVIDIA/cutlass; without it NVIDIA's examples are left out. Of DIR, these
are used: cute/ampere/kernel, cute/hopper/kernel, helpers, cute/notebooks/elementwise_add.ipynb and
experimental/primitives/tutorial/06_softmax.py. `time` needs torch, CuTe DSL and this tree on PYTHONPATH.

The kernels are the worked examples in several configurations, the recorded sessions' versions, and NVIDIA's examples.
Cases of one group do the same work. `count` runs four CTAs of each launch at full size on zeros, each case in a process
of its own, and writes a line of plain data for it, as landscape_counts.py does. `time` compares each result with
torch's and then times it as landscape_on_gpu.py does: several processes compile, and one at a time uses the GPU, under
a lock. Both write after every case, go on where they were stopped, and write why a case failed; `--again` tries failed
cases again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
import foreign_examples
import foreign_nvidia
import foreign_recorded
import torch
from foreign_cases import Case

Row = dict[str, Any]
Job = Callable[[], Callable[[Case], Row]]  # sets a process up; the result makes a row
FORK = multiprocessing.get_context("fork")  # the processes then have the imports


def all_cases(nvidia: Path | None, tiny: bool) -> list[Case]:
    """Every case, in order. The recorded sessions have no tiny sizes."""
    cases = list(foreign_examples.cases(tiny))
    if not tiny:
        cases += foreign_recorded.cases()
    if nvidia:
        cases += foreign_nvidia.cases(nvidia.resolve(), tiny)
    assert len({case.name for case in cases}) == len(cases)
    return cases


def serve(connection: Connection, start: Job, cases: list[Case]) -> None:
    """Answer numbers of cases with rows, until the connection ends."""
    torch.set_num_threads(1)
    try:
        make_row = start()
        while True:
            connection.send(run_case(make_row, cases[connection.recv()]))
    except (EOFError, KeyboardInterrupt):
        return


def run_case(make_row: Callable[[Case], Row], case: Case) -> Row:
    """The row of a case; `left_out` says why there is none."""
    start = time.perf_counter(), time.process_time()
    row: Row = {"label": case.name, "group": case.group}
    try:
        row |= make_row(case)
    except Exception as error:
        text = " ".join(str(error).split())
        row["left_out"] = f"{type(error).__name__}: {text}"[:400]
    row["wall_s"], row["cpu_s"] = round(time.perf_counter() - start[0], 2), round(time.process_time() - start[1], 2)
    return row


@dataclass
class Process:
    """A process that serves, and the case it works on."""

    process: BaseProcess
    connection: Connection
    number: int = -1
    until: float = 0.0


@dataclass
class Pool:
    """Runs cases in `workers` processes. One that dies or takes longer than `limit_s` loses only its case.

    `fresh`: each case has a new process.
    """

    cases: list[Case]
    start: Job
    workers: int
    limit_s: float
    fresh: bool
    running: list[Process] = field(default_factory=list)

    def rows(self, numbers: list[int], seconds: float) -> Iterator[Row]:
        """A row for each case, as they come; no case is started after `seconds`."""
        queue, end = list(numbers), time.monotonic() + seconds
        try:
            while True:
                idle = [one for one in self.running if one.number < 0]
                while queue and time.monotonic() < end and (idle or len(self.running) < self.workers):
                    one = idle.pop() if idle else self.add_process()
                    one.number, one.until = queue.pop(0), time.monotonic() + self.limit_s
                    one.connection.send(one.number)
                busy = [one for one in self.running if one.number >= 0]
                if not busy:
                    return
                wait([one.connection for one in busy], timeout=1.0)
                for one in busy:
                    row = self.poll(one)
                    if row is not None:
                        yield row
        finally:
            for one in list(self.running):
                self.remove(one)

    def add_process(self) -> Process:
        """Start a process."""
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=serve, args=(theirs, self.start, self.cases), daemon=True)
        process.start()
        theirs.close()
        self.running.append(Process(process, ours))
        return self.running[-1]

    def poll(self, one: Process) -> Row | None:
        """The row of a process that has finished, died or taken too long."""
        case = self.cases[one.number]
        row: Row = {"label": case.name, "group": case.group}
        if one.connection.poll():
            try:
                row = one.connection.recv()
            except (EOFError, OSError):
                one.process.join(10)
                row["left_out"] = f"the process ended with {one.process.exitcode}"
        elif time.monotonic() > one.until:
            row["left_out"] = f"longer than {self.limit_s:.0f} s"
        else:
            return None
        one.number = -1
        if "left_out" in row or self.fresh:
            self.remove(one)
        return row

    def remove(self, one: Process) -> None:
        """End a process: after a failure its CUDA context may be broken."""
        self.running.remove(one)
        one.connection.close()
        if one.number >= 0 or one.process.is_alive():
            one.process.kill()
        one.process.join()


def left_numbers(cases: list[Case], rows: list[Row], only: str, again: bool) -> list[int]:
    """Numbers of the cases that have no row yet; with `again`, also of those whose row says that it was left out."""
    done = {row["label"] for row in rows if not (again and "left_out" in row)}
    return [number for number, case in enumerate(cases) if only in case.name and case.name not in done]


def read_rows(path: Path) -> list[Row]:
    """The rows that a file of `count` or `time` has."""
    if not path.exists():
        return []
    text = path.read_text()
    rows: list[Row] = json.loads(text)["rows"] if path.suffix == ".json" else [*map(json.loads, text.splitlines())]
    return rows


def write_rows(path: Path, rows: list[Row], about: Row) -> None:
    """Write all rows, and about the machine where they are times; the file is replaced at once."""
    if path.suffix == ".json":
        text = json.dumps({**about, "rows": rows}, indent=1) + "\n"
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows)
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(text)
    os.replace(temporary, path)


def merge(counts: Path, times: Path, out: Path) -> int:
    """Write counts with measured seconds as rows of fit_time_model.py, gzipped; a group is a problem."""
    measured = {row["label"]: row for row in read_rows(times) if row.get("correct")}
    with gzip.open(out, "wt") as file:
        for row in read_rows(counts):
            if "launches" in row and row["label"] in measured:
                time = measured[row["label"]]
                line = {"problem": row["group"], "program": row["label"], "seconds": time["median_s"]}
                line |= {name: time[name] for name in ("low_s", "high_s")}
                line |= {name: row[name] for name in ("work", "launches", "builds")}
                file.write(json.dumps(line) + "\n")
    return 0


def start_job(options: argparse.Namespace, folder: Path) -> tuple[Job, Row]:
    """What the processes do, and what the file says about the machine."""
    if options.command == "count":
        import foreign_count

        return foreign_count.start, {}
    import foreign_time

    return foreign_time.Start(folder, options.dry), foreign_time.describe(options.dry)


def main() -> int:
    """Count or time, print, write; exit status 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the processes are ended too
    parser.add_argument("command", choices=("count", "time", "list", "merge"))
    parser.add_argument("--out", type=Path, help="FILE.jsonl for counts, FILE.json for times")
    parser.add_argument("--counts", type=Path, help="for `merge`")
    parser.add_argument("--times", type=Path, help="for `merge`")
    parser.add_argument("--nvidia", type=Path, help="folder of NVIDIA's examples")
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("--again", action="store_true", help="try again what failed before")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the emulator, no times")
    parser.add_argument("--workers", type=int, help="processes; 1 for counts, 8 for times")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no case after so long")
    options = parser.parse_args()
    if options.command == "merge":
        return merge(options.counts, options.times, options.out)
    cases = all_cases(options.nvidia, options.dry)
    if options.command == "list":
        for case in cases:
            print(f"{case.group:50} {case.name}")
        return 0
    counting = options.command == "count"
    if options.out is None or options.out.suffix != (".jsonl" if counting else ".json"):
        parser.error("--out FILE.jsonl says where counts go, --out FILE.json where times go")
    rows = read_rows(options.out)
    numbers = left_numbers(cases, rows, options.only, options.again)
    with tempfile.TemporaryDirectory(prefix="foreign-") as folder:
        start, about = start_job(options, Path(folder))
        workers = options.workers or (1 if counting or options.dry else min(8, os.cpu_count() or 1))
        pool = Pool(cases, start, workers, 900.0 if counting or options.dry else 120.0, counting)
        for row in pool.rows(numbers, options.seconds):
            rows = [old for old in rows if old["label"] != row["label"]] + [row]
            write_rows(options.out, rows, about)
            said = {name: row[name] for name in ("correct", "error", "median_s", "wall_s", "left_out") if name in row}
            print(row["label"], said, flush=True)
    failed = [row for row in rows if "left_out" in row or not row.get("correct", True)]
    left = left_numbers(cases, rows, options.only, False)
    print(f"{len(rows)} rows, {len(failed)} of them failed; {len(left)} cases left")
    return 1 if failed or left else 0


if __name__ == "__main__":
    sys.exit(main())
