"""Features of launches for the regression: what decides how far the terms of the time model (terms.py) are from
measured times.

Each feature is a ratio, or the logarithm of a ratio or of a count per SM, so that it means the same at every size. The
features of a call with several launches are the means over its launches, weighted by their modelled seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from workbench.analysis.devices import Device
from workbench.analysis.occupancy import WARP, launch_occupancy
from workbench.analysis.time_model.machine_code import count_warps, wait_cycles
from workbench.analysis.time_model.terms import SECTOR, Constants, combine, find_dram_bytes, resource_seconds
from workbench.records import KernelBuild, Launch, Work

LOWEST = 0.01  # smaller shares of a launch's seconds count as this
LATENCY_S = 800e-9  # a load that goes to DRAM on a busy device (inferred)
# thread-instructions per SM and cycle of the pipes that are no terms of their own (CUDA C++ programming guide,
# "Throughput of Native Arithmetic Instructions", compute capability 9.0), by the counter's class
PIPES = {"special function": 16, "conversion": 64, "int": 64, "f64": 64, "warp": 32}
ATOMICS = 32  # threads per SM and cycle (inferred)
BARRIER_CYCLES = 30  # (inferred)
CYCLES = 8  # per instruction of a warp that waits for each result (inferred)


def _share(seconds: float, whole: float) -> float:
    return math.log(max(seconds / whole, LOWEST))


def _log(value: float) -> float:
    return math.log(max(value, 1e-3))


def describe_launch(
    launch: Launch, build: KernelBuild | None, device: Device, work: Work, constants: Constants, share: float
) -> tuple[float, dict[str, float]]:
    """(modelled seconds without the launch itself, features) of one launch."""
    assert launch.paced is not None
    parts = resource_seconds(launch, build, device, work, constants, share)
    seconds = combine(parts, constants)
    total, paced, ctas = launch.total, launch.paced, math.prod(launch.grid)
    resident = launch_occupancy(launch, build, device)
    waves = ctas / (device.sms * max(resident.blocks, 1))
    cycle_s = 1 / (device.sms * device.clock_hz)
    classes = dict(launch.classes)
    read, written = find_dram_bytes(launch, work, share, device)
    warps = max(resident.warps, 1)
    waits = wait_cycles(launch, build)
    found = {name: _share(parts[name], seconds) for name in parts}
    found |= {name: _share(classes.get(name, 0) / rate * cycle_s, seconds) for name, rate in PIPES.items()}
    found |= {
        "atomics": _share(
            sum(n for name, n in classes.items() if name.startswith("atomic")) / ATOMICS * cycle_s, seconds
        ),
        "barriers": _share(classes.get("barrier", 0) / WARP / warps * BARRIER_CYCLES * cycle_s, seconds),
        "async copies": _share(classes.get("async copy", 0) * cycle_s, seconds),
        "written": written / max(read + written, 1.0),
        "seconds": math.log(seconds),
        "warps": _log(resident.warps),
        "CTAs per SM": _log(resident.blocks),
        "waves": _log(waves),
        "tail": math.ceil(waves) / waves if waves > 1 else 1.0,
        "filled": _log(min(waves, 1.0)),
        "threads": _log(math.prod(launch.block)),
        "cluster": _log(math.prod(launch.cluster)),
        "wgmma": float(paced.wgmma),
        "matrix": float(bool(launch.tensor_flops)),
        "access": _log((total.global_read_bytes + total.global_write_bytes) / max(total.global_requests, 1) / WARP),
        "sectors per request": _log(total.global_sectors / max(total.global_requests, 1)),
        "cycles": _log(paced.cycles),
        "shared bytes": _log(launch.dynamic_shared_bytes / 1024 + 0.1),
        "registers": _log(build.registers or WARP if build else WARP),
        "local frame": math.log1p((build.spill_bytes or 0) / 16 if build else 0.0),
        "trips": _log(waits / max(paced.cycles, 1.0) + LOWEST),
        "in order": _log((waits + CYCLES * paced.issue / count_warps(launch)) / max(paced.cycles, 1.0))
        if waits
        else 0.0,
        "L1 hits": 1 - paced.l1_missed / max(paced.l1_sectors, 1),
        "in flight": _log(read / seconds * LATENCY_S / SECTOR / (device.sms * warps) + LOWEST),
    }
    return seconds, found


def average(described: Sequence[tuple[float, dict[str, float]]]) -> dict[str, float]:
    """Features of a call from (seconds, features) of its launches, of which there is at least one."""
    whole = sum(seconds for seconds, _ in described)
    found = {name: sum(seconds * each[name] for seconds, each in described) / whole for name in described[0][1]}
    return {**found, "launches": math.log(len(described))}
