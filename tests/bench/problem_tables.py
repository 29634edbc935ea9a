"""The tables of whole problems: times as called on a GPU (search_live.py), and KernelBench on the emulator."""

from __future__ import annotations

import collections
import json
from typing import Any

from page_parts import RESULTS, geometric_mean, load, section, source, table, time

Json = dict[str, Any]
LIVE = "thirty_search_live"
DRAWN = 30
HOST_KEYS = ("torch_host_us", "kernelbench_host_us", "torch_alone_us", "kernelbench_alone_us")
NEAR_US = 4


def load_live() -> list[Json]:
    """The rows of search_live.py, of which the last one of a problem counts."""
    text = (RESULTS / f"{LIVE}.jsonl").read_text()
    return list({row["problem"]: row for row in map(json.loads, text.splitlines())}.values())


def problems_as_called() -> str:
    """Both times of KernelBench problems on a GPU, beside torch eager and torch.compile."""
    rows = sorted(load_live(), key=lambda row: int(row["problem"].split("_")[1]))
    rows.sort(key=lambda row: row["problem"].split("_")[0])
    timed = [row for row in rows if row["again"].get("call_s") and row["again"].get("eager_call_s")]
    failed = [row["problem"] for row in rows if row not in timed]
    cells = [
        [
            row["problem"].replace("_", " ", 1),
            row["device"],
            *(time(row["again"][key]) for key in ("bound_s", "kernels_s", "call_s", "eager_call_s", "compiled_call_s")),
            f"{row['again']['eager_call_s'] / row['again']['call_s']:.2f}",
            f"{row['first_s'] / row['best_s']:.2f} ({row['trials']})",
            f"{row['first_verdict_s']:.0f} s",
        ]
        for row in timed
    ]
    head = (
        "problem",
        "GPU",
        "bound",
        "kernels",
        "a call",
        "torch eager",
        "torch.compile",
        "over eager",
        "search",
        "verdict",
    )
    drivers = sorted({row["driver"] for row in timed})
    dates = sorted(row["date"][:10] for row in timed)
    return section(
        "## KernelBench problems as called",
        "Of each level the three problems with the largest inputs and twelve at random "
        f"(`tests/bench/draw_problems.py`), in their own sizes in TF32, driver {', '.join(drivers)}, {dates[0]} to "
        f"{dates[-1]}: medians of one run for each problem, in which the version, torch eager and torch.compile took "
        "turns, with other searches on the same GPU, whose timing waited. A call is from an idle GPU to the end of its "
        'kernels, host time included, for all three. "search": the gain of a tree search over the planner\'s first '
        'version, and the versions that it had measured when it ended or its time was up, of 15 ("Searches on a '
        'GPU"). "verdict": seconds of the first verdict, beside other searches.',
        table(head, cells),
        "\n".join(_summaries(timed)),
        f"Not run: {DRAWN - len(rows)} of {DRAWN}, for lack of time."
        + (f" Not timed: {', '.join(failed)}." if failed else ""),
        f"Source: `results/{LIVE}.jsonl`, `tests/bench/search_live.py`.",
    )


def _summaries(timed: list[Json]) -> list[str]:
    lines = []
    for level in ("level1", "level2"):
        mine = [row["again"] for row in timed if row["problem"].startswith(level)]
        if not mine:
            continue
        eager = [one["eager_call_s"] / one["call_s"] for one in mine]
        compiled = [one["compiled_call_s"] / one["call_s"] for one in mine if one["compiled_call_s"]]
        count = f"{len(mine)} problem{'s' * (len(mine) > 1)}"
        lines.append(
            f"- {level}, {count}: geometric mean {geometric_mean(eager):.2f} over torch eager, "
            f"{geometric_mean(compiled):.2f} over torch.compile; least {min(eager):.2f} over torch eager; "
            f"{sum(ratio < 0.9 for ratio in eager)} below 0.9"
        )
    return lines


def host_time() -> str:
    """What a call of an exported file costs the host, beside torch eager."""
    found = load("h200_host_time")
    rows = found["rows"]
    more = [row["kernelbench_host_us"] - row["torch_host_us"] for row in rows]
    cells = [
        [row["problem"], row["launches"], *(f"{row[key]:.1f}" for key in HOST_KEYS), f"{extra:+.1f}"]
        for row, extra in zip(rows, more, strict=True)
    ]
    return section(
        "## Host time of exported files",
        f"What a call costs the host, small sizes, {found['gpu']}, torch {found['versions']['torch']}: wall time of "
        "100 calls without a synchronisation between them, divided by 100, medians of 21 samples in which both took "
        "turns, in µs; *alone*: one call from an idle GPU to its end. Exports have plans: a call like an earlier one "
        f"only allocates and launches. {sum(extra <= NEAR_US for extra in more)} of {len(rows)} are within {NEAR_US} "
        "µs of torch or below it. What is left: each launch through TVM FFI, each tensor that is described to it, "
        "and in the products two more launches than torch's, which prepare their operands or counters.",
        table(("problem", "launches", "torch", "export", "torch alone", "export alone", "more"), cells),
        source("h200_host_time", "host_time_on_gpu.py"),
    )


def kernelbench() -> str:
    """How many of KernelBench's problems have right kernels on the emulator."""
    found = load("kernelbench_sweep")
    rows = found["rows"]
    versions = collections.Counter(row["status"] for row in rows)
    wrong = [row for row in rows if row["status"] not in ("right", "planned")]
    lines = [f"- {row['problem']}, version {row['version']}: {row['message'].splitlines()[0][:160]}" for row in wrong]
    return section(
        "## KernelBench on the emulator",
        f"All {found['problems']} problems of levels 1 and 2, opened as they are; the planner's first three versions "
        f"run at all small cases. {versions['right']} of {len(rows)} versions are right. The others:",
        "\n".join(lines),
        found["note"],
        source("kernelbench_sweep", "kernelbench_sweep.py"),
    )
