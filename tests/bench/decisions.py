"""How often the time model decides as the GPU does.

    python tests/bench/decisions.py --held held.jsonl --out tests/bench/results/decisions.json

`held.jsonl` comes from `fit_time_model.py hold-out`: every row was predicted without any row of its problem. The
groups of foreign_kernels.py, kernels that the planner did not write, count as problems and are reported apart.

For pairs of kernels that do the same work: how many are in the right order, of those whose measured times differ by
over 10 %, and of those that differ by 5 to 10 %; how many of the former "cannot be told". For single kernels: the
factor between modelled and measured time, and how many measured times lie in the interval of 90 %. Widths of intervals
are calibrated for each problem on the rows of all others.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from fit_time_model import by_problem, calibrate, read_lines

from workbench.landscapes import landscapes

LARGE, SMALL = math.log(1.1), math.log(1.05)
Json = dict[str, Any]


def judge_held_out(made: Sequence[Json]) -> tuple[list[Json], list[Json]]:
    """(rows, pairs) of held-out predictions, with intervals and orders."""
    groups = by_problem(made)
    rows, pairs = [], []
    for held, group in enumerate(groups):
        widths = calibrate([row for n, other in enumerate(groups) if n != held for row in other])
        spread = np.array([row["covariance"] for row in group])
        for n, row in enumerate(group):
            error = math.log(row["modelled_s"] / row["measured_s"])
            inside = abs(error) <= widths["interval"] * math.sqrt(spread[n, n])
            rows.append({"group": row["problem"], "error": error, "inside": inside})
        for i, j in itertools.combinations(range(len(group)), 2):
            gain = math.log(group[j]["modelled_s"] / group[i]["modelled_s"])
            deviation = math.sqrt(max(spread[i, i] + spread[j, j] - 2 * spread[i, j], 1e-12))
            pairs.append(
                {
                    "group": group[i]["problem"],
                    "true": math.log(group[j]["measured_s"] / group[i]["measured_s"]),
                    "gain": gain,
                    "told": abs(gain) > widths["decision"] * deviation,
                }
            )
    return rows, pairs


def summarise(rows: Sequence[Json], pairs: Sequence[Json]) -> Json:
    """The figures of some rows and pairs."""
    factors = np.exp(np.abs([row["error"] for row in rows]))
    large = [pair for pair in pairs if abs(pair["true"]) > LARGE]
    small = [pair for pair in pairs if SMALL < abs(pair["true"]) <= LARGE]
    told = [pair for pair in large if pair["told"]]
    return {
        "kernels": len(rows),
        "pairs over 10 %": len(large),
        "right over 10 %": _share(large),
        "pairs of 5 to 10 %": len(small),
        "right of 5 to 10 %": _share(small),
        "cannot be told over 10 %": round(1 - len(told) / max(len(large), 1), 4),
        "right of those told": _share(told),
        "median factor": round(float(np.median(factors)), 3),
        "factor of 9 in 10": round(float(np.quantile(factors, 0.9)), 3),
        "largest factor": round(float(factors.max()), 2),
        "in the interval of 90 %": round(float(np.mean([row["inside"] for row in rows])), 3),
    }


def _share(pairs: Sequence[Json]) -> float | None:
    right = [(pair["true"] > 0) == (pair["gain"] > 0) for pair in pairs]
    return round(float(np.mean(right)), 4) if right else None


def summarise_groups(rows: Sequence[Json], pairs: Sequence[Json]) -> dict[str, Json]:
    """The figures of each problem."""
    names = sorted({row["group"] for row in rows})
    return {
        name: summarise(
            [row for row in rows if row["group"] == name], [pair for pair in pairs if pair["group"] == name]
        )
        for name in names
    }


def draw_plot(made: Sequence[Json], size: int = 480, edge: int = 48) -> str:
    """Modelled against measured times of held-out rows, both on logarithmic scales, as SVG."""
    times = [(row["measured_s"], row["modelled_s"]) for row in made]
    low = math.floor(math.log10(min(min(pair) for pair in times)))
    high = math.ceil(math.log10(max(max(pair) for pair in times)))

    def place(seconds: float) -> float:
        return (math.log10(seconds) - low) / (high - low) * (size - 2 * edge)

    ticks = "".join(
        f'<line x1="{edge + place(10.0**n):.0f}" y1="{edge}" x2="{edge + place(10.0**n):.0f}" y2="{size - edge}"/>'
        f'<line x1="{edge}" y1="{size - edge - place(10.0**n):.0f}" x2="{size - edge}" '
        f'y2="{size - edge - place(10.0**n):.0f}"/>'
        f'<text x="{edge + place(10.0**n):.0f}" y="{size - edge + 16}">1e{n} s</text>'
        for n in range(low, high + 1)
    )
    dots = "".join(f'<circle cx="{edge + place(x):.1f}" cy="{size - edge - place(y):.1f}" r="1.6"/>' for x, y in times)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" font-family="sans-serif" font-size="11">'
        f'<rect width="{size}" height="{size}" fill="white"/><g stroke="#ddd" text-anchor="middle" '
        f'fill="#555">{ticks.replace("<text", "<text stroke=&quot;none&quot;").replace("&quot;", chr(34))}</g>'
        f'<line x1="{edge}" y1="{size - edge}" x2="{size - edge}" y2="{edge}" stroke="#888"/>'
        f'<g fill="#1f77b4" fill-opacity="0.5">{dots}</g>'
        f'<text x="{size / 2}" y="{size - 10}" text-anchor="middle">measured on an H200</text>'
        f'<text x="14" y="{size / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {size / 2})">modelled</text></svg>\n'
    )


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path, help="an SVG of modelled against measured times")
    arguments = parser.parse_args()
    rows, pairs = judge_held_out(read_lines(arguments.held))
    known = landscapes()
    document: Json = {"date": datetime.now(UTC).date().isoformat()}
    for name, own in (("landscapes", True), ("other kernels", False)):
        mine = [row for row in rows if (row["group"] in known) == own]
        if mine:
            compared = [pair for pair in pairs if (pair["group"] in known) == own]
            document |= {name: summarise(mine, compared), f"{name} by problem": summarise_groups(mine, compared)}
    if arguments.plot:
        arguments.plot.write_text(draw_plot(read_lines(arguments.held)))
    if arguments.out:
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")
    for part in ("landscapes", "other kernels"):
        if part in document:
            print(part, json.dumps(document[part], indent=1))
    for name, row in sorted(
        document["landscapes by problem"].items(), key=lambda item: item[1]["right over 10 %"] or 0
    ):
        print(f"{name:30s}", " ".join(f"{value}" for value in row.values()))


if __name__ == "__main__":
    main()
