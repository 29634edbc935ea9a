"""What advice is worth: the first change of a setting that each kind of feedback leads to, on the landscapes.

    python tests/bench/feedback_arms.py [--out results/feedback_arms.json] [--kept profiles.pickle]

Every counted row of a landscape (results/probe_counts.jsonl.gz) is a version to improve. Each arm chooses one change of
one setting to a program that was measured; the gain is the ratio of the two times, 1 where an arm chooses none.

    directives   the probes' advice in the workbench's order; hit rates come from the other problems only
    raw          a reader of raw counters: KernelPro's triggers, the one that is exceeded most first, and the settings
                 that it is about (`RULES`); no gains, no hit rates
    none         any change of one setting: the mean over all measured ones
    subset       the advice of three probes drawn at random, as a stand-in for a model that runs few tools by its own
                 choice; the mean of DRAWS draws. It is not a model.

`both` has the rows where directives and raw counters both have a measured change. Gains are geometric means by
landscape. Arms are compared by the Wilcoxon signed-rank test on the logarithms of the landscapes' means, two-sided.
`kept` is the same with the rule that a slower program is thrown away.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import pickle
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from calibrate_probes import RESULTS, Fired, held_out_rates, judge_advice, read_counts, read_profile

from workbench.analysis import devices, speed_of_light
from workbench.landscapes import Landscape, landscapes
from workbench.probes import diagnose, load_probes
from workbench.probes.base import moves
from workbench.probes.calibration import Calibrated
from workbench.probes.moving import Neighbour, choose_moved, find_neighbours
from workbench.probes.signals import Signals, read_signals
from workbench.protocols import Probe
from workbench.records import Bound, Move, Profile, Work
from workbench.wire import from_plain

DRAWS, TOOLS = 5, 3
ARMS = ("directives", "raw", "none", "subset")
EXACT = 25  # pairs up to which all signs are counted
LESS_OF_ALL = moves(*((name, "less") for name in ("thread_tile", "unroll", "tile", "vector", "kept", "threads")))
MORE_LOADS = moves(*((name, "more") for name in ("stages", "unroll", "vector", "threads")))
RULES: Mapping[str, tuple[Move, ...]] = {
    "HighDRAMThroughput": moves(("vector", "more"), ("kept", "more"), ("tile", "more")),
    "MemoryCoalescing": moves(("vector", "more"), ("threads_per_row", "more"), ("tile", "other")),
    "OccupancyLimiter": moves(("threads", "more"), ("threads_per_row", "more"), ("stages", "less"), ("tile", "less")),
    "HighRegisterUsage": LESS_OF_ALL,
    "WarpStall": MORE_LOADS,
    "BarrierStall": moves(("threads_per_row", "less"), ("threads", "less")),
    "Uncoalesced": moves(("vector", "more"), ("threads_per_row", "more")),
    "RegisterSpill": LESS_OF_ALL,
}


@dataclass(frozen=True)
class Start:
    """A version to improve: its profile, its bound, and the measured programs one setting away."""

    problem: str
    program: str
    seconds: float
    profile: Profile
    bound: Bound
    near: tuple[Neighbour, ...]
    row: dict[str, Any]

    def gain(self, wanted: Iterable[tuple[Move, ...]]) -> float:
        """What the first set of moves with a measured program brings; 1 if none has one."""
        for some in wanted:
            moved = choose_moved(self.near, some)
            if moved is not None and moved.median_s:
                return self.seconds / moved.median_s
        return 1.0


def exceeded(kernel: Signals) -> list[tuple[float, str]]:
    """KernelPro's triggers that a kernel's raw counters exceed, as (counter over trigger, tool), largest first."""
    metrics = kernel.metrics
    stalls = [amount for _, amount in metrics.stalls]
    dominant = max(stalls, default=0.0) / sum(stalls) if sum(stalls) else 0.0
    occupancy = metrics.achieved_occupancy or metrics.theoretical_occupancy or 1.0
    ideal = metrics.l1_ideal_bytes or metrics.l1_bytes or 1.0
    executed = metrics.warp_instructions or 1.0
    misses = 1 - (metrics.l1_hit_rate if metrics.l1_hit_rate is not None else 1.0)
    found = [
        (kernel.busy["DRAM"] / 0.8, "HighDRAMThroughput"),
        (min(misses / 0.7, dominant / 0.4), "MemoryCoalescing"),
        (0.5 / max(occupancy, 1e-3), "OccupancyLimiter"),
        ((metrics.registers or 0) / 96, "HighRegisterUsage"),
        (dominant / 0.4, "WarpStall"),
        (kernel.stall_share("barrier", "membar") / 0.3, "BarrierStall"),
        ((metrics.l1_bytes or 1.0) / ideal / 1.2, "Uncoalesced"),
        (1 + (metrics.local_requests or 0.0) / executed if metrics.local_requests else 0.0, "RegisterSpill"),
    ]
    return sorted((item for item in found if item[0] > 1), reverse=True)


def raw_gain(start: Start) -> float:
    """The change that a reader of the longest kernel's raw counters makes."""
    longest = max(read_signals(start.profile), key=lambda kernel: kernel.seconds)
    return start.gain(RULES[name] for _, name in exceeded(longest))


