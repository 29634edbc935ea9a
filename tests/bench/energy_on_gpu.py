"""Joules per call of kernels of the landscapes on a GPU, what an energy model is fitted to (fit_energy.py).

    python tests/bench/energy_on_gpu.py --out $OUT/energy.jsonl --seconds 560 [--only softmax,matmul] [--rows 4]
    python tests/bench/energy_on_gpu.py --out ... --pairs FIT      pairs that a fit of fit_energy.py finds far apart
    python tests/bench/energy_on_gpu.py --plan                     what would be measured; no GPU
    python tests/bench/energy_on_gpu.py --dry-run --only softmax   the same kernels at reduced sizes on the emulator

First loads of known behaviour run (energy_load.py), then the kernels. Of each problem those with counts in
results/landscape_counts.jsonl.gz are drawn: the fastest, one that took the same time (within 3 %) and differs most in
what it executes, one that takes about four times as long, whose power is low, and a second one of the same time. Pairs
come first, so that a run which is cut has both sides of them. A line is written for each kernel as it ends; what --out
and --done have is not measured again.

The method is the profiler's (workbench/profilers/energy.py) with shorter windows: six of 0.9 s after one second of
idling, three repeats of two windows each, whose starts lie half a period of the sensor apart. The slope is taken over
0.6 s of a window instead of 0.9 s, so that a step of the counter (100 ms) can shift one window by about 3 %; two
windows of opposite phase cancel most of it. `interval` is Student's, of 95 %, over the three repeats. They are of one
process, so that it holds the meter's noise and not what differs between two runs. The loop is warm: data that fit L2
stay there.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from fit_time_model import CountedRow, read_lines, read_rows
from full_size import facts_of

from workbench.analysis import devices
from workbench.analysis.energy_model import count_events, load_model
from workbench.codegen import compile_program
from workbench.executors.gpu.presence import gpu_at_hand
from workbench.executors.gpu.telemetry import driver_version, observer
from workbench.landscapes import landscapes
from workbench.profilers.emulation import run_on_emulator
from workbench.profilers.energy import Counter, EnergyProfiler, Sampler, compute_energy
from workbench.profilers.profile_client import run_profiled
from workbench.proposers.binding import binding_of
from workbench.proposers.recognition import recognise
from workbench.records import Candidate, DeviceState, Energy, Job

COUNTS = Path(__file__).parent / "results" / "landscape_counts.jsonl.gz"
# kinds in turn: a cut run has some of each
PROBLEMS = (
    "softmax",
    "matmul_bf16_4096",
    "gelu_tanh",
    "conv2d_wide_55",
    "attention_97",
    "matmul_tf32_4096",
    "layer_norm",
    "max_middle_axis",
    "matmul_fp16_8192",
    "conv2d_depthwise_82",
    "cross_entropy",
    "matmul_fp32_4096",
    "relu",
    "matmul_bf16_8192",
    "batch_norm_33",
    "conv3d_flat_kernel_59",
    "matmul_bias_gelu_bf16",
    "rms_norm",
    "matvec",
    "matmul_tf32_8192",
    "new_gelu_88",
    "conv2d_dilated_80",
    "triplet_margin_loss_99",
    "deep_bf16",
)
OPTIONS = {"idle_s": 1.0, "pause_s": 0.1, "shift_s": 0.0167, "window_s": 0.9, "windows": 6}
REPEATS = 3
SAME_TIME = 1.03  # ratio of two times that count as the same when rows are drawn
SLOWER = 4.0
NEAR, FAST = 1.01, 1.15  # of --pairs: ratio of the two times, and of the slower one to the fastest row
STUDENT = 4.303  # two-sided 95 % with two degrees of freedom
LEAST_S = 30.0  # no kernel is begun with less time left
LOADS_S = 60.0
WALL_S = 90.0


@dataclass(frozen=True)
class Draw:
    """A row to measure, and why it was drawn."""

    counted: CountedRow
    role: str  # fastest, same time (next, where none is near enough), slower, same time 2

    @property
    def key(self) -> tuple[str, str]:
        """Problem and program."""
        return self.counted.problem, self.counted.program


def features(row: CountedRow) -> tuple[float, ...]:
    """Logarithms of what a row executes: how far two rows lie apart."""
    totals = [launch.total for launch in row.launches]
    issued = [launch.paced.issue * math.prod(launch.grid) for launch in row.launches if launch.paced]
    numbers = (
        sum(issued),
        sum(total.instructions for total in totals),
        sum(total.global_sectors for total in totals),
        sum(total.shared_wavefronts for total in totals),
        sum(math.prod(launch.block) for launch in row.launches),
    )
    return tuple(math.log1p(number) for number in numbers)


def draw_rows(rows: Sequence[CountedRow]) -> list[Draw]:
    """Rows of one problem in the order of the module's text."""
    ordered = sorted(rows, key=lambda row: (row.seconds, row.program))
    first = ordered[0]
    same = [row for row in ordered[1:] if row.seconds <= first.seconds * SAME_TIME]
    drawn = [Draw(first, "fastest")]
    if not same and ordered[1:]:
        drawn.append(Draw(ordered[1], "next"))
    for name in ("same time", "same time 2"):
        left = [row for row in same if all(row is not one.counted for one in drawn)]
        if left:
            chosen = [features(one.counted) for one in drawn]
            far = max(left, key=lambda row: min(math.dist(features(row), other) for other in chosen))
            drawn.append(Draw(far, name))
    others = [row for row in ordered if all(row is not one.counted for one in drawn)]
    if others:
        slow = min(others, key=lambda row: abs(math.log(row.seconds / first.seconds / SLOWER)))
        drawn.insert(2, Draw(slow, "slower"))
    return drawn


