"""How often the advice of each probe helps: advised changes of settings against measured times of landscapes.

    python tests/bench/calibrate_probes.py [--counts results/probe_counts.jsonl.gz] [--out results/probes.json] [--ship]

Every counted row of a landscape (landscape_counts.py) is diagnosed from its counts at full size, without its measured
time. An advice is a set of moves of settings. Its rows are the measured programs that differ from the row in one
setting, in an advised direction; the first move that has such a row is taken, and of its rows the nearest. The gain is
the ratio of the two measured times; a hit is a gain of HIT. `--ship` writes workbench/probes/calibrated.json. The table
has each probe's results on all problems, and those that the rates of the other problems predict for a problem left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import math
import pickle
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench.analysis import devices, speed_of_light
from workbench.landscapes import Landscape, landscapes
from workbench.probes import diagnose, load_probes
from workbench.probes.calibration import Calibrated
from workbench.probes.moving import Neighbour, choose_moved, find_neighbours
from workbench.profilers.counters import profile_full_size
from workbench.protocols import Probe
from workbench.records import Advice, Diagnosis, Facts, KernelBuild, Launch, Outcome, Profile, Work
from workbench.wire import from_plain

RESULTS = Path(__file__).parent / "results"
SHIPPED = Path(__file__).parents[2] / "workbench" / "probes" / "calibrated.json"
HIT = 1.05  # a change that makes a program so many times as fast helped
FAST = 1.05  # rows within this ratio of a landscape's best are its fastest


@dataclass(frozen=True)
class Fired:
    """One advice on one row, and what the advised change did; None where no such row was measured."""

    problem: str
    program: str
    probe: str
    rank: int
    severity: str
    predicted: float
    share_of_best: float  # the best row's time over this row's
    moved: str
    gain: float | None
    moves: tuple[tuple[str, float], ...] = ()  # every advised move with a measured row, and its gain


def read_counts(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file of counts that were counted."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    for line in map(json.loads, text.splitlines()):
        if "left_out" not in line:
            yield line


def read_profile(row: dict[str, Any], device: str, kept: dict[str, Profile | None]) -> Profile | None:
    """The profile of a counted row, from `kept` if it is there."""
    name = f"{device} {row['problem']} {row['program']}"
    if name not in kept:
        kept[name] = make_profile(row, device)
    return kept[name]


def make_profile(row: dict[str, Any], device: str) -> Profile | None:
    """The profile of a counted row."""
    work = from_plain(row["work"], Work)
    facts = Facts(
        problem_hash="", kind="", init_source="", forward_arguments=(), graph=(), parameters=(), cases=(), work=(work,)
    )
    outcome = Outcome(
        executor="emulator",
        arch="sm_90a",
        device=device,
        full_launches=tuple(from_plain(item, Launch) for item in row["launches"]),
        full_builds=tuple(from_plain(item, KernelBuild) for item in row["builds"]),
    )
    found = profile_full_size(facts, "", outcome)
    return dataclasses.replace(found, launches=(), builds=()) if found is not None else None


def diagnose_row(row: dict[str, Any], profile: Profile, probes: tuple[Probe, ...]) -> Diagnosis | None:
    """The diagnosis of a counted row, from a profile of it."""
    bound = speed_of_light.bound(from_plain(row["work"], Work), devices.find(profile.device))
    return diagnose(profile, bound, row["program"], probes=probes, rates={})


def judge_advice(
    place: Landscape, row: dict[str, Any], advice: Advice, rank: int, near: tuple[Neighbour, ...]
) -> Fired:
    """What the first advised change that was measured did to the row's time."""
    best = place.best
    assert best is not None and best.median_s is not None
    moved = choose_moved(near, advice.moves)
    return Fired(
        problem=row["problem"],
        program=row["program"],
        probe=advice.probe,
        rank=rank,
        severity=advice.severity,
        predicted=round(advice.gain, 3),
        share_of_best=best.median_s / row["seconds"],
        moved=moved.program if moved is not None else "",
        gain=row["seconds"] / moved.median_s if moved is not None and moved.median_s else None,
        moves=tuple(
            (f"{move.setting} {move.direction}", row["seconds"] / found.median_s)
            for move in advice.moves
            if (found := choose_moved(near, (move,))) is not None and found.median_s
        ),
    )


def summarise(fired: Sequence[Fired]) -> dict[str, Any]:
    """A probe's results over its advice."""
    tried = [item for item in fired if item.gain is not None]
    gains = [item.gain for item in tried if item.gain is not None]
    return {
        "problems": len({item.problem for item in tried}),
        "advised": len(fired),
        "fires": len(tried),
        "hits": sum(gain >= HIT for gain in gains),
        "hit_rate": round(sum(gain >= HIT for gain in gains) / len(gains), 4) if gains else None,
        "mean_gain": round(math.exp(statistics.fmean(map(math.log, gains))), 4) if gains else None,
        "gained_more": round(sum(item.gain > item.predicted for item in tried) / len(tried), 4) if tried else None,
        "moves": summarise_moves(fired),
        "high_on_fastest": sum(item.severity == "high" and item.share_of_best > 1 / FAST for item in fired),
    }


