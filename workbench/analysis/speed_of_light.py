"""The bound: max(FLOPs / peak, least bytes / bandwidth) (muCUTLASS paper, section 2.3 in our notes: perfect caching, fully fused)."""

from __future__ import annotations

from workbench.analysis.devices import Device
from workbench.records import Bound, Work


def bound(work: Work, device: Device) -> Bound:
    """The least time in seconds in which `device` could do `work`, and which side limits it."""
    peak = device.peak(work.dtype, tensor_cores=work.tensor_cores)
    compute, memory = work.flops / peak, work.least_bytes / device.bandwidth
    return Bound(
        case=work.case, device=device.name, flops=work.flops, least_bytes=work.least_bytes, peak_flops=peak, bandwidth=device.bandwidth,
        compute_s=compute, memory_s=memory, bound_s=max(compute, memory), limited_by="compute" if compute > memory else "memory",
        intensity=work.flops / work.least_bytes if work.least_bytes else 0.0, ridge=peak / device.bandwidth, rates=device.rates,
    )  # fmt: skip
