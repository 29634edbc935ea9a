"""What the cases of a verdict cost: wall and CPU seconds of verdicts on the emulator, for two trees of the sources.

    python tests/bench/verdict_cases.py --before FOLDER [--repeats 3] [--out tests/bench/results/verdict_cases.json]

For each problem the trees take turns, each in a process of its own. It makes versions, and then tests each of them
several times with a new worker server, whose start is measured alone and subtracted from the CPU seconds. The few CTAs
at full size, which are for the time model, are left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

PROBLEMS = ("relu", "softmax", "layer_norm", "row_sum", "matmul", "cross_entropy")
HERE = Path(__file__).resolve()


def spent_s() -> float:
    """CPU seconds of this process and of all that have ended below it."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(name: str, repeats: int) -> list[dict[str, object]]:
    """Rows of one problem, one for each version, with the tree that PYTHONPATH names."""
    from workbench.evaluate import evaluate
    from workbench.executors.emulator import EmulatorExecutor
    from workbench.session import Session

    # where it was until the end of November 2026
    old = importlib.util.find_spec("workbench.executors.jobs") is None
    client = importlib.import_module("workbench.executors.client" if old else "workbench.executors.jobs.client")
    server, shutdown = client.server, client.shutdown
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as root, Session.create(name, root=Path(root), executor="emulator") as session:
        session.run(steps=1)
        shutdown()
        before = spent_s()
        server().ready.wait()
        shutdown()
        start_s = spent_s() - before
        for version in session.versions:
            job = session.job(version)
            if hasattr(job, "full_sample"):
                job = dataclasses.replace(job, full_sample=False)
            server().ready.wait()
            before, seconds = spent_s(), []
            for _ in range(repeats):
                begun = time.perf_counter()
                correct = evaluate(job, EmulatorExecutor()).verdict.correct
                seconds.append(time.perf_counter() - begun)
            shutdown()
            used = (spent_s() - before - start_s) / repeats
            rows.append(
                {
                    "problem": name,
                    "version": version.number,
                    "title": version.proposal.title,
                    "correct": correct,
                    "cpu_s": used,
                    "wall_s": seconds,
                }
            )
    return rows


def run_tree(tree: Path, name: str, repeats: int) -> list[dict[str, object]]:
    """The rows of `measure` with the sources of a tree."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(tree), "CUTEGEN_CACHE": cache, "CUTEGEN_ROOT": cache}
        command = [sys.executable, str(HERE), "--one", name, "--repeats", str(repeats)]
        made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tree)
    rows: list[dict[str, object]] = json.loads(made.stdout.splitlines()[-1])
    return rows


def main() -> None:
    """Measure both trees and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--problems", nargs="*", default=PROBLEMS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "verdict_cases.json")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.repeats)))
        return
    rows = []
    for name in arguments.problems:
        for label, tree in (("before", arguments.before), ("after", HERE.parents[2])):
            rows += [{"tree": label, **row} for row in run_tree(tree, name, arguments.repeats)]
        ratios = describe(rows, name)
        print(f"{name:16} {ratios}", flush=True)
    summary = {name: describe(rows, name) for name in arguments.problems}
    summary["all"] = describe(rows, "")
    machine = {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load": os.getloadavg(),
    }
    arguments.out.write_text(json.dumps({"machine": machine, "summary": summary, "rows": rows}, indent=1) + "\n")
    print(f"all: {summary['all']}")


def describe(rows: list[dict[str, object]], name: str) -> dict[str, float]:
    """Medians before and after, in CPU and wall seconds, and their ratios; of all problems if `name` is empty."""
    found: dict[str, float] = {}
    for kind in ("cpu_s", "wall_s"):
        for label in ("before", "after"):
            values = [
                statistics.median(row[kind]) if isinstance(row[kind], list) else float(str(row[kind]))
                for row in rows
                if row["tree"] == label and (not name or row["problem"] == name)
            ]
            found[f"{kind} {label}"] = round(statistics.median(values), 3)
        found[f"{kind} ratio"] = round(found[f"{kind} after"] / found[f"{kind} before"], 3)
    return found


if __name__ == "__main__":
    main()
