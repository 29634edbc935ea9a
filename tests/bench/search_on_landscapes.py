"""How soon each search strategy comes near the best that was recorded, on every landscape of at least 200 rows.

    python tests/bench/search_on_landscapes.py priors --out priors.json.gz     priors of all programs, fitted on others
    python tests/bench/search_on_landscapes.py run --priors priors.json.gz [--only tree,random] [--seeds 20]
    python tests/bench/search_on_landscapes.py screen --priors priors.json.gz  what screening saves, and what it keeps
    python tests/bench/search_on_landscapes.py table                           Markdown, from the results

A result is the share of the best: the best time of all over the best found after 5, 10, 15, 20, 30 and 60 tries. A
failing program is a try like any other. Every strategy runs without priors; with priors that were fitted on the other
landscapes ("problem"); and with priors fitted on landscapes of other families only, so that no product of another size
or dtype is known when a product is searched ("family"); and with the order of the planner's ladder as the prior
("planner"). `run` writes each strategy's rows as they come and goes on
where it was stopped. Nothing is compiled or run; no GPU.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from search_tables import AFTER, format_tables

from workbench.landscapes import Landscape, landscapes
from workbench.policies.search import (
    LandscapeEvaluator,
    LandscapeSpace,
    MemoryLog,
    Screen,
    load_strategy,
    planner_order,
    run_search,
    share_of_best,
)
from workbench.policies.search.priors import (
    ProgramPriors,
    combine,
    modelled_priors,
    order_priors,
    prior_of,
    slowdown_rows,
)
from workbench.problems import inspection
from workbench.proposers.ladders import Context, ladder
from workbench.proposers.recognition import recognise
from workbench.proposers.rung_programs import write_program
from workbench.records.search import Prior, SearchBudget
from workbench.tuning.plan import ARCH, DEVICE

RESULTS = Path(__file__).parent / "results" / "search_on_landscapes.json"
MODELLED = Path(__file__).parent / "results" / "search_modelled.jsonl.gz"  # of model_priors.py
LEAST_ROWS = 200
SEEDS = 20
SCREENS = (0.0, 0.5, 1.0, 1.645, 2.0, 3.0)  # standard deviations to the optimistic end
STRATEGIES = ("random", "greedy", "hill-climb", "annealing", "halving", "tpe", "bayes", "tree")
PRIORS = ("none", "problem", "family", "planner")
FOREST = Path(__file__).parent / "results" / "search_priors.json.gz"  # of the command `priors`
SAME = {  # problem files that compute what another one computes at other sizes, or nearly so
    "square_matmul": "matmul",
    "tall_skinny_matmul": "matmul",
    "max_over_middle": "middle_axis",
    "min_over_middle": "middle_axis",
    "max_middle_axis": "middle_axis",
    "sum_middle_axis": "middle_axis",
    "new_gelu": "gelu_tanh",
}
TUNED_ON = 2  # constants were tuned on every second landscape, in the order of the names, from the first on
Json = dict[str, Any]
Priors = Mapping[str, Prior]


def large_places() -> dict[str, Landscape]:
    """The landscapes of at least 200 rows."""
    return {name: place for name, place in landscapes().items() if len(place.rows) >= LEAST_ROWS}


def family_of(place: Landscape) -> str:
    """What the landscape's problem computes, at any size and dtype."""
    stem = re.sub(r"^\d+_", "", Path(str(place.facts["origin"])).stem)
    return SAME.get(stem, stem)


def make_priors(out: Path, kinds: Sequence[str]) -> None:
    """Fit the forest's priors of every landscape on others, and write them; `read_priors` adds modelled times."""
    places = landscapes()
    rows = slowdown_rows(places.items())
    families = {name: family_of(place) for name, place in places.items()}
    document: Json = json.loads(gzip.decompress(out.read_bytes())) if out.exists() else {}
    for name, place in large_places().items():
        for kind in kinds:
            if name in document.get(kind, {}):
                continue
            if kind == "planner":
                found: Priors = order_priors(plan(place), place.rows)
                said = f"{sum(prior.log_speedup > -0.3 for prior in found.values())} programs of its ladder"
                keep_priors(document, out, kind, name, found, said)
                continue
            others = [
                one
                for one in rows
                if one.landscape != name and (kind == "problem" or families[one.landscape] != families[name])
            ]
            fitted = ProgramPriors().fit_rows(others)
            said = f"fitted on {len(others)} rows, factor {fitted.factor:.2f}"
            keep_priors(document, out, kind, name, fitted.predict_place(place), said)


def keep_priors(document: Json, out: Path, kind: str, name: str, found: Priors, said: str) -> None:
    """Write a landscape's priors to the file."""
    document.setdefault(kind, {})[name] = {
        program: [round(prior.log_speedup, 4), round(prior.deviation, 4), prior.source]
        for program, prior in found.items()
    }
    out.write_bytes(gzip.compress(json.dumps(document).encode(), 9, mtime=0))
    print(name, kind, said, flush=True)


def plan(place: Landscape) -> tuple[str, ...]:
    """The measured programs of the planner's ladder, in its order."""
    facts = inspection.inspect(place.problem())
    found = recognise(facts)
    context = Context(found=found, precision=place.facts["precision"], arch=ARCH, device=DEVICE, facts=facts)
    return planner_order(place, [write_program(found, rung, ARCH) for rung in ladder(context)])


