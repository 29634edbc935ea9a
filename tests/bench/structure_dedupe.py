"""What it saves not to try the same program twice, and whether a result is lost by it.

    python tests/bench/structure_dedupe.py [--seeds 20] [--trials 60] [--out tests/bench/results/structure_dedupe.json]

Three notions of the same: equal texts; `program_key` (equal up to names of stages and the order of independent stages);
equal code (`codegen.canonical`). Three places:

- landscapes: rows of one landscape that are the same program, and whether their recorded results agree;
- searches: a proposer without a memory changes one setting of the best program so far, drawn uniformly, as often as it
  may, and every try looks a recorded row up. A repeat is saved if its key is known;
- steps: all programs that differ in one setting from a rung of the planner's ladder, on the shipped problems. No
  rung's neighbour need be tried twice.

Nothing is compiled or run.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from workbench import problems
from workbench.codegen.canonical import canonical, code
from workbench.errors import ProgramError, WorkbenchError
from workbench.landscapes import Landscape, Row, landscapes
from workbench.language import OPERATIONS, parse
from workbench.policies.search.landscape_space import neighbours
from workbench.probes.moving import write_moved
from workbench.problems import inspection
from workbench.proposers.ladders import Context, ladder
from workbench.proposers.recognition import recognise
from workbench.proposers.rung_programs import write_program
from workbench.records import Move
from workbench.structure.kernels.equality import program_key
from workbench.tuning.plan import ARCH, DEVICE

HERE = Path(__file__).resolve().parent
AGREE = 0.1  # recorded times of one program that differ by less than this share agree
LEAST_ROWS = 100
Json = dict[str, object]


@functools.cache
def code_key(text: str) -> object:
    """The code of a program; the text itself where it is no longer legal."""
    try:
        return code(canonical(text))
    except ProgramError:
        return text


NOTIONS: dict[str, Callable[[str], object]] = {"text": lambda text: text, "key": program_key, "code": code_key}


def result_of(row: Row) -> tuple[bool, float]:
    """Whether a row is correct, and its time."""
    return row.median_s is not None and bool(row.correct), row.median_s or 0.0


def agree(rows: Iterable[Row]) -> bool:
    """Whether the recorded results of rows are one result."""
    found = [result_of(row) for row in rows]
    times = [time for right, time in found if right]
    return len({right for right, _ in found}) == 1 and (not times or max(times) <= (1 + AGREE) * min(times))


def compare_rows(places: dict[str, Landscape]) -> Json:
    """By notion: rows that repeat another one of their landscape, and groups whose results do not agree."""
    found: Json = {"landscapes": len(places), "rows": sum(len(place.rows) for place in places.values())}
    for name, key in NOTIONS.items():
        repeats, unlike = 0, []
        for place in places.values():
            groups: dict[object, list[Row]] = defaultdict(list)
            for row in place.rows.values():
                groups[key(row.program)].append(row)
            for rows in groups.values():
                repeats += len(rows) - 1
                if not agree(rows):
                    unlike.append([[row.program, row.median_s] for row in rows])
        found[name] = {"repeats": repeats, "groups that do not agree": len(unlike), "one of them": unlike[:1]}
    return found


def climb(place: Landscape, near: dict[str, tuple[str, ...]], seed: int, trials: int) -> tuple[list[str], float]:
    """The programs that a proposer without a memory tries, and the best recorded time among them."""
    rng = random.Random(seed)
    tried = [rng.choice(sorted(near))]
    best: tuple[float, str] = (float("inf"), tried[0])
    while True:
        right, time = result_of(place.rows[tried[-1]])
        if right and time < best[0]:
            best = time, tried[-1]
        if len(tried) == trials:
            return tried, best[0]
        tried.append(rng.choice(near[best[1]] or sorted(near)))


def search(places: dict[str, Landscape], seeds: int, trials: int) -> Json:
    """Tries, repeats by notion, and searches whose best result would be another one without the repeats."""
    repeats, lost, searches, shares = dict.fromkeys(NOTIONS, 0), dict.fromkeys(NOTIONS, 0), 0, []
    for place in places.values():
        near = {program: tuple(others) for program, others in neighbours(place).items()}
        for seed in range(seeds):
            tried, best = climb(place, near, seed, trials)
            searches += 1
            for name, key in NOTIONS.items():
                first: dict[object, str] = {}
                for program in tried:
                    first.setdefault(key(program), program)
                repeats[name] += len(tried) - len(first)
                times = [time for right, time in (result_of(place.rows[one]) for one in first.values()) if right]
                lost[name] += min(times, default=float("inf")) != best
                if name == "key":
                    shares.append((len(tried) - len(first)) / len(tried))
    return {
        "landscapes": len(places),
        "searches": searches,
        "tries": searches * trials,
        "repeats": repeats,
        "searches that lose their best": lost,
        "largest share of one search": round(max(shares), 3),
    }


def step_texts(spec: str) -> list[str]:
    """All programs that differ in one setting from a rung of the planner's ladder, as often as they are made."""
    opened = inspection.open_problem(problems.load(spec))
    found = recognise(opened.facts)
    context = Context(found=found, precision=opened.problem.precision, arch=ARCH, device=DEVICE, facts=opened.facts)
    made = []
    for rung in ladder(context):
        program = write_program(found, rung, ARCH)
        stages = parse(program).stages
        names = {item.name for stage in stages for item in OPERATIONS[stage.operation.name].settings} - {"arch"}
        for name in sorted(names):
            made += [canonical(text) for _, text in write_moved(program, [Move(setting=name, direction="other")])]
    return made


def count_steps(specs: Iterable[str]) -> Json:
    """Programs that steps make, and distinct ones by notion."""
    made = 0
    distinct = dict.fromkeys(NOTIONS, 0)
    stages = 0
    counted = []
    for spec in specs:
        try:
            texts = step_texts(spec)
        except WorkbenchError as error:
            print(f"{spec}: left out: {str(error)[:120]}", flush=True)
            continue
        counted.append(Path(spec).stem)
        made += len(texts)
        stages = max(stages, *(len(parse(text).stages) for text in texts[:1]), 0)
        for name, key in NOTIONS.items():
            distinct[name] += len({key(text) for text in texts})
        print(spec, len(texts), flush=True)
    return {"problems": len(counted), "programs": made, "distinct": distinct, "most stages": stages}


def main() -> None:
    """Count, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "structure_dedupe.json")
    arguments = parser.parse_args()
    places = landscapes()
    rows = compare_rows(places)
    large = {name: place for name, place in places.items() if len(place.rows) >= LEAST_ROWS}
    searches = search(large, arguments.seeds, arguments.trials)
    specs = [path.stem[3:] for path in sorted((Path(problems.__file__).parent / "shipped").glob("*.py"))]
    found = {"landscapes": rows, "searches": searches, "steps": count_steps(specs)}
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
