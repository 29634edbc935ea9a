"""The tables of whole problems: times as called on a GPU (search_live.py), and KernelBench on the emulator."""

from __future__ import annotations

import collections
import json
from typing import Any

from page_parts import RESULTS, geometric_mean, load, section, source, table, time

Json = dict[str, Any]
LIVE, FIRST = "thirty_search_live", "h200_first_versions"
FIRST_TIMES = ("bound_s", "kernels_s", "call_s", "eager_call_s", "compiled_call_s")
BEST_TIMES = ("kernels_s", "call_s", "eager_call_s")
OWN = {
    "bilinear": "`F.interpolate` by 2, bilinear, 16x64x128x128",
    "cdist_l1": "`torch.cdist(x, x, p=1)`, 4096x512",
    "cdist_self": "`torch.cdist(x, x)`, 4096x512",
    "logcumsumexp_row": "`torch.logcumsumexp` of 4 rows of 8,388,608",
    "masked_attention": "attention with a boolean mask, 8x16x1024x64, its scores in memory",
    "pad_reflect": "`F.pad` by 3, reflect, 32x64x224x224",
}
DISTURBED = 1.5  # times the call of the other run; searches gained less
DRAWN = 30
HOST_KEYS = ("torch_host_us", "kernelbench_host_us", "torch_alone_us", "kernelbench_alone_us")
NEAR_US = 4


def load_live() -> list[Json]:
    """The rows of search_live.py, of which the last one of a problem counts."""
    return list({row["problem"]: row for row in load_rows(LIVE)}.values())


def load_rows(name: str) -> list[Json]:
    """The rows of a file of results."""
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]


def problems_as_called() -> str:
    """Both times of KernelBench problems on a GPU, beside torch eager and torch.compile: of the planner's first
    version, and of the best version of a search.
    """
    best = {row["problem"]: row for row in load_live() if has_both_times(row)}
    first = {row["problem"]: row for row in load_rows(FIRST) if has_both_times(row)}
    names = sorted(best.keys() & first.keys(), key=lambda name: (name.split("_")[0], int(name.split("_")[1])))
    cells = [
        [
            name.replace("_", " ", 1),
            *(time(first[name]["again"][key]) for key in FIRST_TIMES),
            f"{over_eager(first[name]):.2f}",
            *(time(best[name]["again"][key]) for key in BEST_TIMES),
            f"{over_eager(best[name]):.2f}",
            f"{best[name]['first_s'] / best[name]['best_s']:.2f} ({best[name]['trials']})",
            f"{first[name]['first_verdict_s']:.0f} s",
        ]
        for name in names
    ]
    head = (
        *("problem", "bound", "first: kernels", "a call", "torch eager", "torch.compile", "over eager"),
        *("best: kernels", "a call", "torch eager", "over eager", "gain", "verdict"),
    )
    rows = [*(first[name] for name in names), *(best[name] for name in names)]
    dates = sorted(row["date"][:10] for row in rows)
    return section(
        "## KernelBench problems as called",
        "Of each level the three problems with the largest inputs and twelve at random "
        f"(`tests/bench/draw_problems.py`), in their own sizes in TF32, "
        f"{', '.join(sorted({name_gpu(row) for row in rows}))}, driver "
        f"{', '.join(sorted({row['driver'] for row in rows}))}, {dates[0]} to {dates[-1]}. *first*: the "
        "planner's first version, torch eager and torch.compile, which took turns in one run. *best*: the best version "
        'of a tree search of at most 15 trials ("Searches on a GPU") and torch eager in another run; *gain*: its '
        "kernels over those of the first, and the trials. Medians; up to five searches shared the GPU and the host, "
        "and took turns at timing. A call is from an idle GPU to the end of its kernels, host time included, for all. "
        "*verdict*: seconds of the first verdict, beside other searches.",
        table(head, cells),
        "\n".join([*_summaries("first version", first, names), *_summaries("best version", best, names)]),
        _disturbed(first, best, names),
        f"Not run: {DRAWN - len(names)} of {DRAWN}.",
        f"Source: `results/{FIRST}.jsonl`, `results/{LIVE}.jsonl`, `tests/bench/search_live.py`.",
    )


