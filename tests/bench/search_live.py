"""Searches that really compile and run: strategies side by side, and the best found over the planner's first choice and
over torch eager.

    python tests/bench/search_live.py PROBLEM... --out $OUT/search.jsonl [--strategies tree,random/none,bayes/none]
        [--seeds 3] [--trials 20] [--executor auto] [--precision fp32] [--limit-s 1500]
    python tests/bench/search_live.py relu --executor replay --trials 5 --seeds 1      (recorded times, no GPU)
    python tests/bench/search_live.py --table FILE.jsonl

A problem is a name of the package or a file, such as those of tests/bench/problems or of a checkout of KernelBench. The
planner's first choice is measured first, and every search starts from it. NAME/none is a strategy without priors. A row
per search goes to --out as it is made; a file of rows is continued. Each row has the device, versions and the date.
Times are as called, by the session's verdicts; `eager_s` is torch's time in the run that measured the best version.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench import problems
from workbench.errors import WorkbenchError
from workbench.policies.search import SearchTree
from workbench.session import Session

Json = dict[str, Any]


def search_problem(problem: str, strategy: str, seed: int, arguments: argparse.Namespace) -> Json:
    """The row of one search."""
    loaded = problems.load(problem, precision=arguments.precision)
    with (
        tempfile.TemporaryDirectory() as root,
        Session.create(loaded, root=root, executor=arguments.executor, name="s") as session,
    ):
        start = time.perf_counter()
        first = session.generate()
        if first is None:
            raise WorkbenchError("the planner writes nothing for this problem")
        session.judge(first.number)
        name, _, kind = strategy.partition("/")
        tree = session.search(name, arguments.trials, seed=seed, priors=kind != "none")
        best = tree.best.result if tree.best is not None else None
        outcome = session.version(best.version).trials[-1].outcome if best is not None and best.version else None
        eager = outcome.reference_timing if outcome is not None else None
        verdict = first.trials[-1].verdict
        return {
            "problem": problem,
            "precision": arguments.precision,
            "strategy": strategy,
            "seed": seed,
            "budget": arguments.trials,
            "trials": tree.trials,
            "screened": tree.screened,
            "failed": sum(tree.nodes[number].failed for number in tree.tried),
            "first_s": verdict.time_s,
            "best_s": best.time_s if best is not None else None,
            "provenance": verdict.time_provenance,
            "eager_s": eager.median_s if eager is not None else None,
            "best": tree.best.candidate.text if tree.best is not None and tree.best.candidate is not None else "",
            "curve": best_so_far(tree),
            "wall_s": round(time.perf_counter() - start, 1),
            "device": session.device,
            "executor": session.executor_name,
            "versions": list(map(list, first.trials[-1].outcome.versions)),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def best_so_far(tree: SearchTree) -> list[float | None]:
    """The least time after each trial."""
    least, found = math.inf, []
    for node in tree.walk():
        least = min(least, (node.result.time_s if node.result is not None else None) or math.inf)
        found.append(None if math.isinf(least) else least)
    return found


def read_rows(path: Path) -> list[Json]:
    """The rows of a file; none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measure(arguments: argparse.Namespace, out: Path) -> None:
    """Search every problem by every strategy and seed that the file does not hold, until the time is up."""
    start = time.monotonic()
    done = {(row["problem"], row["precision"], row["strategy"], row["seed"], row["budget"]) for row in read_rows(out)}
    for seed in range(arguments.seeds):
        for problem in arguments.problems:
            for strategy in arguments.strategies.split(","):
                if (problem, arguments.precision, strategy, seed, arguments.trials) in done:
                    continue
                if time.monotonic() - start > arguments.limit_s:
                    print("the time is up; the same command continues")
                    return
                try:
                    row = search_problem(problem, strategy, seed, arguments)
                except WorkbenchError as error:
                    print(f"{problem}: {error}", flush=True)
                    continue
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                gain = row["first_s"] / row["best_s"] if row["first_s"] and row["best_s"] else math.nan
                print(f"{problem} {strategy} {seed}: {gain:.2f}x of the first, {row['wall_s']} s", flush=True)


def tabulate(rows: Sequence[Json]) -> str:
    """A Markdown table: by strategy, geometric means over problems and seeds."""
    groups: dict[str, list[Json]] = defaultdict(list)
    for row in rows:
        if row["first_s"] and row["best_s"]:
            groups[row["strategy"]].append(row)
    head = ["strategy", "searches", "trials", "screened", "over the planner's first", "over torch eager", "best of all"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    least = {
        problem: min(row["best_s"] for row in rows if row["problem"] == problem and row["best_s"])
        for problem in {row["problem"] for row in rows if row["best_s"]}
    }
    for strategy, mine in groups.items():
        timed = [row for row in mine if row["eager_s"]]
        cells = [
            strategy,
            str(len(mine)),
            f"{sum(row['trials'] for row in mine) / len(mine):.1f}",
            f"{sum(row['screened'] for row in mine) / len(mine):.1f}",
            f"{geometric_mean([row['first_s'] / row['best_s'] for row in mine]):.3f}",
            f"{geometric_mean([row['eager_s'] / row['best_s'] for row in timed]):.3f}" if timed else "-",
            f"{geometric_mean([least[row['problem']] / row['best_s'] for row in mine]):.3f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> None:
    """Search, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("problems", nargs="*")
    parser.add_argument("--strategies", default="tree,random/none,bayes/none")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--executor", default="auto")
    parser.add_argument("--precision", default="declared")
    parser.add_argument("--limit-s", type=float, default=1500)
    parser.add_argument("--out", default="search.jsonl")
    parser.add_argument("--table", metavar="FILE")
    arguments = parser.parse_args()
    out = Path(arguments.table or arguments.out)
    if not arguments.table:
        measure(arguments, out)
    print(tabulate(read_rows(out)))


if __name__ == "__main__":
    main()
