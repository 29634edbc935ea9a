"""The bound: max(FLOPs / peak, least bytes / bandwidth) (muCUTLASS paper, section 2.3: perfect caching, fully fused).

Three times from the same work, so that each number has one purpose:

    bound_s       data-sheet rates for the problem's own precision: the speed of light that fractions refer to
    floor_s       the most permissive data-sheet rates: no correct kernel is faster, so a time well under it is suspect
    attainable_s  rates measured on this device, which a very good kernel reaches; None where none were measured
"""

from __future__ import annotations

from workbench.analysis.devices import Device
from workbench.records import Bound, Work


def bound(work: Work, device: Device) -> Bound:
    """The least time in seconds in which `device` could do `work`, and the side that limits it."""
    peak = device.peak(work.dtype, tensor_cores=work.tensor_cores)
    compute, memory = work.flops / peak, work.least_bytes / device.bandwidth
    floor = max(work.flops / device.highest_peak(work.dtype, tensor_cores=work.tensor_cores), memory)
    return Bound(
        case=work.case,
        device=device.name,
        flops=work.flops,
        least_bytes=work.least_bytes,
        peak_flops=peak,
        bandwidth=device.bandwidth,
        compute_s=compute,
        memory_s=memory,
        bound_s=max(compute, memory),
        limited_by="compute" if compute > memory else "memory",
        intensity=work.flops / work.least_bytes if work.least_bytes else 0.0,
        ridge=peak / device.bandwidth,
        rates=device.rates,
        floor_s=floor,
        attainable_s=_attainable(work, device, compute),
        dtype=work.dtype,
    )


def _attainable(work: Work, device: Device, compute: float) -> float | None:
    """The bound in seconds at the measured rates, the data sheet's where a matrix product was not measured; None
    without a measured copy rate (calibration.py).
    """
    if device.copy_bandwidth is None:
        return None
    rate = device.attainable_rate(work.dtype, tensor_cores=work.tensor_cores)
    return max(work.flops / rate if rate else compute, work.least_bytes / device.copy_bandwidth)
