"""What a call executes, by what each event costs energy for. Input: launches that were followed in time at the
problem's full size, as for the time model (time_model/terms.py, whose definitions of bytes these are).

    instructions        thread-instructions that are not one of the next two
    fp32                thread-instructions on the fp32 pipe
    special functions   thread-instructions on the special function unit: exp2, rcp, sqrt, ...
    half tensor         FLOPs on tensor cores with fp16 or bf16 operands, with what reads their operands
    tf32 tensor         the same with TF32 operands
    shared              bytes through shared memory: 128 of each wavefront of loads and stores
    L1                  bytes of sectors that loads look up in L1
    L2                  bytes of sectors that L2 serves: missed in L1, stored, or past L1 (cp.async.cg, TMA)
    DRAM                bytes read and written
    static              seconds of the call: power that does not depend on what runs
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from workbench.analysis.devices import Device
from workbench.analysis.time_model.terms import (
    SECTOR,
    WAVEFRONT,
    bypassing_sectors,
    find_dram_bytes,
    traffic_shares,
)
from workbench.records import Launch, Work

UNITS = {  # of the coefficient of each event
    "instructions": "J per thread-instruction",
    "fp32": "J per thread-instruction",
    "special functions": "J per thread-instruction",
    "half tensor": "J per FLOP",
    "tf32 tensor": "J per FLOP",
    "shared": "J per byte",
    "L1": "J per byte",
    "L2": "J per byte",
    "DRAM": "J per byte",
    "static": "W",
}
STATIC = "static"
CLASSES = {"f32": "fp32", "special function": "special functions"}
TENSOR = {"float16": "half tensor", "bfloat16": "half tensor", "tfloat32": "tf32 tensor"}


def count_events(launches: Sequence[Launch], device: Device, work: Work, seconds: float) -> dict[str, float]:
    """Event -> how many of it a call of `seconds` has. FLOPs of a dtype without a coefficient are an event of their
    own, named by the dtype.
    """
    total: Counter[str] = Counter(dict.fromkeys(UNITS, 0.0))
    for launch, share in zip(launches, traffic_shares(launches), strict=True):
        total.update(_count_launch(launch, device, work, share))
    return {**total, STATIC: seconds}


def _count_launch(launch: Launch, device: Device, work: Work, share: float) -> Mapping[str, float]:
    assert launch.paced is not None
    paced, each = launch.paced, math.prod(launch.grid) / launch.paced.ctas
    found: Counter[str] = Counter()
    for name, count in launch.classes:
        found[CLASSES.get(name, "instructions")] += count
    for dtype, flops in launch.tensor_flops:
        found[TENSOR.get(dtype, dtype)] += flops
    found.update(
        {
            "shared": WAVEFRONT * launch.total.shared_wavefronts,
            "L1": SECTOR * paced.l1_sectors * each,
            "L2": SECTOR * ((paced.l1_missed + paced.written) * each + bypassing_sectors(launch)),
            "DRAM": sum(find_dram_bytes(launch, work, share, device)),
        }
    )
    return found
