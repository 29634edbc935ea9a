"""Counts how often a right program with random numbers of its own is refused by law.

    python tests/bench/law_alarms.py --seeds 200 --verdicts 200

First each pair of programs of one law in `tests/problems/test_laws.py`, by repeated calls and by a single call. Then
whole verdicts: every run of a job by law, at the shapes of its cases, of a dropout that is written out; a verdict is
refused if one run is. The results are in `results/law_alarms.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F

from workbench import problems
from workbench.executors.jobs.trials import LAW_CALLS, NOT_FINITE, list_runs
from workbench.problems import inspection
from workbench.problems.reference.law import SAMPLES, SINGLE_SAMPLES, compare_laws
from workbench.records import Candidate, Job

HERE = Path(__file__).parent
OUT = HERE / "results" / "law_alarms.json"
SHARES = (0.1, 0.5)
SHAPES = ("f32[4096, 4096]", "f32[8, 128, 768]")
TOLERANCE = 2.0**-21


def count_pairs(seeds: int) -> Iterator[dict[str, object]]:
    """Refusals of each pair of programs of one law."""
    sys.path.insert(0, str(HERE.parent / "problems"))
    from test_laws import ALIKE, CALLS, compare

    for name, pair in ALIKE.items():
        for calls in (CALLS, 1):
            refused = [seed for seed in range(seeds) if compare(*pair, calls=calls, seed=1000 + seed).distance > 1]
            yield {"of": name, "calls": calls, "seeds": seeds, "refused": len(refused)}


def count_verdicts(seeds: int) -> Iterator[dict[str, object]]:
    """Refusals of whole verdicts of a dropout, and the runs that refused."""
    for share in SHARES:
        for shape in SHAPES:
            opened = inspection.open_problem(problems.from_expression(f"F.dropout(x, {share})", inputs=f"x: {shape}"))
            facts = opened.facts
            cases = tuple(case.name for case in facts.cases if case.name not in ("full", "empty"))
            job = Job(problem=opened.problem, facts=facts, candidate=Candidate(source=""), cases=cases)
            extents = {case.name: case.inputs[0].shape for case in facts.cases}
            runs = [
                (run.case, run.repeats or 1)
                for run in list_runs(job)
                for values in run.values
                if not run.layout and values != NOT_FINITE  # which refuse nothing, or are compared otherwise
            ]
            refused: list[list[str]] = []
            for seed in range(seeds):
                torch.manual_seed(10_000 + seed)
                refused.append(
                    [f"{case}, {calls} calls" for case, calls in runs if _is_refused(extents[case], share, calls)]
                )
            names = sorted({name for found in refused for name in found})
            yield {
                "of": f"dropout({share}) of {shape}",
                "runs": len(runs),
                "seeds": seeds,
                "refused": sum(map(bool, refused)),
                "by": {name: sum(name in found for found in refused) for name in names},
            }


def _is_refused(shape: tuple[int, ...], share: float, calls: int) -> bool:
    assert calls in (1, LAW_CALLS)
    x = torch.randn(shape).reshape(-1, shape[-1])
    known = torch.stack([F.dropout(x, share) for _ in range(SAMPLES if calls > 1 else SINGLE_SAMPLES)]).double()
    given = torch.stack([torch.where(torch.rand_like(x) >= share, x / (1 - share), 0.0) for _ in range(calls)])
    return compare_laws(given, known, 1e-6 + TOLERANCE * known.mean(0).abs()).distance > 1


def main() -> None:
    """Count both, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--verdicts", type=int, default=200)
    given = parser.parse_args()
    found: dict[str, list[dict[str, object]]] = {"pairs": [], "verdicts": []}
    for part, rows in (("pairs", count_pairs(given.seeds)), ("verdicts", count_verdicts(given.verdicts))):
        for row in rows:
            print(json.dumps(row), flush=True)
            found[part].append(row)
            OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
