"""Shared-memory wavefronts against what an H200 was seen to take, pattern by pattern, on both engines."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from engines import aligned

from workbench.emulator.execution.launch import DeviceLimits, GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from wavefronts_on_gpu import WIDTHS, check, kernel, patterns

MEASURED = Path(__file__).parents[1] / "bench" / "results" / "h200_wavefronts.json"


def test_every_measured_pattern_takes_as_many_wavefronts_as_the_rule_says() -> None:
    assert check(MEASURED) == 0


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
@pytest.mark.parametrize("width", list(WIDTHS))
def test_both_engines_count_what_was_measured(width: int, engine: str) -> None:
    machine = Machine(kernel(width), DeviceLimits(), engine=engine)
    for case in json.loads(MEASURED.read_text())["cases"]:
        if case["width"] == width:
            data, memory = aligned(32), GlobalMemory()
            data[:] = (patterns()[case["pattern"]] * width).astype(np.uint32)
            memory.register(data.ctypes.data, data.nbytes, "data")
            launch = machine.run(
                GridRequest(
                    entry=f"k_{width}",
                    grid=(1, 1, 1),
                    block=(32, 1, 1),
                    params=(data.ctypes.data.to_bytes(8, "little"),),
                ),
                memory,
            )
            assert launch.total.shared_wavefronts == case["load"] + case["store"], case
