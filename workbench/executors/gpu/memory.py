"""Checks the device memory of a problem, and prepares files for its outputs. Used by the parent, without torch."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.errors import ProblemError
from workbench.records import Facts, Job, Outcome, TensorSpec

SHARED_MEMORY = Path("/dev/shm")  # outputs of full-size problems are gigabytes; in memory if there is room
SHORTAGE_HINT = (
    "no other run of the workbench was on this GPU; allocate less beside the results, make sizes smaller with --set "
    "NAME=VALUE, or end other programs on the GPU"
)
READY_BYTES = 1 << 30  # allocated before the first output is due; the writer's threads allocate the rest
GB = 1e9
LARGE_SHARE = 1 / 16  # of the device's memory; a check takes several times a job's tensors (inferred)
SHORT = "out of memory"  # in what torch, the driver and the runtime say, in any case
SHORTAGE = re.compile(
    r"Tried to allocate (?P<more>\S+ \wiB).* capacity of (?P<all>\S+) GiB of which (?P<free>\S+ \wiB) is free",
    re.DOTALL,
)  # torch's words
SPARE_BYTES = 256 << 20  # for everything else in a job's folder


def check_fits(facts: Facts, cases: Collection[str], memory_bytes: int | None) -> None:
    """Raise `ProblemError` if the inputs, parameters and results of a case take more than a device's memory.

    `memory_bytes` is None if it is unknown; then nothing is refused.
    """
    for work in facts.work:
        if memory_bytes is None or work.case not in cases or work.least_bytes <= memory_bytes:
            continue
        case = next(case for case in facts.cases if case.name == work.case)
        largest = max((*case.inputs, *case.outputs), key=lambda spec: spec.size_bytes)
        raise ProblemError(
            f"the problem does not fit the device: inputs, parameters and results take {work.least_bytes / GB:,.1f} GB "
            f"at its {work.case} sizes (the largest is {largest.name} {largest.shape}), the device has "
            f"{memory_bytes / GB:,.1f} GB; make sizes smaller with --set NAME=VALUE, or use --executor emulator"
        )


def needs_turns(job: Job, memory_bytes: int | None) -> bool:
    """Whether a candidate and its parent version may not hold a job's tensors on the device at the same time."""
    least = max((work.least_bytes for work in job.facts.work if work.case == job.cases[-1]), default=0)
    return memory_bytes is not None and least > LARGE_SHARE * memory_bytes


def choose_folder(specs: Sequence[TensorSpec]) -> Path | None:
    """The folder of shared memory if it has room for such outputs; None means the folder for temporary files."""
    if not os.access(SHARED_MEMORY, os.W_OK):
        return None
    found = os.statvfs(SHARED_MEMORY)
    return (
        SHARED_MEMORY
        if found.f_bavail * found.f_frsize >= sum(spec.size_bytes for spec in specs) + SPARE_BYTES
        else None
    )


def preallocate(folder: Path, specs: Sequence[TensorSpec]) -> None:
    """Make files for outputs like `specs` and allocate their first pages, as far as possible: writing does it too."""
    folder.mkdir(parents=True, exist_ok=True)
    for n, spec in enumerate(specs):
        with open(folder / f"{n}.bin", "wb") as file, contextlib.suppress(OSError):
            if size := spec.size_bytes:
                os.posix_fallocate(file.fileno(), 0, min(size, READY_BYTES))


def lacks_memory(outcome: Outcome) -> bool:
    """Whether a candidate found too little memory on the device."""
    failure = outcome.failure
    return failure is not None and SHORT in failure.message.lower().replace("_", " ")


def describe_shortage(said: str) -> str:
    """What torch says of too little memory in a few words: how much was asked for, and how much there was."""
    found = SHORTAGE.search(said)
    if found is None:
        return said.strip().partition(". ")[0].rstrip(".")
    return f"{found['more']} more were asked for, {found['free']} of {found['all']} GiB were free"


def explain_shortage(outcome: Outcome) -> Outcome:
    """The outcome of a candidate that ran alone, with a clear line if it still found too little memory."""
    if outcome.failure is None or not lacks_memory(outcome):
        return outcome
    message = f"out of memory on the GPU: {describe_shortage(outcome.failure.message)}"
    return replace(outcome, failure=replace(outcome.failure, message=message, hint=SHORTAGE_HINT))
