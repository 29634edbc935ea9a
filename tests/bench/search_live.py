"""Searches that really compile and run: strategies side by side, and the best found over the planner's first choice and
over torch eager.

    python tests/bench/search_live.py PROBLEM... --out $OUT/search.jsonl [--strategies tree,random/none,bayes/none]
        [--seeds 3] [--trials 20] [--executor auto] [--precision tf32] [--search-s 100] [--limit-s 1500] [--per-gpu 3]
        [--shared FOLDER]
    python tests/bench/search_live.py relu --executor replay --trials 5 --seeds 1      (recorded times, no GPU)
    python tests/bench/search_live.py --table FILE.jsonl

A problem is a name of the package or a file, such as those of tests/bench/problems or of a checkout of KernelBench. The
planner's first choice is measured first, and every search starts from it. NAME/none is a strategy without priors. A row
per search goes to --out as it is made; a file of rows is continued. Each row has the device, versions and the date.
`first_s` and `best_s` are the kernels' times by the session's whole verdicts. The best version is measured again at the
end, in one run with torch eager and (unless --torch-compile never) torch.compile: `again` has the kernels' times and
those of whole calls of all three (by `Session.frame()`'s columns, on a GPU only), and `phases` the seconds of that
verdict by phase. With --per-gpu N, N searches at a time run on each GPU in processes of their own; those on one GPU
verdict by phase. With --per-gpu N, N searches at a time run on each GPU in processes of their own; those on one GPU
take turns at timing.
With --shared, the outcome of a program that an earlier search for the same problem ran on the same kind of GPU is taken
from that folder (shared_outcomes.py), the verdict at the end too: `shared` counts such trials. A search that --limit-s
cuts short goes to a file .cut beside --out; the same command runs it again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import re
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from shared_outcomes import SharedOutcomes, share_outcomes

from workbench import problems
from workbench.analysis.call_times import time_columns
from workbench.errors import WorkbenchError
from workbench.executors.gpu.telemetry import driver_version
from workbench.policies.search import SearchNode, SearchTree
from workbench.policies.search.fitted import fit_on_others
from workbench.records.search import NodeResult, SearchBudget
from workbench.session import Session

Json = dict[str, Any]
REASON = 120  # characters
SECONDS_SPENT = re.compile(r"the budget of \S+ s is used up")
LEAST_S = 60.0  # no search begins with less time left
BESIDE_S = 45.0  # that both verdicts, learning and choosing may take: a budget in seconds counts none of it


def name_problem(problem: str) -> str:
    """The name of a problem in rows; of a file of KernelBench with its level."""
    path = Path(problem)
    return f"{path.parent.name}_{path.stem}" if path.parent.name.startswith("level") else path.stem


def search_problem(
    problem: str,
    strategy: str,
    seed: int,
    arguments: argparse.Namespace,
    seconds: float,
    shared: SharedOutcomes | None = None,
) -> Json:
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
        tree = session.search(name, budget, seed=seed, priors=kind != "none", workers=arguments.workers)
        best = tree.best.result if tree.best is not None else None
        searched_s = time.perf_counter() - start
        times = [one for one in (verdict.time_s, best.time_s if best is not None else None) if one]
        is_better = best is not None and best.time_s == min(times, default=None)
        chosen = best.version if best is not None and is_better and best.version else first.number
        again: Json = {}
        if verdict.time_provenance == "measured":
            session.torch_compile = arguments.torch_compile
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
            "problem": name_problem(problem),
            "precision": arguments.precision,
            "strategy": strategy,
            "seed": seed,
            "budget": arguments.trials,
            "trials": tree.trials,
            "stopped": tree.stopped,
            "shared": count_shared(session, tree, shared),
            "screened": tree.screened,
            "tries_s": [round(one.seconds, 2) for one in map(find_result, tree.walk()) if one is not None],
            "quick_phases": average_phases(session),
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
            "driver": driver_version(),
            "executor": session.executor_name,
            "versions": list(map(list, first.trials[-1].outcome.versions)),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def find_result(node: SearchNode) -> NodeResult | None:
    """The result of a node that the search spent something on."""
    return None if node.is_given else node.result


def average_phases(session: Session) -> Json:
    """The mean seconds of the phases of quick trials that ran here."""
    taken: dict[str, list[float]] = defaultdict(list)
    for version in session.versions:
        for trial in version.trials:
            for name, seconds in trial.outcome.phases if trial.outcome.quick else ():
                taken[name].append(seconds)
    return {name: round(sum(found) / len(found), 2) for name, found in taken.items()}


def count_shared(session: Session, tree: SearchTree, shared: SharedOutcomes | None) -> int:
    """The trials whose outcome an earlier search had."""
    results = [tree.nodes[number].result for number in tree.tried if not tree.nodes[number].is_given]
    versions = [session.version(one.version) for one in results if one is not None and one.version and not one.screened]
    return sum(shared is not None and one.proposal.candidate.source in shared.sources for one in versions)


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
    """Seed, problem and strategy of the searches that the file does not hold, problem by problem."""
    done = {(row["problem"], row["precision"], row["strategy"], row["seed"], row["budget"]) for row in read_rows(out)}
    return [
        (seed, problem, strategy)
        for problem in arguments.problems
        for seed in range(arguments.from_seed, arguments.seeds)
        for strategy in arguments.strategies.split(",")
        if (name_problem(problem), arguments.precision, strategy, seed, arguments.trials) not in done
    ]


def measure(searches: Sequence[tuple[int, str, str]], arguments: argparse.Namespace, out: Path, end: float) -> None:
    """Make the searches, until the clock says `end`."""
    if any(not strategy.endswith("/none") for _, _, strategy in searches):
        threading.Thread(target=fit_on_others, args=(None,)).start()  # beside the first verdict
    with share_outcomes(Path(arguments.shared)) if arguments.shared else contextlib.nullcontext() as shared:
        for seed, problem, strategy in searches:
            left = end - time.time()
            if left < LEAST_S:
                print("the time is up; the same command continues", flush=True)
                return
            seconds = min(arguments.search_s, left - BESIDE_S)
            try:
                row = search_problem(problem, strategy, seed, arguments, seconds, shared)
            except WorkbenchError as error:
                print(f"{problem}: {error}", flush=True)
                with out.with_suffix(".failed").open("a") as file:
                    file.write(json.dumps({"problem": name_problem(problem), "error": str(error)}) + "\n")
                continue
            if SECONDS_SPENT.fullmatch(row["stopped"]) and seconds < arguments.search_s:
                print(f"{problem} {strategy} {seed}: cut short after {row['trials']} trials", flush=True)
                with out.with_suffix(".cut").open("a") as file:
                    file.write(json.dumps(row) + "\n")
                continue
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            gain = row["first_s"] / row["best_s"] if row["first_s"] and row["best_s"] else math.nan
            said = (
                f"{gain:.2f}x of the first, {row['trials']} trials ({row['shared']} shared), {row['screened']} screened"
            )
            print(f"{problem} {strategy} {seed}: {said}, {row['searched_s']} of {row['wall_s']} s", flush=True)


def measure_side_by_side(arguments: argparse.Namespace, out: Path, end: float) -> None:
    """Like `measure`, with so many searches at a time on each GPU. A process takes the seeds of a problem and a
    strategy one after the other; all searches for a problem are on one GPU.
    """
    import torch

    gpus = range(torch.cuda.device_count()) if arguments.executor in ("auto", "gpu") else range(1)
    context = multiprocessing.get_context("spawn")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes share the cores
    if arguments.workers is None:
        searches = arguments.per_gpu * max(len(gpus), 1)
        arguments.workers = max(1, len(os.sched_getaffinity(0)) // searches - 1)
    pools = [
        ProcessPoolExecutor(arguments.per_gpu, mp_context=context, initializer=select_gpu, initargs=(gpu,))
        for gpu in gpus or range(1)
    ]
    groups = defaultdict(list)
    for seed, problem, strategy in list_searches(arguments, out):
        groups[problem, strategy].append((seed, problem, strategy))
    waiting = [
        pools[arguments.problems.index(problem) % len(pools)].submit(measure, searches, arguments, out, end)
        for (problem, _), searches in groups.items()
    ]
    for future in waiting:
        if (error := future.exception()) is not None:
            print(f"a process failed: {error!r}", flush=True)
    for pool in pools:
        pool.shutdown()


def select_gpu(gpu: int) -> None:
    """Let this process and those that it starts use one GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)


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
    parser.add_argument("--workers", type=int, help="runs ahead in each search; by default as cores allow")
    parser.add_argument("--shared", metavar="FOLDER", help="outcomes that searches share")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--torch-compile", choices=("now", "never"), default="now", help="at the end, beside eager")
    parser.add_argument("--executor", default="auto")
    parser.add_argument("--precision", default="declared")
    parser.add_argument("--search-s", type=float, default=1e6, help="most seconds of a search")
    parser.add_argument("--limit-s", type=float, default=1500)
    parser.add_argument("--out", default="search.jsonl")
    parser.add_argument("--table", metavar="FILE")
    arguments = parser.parse_args()
    out, end = Path(arguments.table or arguments.out), time.time() + arguments.limit_s
    if arguments.per_gpu and not arguments.table:
        measure_side_by_side(arguments, out, end)
    elif not arguments.table:
        measure(list_searches(arguments, out), arguments, out, end)
    print(tabulate(read_rows(out)))


if __name__ == "__main__":
    main()
