"""Draws problems of a checkout of KernelBench: of each level the three with the largest inputs, and twelve at random.

    python tests/bench/draw_problems.py KERNELBENCH/KernelBench        (prints the files, for search_live.py)
    python tests/bench/draw_problems.py KERNELBENCH/KernelBench --small 5

Shapes are those of tensors on torch's meta device; nothing is computed. With --small, so many of both levels whose call
is short by torch's counts (SMALL_BYTES, SMALL_FLOPS), which the planner writes, and which are in no landscape and not
among those above.
"""

from __future__ import annotations

import argparse
import random
import runpy
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench import problems
from workbench.errors import WorkbenchError
from workbench.executors.inspector import WorkerInspector
from workbench.landscapes import landscapes
from workbench.landscapes.keys import problem_key
from workbench.proposers.planner import list_rungs
from workbench.proposers.recognition import Unrecognised
from workbench.records import Ask

LEVELS = {"level1": 2026, "level2": 2027}  # seeds
LARGEST, DRAWN = 3, 12
SMALL_SEED, SMALL_BYTES, SMALL_FLOPS = 2028, 2 << 30, 2e12
RECORDED = Path(__file__).with_name("problems")  # own texts of problems of level 1 that have landscapes, by number


def input_bytes(file: Path) -> int:
    """Bytes of all inputs of a problem."""
    inputs = runpy.run_path(str(file))["get_inputs"]()
    return sum(value.nbytes for value in inputs if isinstance(value, torch.Tensor))


def draw(folder: Path, seed: int) -> list[Path]:
    """The problems of a level."""
    sizes = {file: input_bytes(file) for file in folder.glob("*.py")}
    largest = sorted(sizes, key=lambda file: (-sizes[file], file.name))[:LARGEST]
    rest = sorted(sizes.keys() - set(largest), key=lambda file: int(file.name.split("_")[0]))
    return largest + random.Random(seed).sample(rest, DRAWN)


def is_new_and_small(file: Path) -> bool:
    """Whether a problem is small, in no landscape, and the planner writes programs for it."""
    problem = problems.load(str(file), precision="tf32")
    if problem_key(problem) in {place.key for place in landscapes().values()}:
        return False
    try:
        facts = WorkerInspector().inspect(problem)
        list_rungs(Ask(problem=problem, facts=facts, arch="sm_90a"))
    except (WorkbenchError, Unrecognised):
        return False
    work = next((one for one in facts.work if one.case == "full"), None)
    return work is not None and 0 < work.least_bytes <= SMALL_BYTES and work.flops <= SMALL_FLOPS


def draw_small(root: Path, count: int) -> list[Path]:
    """Small problems of both levels that no landscape has, in the order in which they are drawn."""
    known = {file for level, seed in LEVELS.items() for file in draw(root / level, seed)}
    numbers = {int(file.name.split("_")[0]) for file in RECORDED.glob("*.py")}
    known |= {file for file in (root / "level1").glob("*.py") if int(file.name.split("_")[0]) in numbers}
    files = [file for level in LEVELS for file in (root / level).glob("*.py") if file not in known]
    torch.set_default_device("cpu")
    found: list[Path] = []
    for file in random.Random(SMALL_SEED).sample(sorted(files), len(files)):
        if len(found) < count and is_new_and_small(file):
            found.append(file)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--small", type=int, metavar="COUNT")
    arguments = parser.parse_args()
    torch.set_default_device("meta")
    if arguments.small:
        print(*draw_small(arguments.folder, arguments.small), sep="\n")
    else:
        for level, seed in LEVELS.items():
            print(*draw(arguments.folder / level, seed), sep="\n")
