"""What a kernel's machine code adds to the counts of its PTX: spilled registers, and loads that wait for one another.

`KernelBuild.code` has static counts by the depth of loops. How often each depth runs is not known. It is taken to be
t^depth, where t follows from the number of instructions that a warp of the followed CTAs issued (inferred).
"""

from __future__ import annotations

import math

from workbench.analysis.devices import Device
from workbench.analysis.occupancy import WARP, launch_occupancy
from workbench.records import CodeDepth, KernelBuild, Launch

FROM_L1, FROM_BEYOND = 40, 560  # cycles that a load takes, as in emulator/timing/cta_timeline.py
MOST_TURNS = 1e6
HALVINGS = 40


def count_warps(launch: Launch) -> int:
    """Warps of one CTA."""
    return -(-math.prod(launch.block) // WARP)


def estimate_runs(code: tuple[CodeDepth, ...], issued: float) -> list[float]:
    """How often a warp that issues so many instructions runs the code of each depth: at least once.

    Instructions for spilled registers are not among the issued ones, since PTX has none.
    """
    low, high = 1.0, MOST_TURNS
    for _ in range(HALVINGS):
        turns = math.sqrt(low * high)
        many = sum((one.instructions - one.local) * turns**depth for depth, one in enumerate(code)) > issued
        low, high = (low, turns) if many else (turns, high)
    return [low**depth for depth in range(len(code))]


def count_local_requests(launch: Launch, build: KernelBuild | None) -> float:
    """Warp-level loads and stores of local memory (spilled registers) of a CTA."""
    assert launch.paced is not None
    if build is None or not any(one.local for one in build.code):
        return 0.0
    warps = count_warps(launch)
    runs = estimate_runs(build.code, launch.paced.issue / warps)
    return warps * sum(times * one.local for times, one in zip(runs, build.code, strict=True))


def find_local_level(launch: Launch, build: KernelBuild | None, device: Device) -> str:
    """The level of memory that holds the spilled registers of all resident threads: "L1", "L2" or "DRAM"."""
    frames = ((build.spill_bytes or 0) if build else 0) * WARP * launch_occupancy(launch, build, device).warps
    if frames <= device.shared_bytes_per_sm - launch.dynamic_shared_bytes:
        return "L1"
    return "L2" if frames * device.sms <= device.l2_bytes else "DRAM"


def wait_cycles(launch: Launch, build: KernelBuild | None) -> float:
    """Cycles that a warp of a CTA alone waits for loads from global memory, in the order of the machine code; 0 if it
    is not known.
    """
    paced = launch.paced
    assert paced is not None
    if build is None or not build.code or not paced.l1_sectors:
        return 0.0
    warps = count_warps(launch)
    runs = estimate_runs(build.code, paced.issue / warps)
    static = sum(times * one.loads for times, one in zip(runs, build.code, strict=True))
    trips = sum(times * one.trips for times, one in zip(runs, build.code, strict=True))
    loads = paced.l1_requests * paced.l1_sectors / (paced.l1_sectors + paced.written) / (paced.ctas * warps)
    missed = paced.l1_missed / paced.l1_sectors
    return loads * trips / static * (FROM_L1 + missed * (FROM_BEYOND - FROM_L1)) if static else 0.0
