"""The sampled time model against times that were measured on an H200, with no GPU: versions of the planner and of
recorded sessions at full size.

    python tests/bench/time_model.py --out tests/bench/results/time_model.json [--limit-s 40] [--only softmax]     runs
    every kernel's sample, long
    python tests/bench/time_model.py --again tests/bench/results/time_model.json                                   the
    model alone, on kept counters

What is modelled: analysis/sampled.py. Kernels whose four CTAs take the interpreter longer than the limit are left out,
and named.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from full_size import Measured, full_work, planned, recorded, sampled

from workbench.analysis import devices
from workbench.analysis.sampled import modelled_time
from workbench.emulator.emulation import CompiledModule
from workbench.records import KernelBuild, Launch, Work
from workbench.toolchain import describe_module
from workbench.wire import from_plain, to_plain

PLANNED = (
    "h200_loop_rows.json",
    "h200_loop_part1.json",
    "h200_loop_part2.json",
    "h200_loop_bf16.json",
    "h200_loop_tf32.json",
    "h200_loop_hopper_bf16.json",
    "h200_loop_hopper_tf32.json",
)
RECORDED = ("h200_replays.json", "h200_replay_attention.json", "h200_replays_repairs.json")
SAMPLE = 4


def kernels() -> Iterator[Measured]:
    """Every measured kernel, the newest time of each."""
    seen = set()
    for made in (*map(planned, PLANNED), *map(recorded, RECORDED)):
        for one in made:
            if one.label not in seen:
                seen.add(one.label)
                yield one


def describe_builds(modules: Sequence[CompiledModule], arch: str) -> list[dict[str, Any]]:
    """The kernels of compiled modules as plain data, without their code."""
    return [
        {**to_plain(build), "ptx": "", "sass": ""}
        for module in modules
        for build in describe_module(module.ptx, module.cubin, arch)
    ]


def describe_launches(launches: Sequence[Launch]) -> list[dict[str, Any]]:
    """Launches as plain data, without source lines."""
    plain = [{**to_plain(launch), "lines": [], "findings": []} for launch in launches]
    for launch in plain:
        launch["paced"]["stalls"] = []
    return plain


def sample(one: Measured, limit_s: float) -> dict[str, Any]:
    """What the model needs of one kernel."""
    launches, modules = sampled(one, sample=SAMPLE, limit_s=limit_s)
    return {
        "label": one.label,
        "seconds": one.seconds,
        "work": to_plain(full_work(one.problem)),
        "launches": describe_launches(launches),
        "builds": describe_builds(modules, one.arch),
    }


def modelled(row: dict[str, Any]) -> tuple[float, str]:
    """Seconds by the model, and the limit."""
    launches, builds = (
        [from_plain(item, Launch) for item in row["launches"]],
        [from_plain(item, KernelBuild) for item in row["builds"]],
    )
    return modelled_time(launches, builds, devices.find("H200"), from_plain(row["work"], Work))


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0."""
    found = np.empty(len(values))
    found[np.argsort(values)] = np.arange(len(values))
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Rank correlation, error factors, and how often the order of two versions of one problem is right."""
    measured, model = np.array([row["seconds"] for row in rows]), np.array([row["modelled_s"] for row in rows])
    factor = np.exp(np.abs(np.log(model / measured)))
    right = pairs = 0
    for i, a in enumerate(rows):
        for b in rows[:i]:
            if a["label"].split(" v")[0] == b["label"].split(" v")[0] and abs(
                np.log(a["seconds"] / b["seconds"])
            ) > np.log(1.05):
                pairs += 1
                right += (a["seconds"] < b["seconds"]) == (a["modelled_s"] < b["modelled_s"])
    return {
        "kernels": len(rows),
        "spearman": float(np.corrcoef(ranks(measured), ranks(model))[0, 1]),
        "median_factor": float(np.median(factor)),
        "mean_factor": float(np.exp(np.log(factor).mean())),
        "p90_factor": float(np.quantile(factor, 0.9)),
        "worst_factor": float(factor.max()),
        "pairs": pairs,
        "pairs_right": right,
    }


def keep(target: Path, rows: list[dict[str, Any]], left_out: list[str]) -> dict[str, float]:
    """Write what there is, with its summary."""
    for row in rows:
        row["modelled_s"], row["limit"] = modelled(row)
    found = summary(rows) if len(rows) > 1 else {}
    target.write_text(json.dumps({"summary": found, "left_out": left_out, "rows": rows}) + "\n")
    return found


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--again", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit-s", type=float, default=40.0)
    arguments = parser.parse_args()
    left_out: list[str] = []
    if arguments.again:
        rows = json.loads(arguments.again.read_text())["rows"]
    else:
        rows = (
            json.loads(arguments.out.read_text())["rows"] if arguments.out.exists() else []
        )  # goes on where it was stopped
        done = {row["label"] for row in rows}
        for one in kernels():
            if arguments.only in one.label and one.label not in done:
                try:
                    rows.append(sample(one, arguments.limit_s))
                except Exception as error:
                    left_out.append(f"{one.label}: {type(error).__name__}: {str(error).splitlines()[0]}")
                print(
                    one.label,
                    left_out[-1] if left_out and left_out[-1].startswith(one.label) else "",
                    file=sys.stderr,
                    flush=True,
                )
                keep(arguments.out, rows, left_out)
    if arguments.again:
        left_out = json.loads(arguments.again.read_text())["left_out"]
    found = keep(arguments.out or arguments.again, rows, left_out)
    for row in rows:
        print(
            f"{row['label'][:64]:64s} measured {row['seconds'] * 1e6:10.1f} us  modelled "
            f"{row['modelled_s'] * 1e6:10.1f} us  {row['modelled_s'] / row['seconds']:5.2f}  {row['limit']}"
        )
    print({name: round(value, 3) for name, value in found.items()})


if __name__ == "__main__":
    main()
