"""How many evaluations it saves to tune interchangeable layers of a module once, and what it costs.

    python tests/bench/structure_tune_once.py FILE... [--out tests/bench/results/structure_tune_once.json]

FILE: problem files, such as KernelBench/level3/3_DeepNarrowMLP.py, which are not part of this repository. For each that
the planner writes as a pipeline: the groups of its stages, the versions of a ladder that changes each stage alone and
of the one that changes a group at once, and the modelled time on an H200 that each ends with (the sum over the stages
of the fastest rung; None where a stage has no model of its time). Nothing is compiled or run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from workbench import problems
from workbench.errors import WorkbenchError
from workbench.problems import inspection
from workbench.proposers.ladders import Context, ladder, list_legal
from workbench.proposers.ladders.base import Rung
from workbench.proposers.ladders.pipelines import group_pieces
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.tuning.plan import ARCH, DEVICE

OUT = Path(__file__).resolve().parent / "results" / "structure_tune_once.json"


def end_time(ladders: Sequence[Sequence[Rung]], chosen: Sequence[int]) -> float | None:
    """Seconds of all stages, each with the fastest rung of the ladder that `chosen` names for it."""
    found = [min((rung.seconds for rung in ladders[place] if rung.seconds), default=None) for place in chosen]
    return None if None in found else sum(seconds for seconds in found if seconds)


def measure(path: Path) -> dict[str, object]:
    """The row of one problem."""
    opened = inspection.open_problem(problems.load(str(path)))
    found = recognise(opened.facts)
    context = Context(found=found, precision=opened.problem.precision, arch=ARCH, device=DEVICE, facts=opened.facts)
    legal = list_legal(context)
    groups = group_pieces(found.pieces, legal)
    leader = {place: places[0] for places in groups for place in places}
    each, once = 1 + sum(len(rungs) - 1 for rungs in legal), len(ladder(context))
    return {
        "stages": len(found.pieces),
        "groups": [len(places) for places in groups],
        "versions, each stage": each,
        "versions, each group": once,
        "modelled_s, each stage": end_time(legal, range(len(legal))),
        "modelled_s, each group": end_time(legal, [leader[place] for place in range(len(legal))]),
    }


def main() -> None:
    """Measure the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    rows: dict[str, object] = {}
    for path in arguments.files:
        start = time.perf_counter()
        try:
            rows[path.stem] = measure(path)
        except (WorkbenchError, Unrecognised) as error:
            rows[path.stem] = {"not planned": str(error)[:200]}
        print(path.stem, rows[path.stem], f"{time.perf_counter() - start:.1f} s", flush=True)
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
