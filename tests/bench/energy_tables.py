"""Tables of measured energies for the page of measurements: the meter against loads, kernels at the same time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from fit_time_model import read_lines

ROWS = Path(__file__).parent / "results" / "h200_energy.jsonl.gz"
SAME_TIME = 1.02  # ratio of the times of a pair, in the loop that was metered
LOAD_HEAD = ("load", "counter", "instantaneous power", "duty", "uncorrected", "corrected", "clock")
PAIR_HEAD = ("problem", "time", "time", "fewer joules", "more joules", "saved", "saved, uncorrected", "told apart")
Line = dict[str, Any]


def read_energies() -> tuple[list[Line], list[Line]]:
    """(loads, kernels that were measured)."""
    lines = read_lines(ROWS)
    return [line for line in lines if line["kind"] == "load"], [
        line for line in lines if line["kind"] == "kernel" and "failed" not in line
    ]


def describe_loads(loads: Sequence[Line]) -> list[list[str]]:
    """A row for each load: watts by the counter and by the power readings, joules of a call, clock."""
    return [
        [
            line["load"],
            f"{line['slope_w']:.1f} W",
            f"{line['instant_w']:.1f} W" if line["instant_w"] else "-",
            f"{line['duty']:.2f}" if "duty" in line else "-",
            f"{line['uncorrected_joules']:.3f} J" if "duty" in line else "-",
            f"{line['joules_per_call']:.3f} J" if "duty" in line else "-",
            f"{line['sm_clock_mhz']:.0f} MHz",
        ]
        for line in loads
    ]


def find_pairs(kernels: Sequence[Line]) -> list[tuple[Line, Line]]:
    """For each problem the two kernels of the same time whose joules differ most, fewer first; largest saving first."""
    by_problem: dict[str, list[Line]] = defaultdict(list)
    for line in kernels:
        by_problem[line["problem"]].append(line)
    pairs = []
    for lines in by_problem.values():
        near = [
            tuple(sorted(pair, key=lambda line: line["joules_per_call"]))
            for pair in combinations(lines, 2)
            if 1 / SAME_TIME <= pair[0]["seconds_per_call"] / pair[1]["seconds_per_call"] <= SAME_TIME
        ]
        if near:
            pairs.append(max(near, key=lambda pair: pair[1]["joules_per_call"] / pair[0]["joules_per_call"]))
    return sorted(pairs, key=lambda pair: pair[0]["joules_per_call"] / pair[1]["joules_per_call"])


def describe_pairs(pairs: Sequence[tuple[Line, Line]]) -> list[list[str]]:
    """A row for each pair: times, joules with intervals, the saving with and without correction."""
    return [
        [
            more["problem"],
            *(f"{line['seconds_per_call'] * 1e6:.1f} µs" for line in (fewer, more)),
            *(_joules(line) for line in (fewer, more)),
            f"{1 - fewer['joules_per_call'] / more['joules_per_call']:.1%}",
            f"{1 - fewer['uncorrected_joules'] / more['uncorrected_joules']:.1%}",
            "yes" if fewer["joules_per_call_interval"][1] < more["joules_per_call_interval"][0] else "no",
        ]
        for fewer, more in pairs
    ]


def _joules(line: Line) -> str:
    low, high = line["joules_per_call_interval"]
    return f"{line['joules_per_call'] * 1e3:.1f} mJ ± {(high - low) / 2 / line['joules_per_call']:.1%}"