def name_gpu(row: Json) -> str:
    """The GPU of a row: rows name it as sessions did at their time."""
    return str(row["device"]).removeprefix("NVIDIA ")


def has_both_times(row: Json) -> bool:
    """Whether a row has the time of a call, of the version and of torch eager."""
    return bool(row["again"].get("call_s") and row["again"].get("eager_call_s"))


def over_eager(row: Json) -> float:
    """How many times faster a call is than one of torch eager."""
    return float(row["again"]["eager_call_s"] / row["again"]["call_s"])


def _summaries(what: str, rows: dict[str, Json], names: list[str]) -> list[str]:
    lines = []
    for level in ("level1", "level2"):
        mine = [rows[name] for name in names if name.startswith(level)]
        if not mine:
            continue
        eager = list(map(over_eager, mine))
        calls = [row["again"] for row in mine if row["again"].get("compiled_call_s")]
        compiled = [one["compiled_call_s"] / one["call_s"] for one in calls]
        beside = f", {geometric_mean(compiled):.2f} over torch.compile" if len(compiled) == len(mine) else ""
        lines.append(
            f"- {level}, {what}, {len(mine)} problem{'s' * (len(mine) > 1)}: geometric mean "
            f"{geometric_mean(eager):.2f} over torch eager{beside}; least {min(eager):.2f} over torch eager; "
            f"{sum(one < 0.9 for one in eager)} below 0.9"
        )
    return lines


def _disturbed(first: dict[str, Json], best: dict[str, Json], names: list[str]) -> str:
    """The calls of first versions that took far longer than their kernels, and than in the other run."""
    found = [
        name
        for name in names
        if first[name]["again"]["call_s"]
        > DISTURBED * max(best[name]["again"]["call_s"], first[name]["again"]["kernels_s"])
    ]
    said = (
        f"{name.replace('_', ' ', 1)} ({time(first[name]['again']['call_s'])}, with kernels of "
        f"{time(first[name]['again']['kernels_s'])}; in the other run {time(best[name]['again']['call_s'])})"
        for name in found
    )
    return f"Disturbed by other work on the host, and counted as measured: {', '.join(said)}." if found else ""


def own_modules() -> str:
    """Both times of modules of a person's own on a GPU, beside torch eager and torch.compile."""
    rows = [row for row in load_rows(FIRST) if not row["problem"].startswith("level")]
    cells = [
        [
            OWN[row["problem"]],
            *(time(row["again"][key]) for key in FIRST_TIMES),
            f"{over_eager(row):.2f}",
            f"{row['again']['compiled_call_s'] / row['again']['call_s']:.2f}",
        ]
        for row in sorted(rows, key=lambda row: row["problem"])
    ]
    return section(
        "## Operations of own modules as called",
        f"The planner's first version in TF32, {name_gpu(rows[0])}, driver {rows[0]['driver']}, "
        f"{rows[0]['date'][:10]}, "
        'as in "KernelBench problems as called". One run each, on the modules that the kernels were written for. The '
        "bound counts the problem's own bytes and FLOPs.",
        table(
            ("problem", "bound", "kernels", "a call", "torch eager", "torch.compile", "over eager", "over compile"),
            cells,
        ),
        f"Source: `results/{FIRST}.jsonl`, `tests/bench/search_live.py`.",
    )


def little_memory() -> str:
    """Verdicts on a card that another process has filled."""
    found = load("h200_memory_24")
    rows = found["rows"]
    right = sum(bool(row["correct"]) for row in rows)
    cells = [
        [
            row["problem"].removesuffix(".py").replace("/", " "),
            f"{row['least_gb']:.2f} GB",
            "right" if row["correct"] else row["failure"],
            f"{row['seconds']:.0f} s",
        ]
        for row in rows
    ]
    return section(
        "## Verdicts with little memory left",
        f"Another process held all but {rows[0]['left_gb']:.0f} GB of an {found['about']['gpu']} "
        f"({found['about']['date']}). "
        f"Of the ten smallest of the thirty problems, in float32, {right} of {len(rows)} first versions were right. "
        "*tensors*: inputs, parameters and results; *took*: opening and the first verdict.",
        table(("problem", "tensors", "verdict", "took"), cells),
        source("h200_memory_24", "memory_on_gpu.py"),
    )


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