def draw_turns(only: str, most: int) -> Iterator[Draw]:
    """The fastest row and its pair of every problem, then the third row of every problem, then the fourth."""
    by_problem: dict[str, list[CountedRow]] = defaultdict(list)
    for row in read_rows([COUNTS]):
        by_problem[row.problem].append(row)
    chosen = [name for name in PROBLEMS if any(name.startswith(part) for part in only.split(","))]
    drawn = {name: draw_rows(by_problem[name])[:most] for name in chosen if by_problem[name]}
    for part in (slice(0, 2), slice(2, 3), slice(3, 4)):
        for found in drawn.values():
            yield from found[part]


def draw_pairs(only: str, fit: Path) -> Iterator[Draw]:
    """For every problem two fast rows of the same time whose joules differ most by a fit; the largest ratio first."""
    model, device = load_model(fit), devices.find("H200")
    if model is None:
        sys.exit(f"there is no fit in {fit}")
    by_problem: dict[str, list[tuple[float, CountedRow]]] = defaultdict(list)
    for row in read_rows([COUNTS]):
        if any(row.problem.startswith(part) for part in only.split(",")):
            joules = sum(model.predict(count_events(row.launches, device, row.work, row.seconds)).values())
            by_problem[row.problem].append((joules, row))
    pairs = []
    for rows in by_problem.values():
        limit = FAST * min(row.seconds for _, row in rows)
        near = [
            (one[0] / other[0], other[1], one[1])
            for one, other in permutations([item for item in rows if item[1].seconds <= limit], 2)
            if 1 / NEAR <= one[1].seconds / other[1].seconds <= NEAR
        ]
        if near:
            pairs.append(max(near, key=lambda pair: pair[0]))
    for _, fewer, more in sorted(pairs, key=lambda pair: -pair[0]):
        yield from (Draw(more, "more joules"), Draw(fewer, "fewer joules"))


