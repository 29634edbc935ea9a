"""How much room a problem takes on a device, its outputs in memory and in files; without torch, for the parent's process."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Sequence
from math import prod
from pathlib import Path

from workbench.errors import ProblemError
from workbench.records import Facts, TensorSpec

SHARED_MEMORY = Path("/dev/shm")  # outputs of full-size problems are gigabytes: handed over in memory where there is room
READY_BYTES = 1 << 30  # as much as is made ready before the first output is due; the writer's threads make the rest
GB = 1e9
SPARE_BYTES = 256 << 20  # for everything else in a job's folder


def size_of(spec: TensorSpec) -> int:
    """Bytes of a contiguous tensor: float32 has 4, float8_e4m3fn 1, complex64 8, bool 1."""
    bits = re.search(r"\d+", spec.dtype)
    return prod(spec.shape) * (int(bits[0]) // 8 if bits else 1)


def check_fits(facts: Facts, cases: Collection[str], memory_bytes: int | None) -> None:
    """Raise `ProblemError` where the inputs, parameters and results of a case, once each, are more than a device's memory; nothing is said where that is not known."""
    for work in facts.work:
        if memory_bytes is None or work.case not in cases or work.least_bytes <= memory_bytes:
            continue
        case = next(case for case in facts.cases if case.name == work.case)
        largest = max((*case.inputs, *case.outputs), key=size_of)
        raise ProblemError(
            f"the problem does not fit the device: inputs, parameters and results take {work.least_bytes / GB:,.1f} GB at its {work.case} sizes (the largest is {largest.name} {largest.shape}), "
            f"the device has {memory_bytes / GB:,.1f} GB; make sizes smaller with --set NAME=VALUE, or use --executor emulator"
        )


def place_for(specs: Sequence[TensorSpec]) -> Path | None:
    """Shared memory where it has room for such outputs, else None: the folder for temporary files."""
    if not os.access(SHARED_MEMORY, os.W_OK):
        return None
    found = os.statvfs(SHARED_MEMORY)
    return SHARED_MEMORY if found.f_bavail * found.f_frsize >= sum(map(size_of, specs)) + SPARE_BYTES else None


def make_room(folder: Path, specs: Sequence[TensorSpec]) -> None:
    """Files for outputs like `specs` with (the first of) their pages in place; best effort, for writing makes them too."""
    folder.mkdir(parents=True, exist_ok=True)
    for n, spec in enumerate(specs):
        with open(folder / f"{n}.bin", "wb") as file, contextlib.suppress(OSError):
            if size := size_of(spec):
                os.posix_fallocate(file.fileno(), 0, min(size, READY_BYTES))