def advised_gain(start: Start, rates: Mapping[str, Calibrated], probes: Sequence[Probe] | None = None) -> float:
    """The change that the first advice with a measured one makes."""
    found = diagnose(start.profile, start.bound, start.program, probes=probes, rates=rates)
    return start.gain(advice.moves for advice in found.advice) if found is not None else 1.0


def subset_gain(start: Start, rates: Mapping[str, Calibrated], probes: Sequence[Probe]) -> float:
    """The mean over draws of TOOLS probes."""
    draw = random.Random(hashlib.sha256(f"{start.problem} {start.program}".encode()).hexdigest())
    return mean(advised_gain(start, rates, draw.sample(list(probes), TOOLS)) for _ in range(DRAWS))


def any_gain(start: Start) -> float:
    """The mean over all measured changes of one setting."""
    return mean(start.seconds / row.median_s for row, *_ in start.near if row.median_s)


def mean(values: Iterable[float]) -> float:
    """Geometric mean."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


def signed_rank(differences: Sequence[float]) -> tuple[float, float]:
    """(W, two-sided p) of Wilcoxon's signed-rank test: W is the smaller sum of ranks, ties share ranks, zeros are left
    out; exact for up to EXACT pairs without ties, else by the normal approximation with its correction for ties.
    """
    values = [value for value in differences if value]
    count = len(values)
    if not count:
        return 0.0, 1.0
    ordered = sorted(abs(value) for value in values)
    groups = {size: list(items) for size, items in itertools.groupby(range(count), key=lambda at: ordered[at])}
    ranks = {size: statistics.fmean(items) + 1 for size, items in groups.items()}
    positive = sum(ranks[abs(value)] for value in values if value > 0)
    smaller = min(positive, count * (count + 1) / 2 - positive)
    if count <= EXACT and len(groups) == count:
        ways = [1] + [0] * (count * (count + 1) // 2)
        for rank in range(1, count + 1):
            for total in range(len(ways) - 1, rank - 1, -1):
                ways[total] += ways[total - rank]
        return smaller, min(2 * sum(ways[: int(smaller) + 1]) / 2**count, 1.0)
    ties = sum(len(items) ** 3 - len(items) for items in groups.values())
    variance = count * (count + 1) * (2 * count + 1) / 24 - ties / 48
    return smaller, math.erfc((count * (count + 1) / 4 - smaller) / math.sqrt(2 * variance))


def compare(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, Any]:
    """Two arms' gains by landscape: the ratio of their means, the number of landscapes in favour, the test."""
    differences = [math.log(one[name] / other[name]) for name in one]
    smaller, chance = signed_rank([value if abs(value) > 1e-9 else 0.0 for value in differences])
    return {
        "ratio": round(mean(one[name] / other[name] for name in one), 4),
        "better": sum(value > 1e-9 for value in differences),
        "worse": sum(value < -1e-9 for value in differences),
        "w": smaller,
        "p": float(f"{chance:.3g}"),
    }


