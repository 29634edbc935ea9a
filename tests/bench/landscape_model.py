"""The planner on measured landscapes, with no GPU: does its model of Hopper GEMMs rank configurations as the H200 does,
and how soon does its ladder come near the best?

python tests/bench/landscape_model.py --out tests/bench/results/landscape_model.json
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from workbench.analysis import devices
from workbench.landscapes import Landscape, landscapes
from workbench.language import parse
from workbench.language.ir import setting
from workbench.language.operations.gemm.sm90 import config_of
from workbench.policies.search import HillClimb, RandomSearch, median_curve, planner_order, regret, walk_landscape
from workbench.problems import inspection
from workbench.proposers.ladders import Context, gemm_hopper_model, gemm_size, ladder
from workbench.proposers.recognition import recognise
from workbench.proposers.rung_programs import write_program
from workbench.records import Facts
from workbench.tuning.plan import ARCH, DEVICE

SEEDS = range(20)
AFTER = (1, 2, 4, 8, 16, 32)
LATEST = max(AFTER)


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0."""
    found = np.empty(len(values))
    found[np.argsort(values)] = np.arange(len(values))
    return found


def model(place: Landscape, facts: Facts) -> dict[str, Any] | None:
    """Rank correlation and factors over the kernels with a schedule; None where there are none."""
    size = gemm_size.size_of(facts)
    device = devices.find(DEVICE)
    pairs = []
    for row in place.correct:
        stage = parse(row.program).stages[0]
        if size is not None and stage.operation.name == "gemm" and setting(stage, "schedule") is not None:
            pairs.append((gemm_hopper_model.model_time(config_of(stage), size, device)[0], row.median_s))
    if len(pairs) < 3:
        return None
    modelled, measured = np.array(pairs).T
    factor = np.exp(np.abs(np.log(modelled / measured)))
    picked = float(measured[int(np.argmin(modelled))])
    return {
        "kernels": len(pairs),
        "spearman": float(np.corrcoef(ranks(modelled), ranks(measured))[0, 1]),
        "median_factor": float(np.median(factor)),
        "p90_factor": float(np.quantile(factor, 0.9)),
        "slower_than_best": picked / float(measured.min()) - 1,
    }


def search(place: Landscape, facts: Facts) -> dict[str, Any]:
    """Regret of the planner's ladder, of random search and of hill climbing (medians over seeds) after some tries."""
    found = recognise(facts)
    programs = [
        write_program(found, rung, ARCH)
        for rung in ladder(
            Context(found=found, precision=place.facts["precision"], arch=ARCH, device=DEVICE, facts=facts)
        )
    ]
    curves = {
        "planner": regret(place, planner_order(place, programs)),
        "random": median_curve([regret(place, walk_landscape(place, RandomSearch(), seed, LATEST)) for seed in SEEDS]),
        "climbing": median_curve([regret(place, walk_landscape(place, HillClimb(), seed, LATEST)) for seed in SEEDS]),
    }
    return {
        name: {str(tries): None if math.isinf(value := curve[min(tries, len(curve)) - 1]) else value for tries in AFTER}
        for name, curve in curves.items()
        if curve
    } | {"rungs": len(programs)}


def main() -> None:
    """Every landscape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, place in landscapes().items():
        if place.best is None:
            continue
        facts = inspection.inspect(place.problem())
        rows.append(
            {
                "problem": name,
                "configurations": len(place.rows),
                "correct": len(place.correct),
                "best_s": place.best.median_s,
                "eager_s": place.eager.median_s if place.eager else None,
                "model": model(place, facts),
                "regret": search(place, facts),
            }
        )
        print(name, json.dumps({key: rows[-1][key] for key in ("model", "regret")}), flush=True)
    ranked = [row["model"]["spearman"] for row in rows if row["model"]]
    said = {
        "problems": len(rows),
        "median_spearman": float(np.median(ranked)) if ranked else None,
        "least_spearman": min(ranked, default=None),
    }
    print(json.dumps(said))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps({"summary": said, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
