"""Starts the file of a tuning run: its header describes the machine and the protocol.

Rows are appended as they come.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from workbench.executors.gpu import telemetry
from workbench.executors.gpu.presence import Gpu
from workbench.landscapes import table
from workbench.landscapes.table import Row
from workbench.tuning.plan import RULE, TuningPlan

PROTOCOL = (
    "CUDA events around one call, 12 calls (5 where one takes over 10 ms) after 4 more, the same inputs, "
    "L2 flushed before each by writing twice its size, a device-side sleep so that the host is ahead, "
    "one process on a GPU at a time while others compile, "
    "all of a problem on one GPU (of several the problem's number modulo how many there are); "
    "the last timed call's output is compared with torch's result in float64 "
    "(in strict float32 where inputs and that result take over 700 MiB)"
)


def describe_machine(gpus: Sequence[Gpu]) -> dict[str, object]:
    """Date, the GPUs that measure, clocks, versions and protocol of this run, for the file's header."""
    versions = {
        "torch": version("torch"),
        "nvidia-cutlass-dsl": version("nvidia-cutlass-dsl"),
        "python": platform.python_version(),
        "driver": telemetry.driver_version(),
    }
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": gpus[0].attributes.name if gpus else "",
        "limits": telemetry.describe_limits(gpus[0]) if gpus else "",
        "gpus": len(gpus),
        "versions": versions,
        "protocol": PROTOCOL,
        "sampling": RULE,
    }


def start_file(path: Path, plans: list[TuningPlan], gpus: Sequence[Gpu] = ()) -> int:
    """Start the file, or continue it. Returns the number of this run in the file."""
    header = {"runs": [describe_machine(gpus)], "problems": {plan.key: plan.header for plan in plans}}
    rows: list[Row] = []
    if path.exists():
        before, rows = table.read(path)
        header = {"runs": [*before["runs"], *header["runs"]], "problems": before["problems"] | header["problems"]}
    table.write(path, header, rows)
    return len(header["runs"]) - 1
