"""A modelled time for a launch that was executed in a sample of its CTAs, at their true size (`emulated(sample=...,
follow=True)`). The model scales only the number of CTAs.

With n CTAs, S SMs, R CTAs resident on an SM (registers, shared memory, threads), f = clock, m = ceil(n / S) CTAs on the
busiest SM, and counts per CTA:

    issue          i m / (4 f)                       i warp-instructions; each of four schedulers issues one a cycle
    pipes          F m / (r f)                       F FLOPs; r = 256 a cycle for fp32; on tensor cores the data sheet's
                                                     dense rate per SM and cycle, on Hopper 62 % of it for mma.sync
    shared memory  w m / f                           w wavefronts, one a cycle
    L1             (max(2 q, l) + b / 4) m / f       q requests, l lines of 128 bytes that they look up, b sectors that
                                                     bypass L1 (cp.async.cg, TMA)
    L2             32 n (e + s + b) / B2             e sectors that missed L1, s sectors stored
    DRAM           D / B                             D = least bytes + (p - 1) 32 n u if the CTAs share little, see
                                                     below; the part of the output that L2 keeps is not written
    latency        ceil(n / (S R)) (c + c0) / f      c cycles of one CTA alone (emulator/timing/cta_timeline.py), c0 to
                                                     start it

    T = (sum over terms t^k)^(1/k) + launch          k-norm: resources overlap, but not wholly

u = different sectors that a CTA requests from L2; p = (sectors that do not fit its share of L2) / u, the passes over
memory that L2 does not catch. CTAs share little when 32 n u is under 1.5 times the least bytes. When they share much (a
matrix product), a CTA finds in L2 the data that an earlier one loaded.

Sources of the constants: 4 schedulers, 128 FMA lanes, bytes and rates are the device's data sheet. One wavefront, one
line and half a request a cycle, and B (1.05 times the copy rate: reads are faster than copies) come from Nsight
Compute's counters and times on one H200 (tests/bench/results/h200_counters.json). B2, c0, k and the launch were set by
eye to some of the kernels of tests/bench/time_model.py, which states the error of the model. Not modelled: data that
CTAs share in L1 (an SM keeps weights that one CTA after another reads, so L2 traffic is overstated), DRAM pages, power,
clocks under load, a CTA whose work depends on data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from workbench.analysis.devices import Device
from workbench.analysis.model import TENSOR, launch_occupancy
from workbench.records import KernelBuild, Launch, Work

SECTOR = 32
WAVEFRONT = 128
SCHEDULERS, LANES = 4, 128
L2_RATE = 2.0  # times the data sheet's DRAM bandwidth (set by eye)
READ_RATE = 1.05  # times the copy rate (measured: row sums and matrix-vector products)
COPY_SHARE = 0.88  # of the data sheet's bandwidth, where no copy was measured (the H200's ratio)
START_CYCLES = 800  # set by eye
NORM = 5.0  # set by eye
LAUNCH_S = 2.5e-6  # set by eye
SHARED_MUCH = 1.5
# The share of the tensor cores' peak that mma.sync reaches on Hopper; wgmma reaches nearly all of it (inferred; Luo et
# al., 2024, report about the same)
MMA_SHARE = 0.62
L2_KEEPS = 0.37  # share of L2 with written bytes that are not yet in DRAM when the kernel ends (measured, 9 kernels)


def dram_bytes(launch: Launch, work: Work, share: float, device: Device) -> tuple[float, float]:
    """Bytes that a launch reads from DRAM, and bytes that it writes there while it runs. `share` is this launch's part
    of the problem's least bytes.
    """
    assert launch.paced is not None
    paced, ctas = launch.paced, math.prod(launch.grid)
    each = ctas / paced.ctas * SECTOR
    least = work.least_bytes * share
    written = min(float(launch.total.global_write_bytes), least)
    touched = paced.touched * each
    again = max(paced.l2_missed / max(paced.touched, 1) - 1, 0.0) * touched if touched < SHARED_MUCH * least else 0.0
    return least - written + again, max(written - L2_KEEPS * device.l2_bytes, 0.0)


def dram_rate(device: Device) -> float:
    """The bandwidth of DRAM in this model, in bytes/s."""
    return READ_RATE * (device.copy_bandwidth or COPY_SHARE * device.bandwidth)


def ceilings(device: Device) -> dict[str, float]:
    """The highest rates in this model, and in `model.py`'s, whose rates are lower: bytes/s by memory level, FLOP/s of
    fp32 and of bf16 tensor cores.
    """
    cycles = device.sms * device.clock_hz
    return {
        "DRAM": dram_rate(device),
        "L2": L2_RATE * device.bandwidth,
        "shared memory": WAVEFRONT * cycles,
        "fp32": 2 * LANES * cycles,
        "bf16 tensor cores": device.peak("bfloat16", tensor_cores=True),
    }


def resource_seconds(
    launch: Launch, build: KernelBuild | None, device: Device, work: Work, share: float = 1.0
) -> dict[str, float]:
    """Seconds per resource; the module's docstring has the formulas. `launch.paced` must be set."""
    assert launch.paced is not None
    paced, total, ctas = launch.paced, launch.total, math.prod(launch.grid)
    # seconds that the busiest SM takes when every CTA of the grid works for one cycle, over the number of CTAs
    busiest = math.ceil(ctas / device.sms) / ctas / device.clock_hz
    each = ctas / paced.ctas
    on_tensor = dict(launch.classes).get(TENSOR, 0) > 0
    peak = device.peak(work.dtype, tensor_cores=True) * (1.0 if paced.wgmma or device.arch == "sm_80" else MMA_SHARE)
    rate = peak / device.sms / device.clock_hz if on_tensor else 2 * LANES
    bypass = max(total.global_sectors - (paced.l1_sectors + paced.written) * each, 0)
    waves = math.ceil(ctas / (device.sms * max(launch_occupancy(launch, build, device).blocks, 1)))
    read, written = dram_bytes(launch, work, share, device)
    return {
        "issue": paced.issue * ctas * busiest / SCHEDULERS,
        "tensor cores" if on_tensor else "fp32": total.flops / rate * busiest,
        "shared memory": total.shared_wavefronts * busiest,
        "L1": (max(2 * paced.l1_requests, paced.l1_lines) * each + bypass / 4) * busiest,
        "L2": ((paced.l1_missed + paced.written) * each + bypass) * SECTOR / (L2_RATE * device.bandwidth),
        "DRAM": (read + written) / dram_rate(device),
        "latency": waves * (paced.cycles + START_CYCLES) / device.clock_hz,
    }


def traffic_shares(launches: Sequence[Launch]) -> list[float]:
    """Each launch's part of the problem's least bytes, in proportion to the sectors that it requests."""
    whole = sum(launch.total.global_sectors for launch in launches)
    return [launch.total.global_sectors / whole if whole else 1 / len(launches) for launch in launches]


def modelled_time(
    launches: Sequence[Launch], builds: Sequence[KernelBuild], device: Device, work: Work
) -> tuple[float, str]:
    """Modelled seconds of followed launches at `work`, and the resource that limits the longest."""
    by_name = {build.kernel: build for build in builds}
    seconds, limit = 0.0, (0.0, "")
    for launch, share in zip(launches, traffic_shares(launches), strict=True):
        parts = resource_seconds(launch, by_name.get(launch.kernel), device, work, share)
        taken = sum(part**NORM for part in parts.values()) ** (1 / NORM)
        limit = max(limit, (taken, max(parts, key=lambda name: parts[name])))
        seconds += taken + LAUNCH_S
    return seconds, limit[1]
