"""Fits the time model (workbench/analysis/time_model) to the landscapes' measured times; run it again when a landscape
is added.

    python tests/bench/landscape_counts.py --out counts.jsonl                 counts of rows at full size, long
    python tests/bench/fit_time_model.py fit counts.jsonl [...]               writes fitted.json and fitted.npz
    python tests/bench/fit_time_model.py hold-out counts.jsonl --out FILE     predictions by cross-validation

`hold-out` divides the problems into folds. It fits constants and hyperparameters on the other folds' problems. Each
problem of the fold is then predicted from the rows of all other problems, so that no row of a problem helps to judge
that problem. `decisions.py` reads its file.

How: the constants of the terms by coordinate search on the mean absolute logarithm of terms over measured; then the
covariance by gradient ascent on the likelihood of each problem's rows given all other problems' rows.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from workbench.analysis import devices
from workbench.analysis.time_model.features import average, describe_launch
from workbench.analysis.time_model.regression import GaussianProcess, Hyperparameters, covariance
from workbench.analysis.time_model.terms import (
    Constants,
    add_resource_seconds,
    bound_below,
    combine,
    resource_seconds,
    traffic_shares,
)
from workbench.records import KernelBuild, Launch, Work
from workbench.wire import from_plain

FITTED = Path(__file__).parents[2] / "workbench" / "analysis" / "time_model"
START = Constants(
    l2_rate=2.0,
    mma_share=0.62,
    start_cycles=800,
    cycles=1.0,
    cta_s=0.6e-9,
    norm=5.0,
    launch_s=1.5e-6,
    call_s=4e-6,
)
FACTORS = (1.6, 1.25, 1.1, 1.04)  # of the coordinate search
FOLDS, SEED = 6, 0
DEVICE = devices.find("H200")


@dataclasses.dataclass(frozen=True)
class CountedRow:
    """One measured row with what the emulator counted."""

    problem: str
    program: str
    seconds: float
    low_s: float
    high_s: float
    launches: tuple[Launch, ...]
    builds: tuple[KernelBuild, ...]
    work: Work


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSON Lines file, gzipped if its name ends in .gz."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        return [json.loads(line) for line in lines]


def read_rows(paths: Sequence[Path]) -> list[CountedRow]:
    """All counted rows of some files, each once."""
    found = {}
    for path in paths:
        for line in read_lines(path):
            if "launches" in line:
                found[line["problem"], line["program"]] = CountedRow(
                    line["problem"],
                    line["program"],
                    line["seconds"],
                    line["low_s"],
                    line["high_s"],
                    tuple(from_plain(item, Launch) for item in line["launches"]),
                    tuple(from_plain(item, KernelBuild) for item in line["builds"]),
                    from_plain(line["work"], Work),
                )
    return list(found.values())


def terms_seconds(row: CountedRow, constants: Constants) -> float:
    """Seconds of a row by the terms alone."""
    builds = {build.kernel: build for build in row.builds}
    return constants.call_s + sum(
        combine(resource_seconds(launch, builds.get(launch.kernel), DEVICE, row.work, constants, share), constants)
        + constants.launch_s
        for launch, share in zip(row.launches, traffic_shares(row.launches), strict=True)
    )


def least_seconds(row: CountedRow, constants: Constants) -> float:
    """Seconds that a row takes at least."""
    return bound_below(row.launches, {build.kernel: build for build in row.builds}, DEVICE, row.work, constants)


def fit_constants(rows: Sequence[CountedRow]) -> Constants:
    """Constants with the least mean absolute logarithm of terms over measured, each problem with the same weight."""
    problems = [row.problem for row in rows]
    weights = np.array([1 / problems.count(problem) for problem in problems])

    def loss(constants: Constants) -> float:
        errors = [abs(math.log(terms_seconds(row, constants) / row.seconds)) for row in rows]
        return float(np.average(errors, weights=weights))

    best, least = START, loss(START)
    for factor in FACTORS:
        improved = True
        while improved:
            improved = False
            for name in Constants.__dataclass_fields__:
                for scale in (factor, 1 / factor):
                    other = dataclasses.replace(best, **{name: getattr(best, name) * scale})
                    value = loss(other)
                    if value < least - 1e-5 and other.mma_share <= 1:
                        best, least, improved = other, value, True
    print("constants", least, best, file=sys.stderr, flush=True)
    return best


@dataclasses.dataclass(frozen=True)
class Table:
    """Features and values of rows."""

    names: tuple[str, ...]
    features: np.ndarray  # (rows, features)
    values: np.ndarray  # log of measured over terms
    problems: np.ndarray  # numbers
    terms_s: np.ndarray
    limits: tuple[str, ...]


def tabulate(rows: Sequence[CountedRow], constants: Constants) -> Table:
    """The regression's table of some rows."""
    found, terms, limits = [], [], []
    for row in rows:
        builds = {build.kernel: build for build in row.builds}
        described = [
            describe_launch(launch, builds.get(launch.kernel), DEVICE, row.work, constants, share)
            for launch, share in zip(row.launches, traffic_shares(row.launches), strict=True)
        ]
        found.append(average(described))
        terms.append(sum(each[0] for each in described) + len(described) * constants.launch_s + constants.call_s)
        parts = add_resource_seconds(row.launches, builds, DEVICE, row.work, constants)
        limits.append(max(parts, key=lambda name: parts[name]))
    numbers = {name: n for n, name in enumerate(dict.fromkeys(row.problem for row in rows))}
    seconds = np.array([row.seconds for row in rows])
    return Table(
        tuple(found[0]),
        np.array([list(each.values()) for each in found]),
        np.log(seconds / np.array(terms)),
        np.array([numbers[row.problem] for row in rows]),
        np.array(terms),
        tuple(limits),
    )


