"""The device of a GPU's own attributes: its row of the table, or rates that are computed from clocks and widths."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.analysis import devices
from workbench.analysis.device_table import Device

# FP32 FMAs of an SM in a cycle, and dense 16-bit FMAs with fp32 accumulation of its tensor cores, by compute capability
# (CUDA programming guide, arithmetic instructions; architecture papers). GeForce has half of the second at 8.6 and 8.9,
# which the name tells.
_PER_SM = {(8, 0): (64, 1024), (8, 6): (128, 512), (8, 7): (128, 512), (8, 9): (128, 512), (9, 0): (128, 2048)}
_BLACKWELL, _LATER = (128, 4096), (128, 512)  # 10.x; 12.x and unknown ones (inferred)
MEMORY_MARGIN, CLOCK_MARGIN = 0.15, 0.15  # a row of the table is taken only if memory and bandwidth agree so far


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAttributes:
    """What CUDA's driver says of a GPU: clocks in Hz, sizes in bytes."""

    name: str
    major: int
    minor: int
    sms: int
    clock_hz: float
    memory_clock_hz: float
    bus_bits: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    registers_per_sm: int
    threads_per_sm: int
    blocks_per_sm: int

    @property
    def bandwidth(self) -> float:
        """Bytes/s: two transfers a cycle over the bus."""
        return 2 * self.memory_clock_hz * self.bus_bits / 8


def describe_device(found: GpuAttributes) -> Device:
    """The device of these attributes: the row of the table with that name if it has as many SMs, about as much memory
    and bandwidth; else one with computed rates, which says so in `source`. Measured rates are not added.
    """
    known = devices.match(found.name)
    return known if known is not None and _agrees(known, found) else _compute_device(found)


def _agrees(known: Device, found: GpuAttributes) -> bool:
    memory = abs(found.memory_bytes / known.memory_bytes - 1) <= MEMORY_MARGIN
    bandwidth = found.bandwidth == 0 or abs(found.bandwidth / known.bandwidth - 1) <= CLOCK_MARGIN
    return known.sms == found.sms and memory and bandwidth


def _compute_device(found: GpuAttributes) -> Device:
    cores, products = _PER_SM.get((found.major, found.minor), _BLACKWELL if found.major == 10 else _LATER)
    if "GeForce" in found.name and (found.major, found.minor) in ((8, 6), (8, 9)):
        products //= 2
    each_cycle = 2 * found.sms * found.clock_hz
    fp32, fp16 = each_cycle * cores, each_cycle * products
    is_data_centre = found.major in (9, 10)
    return Device(
        name=found.name.removeprefix("NVIDIA ").strip(),
        arch=f"sm_{found.major}{found.minor}" + ("a" if found.major >= 9 else ""),
        sms=found.sms,
        clock_hz=found.clock_hz,
        bandwidth=found.bandwidth,
        memory_bytes=found.memory_bytes,
        l2_bytes=found.l2_bytes,
        shared_bytes_per_sm=found.shared_bytes_per_sm,
        shared_bytes_per_block=found.shared_bytes_per_block,
        registers_per_sm=found.registers_per_sm,
        threads_per_sm=found.threads_per_sm,
        blocks_per_sm=found.blocks_per_sm,
        fp64=fp32 if (found.major, found.minor) == (8, 0) or is_data_centre else fp32 / 64,
        fp32=fp32,
        tf32=fp16 / 2,
        fp16=fp16,
        fp8=2 * fp16 if (found.major, found.minor) >= (8, 9) else fp16,
        int8=2 * fp16,
        half_vector=4 * fp32 if (found.major, found.minor) == (8, 0) else 2 * fp32 if is_data_centre else fp32,
        source="computed from clocks, bus width and SMs",
    )
