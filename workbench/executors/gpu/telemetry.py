"""Reads the state of the GPU by NVML: clocks, power, temperature, throttling, other processes.

The parent's process reads it; it has no CUDA context. No setting is ever changed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Collection
from typing import Any

from workbench.records import DeviceState

# bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h, nvmlClocksEventReasons)
REASONS = ((0x4, "power_cap"), (0x8, "hardware_slowdown"), (0x20, "thermal"), (0x40, "thermal"), (0x80, "power_brake"))


@functools.cache
def _nvml() -> tuple[Any, str]:
    """(pynvml, "") once it is initialised, or (None, why not)."""
    try:
        import pynvml
    except ImportError:
        return (
            None,
            "clocks, power and temperature were not recorded: pynvml is not installed (pip install nvidia-ml-py)",
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, f"clocks, power and temperature were not recorded: NVML said {error}"
    return pynvml, ""


def why_not() -> str:
    """Why the state cannot be read here; "" if it can."""
    return _nvml()[1]


def device_handle(nvml: Any, visible: str) -> Any:
    """NVML's handle of CUDA's first device: CUDA_VISIBLE_DEVICES names devices by number or by UUID."""
    first = visible.split(",")[0].strip()
    if first.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(first)
    return nvml.nvmlDeviceGetHandleByIndex(int(first) if first.isdigit() else 0)


def memory_bytes() -> int | None:
    """Total memory of CUDA's first device; None without NVML."""
    nvml, _ = _nvml()
    if nvml is None:
        return None
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(device_handle(nvml, os.environ.get("CUDA_VISIBLE_DEVICES", ""))).total)
    except nvml.NVMLError:  # a MIG instance may refuse the question
        return None


def count_others(seen: Collection[int], ours: Collection[int], contexts: int) -> int | None:
    """Number of processes on the device that are not ours; None if it is unknown.

    Processes are compared by id if one of ours is among them. Else the ids are of another namespace, and all processes
    beyond our `contexts` count.
    """
    if set(seen) & set(ours):
        return len(set(seen) - set(ours))
    if not seen:
        return None if contexts else 0
    return max(len(seen) - contexts, 0)


def observer(ours: Callable[[], Collection[int]], contexts: Callable[[], int]) -> Callable[[], DeviceState | None]:
    """A function that reads the state of the device, or returns None without NVML.

    `ours` returns the ids of our processes, `contexts` the number of those with a CUDA context.
    """
    nvml, _ = _nvml()
    start = time.perf_counter()
    if nvml is None:
        return lambda: None
    try:
        handle = device_handle(nvml, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    except nvml.NVMLError:
        return lambda: None

    def ask(name: str, *arguments: Any) -> Any:
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            return getattr(nvml, name)(handle, *arguments)
        return None

    def look() -> DeviceState:
        power, use, running = (
            ask("nvmlDeviceGetPowerUsage"),
            ask("nvmlDeviceGetUtilizationRates"),
            ask("nvmlDeviceGetComputeRunningProcesses"),
        )
        bits = ask("nvmlDeviceGetCurrentClocksEventReasons") or ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        return DeviceState(
            at_s=time.perf_counter() - start,
            sm_clock_mhz=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            memory_clock_mhz=ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            power_w=power / 1000 if power is not None else None,
            temperature_c=ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            utilisation=use.gpu / 100 if use is not None else None,
            throttled=tuple(dict.fromkeys(name for bit, name in REASONS if bits & bit)),
            others=count_others([one.pid for one in running], ours(), contexts()) if running is not None else None,
        )

    return look