def fit_covariance(table: Table, steps: int, start: Hyperparameters | None = None) -> Hyperparameters:
    """Hyperparameters with the highest likelihood of each problem's rows given those of all other problems."""
    torch.set_default_dtype(torch.float64)
    deviation = table.features.std(0)
    rows = torch.tensor((table.features - table.features.mean(0)) / np.where(deviation > 0, deviation, 1))
    values, problems = torch.tensor(table.values), torch.tensor(table.problems)
    groups = [torch.nonzero(problems == n)[:, 0] for n in problems.unique()]
    start = start or Hyperparameters(
        scales=(4.0,) * rows.shape[1], amplitude=0.5, linear=0.1, offset=0.3, problem=0.08, noise=0.07
    )
    logs = {
        name: torch.tensor(np.log(getattr(start, name)), requires_grad=True)
        for name in ("scales", "amplitude", "linear", "problem", "noise")
    }
    optimiser = torch.optim.Adam(logs.values(), lr=0.08)
    same = (problems[:, None] == problems[None]).double()
    for step in range(steps):
        given = {name: value.exp() for name, value in logs.items()}
        whole = covariance(rows, rows, given["scales"], given["amplitude"], given["linear"], start.offset)
        whole = whole + given["problem"] ** 2 * same + given["noise"] ** 2 * torch.eye(len(rows))
        loss = _held_out_loss(torch.linalg.inv(whole), values, groups)
        loss = loss + 0.05 * ((logs["scales"] - math.log(4.0)) ** 2).sum() + 0.5 * (logs["linear"] + 2) ** 2
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 10 == 0 or step == steps - 1:
            print("covariance", step, round(float(loss.detach()), 1), file=sys.stderr, flush=True)
    found = {name: value.detach().exp() for name, value in logs.items()}
    return Hyperparameters(
        scales=tuple(found.pop("scales").tolist()),
        offset=start.offset,
        **{name: float(value) for name, value in found.items()},
    )


def _held_out_loss(inverse: torch.Tensor, values: torch.Tensor, groups: Sequence[torch.Tensor]) -> torch.Tensor:
    """Minus the log likelihood of each group given the others (Rasmussen and Williams, equations 5.10 to 5.13, for
    blocks).
    """
    weights = inverse @ values
    loss = torch.zeros(())
    for group in groups:
        own = torch.linalg.inv(inverse[group][:, group])
        error = own @ weights[group]
        lower = torch.linalg.cholesky((own + own.T) / 2 + 1e-9 * torch.eye(len(group)))
        solved = torch.linalg.solve_triangular(lower, error[:, None], upper=False)
        loss = loss + 0.5 * (solved**2).sum() + lower.diagonal().log().sum()
    return loss


