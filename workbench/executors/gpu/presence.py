"""The GPU of this machine, by CUDA's driver, without torch and without CUDA in this process.

Worker processes are forked, and a process that has started CUDA must not be; so a short process of its own asks.
CUDA_VISIBLE_DEVICES is heeded: the first visible GPU is the one that is used.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys

from workbench.analysis import devices
from workbench.analysis.device_attributes import GpuAttributes, describe_device
from workbench.analysis.devices import Device

# attributes of cuda.h (CUdevice_attribute) by the field of `GpuAttributes`, with their unit in Hz or bytes
ATTRIBUTES = {
    "major": (75, 1),
    "minor": (76, 1),
    "sms": (16, 1),
    "clock_hz": (13, 1000),
    "memory_clock_hz": (36, 1000),
    "bus_bits": (37, 1),
    "l2_bytes": (38, 1),
    "shared_bytes_per_sm": (81, 1),
    "shared_bytes_per_block": (97, 1),
    "registers_per_sm": (82, 1),
    "threads_per_sm": (39, 1),
    "blocks_per_sm": (106, 1),
}
ASK = """
import ctypes, json, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, value, size, name = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
for status in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuDeviceGetName(name, 256, device),
               cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device)):
    if status:
        sys.exit(f"CUDA error {status}")
said = {"name": name.value.decode(), "memory_bytes": size.value}
for field, (number, unit) in json.loads(sys.argv[1]).items():
    cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
    said[field] = value.value * unit
print(json.dumps(said))
"""


@functools.cache
def read_attributes() -> GpuAttributes | str:
    """The attributes of CUDA's first visible device, or a phrase that says why there is none."""
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA driver was found (nvidia-smi is not on the path)"
    try:
        done = subprocess.run(
            [sys.executable, "-S", "-c", ASK, json.dumps(ATTRIBUTES)], capture_output=True, text=True, timeout=60
        )
    except subprocess.TimeoutExpired:
        return "the NVIDIA driver does not answer"
    if done.returncode:
        why = next(iter(done.stderr.strip().splitlines()[-1:]), "it gave no reason")
        return f"the NVIDIA driver finds no GPU ({why})"
    return GpuAttributes(**json.loads(done.stdout))


def why_no_gpu() -> str | None:
    """None if there is a GPU, else a phrase that says why none can be used."""
    found = read_attributes()
    return found if isinstance(found, str) else None


@functools.cache
def device_at_hand() -> Device | None:
    """The GPU of this machine as a device with its own name and rates; None if there is none."""
    found = read_attributes()
    if isinstance(found, str):
        return None
    device = describe_device(found)
    devices.remember(device)
    return device
