"""Draws problems of a checkout of KernelBench: of each level the three with the largest inputs, and twelve at random.

    python tests/bench/draw_problems.py KERNELBENCH/KernelBench        (prints the files, for search_live.py)

Shapes are those of tensors on torch's meta device; nothing is computed.
"""

from __future__ import annotations

import random
import runpy
import sys
from pathlib import Path

import torch

LEVELS = {"level1": 2026, "level2": 2027}  # seeds
LARGEST, DRAWN = 3, 12


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


if __name__ == "__main__":
    torch.set_default_device("meta")
    for level, seed in LEVELS.items():
        print(*draw(Path(sys.argv[1]) / level, seed), sep="\n")
