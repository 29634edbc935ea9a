"""Modelled times of many rows of landscapes, as a search's priors: no row of the same family helped to fit the model.

    python tests/bench/model_priors.py --fit results/landscape_counts.jsonl.gz --predict search_counts.jsonl

`search_modelled.jsonl.gz` came with `--steps 20 --rows 20`.

Divides the families of problems (`family_of` in search_on_landscapes.py) into folds. For each fold the constants and
the covariance of the time model are fitted on rows of the other folds' families (fit_time_model.py), and every row of
a family is then predicted from rows of other families. The deviation of a prediction is the process's, times a factor
for which 90 % of the rows of the other families lie in the interval, each problem's mean error taken off. No GPU.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from fit_time_model import (
    CountedRow,
    fit_constants,
    fit_covariance,
    least_seconds,
    read_rows,
    tabulate,
)
from search_on_landscapes import MODELLED, family_of

from workbench.analysis.time_model.regression import GaussianProcess
from workbench.landscapes import landscapes
from workbench.records.search import NORMAL_90

HERE = Path(__file__).parent
FOLDS = 6
Json = dict[str, Any]


def predict_families(fit: Sequence[CountedRow], wanted: Sequence[CountedRow], steps: int) -> list[Json]:
    """Predictions of the wanted rows, each from rows of other families."""
    family = {name: family_of(place) for name, place in landscapes().items()}
    names = sorted({family[row.problem] for row in fit})
    order = np.random.default_rng(0).permutation(len(names))
    made: list[Json] = []
    start = None
    for fold in range(FOLDS):
        held = {names[at] for at in order[fold::FOLDS]}
        if not any(family[row.problem] in held for row in wanted):
            continue
        train = [row for row in fit if family[row.problem] not in held]
        constants = fit_constants(train)
        start = hyper = fit_covariance(tabulate(train, constants), steps if start is None else steps // 2, start)
        for name in sorted(held):
            mine = [row for row in wanted if family[row.problem] == name]
            if not mine:
                continue
            others = [row for row in fit if family[row.problem] != name]
            table = tabulate([*others, *mine], constants)
            size = len(others)
            process = GaussianProcess.fit(hyper, table.features[:size], table.values[:size], table.problems[:size])
            mean, spread = process.predict(table.features[size:])
            least = [least_seconds(row, constants) for row in mine]
            seconds = np.maximum(table.terms_s[size:] * np.exp(mean), least)
            made += [
                {
                    "problem": row.problem,
                    "program": row.program,
                    "family": name,
                    "measured_s": row.seconds,
                    "modelled_s": float(f"{at:.5g}"),
                    "deviation": float(np.sqrt(wide)),
                }
                for row, at, wide in zip(mine, seconds, np.diag(spread), strict=True)
            ]
            print(f"fold {fold}: {name}, {len(mine)} rows", flush=True)
    return made


def calibrate_deviations(made: Sequence[Json]) -> list[Json]:
    """The predictions with deviations that hold on the other families."""
    ratios: dict[str, list[float]] = {}
    for problem in sorted({row["problem"] for row in made}):
        mine = [row for row in made if row["problem"] == problem]
        errors = np.array([np.log(row["modelled_s"] / row["measured_s"]) for row in mine])
        apart = np.abs(errors - errors.mean()) / np.array([row["deviation"] for row in mine])
        ratios.setdefault(mine[0]["family"], []).extend(apart)
    factors = {
        name: float(np.quantile([one for other, many in ratios.items() if other != name for one in many], 0.9))
        / NORMAL_90
        for name in ratios
    }
    print("factors", {name: round(factor, 2) for name, factor in factors.items()})
    return [
        {
            "problem": row["problem"],
            "program": row["program"],
            "modelled_s": row["modelled_s"],
            "deviation": round(factors[row["family"]] * row["deviation"], 4),
        }
        for row in made
    ]


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", nargs="+", type=Path, default=[HERE / "results" / "landscape_counts.jsonl.gz"])
    parser.add_argument("--predict", nargs="+", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=30, help="of the fit of the covariance")
    parser.add_argument("--rows", type=int, default=24, help="of each problem, to fit")
    parser.add_argument("--out", type=Path, default=MODELLED)
    arguments = parser.parse_args()
    known = set(landscapes())
    fit: dict[str, list[CountedRow]] = {}
    for row in read_rows(arguments.fit):
        if row.problem in known and len(fit.setdefault(row.problem, [])) < arguments.rows:
            fit[row.problem].append(row)
    wanted = [row for row in read_rows([*arguments.fit, *arguments.predict]) if row.problem in known]
    made = predict_families([row for rows in fit.values() for row in rows], wanted, arguments.steps)
    lines = "".join(json.dumps(row) + "\n" for row in calibrate_deviations(made))
    arguments.out.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
