"""The tables of searches that compiled and ran on a GPU (search_live.py): five problems by strategy, thirty with the
tree.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from page_parts import geometric_mean, section, table, time
from problem_tables import load_live, load_rows

Json = dict[str, Any]
FIVE = "five_search_live"
CUT = re.compile(r"the budget of \S+ s is used up")  # why a search ended that was cut short
THIRTY_TRIALS = 15
ALL = 45  # searches: five problems, three strategies, three seeds


def searches_on_gpu() -> str:
    """Strategies on five problems that are in no landscape, and the tree on the thirty that were drawn."""
    rows = [row for row in load_rows(FIVE) if not CUT.fullmatch(row["stopped"])]
    first, dates = rows[0], [row["date"][:10] for row in rows]
    return section(
        "## Searches on a GPU",
        f"Five KernelBench problems that are in no landscape, in TF32, on NVIDIA {first['device']}s, driver "
        f"{first['driver']}, {min(dates)} to {max(dates)}: {first['budget']} trials and {count_seeds(rows)} seeds for "
        "each strategy, several searches side by side on a GPU, which took turns at timing. Each begins at the "
        "planner's first version; programs that one search ran were not run again by another. Gains are of kernels' "
        "times by whole verdicts over that version, geometric means over the seeds; *best of all* is over all searches "
        "of the problem, so no strategy could have found more in what was tried; *a search*: mean seconds of "
        "searches that took at most 10 outcomes from others. With priors the tree's choices hardly depend "
        "on the seed.",
        tabulate_five(rows),
        describe_five(rows),
        describe_thirty(),
        f"Source: `results/{FIVE}.jsonl`, `results/thirty_search_live.jsonl`, `tests/bench/search_live.py`.",
    )


def count_seeds(rows: Sequence[Json]) -> int:
    """The seeds that the searches have."""
    return len({row["seed"] for row in rows})


def gain(row: Json) -> float:
    """How many times faster than the planner's first version the best is."""
    return float(row["first_s"] / row["best_s"])


def tabulate_five(rows: Sequence[Json]) -> str:
    """A line for each problem with the gains by strategy, and their means."""
    strategies = list(dict.fromkeys(row["strategy"] for row in sorted(rows, key=lambda row: row["strategy"] != "tree")))
    kernels: dict[tuple[str, str], list[Json]] = defaultdict(list)
    for row in rows:
        kernels[row["problem"], row["first"]].append(row)
    cells = []
    for (problem, begun), mine in sorted(kernels.items()):
        found = {one: [gain(row) for row in mine if row["strategy"] == one] for one in strategies}
        changed = f", from {begun}" if sum(name == problem for name, _ in kernels) > 1 else ""
        cells.append(
            [
                problem.replace("_", " ", 1) + changed,
                time(mine[0]["first_s"]),
                *(f"{geometric_mean(found[one]):.3f} ({len(found[one])})" if found[one] else "-" for one in strategies),
                f"{max(map(gain, mine)):.3f}",
                *(f"{fmean(row['searched_s'] for row in mine if not row['shared'] > 10):.0f} s",),
            ]
        )
    every = [
        "geometric mean", "",
        *(f"{geometric_mean(map(gain, (row for row in rows if row['strategy'] == one))):.3f}" for one in strategies),
        f"{geometric_mean(max(map(gain, mine)) for mine in kernels.values()):.3f}", "",
    ]  # fmt: skip
    return table(["problem", "first", *strategies, "best of all", "a search"], [*cells, every])


def describe_five(rows: Sequence[Json]) -> str:
    """What a trial takes, how many candidates failed, and which searches are missing."""
    own = [row for row in rows if not row["shared"]]
    tries = [seconds for row in own for seconds in row["tries_s"]]
    failed = sum(row["failed"] for row in rows)
    now = {row["problem"]: row["first"] for row in rows}
    older = [row for row in rows if row["first"] != now[row["problem"]]]
    return (
        f"A trial took {fmean(tries):.1f} s in the mean beside the other searches, waiting for a turn included. "
        f"{failed} of {sum(row['trials'] for row in rows)} candidates failed. "
        + count_missing(rows)
        + (f" {len(older)} searches began from kernels that the planner no longer writes first." if older else "")
    )


def count_missing(rows: Sequence[Json]) -> str:
    """How many searches are missing, as a sentence."""
    missing = ALL - len(rows)
    if not missing:
        return f"All {ALL} searches ran to their end."
    return f"{missing} of {ALL} searches were not run or cut short, for lack of device time."


def describe_thirty() -> str:
    """The gain of the tree on the thirty problems."""
    rows = [row for row in load_live() if row.get("stopped") and not CUT.fullmatch(row["stopped"])]
    rows = [row for row in rows if row["budget"] == THIRTY_TRIALS]
    if not rows:
        return ""
    gains = sorted(map(gain, rows))
    better = sum(one >= 1.01 for one in gains)
    return (
        f'The tree with {rows[0]["budget"]} trials on {len(rows)} of the thirty problems that were drawn ("KernelBench '
        f"problems as called\"): geometric mean {geometric_mean(gains):.3f} over the planner's first version, at best "
        f"{gains[-1]:.2f}; at least 1% faster on {better}."
    )
