"""A modelled time from counted work: a first, simple model, for ranking versions, not for claims.

For each launch at the case that was emulated, with the counters C summed over all CTAs:

    warp-instructions  I = thread-instructions / 32
    T_issue  = I / (SMs * 4 warp schedulers * clock)
    T_fp32   = FLOPs outside tensor cores / fp32 peak
    T_tensor = FLOPs on tensor cores / peak of the dtype
    T_shared = wavefronts / (SMs * clock)                 one wavefront per SM and cycle
    T_dram   = max(32 B * sectors / (2.5 * bandwidth), distinct bytes / bandwidth)

The first term of T_dram is the L2 path: 2.5 times DRAM bandwidth is inferred, not measured. `distinct bytes` is the least traffic.
T = max of these / efficiency(occupancy), plus a launch overhead of 3 us per kernel (inferred). efficiency = min(1, warps per SM / 16): with
fewer resident warps latency shows (inferred).

To say something about the full size, every term is scaled by the ratio of work between the cases (FLOPs for compute terms, bytes for memory
terms), which assumes that the kernel does the same per element; at full size the whole device is busy. Error: a factor of two is normal.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.analysis.devices import Device
from workbench.analysis.occupancy import occupancy
from workbench.records import KernelBuild, Launch, Work

SCHEDULERS = 4
L2_FACTOR = 2.5
LAUNCH_S = 3e-6
LATENCY_WARPS = 16
TENSOR = "tensor core"


def terms(launch: Launch, device: Device, *, work_scale: float, byte_scale: float, tensor_dtype: str) -> dict[str, float]:
    """Seconds by resource for one launch, scaled from the emulated case to the wanted one."""
    total = launch.total
    rate = device.sms * device.clock_hz
    on_tensor = dict(launch.classes).get(TENSOR, 0) > 0
    flops = total.flops * work_scale
    peak = device.peak(tensor_dtype, tensor_cores=True) if on_tensor else device.fp32
    return {
        "issue": total.instructions / 32 * work_scale / (SCHEDULERS * rate),
        "tensor cores" if on_tensor else "fp32": flops / peak,
        "shared memory": total.shared_wavefronts * work_scale / rate,
        "L2": 32 * total.global_sectors * work_scale / (L2_FACTOR * device.bandwidth),
        "DRAM": byte_scale / device.bandwidth,
    }


def modelled_time(launches: Sequence[Launch], builds: Sequence[KernelBuild], device: Device, emulated: Work, target: Work) -> tuple[float, str]:
    """Modelled seconds at `target` from launches counted at `emulated`, and the resource that limits."""
    seconds, worst = 0.0, ("", 0.0)
    registers = {build.kernel: build.registers for build in builds}
    scale = target.flops / emulated.flops if emulated.flops else target.least_bytes / max(emulated.least_bytes, 1)
    for launch in launches:
        parts = terms(launch, device, work_scale=scale, byte_scale=target.least_bytes / len(launches), tensor_dtype=target.dtype if target.dtype != "float32" else "tfloat32")
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        resident = occupancy(device, threads=threads, registers=registers.get(launch.kernel), shared_bytes=launch.dynamic_shared_bytes)
        efficiency = min(1.0, max(resident.warps, 1) / LATENCY_WARPS)
        name = max(parts, key=lambda key: parts[key])
        seconds += parts[name] / efficiency + LAUNCH_S
        if parts[name] > worst[1]:
            worst = (name, parts[name])
    return seconds, worst[0]
