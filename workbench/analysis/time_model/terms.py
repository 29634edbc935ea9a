"""Terms of the time model: seconds that a launch keeps each resource of the GPU busy. Input: a launch whose CTAs, all
or a sample, were followed in time at the problem's full size (`emulated(sample=..., follow=True)`).

With n CTAs, S SMs, R CTAs resident on an SM (registers, shared memory, threads), f = clock, m = ceil(n / S) CTAs on the
busiest SM, and counts per CTA:

    issue          i m / (4 f)                       i warp-instructions; each of four schedulers issues one a cycle
    fp32           F m / (256 f)                     F FLOPs outside tensor cores; 128 lanes, two FLOPs each
    tensor cores   sum over dtypes of F m / (r f)    r = the data sheet's dense rate per SM and cycle; on Hopper
                                                     `mma_share` of it for mma.sync
    shared memory  w m / f                           w wavefronts, one a cycle
    L1             (max(2 q, l) + b / 4) m / f       q requests, l lines of 128 bytes that they look up, b sectors that
                                                     bypass L1 (cp.async.cg, TMA)
    L2             32 n (e + s + b) / B2             e sectors that missed L1, s sectors stored; B2 = `l2_rate` times
                                                     the data sheet's bandwidth of DRAM
    DRAM           D / B                             D = least bytes + (p - 1) 32 n u if the CTAs share little, see
                                                     below; the part of the output that L2 keeps is not written
    spills         128 n s / rate                    s loads and stores of spilled registers (machine_code.py), at
                                                     the rate of the level that holds those of all resident threads
    latency        ceil(n / (S R)) (g c + c0) / f    c cycles of one CTA alone (emulator/timing/cta_timeline.py), or
                                                     its waits for loads (machine_code.py) if they are longer; g =
                                                     `cycles`, c0 = `start_cycles` to start it
    CTA launch     n `cta_s`                         one unit of the device starts all CTAs

    T = (sum over terms t^k)^(1/k)                   k-norm: resources overlap, but not wholly; k = `norm`

u = different sectors that a CTA requests from L2; p = (sectors that do not fit its share of L2) / u, the passes over
memory that L2 does not catch. CTAs share little when 32 n u is under 1.5 times the least bytes. When they share much (a
matrix product), a CTA finds in L2 the data that an earlier one loaded.

Sources: 4 schedulers, 128 FMA lanes, bytes and rates are the device's data sheet. One wavefront, one line and half a
request a cycle, and B (1.05 times the copy rate: reads are faster than copies) come from Nsight Compute's counters and
times on one H200 (tests/bench/results/h200_counters.json). The constants in quotes are fitted to measured times
(tests/bench/fit_time_model.py). What these terms cannot explain is learnt from their ratios (regression.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from workbench.analysis.devices import Device
from workbench.analysis.occupancy import launch_occupancy
from workbench.analysis.time_model.machine_code import count_local_requests, find_local_level, wait_cycles
from workbench.records import KernelBuild, Launch, Work, record

SECTOR = 32
WAVEFRONT = 128
SCHEDULERS, LANES = 4, 128
READ_RATE = 1.05  # times the copy rate (measured: row sums and matrix-vector products)
COPY_SHARE = 0.88  # of the data sheet's bandwidth, where no copy was measured (the H200's ratio)
SHARED_MUCH = 1.5
HARD = ("issue", "fp32", "tensor cores", "shared memory", "L2", "DRAM")  # terms that no kernel is faster than
L2_KEEPS = 0.37  # share of L2 with written bytes that are not yet in DRAM when the kernel ends (measured, 9 kernels)


@record
class Constants:
    """Constants of the terms that are fitted to measured times."""

    l2_rate: float  # bandwidth of L2 over the data sheet's of DRAM
    mma_share: float  # share of the tensor cores' peak that mma.sync reaches on Hopper
    start_cycles: float  # to start a CTA on an SM
    cycles: float  # of a CTA alone on the device over the timeline's
    cta_s: float  # seconds for each CTA of the grid
    norm: float
    launch_s: float  # seconds for each launch
    call_s: float  # seconds for each call, in which the GPU starts from idle


def find_dram_bytes(launch: Launch, work: Work, share: float, device: Device) -> tuple[float, float]:
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


def ceilings(device: Device, constants: Constants) -> dict[str, float]:
    """The highest rates in this model: bytes/s by memory level, FLOP/s of fp32 and of bf16 tensor cores."""
    cycles = device.sms * device.clock_hz
    return {
        "DRAM": dram_rate(device),
        "L2": constants.l2_rate * device.bandwidth,
        "shared memory": WAVEFRONT * cycles,
        "fp32": 2 * LANES * cycles,
        "bf16 tensor cores": device.peak("bfloat16", tensor_cores=True),
    }


def bypassing_sectors(launch: Launch) -> float:
    """Sectors of the whole grid that reach L2 past L1."""
    assert launch.paced is not None
    each = math.prod(launch.grid) / launch.paced.ctas
    return max(launch.total.global_sectors - (launch.paced.l1_sectors + launch.paced.written) * each, 0.0)


def resource_seconds(
    launch: Launch, build: KernelBuild | None, device: Device, work: Work, constants: Constants, share: float = 1.0
) -> dict[str, float]:
    """Seconds per resource; the module's docstring has the formulas. `launch.paced` must be set."""
    assert launch.paced is not None
    paced, total, ctas = launch.paced, launch.total, math.prod(launch.grid)
    # seconds that the busiest SM takes when every CTA of the grid works for one cycle, over the number of CTAs
    busiest = math.ceil(ctas / device.sms) / ctas / device.clock_hz
    each = ctas / paced.ctas
    bypass = bypassing_sectors(launch)
    waves = math.ceil(ctas / (device.sms * max(launch_occupancy(launch, build, device).blocks, 1)))
    read, written = find_dram_bytes(launch, work, share, device)
    matrix = sum(flops for _, flops in launch.tensor_flops)
    efficiency = 1.0 if paced.wgmma or device.arch == "sm_80" else constants.mma_share
    # the peak of the device, as if its SMs were all as busy as the busiest
    cycles = max(paced.cycles, wait_cycles(launch, build))
    tensor = sum(flops / device.peak(dtype, tensor_cores=True) for dtype, flops in launch.tensor_flops)
    return {
        "issue": paced.issue * ctas * busiest / SCHEDULERS,
        "fp32": max(total.flops - matrix, 0) / (2 * LANES) * busiest,
        "tensor cores": tensor / efficiency * device.sms * device.clock_hz * busiest,
        "shared memory": total.shared_wavefronts * busiest,
        "L1": (max(2 * paced.l1_requests, paced.l1_lines) * each + bypass / 4) * busiest,
        "L2": ((paced.l1_missed + paced.written) * each + bypass) * SECTOR / (constants.l2_rate * device.bandwidth),
        "DRAM": (read + written) / dram_rate(device),
        "spills": _spill_seconds(launch, build, device, constants),
        "latency": waves * (constants.cycles * cycles + constants.start_cycles) / device.clock_hz,
        "CTA launch": ctas * constants.cta_s,
    }


