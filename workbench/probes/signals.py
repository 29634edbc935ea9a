"""How busy a kernel keeps each resource of the GPU, from counts and a time; the same for every source of a profile.

    busy[resource]   the least seconds that the resource needs for the kernel's counts, over the kernel's seconds
    CTA launch       the time model's seconds to start the grid's CTAs, one after another
    latency          the rest: what the k-norm of the busy resources leaves of the time (analysis/time_model/terms.py)

A resource near 1 limits the kernel. If none is, warps wait: for memory, for barriers, or because there are too few.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from workbench.analysis import devices
from workbench.analysis.devices import Device
from workbench.analysis.time_model import fitted_model
from workbench.analysis.time_model.terms import LANES, SCHEDULERS, dram_rate
from workbench.records import KernelMetrics, Profile, record

LATENCY = "latency"
CTA_LAUNCH = "CTA launch"
WARPGROUPS = re.compile(r"warpgroup|wgmma")
MANY_REGISTERS = 96  # of a thread (KernelPro's trigger)
LOW_OCCUPANCY = 0.5  # KernelPro's trigger
SPILLED = 0.01  # share of local accesses among the instructions (inferred)
OPERAND_BYTES = {"tfloat32": 4, "float32": 4, "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1}  # of an element, else 2
WAITS = 0.5  # share of latency in the time from which waiting is worth an advice (inferred)
MEMORY_STALLS = ("long_scoreboard", "lg_throttle", "memory")
MEMORY = ("DRAM", "L2", "L1", "shared memory")
COMPUTE = ("tensor cores", "fp32", "issue")


@record
class Signals:
    """One kernel of a profile, with the shares of its time."""

    metrics: KernelMetrics
    device: Device
    seconds: float
    share: float  # of the call's seconds
    busy: Mapping[str, float]

    def gain(self, factors: Mapping[str, float]) -> float:
        """How many times faster the call would be if the resources were busy `factors` times as long."""
        norm = fitted_model().constants.norm
        after = sum((part * factors.get(name, 1.0)) ** norm for name, part in self.busy.items()) ** (1 / norm)
        before = sum(part**norm for part in self.busy.values()) ** (1 / norm)
        left = after / before if before else 1.0
        return 1 / (1 - self.share * (1 - left)) if left < 1 else 1.0

    @property
    def busiest(self) -> tuple[str, float]:
        """The busiest resource and its share; latency and the launch of CTAs do not count."""
        units = (item for item in self.busy.items() if item[0] not in (LATENCY, CTA_LAUNCH))
        return max(units, key=lambda item: item[1])

    @property
    def waiting(self) -> float:
        """The share of latency."""
        return self.busy[LATENCY]

    def explained_waiting(self, name: str) -> float:
        """The part of the waiting that a resource can explain: none if it is idle, all if it is busy half the time."""
        return min(2 * self.busy[name], 1.0)

    @property
    def on_slow_path(self) -> bool:
        """Whether it uses Hopper's tensor cores by mma.sync: `tensor_cores` advises to change the whole path."""
        return self.device.arch == "sm_90a" and bool(self.metrics.tensor_flops) and self.metrics.wgmma is False

    @property
    def pressed(self) -> bool:
        """Whether registers keep warps off the SM: more of them for each thread leave room for fewer threads."""
        metrics = self.metrics
        many = (metrics.registers or 0) > MANY_REGISTERS and metrics.limiter == "registers" and not metrics.wgmma
        return many and metrics.theoretical_occupancy is not None and metrics.theoretical_occupancy < LOW_OCCUPANCY

    @property
    def spilled(self) -> float:
        """The share of local accesses among the instructions."""
        local, executed = self.metrics.local_requests or 0.0, self.metrics.warp_instructions or 0.0
        return local / (local + executed) if executed else 0.0

    @property
    def operand_uses(self) -> float | None:
        """How often the tensor cores use an operand's element that comes from L2; None if they or L2 are idle. For CTAs
        with tiles of m x n it is m n / (m + n).
        """
        words = sum(flops * OPERAND_BYTES.get(dtype, 2) / 2 for dtype, flops in self.metrics.tensor_flops)
        return words / self.metrics.l2_bytes if words and self.metrics.l2_bytes else None

    def stall_share(self, *reasons: str) -> float:
        """The share of the warps' waiting that has one of these reasons; 0 if nothing is known of it."""
        whole = sum(amount for _, amount in self.metrics.stalls)
        return sum(amount for name, amount in self.metrics.stalls if name in reasons) / whole if whole else 0.0


def read_signals(profile: Profile, source: str = "") -> tuple[Signals, ...]:
    """The kernels of a profile whose time is known, in the order of their launches. Whether a kernel uses warpgroups on
    tensor cores is taken from the names in its source where the profile does not say it.
    """
    device = devices.find(profile.device)
    timed = [(_with_wgmma(kernel, source), seconds) for kernel in profile.kernels if (seconds := seconds_of(kernel))]
    whole = sum(seconds for _, seconds in timed)
    return tuple(
        Signals(
            metrics=kernel, device=device, seconds=seconds, share=seconds / whole, busy=_busy(kernel, seconds, device)
        )
        for kernel, seconds in timed
    )


def _with_wgmma(kernel: KernelMetrics, source: str) -> KernelMetrics:
    if kernel.wgmma is not None or not kernel.tensor_flops or not source:
        return kernel
    return replace(kernel, wgmma=WARPGROUPS.search(source) is not None)


def seconds_of(kernel: KernelMetrics) -> float | None:
    """Measured seconds of a kernel, else modelled ones."""
    return kernel.duration_s if kernel.duration_s is not None else kernel.modelled_s


def _busy(kernel: KernelMetrics, seconds: float, device: Device) -> dict[str, float]:
    cycles = seconds * device.sms * device.clock_hz
    l2_rate = device.l2_bandwidth or fitted_model().constants.l2_rate * device.bandwidth
    tensor = sum(flops / device.peak(dtype, tensor_cores=True) for dtype, flops in kernel.tensor_flops)
    single = max((kernel.flops or 0.0) - sum(flops for _, flops in kernel.tensor_flops), 0.0)
    found = {
        "DRAM": _sum((kernel.dram_read_bytes, kernel.dram_write_bytes)) / dram_rate(device) / seconds,
        "L2": (kernel.l2_bytes or 0.0) / l2_rate / seconds,
        "L1": max(2 * (kernel.l1_requests or 0.0), (kernel.l1_bytes or 0.0) / 128) / cycles,
        "shared memory": (kernel.shared_wavefronts or 0.0) / cycles,
        "tensor cores": tensor / seconds,
        "fp32": single / (2 * LANES) / cycles,
        "issue": (kernel.warp_instructions or 0.0) / SCHEDULERS / cycles,
        CTA_LAUNCH: math.prod(kernel.grid) * fitted_model().constants.cta_s / seconds,
    }
    found = {name: min(part, 1.0) for name, part in found.items()}
    norm = fitted_model().constants.norm
    return {**found, LATENCY: max(1 - sum(part**norm for part in found.values()), 0.0) ** (1 / norm)}


def _sum(values: Sequence[float | None]) -> float:
    return sum(value for value in values if value is not None)
