"""Fits the energy model (workbench/analysis/energy_model) to joules measured on a GPU.

    python tests/bench/energy_on_gpu.py --out energy.jsonl                 on a GPU: rows
    python tests/bench/fit_energy.py energy.jsonl [...] [--out FILE]       prints the fit; --out keeps it
    python tests/bench/fit_energy.py energy.jsonl [...] --ship             keeps it as the package's (fitted.json)

A row is joined with its counts of full size in results/landscape_counts.jsonl.gz. Its time is the one that was measured
in the same loop, so that errors of the time model are not in the coefficients. Least squares of predicted / measured
- 1, each problem with the same weight, no coefficient negative (coordinate descent, which finds the least value). The
static power is not fitted: it is the idle power that was measured beside each row. The power limit is the median power
of the rows whose clocks it lowered; such a row is in the fit only while the other coefficients give it less. Then every
problem is left out once, and its rows are predicted from all others:

    error         0.9 quantile of |log(predicted / measured)| of the rows that were left out
    ratio_error   the same of the ratio of two rows of one problem

`low` and `high` of a coefficient are the range over these fits. `constant_power` is what the same rows give if all
kernels drew one power: a model that is no better there has learnt nothing but the power limit.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from fit_time_model import CountedRow, read_lines, read_rows

from workbench.analysis import devices
from workbench.analysis.energy_model import FITTED, UNITS, count_events
from workbench.analysis.energy_model.counts import STATIC

COUNTS = Path(__file__).parent / "results" / "landscape_counts.jsonl.gz"
ROUNDS = 20_000  # of the coordinate descent at most
SMALL = 1e-12  # change of a coordinate, relative to its column, at which it ends
LEVEL = 0.9
LIMIT = "limit"  # the key of the power limit among the coefficients
PASSES = 10  # of a fit, at most


@dataclasses.dataclass(frozen=True)
class EnergyRow:
    """A measured kernel with what it executes."""

    problem: str
    program: str
    joules: float
    low_joules: float
    high_joules: float
    idle_w: float
    events: Mapping[str, float]
    limited: bool  # whether the power limit lowered the clocks

    @property
    def watts(self) -> float:
        """Mean power."""
        return self.joules / self.events[STATIC]


def join_rows(paths: Sequence[Path], counted: Sequence[CountedRow]) -> list[EnergyRow]:
    """The rows of some files that were measured and have counts, each once. Rows of two devices are refused."""
    counts = {(row.problem, row.program): row for row in counted}
    lines = [line for path in paths for line in read_lines(path) if line["kind"] == "kernel" and "failed" not in line]
    lines = [line for line in lines if not line.get("dry")]
    if len(names := sorted({line["device"] for line in lines})) != 1:
        sys.exit(f"the rows must be of one GPU; they are of: {', '.join(names) or 'none'}")
    device = devices.find(names[0])
    found = {}
    for line in lines:
        key = line["problem"], line["program"]
        if key in counts:
            row = counts[key]
            events = count_events(row.launches, device, row.work, line["seconds_per_call"])
            low, high = line["joules_per_call_interval"]
            limited = "power_cap" in line["state"]["throttled"]
            found[key] = EnergyRow(*key, line["joules_per_call"], low, high, line["idle_w"], events, limited)
    return list(found.values())


def solve(matrix: np.ndarray, wanted: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The non-negative x that minimises the weighted squares of `matrix @ x - wanted`."""
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-300)
    scaled = matrix / scale * np.sqrt(weights)[:, None]
    gram, right = scaled.T @ scaled, scaled.T @ (wanted * np.sqrt(weights))
    x = np.zeros(matrix.shape[1])
    for _ in range(ROUNDS):
        moved = 0.0
        for n in range(len(x)):
            if gram[n, n] > 0:
                new = max(x[n] + (right[n] - gram[n] @ x) / gram[n, n], 0.0)
                moved, x[n] = max(moved, abs(new - x[n])), new
        if moved < SMALL:
            break
    return x / scale


def fit(rows: Sequence[EnergyRow]) -> dict[str, float]:
    """Event -> coefficient, and LIMIT -> watts.

    A row at the power limit says only that its events cost at least so much at full clocks. So it is left out while the
    coefficients of the others give it more.
    """
    names = [name for name in UNITS if name != STATIC]
    matrix = np.array([[row.events.get(name, 0.0) / row.joules for name in names] for row in rows])
    idle = np.array([row.idle_w * row.events[STATIC] / row.joules for row in rows])
    limited, weights = np.array([row.limited for row in rows]), weigh(rows)
    kept = np.ones(len(rows), dtype=bool)
    for _ in range(PASSES):
        found = solve(matrix[kept], 1 - idle[kept], weights[kept])
        below = ~(limited & (matrix @ found + idle > 1))
        if (below == kept).all():
            break
        kept = below
    return {
        **dict(zip(names, map(float, found), strict=True)),
        STATIC: float(np.mean([row.idle_w for row in rows])),
        LIMIT: find_limit(rows),
    }


