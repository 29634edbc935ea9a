"""Searches that really compile and run: strategies side by side, and the best found over the planner's first choice and
over torch eager.

    python tests/bench/search_live.py PROBLEM... --out $OUT/search.jsonl [--strategies tree,random/none,bayes/none]
        [--seeds 3] [--trials 20] [--executor auto] [--precision tf32] [--search-s 100] [--limit-s 1500] [--per-gpu 3]
    python tests/bench/search_live.py relu --executor replay --trials 5 --seeds 1      (recorded times, no GPU)
    python tests/bench/search_live.py --table FILE.jsonl

A problem is a name of the package or a file, such as those of tests/bench/problems or of a checkout of KernelBench. The
planner's first choice is measured first, and every search starts from it. NAME/none is a strategy without priors. A row
per search goes to --out as it is made; a file of rows is continued. Each row has the device, versions and the date.
`first_s` and `best_s` are the kernels' times by the session's verdicts. The best version is measured again at the end,
in one run with torch eager and torch.compile: `again` has the kernels' times and those of whole calls of all three (by
`Session.frame()`'s columns, on a GPU only), and `phases` the seconds of that verdict by phase. With --per-gpu N, N
searches at a time run on each GPU in processes of their own; those on one GPU take turns at timing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench import problems
from workbench.analysis.call_times import time_columns
from workbench.errors import WorkbenchError
from workbench.policies.search import SearchTree
from workbench.records.search import SearchBudget
from workbench.session import Session

Json = dict[str, Any]
REASON = 120  # characters
LEAST_S = 40.0  # no search begins with less time left


def search_problem(problem: str, strategy: str, seed: int, arguments: argparse.Namespace, seconds: float) -> Json:
    """The row of one search, which takes so many seconds at most, besides the first and the last verdict."""
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
        session.torch_compile = "never"
        name, _, kind = strategy.partition("/")
        verdict = session.version(first.number).trials[-1].verdict
        first_verdict_s = time.perf_counter() - start
        budget = SearchBudget(trials=arguments.trials, seconds=seconds)
        tree = session.search(name, budget, seed=seed, priors=kind != "none")
        best = tree.best.result if tree.best is not None else None
        searched_s = time.perf_counter() - start
        times = [one for one in (verdict.time_s, best.time_s if best is not None else None) if one]
        is_better = best is not None and best.time_s == min(times, default=None)
        chosen = best.version if best is not None and is_better and best.version else first.number
        again: Json = {}
        if verdict.time_provenance == "measured":
            session.torch_compile = "now"
            trial = session.test(chosen)
            again = {
                **time_columns(trial.outcome),
                "kernels_s": trial.verdict.time_s,
                "bound_s": trial.verdict.bound.bound_s if trial.verdict.bound else None,
                "waits_for_host": trial.outcome.timing.waits_for_host if trial.outcome.timing else None,
                "correct": trial.verdict.correct,
                "notes": list(trial.outcome.timing.notes) if trial.outcome.timing else [],
            }
        last = session.version(chosen).trials[-1].outcome
        return {
            "problem": Path(problem).stem,
            "precision": arguments.precision,
            "strategy": strategy,
            "seed": seed,
            "budget": arguments.trials,
            "trials": tree.trials,
            "screened": tree.screened,
            "failed": sum(tree.nodes[number].failed for number in tree.tried),
            "untimed": count_reasons(tree),
            "first_s": verdict.time_s,
            "best_s": min(times, default=None),
            "provenance": verdict.time_provenance,
            "again": again,
            "phases": [[name, round(seconds, 2)] for name, seconds in last.phases],
            "first": first.proposal.title,
            "best": tree.best.candidate.text
            if is_better and tree.best is not None and tree.best.candidate
            else "first",
            "first_correct": verdict.correct,
            "curve": best_so_far(tree),
            "first_verdict_s": round(first_verdict_s, 1),
            "searched_s": round(searched_s, 1),
            "wall_s": round(time.perf_counter() - start, 1),
            "device": session.device,
            "executor": session.executor_name,
            "versions": list(map(list, first.trials[-1].outcome.versions)),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def count_reasons(tree: SearchTree) -> Json:
    """Why candidates have no time, with their number: the first words of each reason."""
    results = [tree.nodes[number].result for number in tree.tried]
    return dict(Counter(one.message[:REASON] for one in results if one is not None and one.message))


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


def list_searches(arguments: argparse.Namespace, out: Path) -> list[tuple[int, str, str]]:
    """Seed, problem and strategy of the searches that the file does not hold."""
    done = {(row["problem"], row["precision"], row["strategy"], row["seed"], row["budget"]) for row in read_rows(out)}
    return [
        (seed, problem, strategy)
        for seed in range(arguments.from_seed, arguments.seeds)
        for problem in arguments.problems
        for strategy in arguments.strategies.split(",")
        if (Path(problem).stem, arguments.precision, strategy, seed, arguments.trials) not in done
    ]


def measure(arguments: argparse.Namespace, out: Path) -> None:
    """Search every problem by every strategy and seed that the file does not hold, until the time is up."""
    start = time.monotonic()
    for seed, problem, strategy in list_searches(arguments, out):
        left = arguments.limit_s - (time.monotonic() - start)
        if left < LEAST_S:
            print("the time is up; the same command continues")
            return
        try:
            row = search_problem(problem, strategy, seed, arguments, min(arguments.search_s, left / 2))
        except WorkbenchError as error:
            print(f"{problem}: {error}", flush=True)
            with out.with_suffix(".failed").open("a") as file:
                file.write(json.dumps({"problem": Path(problem).stem, "error": str(error)}) + "\n")
            continue
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        gain = row["first_s"] / row["best_s"] if row["first_s"] and row["best_s"] else math.nan
        print(f"{problem} {strategy} {seed}: {gain:.2f}x of the first, {row['wall_s']} s", flush=True)


def measure_side_by_side(arguments: argparse.Namespace, out: Path) -> None:
    """Like `measure`, with so many searches at a time on each GPU, each in a process of its own."""
    import torch

    start = time.monotonic()
    gpus: queue.Queue[int] = queue.Queue()
    for gpu in list(range(torch.cuda.device_count())) * arguments.per_gpu:
        gpus.put(gpu)

    def run(search: tuple[int, str, str]) -> None:
        seed, problem, strategy = search
        gpu = gpus.get()
        try:
            left = arguments.limit_s - (time.monotonic() - start)
            if left < LEAST_S:
                return
            same = ("--executor", arguments.executor, "--precision", arguments.precision, "--trials", arguments.trials)
            mine = ("--from-seed", seed, "--seeds", seed + 1, "--strategies", strategy, "--out", out)
            times = ("--limit-s", left, "--search-s", arguments.search_s)
            command = [sys.executable, "-W", "ignore", __file__, problem, *map(str, same + mine + times)]
            subprocess.run(command, env={**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)}, check=False)
        finally:
            gpus.put(gpu)

    with ThreadPoolExecutor(gpus.qsize()) as pool:
        list(pool.map(run, list_searches(arguments, out)))


def tabulate(rows: Sequence[Json]) -> str:
    """A Markdown table: by strategy, geometric means over problems and seeds."""
    groups: dict[str, list[Json]] = defaultdict(list)
    for row in rows:
        if row["first_s"] and row["best_s"]:
            groups[row["strategy"]].append(row)
    head = [
        "strategy",
        "searches",
        "trials",
        "screened",
        "over the planner's first",
        "over torch eager, as called",
        "best of all",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    least = {
        problem: min(row["best_s"] for row in rows if row["problem"] == problem and row["best_s"])
        for problem in {row["problem"] for row in rows if row["best_s"]}
    }
    for strategy, mine in groups.items():
        timed = [row["again"] for row in mine if row["again"].get("eager_call_s") and row["again"].get("call_s")]
        cells = [
            strategy,
            str(len(mine)),
            f"{sum(row['trials'] for row in mine) / len(mine):.1f}",
            f"{sum(row['screened'] for row in mine) / len(mine):.1f}",
            f"{geometric_mean([row['first_s'] / row['best_s'] for row in mine]):.3f}",
            f"{geometric_mean([one['eager_call_s'] / one['call_s'] for one in timed]):.3f}" if timed else "-",
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
    parser.add_argument("--seeds", type=int, default=3, help="seeds below this one")
    parser.add_argument("--from-seed", type=int, default=0)
    parser.add_argument("--per-gpu", type=int, metavar="N", help="so many searches at a time on each GPU")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--executor", default="auto")
    parser.add_argument("--precision", default="declared")
    parser.add_argument("--search-s", type=float, default=1e6, help="most seconds of a search")
    parser.add_argument("--limit-s", type=float, default=1500)
    parser.add_argument("--out", default="search.jsonl")
    parser.add_argument("--table", metavar="FILE")
    arguments = parser.parse_args()
    out = Path(arguments.table or arguments.out)
    if not arguments.table:
        (measure_side_by_side if arguments.per_gpu else measure)(arguments, out)
    print(tabulate(read_rows(out)))


if __name__ == "__main__":
    main()
