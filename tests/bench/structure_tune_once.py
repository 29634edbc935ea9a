"""How many evaluations it saves to tune the repeated layers of a module once, and what it costs.

    python tests/bench/structure_tune_once.py FILE... [--out tests/bench/results/structure_tune_once.json]

FILE: problem files, such as KernelBench/level3/3_DeepNarrowMLP.py, which are not part of this repository. For each that
the planner writes as a pipeline: the versions of a ladder that changes each stage alone, of one that changes a group of
interchangeable stages at once, and of the planner's own, in which groups of one operation change together as well. The
end time of each is modelled for an H200 (the sum over the stages; None where a stage has no model of its time): each
step is taken where it is faster, as in a run.

Without FILE only the second part is done. It does the same with recorded times: modules that are COPIES equal products
between two other ones, of all products in bf16 that were recorded on an H200. The steps are those of the planner's
ladder. Nothing is compiled or run.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from workbench import problems
from workbench.codegen.canonical import canonical
from workbench.errors import WorkbenchError
from workbench.landscapes import landscapes
from workbench.problems import inspection
from workbench.proposers.ladders import Context, ladder, list_legal
from workbench.proposers.ladders.base import Rung
from workbench.proposers.ladders.pipelines import MOST, Family, group_families, group_pieces, list_steps
from workbench.proposers.recognition import Unrecognised, recognise
from workbench.proposers.recognition.arguments import name_inputs
from workbench.proposers.recognition.graph import Piece
from workbench.proposers.rung_programs import write_program
from workbench.tuning.plan import ARCH, DEVICE, TuningProblem

OUT = Path(__file__).resolve().parent / "results" / "structure_tune_once.json"
COPIES = 15
PRECISION = "bf16"
Times = Callable[[int, Rung], float]


def climb(families: Sequence[Family], ladders: Sequence[Sequence[Rung]], times: Times) -> tuple[int, float]:
    """(versions, seconds at the end) of the planner's steps, each taken where it is faster."""
    legal = [rungs[: MOST + 1] for rungs in ladders]
    now, versions = [rungs[0] for rungs in legal], 1
    for family in families:
        for step in list_steps(family, ladders, legal, lambda place, rung: True):
            versions += 1
            new = [step.parts.get(place, part) for place, part in enumerate(now)]
            if total(times, new) < total(times, now):
                now = new
    return versions, total(times, now)


def total(times: Times, parts: Sequence[Rung]) -> float:
    """Seconds of all stages."""
    return sum(times(place, part) for place, part in enumerate(parts))


def measure(path: Path) -> dict[str, object]:
    """The row of one problem."""
    opened = inspection.open_problem(problems.load(str(path)))
    found = recognise(opened.facts)
    context = Context(found=found, precision=opened.problem.precision, arch=ARCH, device=DEVICE, facts=opened.facts)
    legal = list_legal(context)
    groups = group_pieces(found.pieces, legal)
    families = group_families(found.pieces, groups, legal)
    rungs = ladder(context)
    row: dict[str, object] = {
        "stages": len(found.pieces),
        "groups": [len(places) for places in groups],
        "families": [len(family) for family in families],
        "versions, each stage": 1 + sum(len(rungs) - 1 for rungs in legal),
        "versions, each group": 1 + sum(len(legal[places[0]]) - 1 for places in groups),
        "versions, families": len(rungs),
        "end_s, each stage": None,
        "end_s, families": None,
    }
    if all(rung.seconds is not None for part in legal for rung in part):
        now = rungs[0].parts
        seconds = [sum(rung.seconds or math.nan for rung in now)]
        for step in rungs[1:]:
            new = tuple(step.parts[at] if at in step.changes else part for at, part in enumerate(now))
            seconds.append(sum(rung.seconds or math.nan for rung in new))
            now = new if seconds[-1] == min(seconds) else now
        row["end_s, each stage"] = sum(min(rung.seconds or math.nan for rung in part) for part in legal)
        row["end_s, families"] = min(seconds)
    return row


@dataclasses.dataclass(frozen=True)
class RecordedProduct:
    """A product with recorded times: the planner's ladder, and the seconds of each rung, where it was measured."""

    name: str
    piece: Piece
    rungs: tuple[Rung, ...]
    seconds: dict[Rung, float]


def list_recorded() -> list[RecordedProduct]:
    """The recorded products of matrices."""
    made = []
    for name, place in landscapes().items():
        if place.facts["kind"] != "matmul" or place.facts["precision"] != PRECISION:
            continue
        sizes = tuple(dict(place.facts["settings"]).items())
        opened = inspection.open_problem(TuningProblem(name, str(place.facts["origin"]), PRECISION, sizes).problem)
        found = recognise(opened.facts)
        rungs = ladder(
            Context(found=found, precision=PRECISION, arch=ARCH, device=DEVICE, facts=name_inputs(opened.facts))
        )
        seconds = {}
        for rung in rungs:
            row = place.row(canonical(write_program(found, rung, ARCH)))
            if row is not None and row.correct and row.median_s:
                seconds[rung] = row.median_s
        piece = Piece(alone=found, named=found, facts=opened.facts, work=int(place.facts["flops"]))
        made.append(RecordedProduct(name, piece, rungs, seconds))
    return made


def measure_recorded(products: Sequence[RecordedProduct]) -> dict[str, object]:
    """The end times of modules of recorded products, relative to those where each stage takes its fastest rung."""
    losses, versions, each, kept = [], [], [], []
    for middle in products:
        for first, last in itertools.combinations([one for one in products if one != middle], 2):
            stages = [first, *[middle] * COPIES, last]
            ladders = [one.rungs for one in stages]
            groups = [(0,), tuple(range(1, 1 + COPIES)), (1 + COPIES,)]
            families = group_families([one.piece for one in stages], groups, [rungs[: MOST + 1] for rungs in ladders])

            def times(place: int, rung: Rung, stages: list[RecordedProduct] = stages) -> float:
                return stages[place].seconds.get(rung, math.inf)

            made, end = climb(families, ladders, times)
            best = sum(min(times(place, rung) for rung in rungs[: MOST + 1]) for place, rungs in enumerate(ladders))
            losses.append(end / best - 1)
            kept.append(total(times, [rungs[0] for rungs in ladders]) / best - 1)
            versions.append(made)
            each.append(1 + sum(len(rungs[: MOST + 1]) - 1 for rungs in ladders))
    return {
        "products": len(products),
        "modules": len(losses),
        "copies": COPIES,
        "versions, each stage": statistics.mean(each),
        "versions, families": statistics.mean(versions),
        "fewest times fewer": min(one / other for one, other in zip(each, versions, strict=True)),
        "mean loss": statistics.mean(losses),
        "largest loss": max(losses),
        "within 2 %": sum(loss <= 0.02 for loss in losses),
        "mean loss of the first version": statistics.mean(kept),
    }


def main() -> None:
    """Measure the files, then the modules of recorded products."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    found = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    found = {"modules": found.get("modules", {}), "recorded": measure_recorded(list_recorded())}
    print(found["recorded"], flush=True)
    for path in arguments.files:
        start = time.perf_counter()
        try:
            found["modules"][path.stem] = measure(path)
        except (WorkbenchError, Unrecognised) as error:
            found["modules"][path.stem] = {"not planned": str(error)[:200]}
        print(path.stem, found["modules"][path.stem], f"{time.perf_counter() - start:.1f} s", flush=True)
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