def find_limit(rows: Sequence[EnergyRow]) -> float:
    """The median power of the rows at the power limit; without any, the highest power."""
    return float(np.median([row.watts for row in rows if row.limited] or [max(row.watts for row in rows)]))


def weigh(rows: Sequence[EnergyRow]) -> np.ndarray:
    """Weights by which each problem counts the same."""
    problems = [row.problem for row in rows]
    return np.array([1 / problems.count(problem) for problem in problems])


def predict(coefficients: Mapping[str, float], row: EnergyRow) -> float:
    """Joules of a row."""
    found = sum(coefficients[name] * count for name, count in row.events.items() if count)
    return min(found, coefficients[LIMIT] * row.events[STATIC])


def hold_out(rows: Sequence[EnergyRow]) -> tuple[dict[str, list[tuple[EnergyRow, float]]], list[dict[str, float]]]:
    """(problem -> its rows with log(predicted / measured) from a fit without it, these fits)."""
    left_out: dict[str, list[tuple[EnergyRow, float]]] = defaultdict(list)
    fits = []
    for problem in dict.fromkeys(row.problem for row in rows):
        made = fit([row for row in rows if row.problem != problem])
        fits.append(made)
        for row in rows:
            if row.problem == problem:
                left_out[problem].append((row, math.log(max(predict(made, row), 1e-12) / row.joules)))
    return left_out, fits


def describe_constant_power(rows: Sequence[EnergyRow]) -> dict[str, float]:
    """The errors of one power for all kernels, in watts: of problems that are left out, as for the model."""
    errors = []
    for row in rows:
        others = [one for one in rows if one.problem != row.problem]
        power = solve(
            np.array([[one.events[STATIC] / one.joules] for one in others]), np.ones(len(others)), weigh(others)
        )
        errors.append(abs(math.log(float(power[0]) * row.events[STATIC] / row.joules)))
    watts = [row.watts for row in rows]
    return {"error": quantile(errors), "lowest_w": min(watts), "highest_w": max(watts)}


def quantile(values: Sequence[float]) -> float:
    """The smallest value that LEVEL of all, one more counted, do not exceed; the largest if there are too few."""
    ordered = sorted(values)
    return ordered[min(math.ceil(LEVEL * (len(ordered) + 1)), len(ordered)) - 1]


def describe(rows: Sequence[EnergyRow], device: str) -> dict[str, Any]:
    """What `fitted.json` holds."""
    coefficients, (left_out, fits) = fit(rows), hold_out(rows)
    errors = [abs(error) for found in left_out.values() for _, error in found]
    ratios = [abs(a - b) for found in left_out.values() for (_, a), (_, b) in combinations(found, 2)]
    return {
        "fitted_on": device,
        "date": datetime.now(UTC).date().isoformat(),
        "rows": len(rows),
        "problems": len(left_out),
        "coefficients": {
            name: {
                "value": coefficients[name],
                "low": min(one[name] for one in fits),
                "high": max(one[name] for one in fits),
                "unit": unit,
            }
            for name, unit in UNITS.items()
        },
        "limit_w": coefficients[LIMIT],
        "limited_rows": sum(row.limited for row in rows),
        "error": quantile(errors),
        "ratio_error": quantile(ratios),
        "held_out": {
            "median_factor": math.exp(float(np.median(errors))),
            "largest_factor": math.exp(max(errors)),
            "within_1.3": sum(error < math.log(1.3) for error in errors) / len(errors),
            "constant_power": describe_constant_power(rows),
        },
    }


def print_fit(made: Mapping[str, Any], rows: Sequence[EnergyRow]) -> None:
    """Coefficients with their ranges, and each row that was left out."""
    for name, one in made["coefficients"].items():
        print(f"{name:18} {one['value']:10.3e} {one['unit']:26} {one['low']:.3e} to {one['high']:.3e}")
    for problem, found in hold_out(rows)[0].items():
        for row, error in found:
            noise = (row.high_joules - row.low_joules) / 2 / row.joules
            print(
                f"{problem:26} {row.joules:9.4f} J +-{noise:6.1%}  held out {math.exp(error):5.2f}x  {row.program[:60]}"
            )
    print(json.dumps({name: made[name] for name in ("rows", "problems", "error", "ratio_error", "held_out")}))


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="+")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--ship", action="store_true", help=f"write {FITTED.name} beside the model")
    arguments = parser.parse_args()
    rows = join_rows(arguments.rows, read_rows([COUNTS]))
    device = next(line["device"] for path in arguments.rows for line in read_lines(path) if "device" in line)
    made = describe(rows, device)
    print_fit(made, rows)
    for path in filter(None, (arguments.out, FITTED if arguments.ship else None)):
        path.write_text(json.dumps(made, indent=1) + "\n")
        print(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