def compare_moved(gains: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """Directives against raw counters on the rows where both have a measured change."""
    pairs = {
        place: [(one, other) for one, other in zip(items, gains["raw"][place], strict=True) if 1.0 not in (one, other)]
        for place, items in gains["directives"].items()
    }
    means = [{place: mean(pair[at] for pair in some) for place, some in pairs.items() if some} for at in (0, 1)]
    return {"rows": sum(map(len, pairs.values())), "landscapes": len(means[0]), **compare(*means)}


def read_starts(
    counts: Path, kept: dict[str, Profile | None], places: Mapping[str, Landscape]
) -> tuple[list[Start], list[Fired]]:
    """(the versions to improve, what all advice on them did)."""
    starts: list[Start] = []
    fired: list[Fired] = []
    probes = load_probes()
    for row in read_counts(counts):
        profile = read_profile(row, "H200", kept)
        near = find_neighbours(places[row["problem"]], row["program"])
        if profile is None or not near:
            continue
        bound = speed_of_light.bound(from_plain(row["work"], Work), devices.find(profile.device))
        starts.append(Start(row["problem"], row["program"], row["seconds"], profile, bound, near, row))
        found = diagnose(profile, bound, row["program"], probes=probes, rates={})
        for rank, advice in enumerate(found.advice if found is not None else (), 1):
            fired.append(judge_advice(places[row["problem"]], row, advice, rank, near))
    return starts, fired


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=Path, default=RESULTS / "probe_counts.jsonl.gz")
    parser.add_argument("--out", type=Path, default=RESULTS / "feedback_arms.json")
    parser.add_argument("--kept", type=Path, help="profiles that calibrate_probes.py kept")
    arguments = parser.parse_args()
    kept = pickle.loads(arguments.kept.read_bytes()) if arguments.kept and arguments.kept.exists() else {}
    starts, fired = read_starts(arguments.counts, kept, landscapes())
    probes = load_probes()
    gains: dict[str, dict[str, list[float]]] = {arm: defaultdict(list) for arm in ARMS}
    for problem, some in itertools.groupby(
        sorted(starts, key=lambda start: start.problem), lambda start: start.problem
    ):
        rates = held_out_rates(fired, problem)
        for start in some:
            gains["directives"][problem].append(advised_gain(start, rates))
            gains["raw"][problem].append(raw_gain(start))
            gains["none"][problem].append(any_gain(start))
            gains["subset"][problem].append(subset_gain(start, rates, probes))
    result: dict[str, Any] = {"landscapes": len(gains["raw"]), "rows": len(starts), "both": compare_moved(gains)}
    for name, rule in (("as made", lambda gain: gain), ("kept", lambda gain: max(gain, 1.0))):
        means = {arm: {place: mean(map(rule, items)) for place, items in gains[arm].items()} for arm in ARMS}
        result[name] = {
            "gain": {arm: round(mean(means[arm].values()), 4) for arm in ARMS},
            "directives against": {arm: compare(means["directives"], means[arm]) for arm in ARMS[1:]},
            "raw against none": compare(means["raw"], means["none"]),
            "by landscape": {place: {arm: round(means[arm][place], 3) for arm in ARMS} for place in means["raw"]},
        }
    arguments.out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    print("where both change something", result["both"])
    for name in ("as made", "kept"):
        print(name, json.dumps({key: value for key, value in result[name].items() if key != "by landscape"}, indent=1))


if __name__ == "__main__":
    main()
