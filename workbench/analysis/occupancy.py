"""Occupancy from registers, shared memory and block size, with the allocation units of the CUDA programming guide for
compute capability 8.0 to 9.0.
"""

from __future__ import annotations

from workbench.analysis.devices import Device
from workbench.records import KernelBuild, Launch, record

WARP = 32
REGISTER_UNIT = 256  # registers are allocated per warp in units of 256
SHARED_RESERVED = 1024  # bytes per CTA that the system uses
SHARED_UNIT = 128


@record
class Occupancy:
    """Resident CTAs and warps per SM, their share of the SM's threads, and the resource that limits them."""

    blocks: int
    warps: int
    fraction: float
    limiter: str


def ctas_by_resource(device: Device, *, threads: int, registers: int | None, shared_bytes: int) -> dict[str, int]:
    """For each resource of an SM that a CTA of `threads` threads uses: how many such CTAs it allows at once."""
    warps = -(-threads // WARP)
    found = {"threads": device.threads_per_sm // (warps * WARP), "CTAs": device.blocks_per_sm}
    if registers:
        per_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
        found["registers"] = device.registers_per_sm // (per_warp * warps)
    if shared_bytes:
        unit = -(-(shared_bytes + SHARED_RESERVED) // SHARED_UNIT) * SHARED_UNIT
        found["shared memory"] = device.shared_bytes_per_sm // unit
    return found


def occupancy(device: Device, *, threads: int, registers: int | None, shared_bytes: int) -> Occupancy:
    """How many CTAs of `threads` threads fit on one SM at once. `registers` are per thread, None if unknown."""
    warps = -(-threads // WARP)
    found = ctas_by_resource(device, threads=threads, registers=registers, shared_bytes=shared_bytes)
    limiter = min(found, key=lambda key: found[key])
    blocks = found[limiter]
    return Occupancy(
        blocks=blocks, warps=blocks * warps, fraction=blocks * warps * WARP / device.threads_per_sm, limiter=limiter
    )


def launch_occupancy(launch: Launch, build: KernelBuild | None, device: Device) -> Occupancy:
    """Occupancy of a launch, static shared memory included."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    shared = launch.dynamic_shared_bytes + (build.static_shared_bytes if build else 0)
    return occupancy(device, threads=threads, registers=build.registers if build else None, shared_bytes=shared)