def make_job(draw: Draw) -> Job:
    """The job of a row at its problem's full size."""
    problem = landscapes()[draw.counted.problem].problem()
    facts = facts_of(problem)
    source = compile_program(draw.counted.program, binding_of(problem, facts, recognise(facts)))
    return Job(
        problem=problem,
        facts=facts,
        candidate=Candidate(source=source, program=draw.counted.program),
        arch="sm_90a",
        device="H200",
        cases=("full",),
        trials=1,
    )


class Watch(threading.Thread):
    """Reads clocks, power and temperature every 50 ms until `finish`."""

    def __init__(self) -> None:
        super().__init__(name="energy-watch", daemon=True)
        self.look, self.ended = observer(gpu_at_hand(), lambda: (), lambda: 1), threading.Event()
        self.seen: list[tuple[float, DeviceState]] = []

    def run(self) -> None:
        """Read until `finish`."""
        while not self.ended.wait(0.05):
            state = self.look()
            if state is not None:
                self.seen.append((time.monotonic(), state))

    def describe(self, windows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Medians within the windows, and why the clock was lowered there."""
        self.ended.set()
        self.join()
        states = [state for at, state in self.seen if any(one["start"] + 0.3 <= at <= one["end"] for one in windows)]
        medians = {
            name: statistics.median(values)
            for name in ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c")
            if (values := [value for state in states if (value := getattr(state, name)) is not None])
        }
        return {**medians, "throttled": sorted({reason for state in states for reason in state.throttled})}


def interval(values: Sequence[float]) -> list[float]:
    """[low, high] of 95 % of the mean of three values."""
    half = STUDENT * statistics.stdev(values) / math.sqrt(len(values))
    return [statistics.fmean(values) - half, statistics.fmean(values) + half]


def summarise(repeats: Sequence[Energy]) -> dict[str, Any]:
    """The numbers of a row from its repeats: joules and seconds of a call."""
    found: dict[str, Any] = {}
    for name in ("joules_per_call", "uncorrected_joules", "seconds_per_call"):
        values = [getattr(one, name) for one in repeats]
        found |= {name: statistics.fmean(values), f"{name}_interval": interval(values)}
    for name in ("idle_w", "average_w", "duty"):
        found[name] = statistics.fmean(getattr(one, name) for one in repeats)
    kept = ("joules_per_call", "uncorrected_joules", "average_w", "duty", "calls", "seconds_per_call")
    found["repeats"] = [{name: value for name, value in asdict(one).items() if name in kept} for one in repeats]
    return found


def split_repeats(readings: Sequence[tuple[float, float]], left: dict[str, Any]) -> list[Energy]:
    """One `Energy` for each repeat: windows n and n + REPEATS. Raises `ValueError` where the counter did not move."""
    windows = left["windows"]
    found = [compute_energy(readings, left["marks"], windows[n::REPEATS]) for n in range(REPEATS)]
    kept = [one for one in found if one is not None]
    if len(kept) < REPEATS:
        raise ValueError("the counter did not move in a window")
    return kept


def measure(job: Job) -> dict[str, Any]:
    """The row of one kernel: energy in three repeats, clocks meanwhile. Raises `ValueError` with what went wrong."""
    sampler, watch = Sampler(Counter()), Watch()
    sampler.start()
    watch.start()
    try:
        with run_profiled(job, "energy", case="full", wall_s=WALL_S, options=OPTIONS) as seen:
            sampler.finish()
            if seen.failure is not None:
                raise ValueError(seen.failure.message)
            left = json.loads(seen.text("marks.json"))
            made = summarise(split_repeats(sampler.readings, left))
            return {**made, "state": watch.describe(left["windows"]), "versions": dict(seen.versions)}
    finally:
        sampler.finish()
        watch.ended.set()


def try_out(job: Job) -> dict[str, Any]:
    """Run the kernel at the reduced sizes on the emulator: that the script works, without any joule."""
    outcome = run_on_emulator(job)
    return {"dry": True, "launches": [launch.kernel for launch in outcome.launches]}


def append(out: Path | None, line: dict[str, Any]) -> None:
    """Print a short form of a line; write it."""
    print(json.dumps({name: value for name, value in line.items() if name not in ("repeats", "readings")}), flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")


def run_loads(out: Path) -> None:
    """Run the loads of known behaviour in a process of its own, because CUDA must not start in this one."""
    script = Path(__file__).with_name("energy_load.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=LOADS_S)
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            append(out, {**json.loads(line), **machine()})
    if done.returncode:
        print(f"# the loads failed: {done.stderr.strip()[-500:]}", flush=True)


def machine() -> dict[str, Any]:
    """Where and when."""
    return {
        "device": gpu_at_hand().attributes.name,
        "driver": driver_version(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def read_done(out: Path | None, others: Sequence[Path]) -> tuple[set[tuple[str, str]], bool]:
    """(kernels that the files have, failed ones included; whether they have the loads). A cut last line of `out` is
    dropped.
    """
    paths = list(others)
    if out is not None and out.exists():
        whole = out.read_text()
        out.write_text(whole[: whole.rfind("\n") + 1])
        paths.append(out)
    lines = [line for path in paths for line in read_lines(path)]
    done = {(line["problem"], line["program"]) for line in lines if line["kind"] == "kernel"}
    return done, any(line["kind"] == "load" for line in lines)


def run(arguments: argparse.Namespace, left: Sequence[Draw], end: float) -> tuple[int, int]:
    """Measure what is left until `end` by the monotonic clock; returns how many rows were written, how many failed.

    The next job is prepared while one is measured.
    """
    written = failed = 0
    with ThreadPoolExecutor(1) as pool:
        jobs = [pool.submit(make_job, draw) for draw in left]
        for draw, job in zip(left, jobs, strict=True):
            if end - time.monotonic() < LEAST_S:
                break
            head = {"kind": "kernel", "problem": draw.counted.problem, "program": draw.counted.program}
            start = time.monotonic()
            try:
                found = (try_out if arguments.dry_run else measure)(job.result())
            except Exception as error:  # whatever went wrong is a row, and the next kernel has its turn
                found, failed = {"failed": f"{type(error).__name__}: {error}"[:400]}, failed + 1
            here = {} if arguments.dry_run else machine()
            times = {"role": draw.role, "landscape_s": draw.counted.seconds, "wall_s": time.monotonic() - start}
            append(arguments.out, {**head, **times, **found, **here})
            written += 1
        pool.shutdown(cancel_futures=True)
    return written, failed


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=560.0, help="in all; nothing is begun that may take longer")
    parser.add_argument("--rows", type=int, default=4, help="of a problem, at most 4")
    parser.add_argument("--only", default="", help="names of problems, or how they begin, separated by commas")
    parser.add_argument("--pairs", type=Path, metavar="FIT", help="measure only pairs that this fit finds far apart")
    parser.add_argument("--done", type=Path, nargs="*", default=[], help="files whose kernels are not measured again")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    done, loaded = read_done(arguments.out, arguments.done)
    pairs = arguments.pairs
    drawn = draw_pairs(arguments.only, pairs) if pairs else draw_turns(arguments.only, arguments.rows)
    left = [draw for draw in drawn if draw.key not in done]
    if arguments.plan:
        for draw in left:
            print(f"{draw.counted.seconds * 1e6:9.1f} us  {draw.role:12} {draw.counted.problem:24} {draw.key[1]}")
        print(f"{len(left)} kernels of {len({draw.counted.problem for draw in left})} problems, {len(done)} done")
        return 0
    if not arguments.dry_run:
        if arguments.out is None:
            parser.error("--out FILE says where the rows go")
        missing = EnergyProfiler().why_not()
        if missing:
            parser.error(missing)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        if not loaded and end - time.monotonic() > LOADS_S + LEAST_S:
            run_loads(arguments.out)
    written, failed = run(arguments, left, end)
    print(f"# {written} of {len(left)} kernels, {failed} failed, {end - time.monotonic():.0f} s left", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
