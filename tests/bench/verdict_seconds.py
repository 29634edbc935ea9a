"""What each second of a verdict on a GPU is spent on: the first versions of problems, by request to the processes of
the run.

    python tests/bench/verdict_seconds.py PROBLEM... --out FILE.jsonl [--versions 3] [--precision tf32] [--limit-s 500]
    python tests/bench/verdict_seconds.py --table FILE.jsonl [--build after]

A problem is a name of the package or a file. Each is opened in a session of its own, and its first versions are written
by the planner and tested, as `cutegen run` does. A row per version: `seconds` from its proposal to its verdict,
`proposing` of them, `phases` as the outcome has them, and `waits`: the seconds that the run waited for the answer to a
request, by process and request (`referee expect`, `candidate hand`), with their number. What is in no wait
is the host's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench import problems
from workbench.errors import WorkbenchError
from workbench.executors.gpu import processes
from workbench.executors.jobs.rpc import SocketChannel
from workbench.session import Session

Json = dict[str, Any]
WAITED: dict[str, float] = defaultdict(float)
ASKED: Counter[str] = Counter()


class TracedChannel(SocketChannel):
    """A channel that notes how long its user waits for each kind of request."""

    role = "referee"

    def send(self, request: Json) -> None:
        """Send, and note what was asked."""
        self.asked = f"{self.role} {request['do']}"
        ASKED[self.asked] += 1
        super().send(request)

    def recv(self) -> Json:
        """Wait, and note for how long."""
        start = time.perf_counter()
        try:
            return super().recv()
        finally:
            WAITED[self.asked] += time.perf_counter() - start


def trace() -> None:
    """Trace the channels of the processes that are started from now on."""
    start = processes.WorkerProcess.__init__

    def traced(self: processes.WorkerProcess, workers: Any, role: str, *rest: Any, **options: Any) -> None:
        start(self, workers, role, *rest, **options)
        self.channel.role = role  # type: ignore[attr-defined]

    processes.WorkerProcess.__init__ = traced  # type: ignore[method-assign]
    processes.SocketChannel = TracedChannel  # type: ignore[misc]


def measure(problem: str, arguments: argparse.Namespace) -> list[Json]:
    """The rows of a problem."""
    start = time.perf_counter()
    loaded = problems.load(problem, precision=arguments.precision)
    rows = []
    with tempfile.TemporaryDirectory() as root, Session.create(loaded, root=root, executor="gpu", name="s") as session:
        session.torch_compile = arguments.torch_compile
        opening = time.perf_counter() - start
        for number in range(arguments.versions):
            WAITED.clear()
            ASKED.clear()
            start = time.perf_counter()
            version = session.generate(test=False)
            if version is None:
                break
            proposing = time.perf_counter() - start
            trial = session.test(version.number)
            seconds = time.perf_counter() - start
            session.judge(version.number)
            versions = dict(trial.outcome.versions)
            rows.append(
                {
                    "build": arguments.build,
                    "problem": Path(problem).stem,
                    "version": number,
                    "title": version.proposal.title,
                    "correct": trial.verdict.correct,
                    "failure": trial.verdict.failure.message[:200] if trial.verdict.failure else "",
                    "opening": round(opening, 3),
                    "seconds": round(seconds, 3),
                    "proposing": round(proposing, 3),
                    "phases": [[name, round(value, 3)] for name, value in trial.outcome.phases],
                    "waits": {name: [ASKED[name], round(value, 3)] for name, value in WAITED.items()},
                    "output_bytes": sum(one.size_bytes for one in session.job(version).facts.cases[0].outputs),
                    "gpu": versions.get("gpu", ""),
                    "date": datetime.now(UTC).isoformat(timespec="seconds"),
                }
            )
    return rows


def print_table(rows: list[Json]) -> None:
    """Seconds of first and of further verdicts, and the waits that take most of them."""
    for row in rows:
        waits = sorted(row["waits"].items(), key=lambda one: -one[1][1])[:7]
        said = ", ".join(f"{name} {value:.2f} ({count})" for name, (count, value) in waits)
        rest = row["seconds"] - sum(value for _, value in row["waits"].values())
        print(f"{row['problem'][:30]:30} v{row['version']} {row['seconds']:6.2f} s; rest {rest:.2f}; {said}")
    for title, some in (
        ("first", [row["seconds"] for row in rows if row["version"] == 0]),
        ("further", [row["seconds"] for row in rows if row["version"]]),
    ):
        if some:
            print(f"{title}: median {statistics.median(some):.2f} s, most {max(some):.2f} s, of {len(some)}")


def main() -> None:
    """Measure or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*")
    parser.add_argument("--versions", type=int, default=3)
    parser.add_argument("--precision", default="declared")
    parser.add_argument("--torch-compile", default="later")
    parser.add_argument("--limit-s", type=float, default=500)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--build", default="", help="a label that each row gets, or by which rows are chosen")
    arguments = parser.parse_args()
    if arguments.table:
        rows = [json.loads(line) for line in arguments.table.read_text().splitlines()]
        print_table([row for row in rows if row["build"] == arguments.build or not arguments.build])
        return
    trace()
    begun, rows = time.monotonic(), []
    for problem in arguments.problems:
        if time.monotonic() - begun > arguments.limit_s:
            break
        try:
            found = measure(problem, arguments)
        except WorkbenchError as error:
            print(f"{problem}: {error}", flush=True)
            continue
        rows += found
        print_table(found)
        if arguments.out:
            with arguments.out.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in found)
    print_table(rows)


if __name__ == "__main__":
    main()