def _spill_seconds(launch: Launch, build: KernelBuild | None, device: Device, constants: Constants) -> float:
    rates = {
        "L1": WAVEFRONT * device.sms * device.clock_hz,
        "L2": constants.l2_rate * device.bandwidth,
        "DRAM": dram_rate(device),
    }
    spilled = count_local_requests(launch, build) * math.prod(launch.grid) * WAVEFRONT
    return spilled / rates[find_local_level(launch, build, device)]


def least_seconds(parts: dict[str, float]) -> float:
    """Seconds that a launch takes at least, from the terms whose rates are no fitted constants."""
    return max(parts[name] for name in HARD)


def bound_below(
    launches: Sequence[Launch], builds: Mapping[str, KernelBuild], device: Device, work: Work, constants: Constants
) -> float:
    """Seconds that a call takes at least. Without it the regression could leave the device's rates behind."""
    peak = replace(constants, mma_share=1.0)
    return sum(
        least_seconds(resource_seconds(launch, builds.get(launch.kernel), device, work, peak, share))
        for launch, share in zip(launches, traffic_shares(launches), strict=True)
    )


def combine(parts: dict[str, float], constants: Constants) -> float:
    """Seconds of a launch from the seconds of its resources: their k-norm."""
    largest = max(parts.values())
    return float(largest * sum((part / largest) ** constants.norm for part in parts.values()) ** (1 / constants.norm))


def add_resource_seconds(
    launches: Sequence[Launch], builds: Mapping[str, KernelBuild], device: Device, work: Work, constants: Constants
) -> dict[str, float]:
    """Seconds per resource of a call: those of its launches added up."""
    total: dict[str, float] = {}
    for launch, share in zip(launches, traffic_shares(launches), strict=True):
        parts = resource_seconds(launch, builds.get(launch.kernel), device, work, constants, share)
        total = {name: total.get(name, 0.0) + seconds for name, seconds in parts.items()}
    return total


def traffic_shares(launches: Sequence[Launch]) -> list[float]:
    """Each launch's part of the problem's least bytes, in proportion to the sectors that it requests."""
    whole = sum(launch.total.global_sectors for launch in launches)
    return [launch.total.global_sectors / whole if whole else 1 / len(launches) for launch in launches]
