"""Reads the state of the GPU by NVML: clocks, power, temperature, throttling, other processes.

The parent's process reads it; it has no CUDA context. No setting is ever changed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import psutil

from workbench.executors.gpu.presence import Gpu, find_gpu
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


def device_handle(nvml: Any, gpu: Gpu) -> Any:
    """NVML's handle of a GPU: of the whole one for a MIG instance, because it has the clocks and the power.

    NVML numbers all GPUs of the machine in the order of the bus, CUDA the visible ones in its own.
    """
    try:
        return nvml.nvmlDeviceGetHandleByPciBusId(gpu.bus_id)
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)


def process_handle(nvml: Any, gpu: Gpu) -> Any:
    """NVML's handle for the processes of a GPU: a MIG instance has its own."""
    if gpu.uuid.startswith("MIG-"):
        with contextlib.suppress(nvml.NVMLError):
            return nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
    return device_handle(nvml, gpu)


def memory_bytes() -> int | None:
    """Total memory of the GPU at hand; None without one."""
    found = find_gpu()
    return None if isinstance(found, str) else found.attributes.memory_bytes


def driver_version() -> str:
    """The version of NVIDIA's driver; "" without NVML."""
    nvml, _ = _nvml()
    return str(nvml.nvmlSystemGetDriverVersion()) if nvml is not None else ""


def describe_limits(gpu: Gpu) -> str:
    """Power limit and largest SM clock of a GPU, as nvidia-smi writes them; what NVML does not tell is left out."""
    nvml, _ = _nvml()
    found = []
    if nvml is not None:
        with contextlib.suppress(nvml.NVMLError):
            handle = device_handle(nvml, gpu)
            found.append(f"{nvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000:.2f} W")
            found.append(f"{nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)} MHz")
    return ", ".join(found)


def count_others(seen: Collection[int], ours: Collection[int], contexts: int) -> int | None:
    """Number of processes on the device that are not ours and take no turns with us; None if it is unknown.

    Processes are compared by id if one of ours is among them. Else the ids are of another namespace, and all processes
    beyond our `contexts` count.
    """
    if set(seen) & set(ours):
        return sum(not takes_turns(pid) for pid in set(seen) - set(ours))
    if not seen:
        return None if contexts else 0
    return max(len(seen) - contexts, 0)


def takes_turns(pid: int) -> bool:
    """Whether a process is another one of the workbench and of this user, which waits while we time (turns.py)."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return process.uids().real == os.getuid() and any(map(_is_ours, process.cmdline()))
    return False


def _is_ours(word: str) -> bool:
    """Whether a word of a command is a module of the workbench (a worker, a calibration) or its command."""
    return word == "workbench" or word.startswith("workbench.") or Path(word).name == "cutegen"


def observer(
    gpu: Gpu, ours: Callable[[], Collection[int]], contexts: Callable[[], int]
) -> Callable[[], DeviceState | None]:
    """A function that reads the state of a GPU, or returns None without NVML.

    `ours` returns the ids of our processes, `contexts` the number of those with a CUDA context.
    """
    nvml, _ = _nvml()
    start = time.perf_counter()
    if nvml is None:
        return lambda: None
    try:
        handle, processes = device_handle(nvml, gpu), process_handle(nvml, gpu)
    except nvml.NVMLError:
        return lambda: None

    def ask(name: str, *arguments: Any, of: Any = handle) -> Any:
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            return getattr(nvml, name)(of, *arguments)
        return None

    def look() -> DeviceState:
        power, use, running = (
            ask("nvmlDeviceGetPowerUsage"),
            ask("nvmlDeviceGetUtilizationRates"),
            ask("nvmlDeviceGetComputeRunningProcesses", of=processes),
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