def read_modelled(path: Path = MODELLED) -> dict[str, dict[str, tuple[float, float]]]:
    """What the time model says, fitted on other families: problem -> program -> (seconds, deviation of their log)."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    with gzip.open(path, "rt") as lines:
        for row in map(json.loads, lines):
            found.setdefault(row["problem"], {})[row["program"]] = (row["modelled_s"], row["deviation"])
    return found


def read_priors(path: Path | None) -> dict[str, dict[str, Priors]]:
    """Kind -> landscape -> program -> prior: the forest's, and the time model's of the rows that were counted."""
    if path is None:
        return {}
    document = json.loads(gzip.decompress(path.read_bytes()))
    modelled = {name: modelled_priors(rows) for name, rows in read_modelled().items()}
    return {
        kind: {
            name: combine(
                {program: prior_of(at, wide, source) for program, (at, wide, source) in rows.items()},
                {} if kind == "planner" else modelled.get(name, {}),
            )
            for name, rows in places.items()
        }
        for kind, places in document.items()
    }


def run_one(space: LandscapeSpace, place: Landscape, name: str, priors: bool, seed: int, trials: int) -> list[float]:
    """The share of the best after 5, 10, ... tries of one search, as far as it may go."""
    strategy = load_strategy(name, priors=priors)
    budget = SearchBudget(trials=trials)
    tree = run_search(space, LandscapeEvaluator(place), strategy, MemoryLog(), seed=seed, budget=budget)
    curve = share_of_best(place, [node.candidate.text for node in tree.walk() if node.candidate is not None])
    return [round(curve[min(after, len(curve)) - 1], 4) for after in AFTER if after <= trials]


def run(arguments: argparse.Namespace) -> None:
    """All searches that the results do not have yet."""
    found = read_results(arguments.out)
    places = large_places()
    priors = read_priors(arguments.priors) if {*arguments.kinds} - {"none"} else {}
    spaces = {
        (name, kind): LandscapeSpace(place, None if kind == "none" else priors[kind][name])
        for name, place in places.items()
        for kind in arguments.kinds
        if kind == "none" or kind in priors
    }
    for seed in range(arguments.first_seed, arguments.seeds):
        for strategy in arguments.only:
            for (name, kind), space in spaces.items():
                mine = found["shares"].setdefault(strategy, {}).setdefault(kind, {}).setdefault(name, {})
                if len(mine.get(str(seed), ())) >= sum(after <= arguments.trials for after in AFTER):
                    continue
                begun = time.process_time()
                mine[str(seed)] = run_one(space, places[name], strategy, kind != "none", seed, arguments.trials)
                print(strategy, kind, name, seed, mine[str(seed)], f"{time.process_time() - begun:.1f} s", flush=True)
            write_results(arguments.out, found)


def screen(arguments: argparse.Namespace) -> None:
    """Random searches of 60 candidates, with and without screening: what is saved, and what is kept."""
    found, places, priors = read_results(arguments.out), large_places(), read_priors(arguments.priors)
    for kind in [kind for kind in arguments.kinds if kind in priors]:
        of = priors[kind]
        spaces = {name: LandscapeSpace(place, of[name]) for name, place in places.items()}
        rows: Json = {}
        for width in SCREENS:
            pairs = [
                screen_one(spaces[name], place, width, seed)
                for name, place in places.items()
                for seed in range(arguments.seeds)
            ]
            saved, kept = np.array(pairs).reshape(len(places), arguments.seeds, 2).mean(1).T
            rows[str(width)] = {
                "saved": round(float(saved.mean()), 4),
                "kept": round(float(kept.mean()), 4),
                "least": round(float(kept.min()), 4),
            }
            print(kind, width, rows[str(width)], flush=True)
        found.setdefault("screening", {})[kind] = rows
        write_results(arguments.out, found)


def screen_one(space: LandscapeSpace, place: Landscape, width: float, seed: int) -> tuple[float, float]:
    """The share of tries that screening saves of a random search, and the share of its result that it keeps."""
    best = {}
    for screened in (False, True):
        log, judge = MemoryLog(), LandscapeEvaluator(place)
        tree = run_search(
            space,
            Screen(judge, space, width) if screened else judge,
            load_strategy("random"),
            log,
            seed=seed,
            should_stop=functools.partial(_has_tried, log, max(AFTER)),
        )
        best[screened] = tree
    return best[True].screened / max(AFTER), best[False].best_s / best[True].best_s


def _has_tried(log: MemoryLog, number: int) -> bool:
    return sum(event.kind == "tried" for event in log.events()) >= number


def read_results(path: Path) -> Json:
    """The results so far."""
    if path.exists():
        return dict(json.loads(path.read_text()))
    return {"after": AFTER, "shares": {}}


def write_results(path: Path, found: Json) -> None:
    """Write the results, a line for each landscape."""
    found["date"] = datetime.now(UTC).date().isoformat()
    found["constants"] = {name: dict(load_strategy(name).constants) for name in sorted(found["shares"])}
    text = json.dumps(found, indent=1)
    text = re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda match: f"[{' '.join(match[1].split())}]", text)
    part = path.with_suffix(".part")
    part.write_text(text + "\n")
    part.replace(path)


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("priors", "run", "screen", "table"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--priors", type=Path, default=FOREST)
    parser.add_argument("--only", type=lambda text: text.split(","), default=STRATEGIES)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=PRIORS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=max(AFTER))
    arguments = parser.parse_args()
    if arguments.what == "priors":
        make_priors(arguments.out or FOREST, [kind for kind in arguments.kinds if kind != "none"])
        return
    arguments.out = arguments.out or RESULTS
    if arguments.what == "run":
        run(arguments)
    elif arguments.what == "screen":
        screen(arguments)
    else:
        print(format_tables(read_results(arguments.out), TUNED_ON))


if __name__ == "__main__":
    main()
