"""Time from source to verdict on the emulator: every shipped problem, every version the planner offers, several
repeats.

    python tests/bench/verdict_latency.py [--repeats 5] [--out tests/bench/results/verdict_latency.json]

Writes the raw seconds of every evaluation (compile + emulate + check, warm worker server) and prints the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import workbench.problems as problems
from workbench.session import Session


def measure(name: str, root: Path, repeats: int) -> list[dict[str, object]]:
    """Raw rows of one problem: one per version and repeat, seconds by phase included."""
    rows: list[dict[str, object]] = []
    with Session.create(name, root=root, executor="emulator") as session:
        session.run(steps=3)
        for version in session.versions:
            for repeat in range(repeats):
                start = time.perf_counter()
                trial = session.test(version.number)
                rows.append(
                    {
                        "problem": name,
                        "version": version.number,
                        "title": version.proposal.title,
                        "repeat": repeat,
                        "correct": trial.verdict.correct,
                        "seconds": time.perf_counter() - start,
                        "phases": dict(trial.outcome.phases),
                    }
                )
    return rows


def main() -> None:
    """Measure all shipped problems and write the raw rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "verdict_latency.json")
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in problems.shipped():
            rows += measure(name, Path(folder), arguments.repeats)
            mine = [float(str(row["seconds"])) for row in rows if row["problem"] == name]
            print(
                f"{name:24} {len(mine):3} verdicts, median {statistics.median(mine):.2f} s, slowest {max(mine):.2f} s",
                flush=True,
            )
    seconds = [float(str(row["seconds"])) for row in rows]
    summary = {"median_s": statistics.median(seconds), "max_s": max(seconds), "verdicts": len(seconds)}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    machine = {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    arguments.out.write_text(json.dumps({"machine": machine, "summary": summary, "rows": rows}, indent=1) + "\n")
    print(f"all: median {summary['median_s']:.2f} s over {len(seconds)} verdicts")


if __name__ == "__main__":
    main()
