"""Loads of known behaviour on a GPU: what NVML's energy counter says against its power readings.

    python tests/bench/energy_load.py          one JSON line for each load; energy_on_gpu.py runs it
    python tests/bench/energy_load.py --dry-run     the same loads on the CPU, tiny, with a made-up counter: no joules

Idle with an open context; a product of two 8192 x 8192 matrices in bf16 without a pause; a copy of 1 GiB without a
pause; then the product for half of the time, in periods of 40 ms and of 230 ms. Of each: the slope of the counter in
watts, the means of NVML's power readings (`power_w`, of the last second or so, and `instant_w` where the driver has
it), joules of a call. The counter agrees with the meter if the slope of a steady load equals the mean of `instant_w`.
The correction for the duty cycle is right if the product costs as many joules when it runs half of the time as without
a pause, as far as the clock is the same.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench.profilers.energy import Counter, slope

RISE_S = 1.0  # left out of each load: NVML's filter
POWER_INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT, nvml.h


class Meter(threading.Thread):
    """Reads the counter and the power every 10 ms until `ended`."""

    def __init__(self, dry: bool) -> None:
        super().__init__(name="energy-meter", daemon=True)
        self.counter = None if dry else Counter()
        self.ended = threading.Event()
        self.joules: list[tuple[float, float]] = []
        self.readings: dict[str, list[tuple[float, float]]] = {"power_w": [], "instant_w": [], "sm_clock_mhz": []}

    def run(self) -> None:
        """Read until `ended`."""
        while not self.ended.wait(0.01):
            now = time.monotonic()
            if self.counter is None:
                self.joules.append((now, 100.0 * now))
                continue
            self.joules.append((now, self.counter.read()))
            nvml, handle = self.counter.nvml, self.counter.handle
            with contextlib.suppress(nvml.NVMLError):
                self.readings["power_w"].append((now, nvml.nvmlDeviceGetPowerUsage(handle) / 1000))
            with contextlib.suppress(nvml.NVMLError):
                clock = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
                self.readings["sm_clock_mhz"].append((now, clock))
            with contextlib.suppress(nvml.NVMLError, AttributeError):
                field = nvml.nvmlDeviceGetFieldValues(handle, [POWER_INSTANT])[0]
                if field.nvmlReturn == nvml.NVML_SUCCESS:
                    self.readings["instant_w"].append((now, field.value.uiVal / 1000))

    def describe(self, start: float, end: float) -> dict[str, Any]:
        """Watts by the counter's slope and means of the readings between two times."""
        found: dict[str, Any] = {"slope_w": slope(self.joules, start, end)}
        for name, readings in self.readings.items():
            kept = [value for at, value in readings if start <= at <= end]
            found[name] = statistics.fmean(kept) if kept else None
        changes = [b[0] for a, b in pairwise(self.joules) if b[1] != a[1]]
        steps = [b - a for a, b in pairwise(changes)]
        return {**found, "counter_step_s": statistics.median(steps) if steps else None}


class Device:
    """Runs calls and times them by events of the GPU, or by the clock for a dry run."""

    def __init__(self, dry: bool) -> None:
        self.dry = dry

    def batch(self, call: Callable[[], Any], count: int) -> float:
        """Seconds on the device of `count` calls, waited for."""
        if self.dry:
            begun = time.monotonic()
            for _ in range(count):
                call()
            return time.monotonic() - begun
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3


def run_load(
    meter: Meter,
    device: Device,
    name: str,
    call: Callable[[], Any],
    seconds: float,
    period_s: float | None,
    idle: float,
) -> dict[str, Any]:
    """One load: without a pause, or busy for half of each period."""
    one = max(device.batch(call, 3) / 3, 1e-6)
    count = max(1, round((period_s / 2 if period_s else 0.1) / one))
    calls, busy, begun = 0, 0.0, time.monotonic()
    since: float | None = None
    while (now := time.monotonic()) - begun < seconds:
        if since is None and now - begun >= RISE_S:
            since, calls, busy = now, 0, 0.0
        taken = device.batch(call, count)
        calls, busy = calls + count, busy + taken
        if period_s:
            time.sleep(max(0.0, period_s - (time.monotonic() - now)))
    end = time.monotonic()
    start = since if since is not None else begun
    found = meter.describe(start, end)
    duty = min(busy / (end - start), 1.0)
    power = found["slope_w"] or 0.0
    return {
        "kind": "load",
        "load": name,
        **found,
        "duty": duty,
        "calls": calls,
        "seconds_per_call": busy / calls,
        "uncorrected_joules": power * (end - start) / calls,
        "joules_per_call": (power - (1 - duty) * idle) * (end - start) / calls,
    }


def main() -> int:
    """Print one line for each load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true")
    dry = parser.parse_args().dry_run
    where, n, words = ("cpu", 64, 1 << 10) if dry else ("cuda", 8192, 1 << 28)
    dtype = torch.float32 if dry else torch.bfloat16
    a, b, c = (torch.randn(n, n, device=where).to(dtype) for _ in range(3))
    source = torch.randn(words, device=where)
    copied = torch.empty_like(source)
    meter, device = Meter(dry), Device(dry)
    scale = 0.4 if dry else 1.0
    device.batch(lambda: torch.mm(a, b, out=c), 3)
    meter.start()
    begun = time.monotonic()
    time.sleep(3 * scale)
    idle = meter.describe(begun + RISE_S * scale, time.monotonic())
    print(json.dumps({"kind": "load", "load": "idle", **idle}), flush=True)
    idle_w = idle["slope_w"] or 0.0
    loads: tuple[tuple[str, Callable[[], Any], float | None], ...] = (
        ("matmul", lambda: torch.mm(a, b, out=c), None),
        ("copy", lambda: copied.copy_(source), None),
        ("matmul half of 40 ms", lambda: torch.mm(a, b, out=c), 0.04),
        ("matmul half of 230 ms", lambda: torch.mm(a, b, out=c), 0.23),
        ("matmul", lambda: torch.mm(a, b, out=c), None),
    )
    for name, call, period in loads:
        print(json.dumps(run_load(meter, device, name, call, 5 * scale, period, idle_w)), flush=True)
        time.sleep(1.5 * scale)
    meter.ended.set()
    meter.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
