"""Occupancy from registers, shared memory and block size (allocation units from the CUDA programming guide, cc 8.0 to 9.0)."""

from __future__ import annotations

from workbench.analysis.devices import Device
from workbench.records import record

WARP = 32
REGISTER_UNIT = 256  # registers are allocated per warp in units of 256
SHARED_RESERVED = 1024  # the system's share per CTA
SHARED_UNIT = 128


@record
class Occupancy:
    """Resident CTAs and warps per SM, and what limits them."""

    blocks: int
    warps: int
    fraction: float
    limiter: str


def limits(device: Device, *, threads: int, registers: int | None, shared_bytes: int) -> dict[str, int]:
    """What a CTA of `threads` threads needs of an SM -> how many CTAs that allows at once."""
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
    """How many CTAs of `threads` threads fit on one SM at once."""
    warps = -(-threads // WARP)
    found = limits(device, threads=threads, registers=registers, shared_bytes=shared_bytes)
    limiter = min(found, key=lambda key: found[key])
    blocks = found[limiter]
    return Occupancy(
        blocks=blocks, warps=blocks * warps, fraction=blocks * warps * WARP / device.threads_per_sm, limiter=limiter
    )
