"""A modelled time for one launch: the roofline of the device's data sheet.

    T = max(counted global bytes / bandwidth, counted FLOPs / peak, counted thread-instructions / (SMs * 128 * clock))

Bytes are those that the kernel's instructions request, whether a cache has them or not. The peak is that of fp16 on
tensor cores if the kernel has matrix instructions, else that of fp32; 128 is an SM's lanes (four schedulers, one
warp-instruction a cycle). Launch overhead, latency, occupancy and caches are left out, so the time is no estimate of a
measurement on a GPU: it shows an extra pass over memory, but proves no speed.
"""

from __future__ import annotations

from workbench.analysis.devices import Device
from workbench.records import Launch

TENSOR = "tensor core"
LANES = 128


def roofline_seconds(launch: Launch, device: Device) -> float:
    """Modelled seconds of a launch whose counters are on."""
    total = launch.total
    peak = device.fp16 if dict(launch.classes).get(TENSOR, 0) else device.fp32
    issue = total.instructions / (device.sms * LANES * device.clock_hz)
    return max((total.global_read_bytes + total.global_write_bytes) / device.bandwidth, total.flops / peak, issue)