def held_out(table: Table, hyper: Hyperparameters, problem: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the rows of a problem, given the rows of all others."""
    kept = table.problems != problem
    process = GaussianProcess.fit(hyper, table.features[kept], table.values[kept], table.problems[kept])
    return process.predict(table.features[~kept])


def hold_out(rows: list[CountedRow], steps: int) -> list[dict[str, Any]]:
    """Predictions of all rows by cross-validation over problems."""
    names = sorted({row.problem for row in rows})
    order = np.random.default_rng(SEED).permutation(len(names))
    made = []
    start: Hyperparameters | None = None
    for fold in range(FOLDS):
        held = {names[n] for n in order[fold::FOLDS]}
        train = [row for row in rows if row.problem not in held]
        constants = fit_constants(train)
        start = hyper = fit_covariance(tabulate(train, constants), steps if start is None else steps // 2, start)
        table = tabulate(rows, constants)
        for problem in held:
            mine = np.array([row.problem == problem for row in rows])
            here = [row for row in rows if row.problem == problem]
            mean, spread = held_out(table, hyper, int(table.problems[mine][0]))
            seconds = np.maximum(table.terms_s[mine] * np.exp(mean), [least_seconds(row, constants) for row in here])
            for n, at in enumerate(np.nonzero(mine)[0]):
                made.append(
                    {
                        "problem": problem,
                        "program": rows[at].program,
                        "measured_s": rows[at].seconds,
                        "modelled_s": float(seconds[n]),
                        "terms_s": float(table.terms_s[at]),
                        "limit": table.limits[at],
                        "covariance": [round(float(v), 6) for v in spread[n]],
                    }
                )
    return made


def calibrate(made: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Widths from held-out rows: of an interval of 90 %, and the least difference that decides, in deviations."""
    far, gaps = [], []
    for group in by_problem(made):
        spread = np.array([row["covariance"][: len(group)] for row in group])
        errors = np.array([math.log(row["modelled_s"] / row["measured_s"]) for row in group])
        far += list(np.abs(errors) / np.sqrt(np.diag(spread)))
        for i in range(len(group)):
            for j in range(i):
                true = math.log(group[i]["measured_s"] / group[j]["measured_s"])
                gain = math.log(group[i]["modelled_s"] / group[j]["modelled_s"])
                if abs(true) > math.log(1.1):
                    deviation = math.sqrt(max(spread[i, i] + spread[j, j] - 2 * spread[i, j], 1e-9))
                    gaps.append(abs(gain) / deviation)
    return {"interval": float(np.quantile(far, 0.9)), "decision": float(np.quantile(gaps, UNDECIDED))}


UNDECIDED = 0.085  # share of the pairs that differ by over 10 % of which the order "cannot be told"


def by_problem(made: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Predictions in one list for each problem."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in made:
        groups.setdefault(row["problem"], []).append(row)
    return list(groups.values())


def write_fit(rows: list[CountedRow], widths: dict[str, float], steps: int) -> None:
    """Fit all rows and write what the package reads."""
    constants = fit_constants(rows)
    table = tabulate(rows, constants)
    hyper = fit_covariance(table, steps)
    facts = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": DEVICE.name,
        "rows": len(rows),
        "problems": sorted({row.problem for row in rows}),
        "constants": {name: _short(value) for name, value in dataclasses.asdict(constants).items()},
        "features": table.names,
        "hyperparameters": {
            **{name: _short(getattr(hyper, name)) for name in hyper.__dataclass_fields__ if name != "scales"},
            "scales": [_short(value) for value in hyper.scales],
        },
        **{name: _short(value) for name, value in widths.items()},
    }
    (FITTED / "fitted.json").write_text(json.dumps(facts, indent=1) + "\n")
    np.savez_compressed(
        FITTED / "fitted.npz",
        features=table.features.astype(np.float32),
        values=table.values.astype(np.float32),
        problems=table.problems.astype(np.int16),
    )


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fit", "hold-out"))
    parser.add_argument("counts", nargs="+", type=Path)
    parser.add_argument("--held", type=Path, help="hold-out's file, for `fit`")
    parser.add_argument("--out", type=Path, help="for `hold-out`")
    parser.add_argument("--steps", type=int, default=70, help="of the fit of the covariance")
    arguments = parser.parse_args()
    rows = read_rows(arguments.counts)
    if arguments.what == "hold-out":
        made = hold_out(rows, arguments.steps)
        arguments.out.write_text("".join(json.dumps(row) + "\n" for row in made))
    else:
        write_fit(rows, calibrate(read_lines(arguments.held)), arguments.steps)


if __name__ == "__main__":
    main()