def summarise_moves(fired: Sequence[Fired]) -> list[tuple[str, int, float]]:
    """(setting and direction, rows, geometric mean gain) of every move of a probe that was measured."""
    found: dict[str, list[float]] = defaultdict(list)
    for item in fired:
        for name, gain in item.moves:
            found[name].append(math.log(gain))
    return [(name, len(logs), round(math.exp(statistics.fmean(logs)), 4)) for name, logs in sorted(found.items())]


def held_out_rates(fired: Sequence[Fired], problem: str) -> dict[str, Calibrated]:
    """Each probe's results on all problems but one."""
    by_probe: dict[str, list[Fired]] = defaultdict(list)
    for item in fired:
        if item.problem != problem:
            by_probe[item.probe].append(item)
    names = [field.name for field in dataclasses.fields(Calibrated)]
    return {
        name: from_plain({key: value for key, value in summarise(items).items() if key in names}, Calibrated)
        for name, items in by_probe.items()
    }


def judge_first(
    places: Mapping[str, Landscape],
    seen: Sequence[tuple[dict[str, Any], Profile, tuple[Neighbour, ...]]],
    fired: Sequence[Fired],
) -> list[Fired]:
    """What the first advice on every row did, ranked by the rates of the other problems."""
    rates = {problem: held_out_rates(fired, problem) for problem in {row["problem"] for row, _, _ in seen}}
    found = []
    for row, profile, near in seen:
        bound = speed_of_light.bound(from_plain(row["work"], Work), devices.find(profile.device))
        diagnosis = diagnose(profile, bound, row["program"], rates=rates[row["problem"]])
        if diagnosis is not None and diagnosis.advice:
            found.append(judge_advice(places[row["problem"]], row, diagnosis.advice[0], 1, near))
    return found


def hold_out(fired: Sequence[Fired]) -> dict[str, Any]:
    """For each problem the hit rate of the other problems beside its own, as mean absolute difference over problems."""
    by_problem: dict[str, list[Fired]] = defaultdict(list)
    for item in fired:
        if item.gain is not None:
            by_problem[item.problem].append(item)
    errors = []
    for problem, own in by_problem.items():
        rest = [item for other, items in by_problem.items() if other != problem for item in items]
        if rest:
            rate = sum((item.gain or 0) >= HIT for item in rest) / len(rest)
            errors.append(abs(rate - sum((item.gain or 0) >= HIT for item in own) / len(own)))
    return {"held_out_error": round(statistics.fmean(errors), 4) if errors else None}


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=Path, default=RESULTS / "probe_counts.jsonl.gz")
    parser.add_argument("--out", type=Path, default=RESULTS / "probes.json")
    parser.add_argument("--device", default="H200")
    parser.add_argument("--ship", action="store_true", help=f"write {SHIPPED.name} beside the probes")
    parser.add_argument("--kept", type=Path, help="a file for profiles, which take longest; for the next run")
    arguments = parser.parse_args()
    places, probes = landscapes(), load_probes()
    kept: dict[str, Profile | None] = {}
    if arguments.kept and arguments.kept.exists():
        kept = pickle.loads(arguments.kept.read_bytes())
    fired: list[Fired] = []
    seen: list[tuple[dict[str, Any], Profile, tuple[Neighbour, ...]]] = []
    rows = 0
    for row in read_counts(arguments.counts):
        profile = read_profile(row, arguments.device, kept)
        found = diagnose_row(row, profile, probes) if profile is not None else None
        rows += 1
        near = find_neighbours(places[row["problem"]], row["program"])
        if profile is not None:
            seen.append((row, profile, near))
        for rank, advice in enumerate(found.advice if found is not None else (), 1):
            fired.append(judge_advice(places[row["problem"]], row, advice, rank, near))
    if arguments.kept:
        arguments.kept.write_bytes(pickle.dumps(kept))
    by_probe: dict[str, list[Fired]] = defaultdict(list)
    for item in fired:
        by_probe[item.probe].append(item)
    table = {probe.name: summarise(by_probe[probe.name]) | hold_out(by_probe[probe.name]) for probe in load_probes()}
    first = judge_first(places, seen, fired)
    result = {"device": arguments.device, "rows": rows, "hit": HIT, "probes": table, "first": summarise(first)}
    arguments.out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    if arguments.ship:
        names = ("problems", "fires", "hits", "hit_rate", "mean_gain", "moves")
        kept = {name: {key: row[key] for key in names} for name, row in table.items()}
        SHIPPED.write_text(json.dumps({"hit": HIT, "rows": rows, "probes": kept}, indent=1, sort_keys=True) + "\n")
    print(f"{'probe':18} problems fires  hit  gain  high on fastest")
    for name, row in sorted(table.items(), key=lambda item: -item[1]["fires"]):
        rate = "-" if row["hit_rate"] is None else f"{row['hit_rate']:.0%}"
        gain = "-" if row["mean_gain"] is None else f"{row['mean_gain']:.2f}"
        print(f"{name:18} {row['problems']:8} {row['fires']:5} {rate:>4} {gain:>5} {row['high_on_fastest']:5}")
    print("first advice", result["first"])


if __name__ == "__main__":
    main()
