"""The GPUs of this machine, by CUDA's driver, without torch and without CUDA in this process.

Worker processes are forked, and a process that has started CUDA must not be; so a short process of its own asks. It
sees what CUDA_VISIBLE_DEVICES lets it see, in CUDA's order: number N is torch's cuda:N. A process works on one of
these GPUs, the first one unless `select` chose another. Its UUID is what worker processes, NVML and locks get, because
a number means another GPU to each of them.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass

from workbench.analysis import devices
from workbench.analysis.device_attributes import GpuAttributes, describe_device
from workbench.analysis.devices import Device
from workbench.errors import Unavailable, UserError

VISIBLE = "CUDA_VISIBLE_DEVICES"
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
# cuDeviceGetUuid gives the UUID of the whole GPU, cuDeviceGetUuid_v2 that of a MIG instance if the device is one
ASK = """
import ctypes, json, sys
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit("libcuda.so.1 cannot be loaded")
device, value, count, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
name, bus = ctypes.create_string_buffer(256), ctypes.create_string_buffer(64)
whole, own = ctypes.create_string_buffer(16), ctypes.create_string_buffer(16)

def check(status):
    if status:
        sys.exit("there is none" if status == 100 else f"CUDA error {status}")

def uuid(raw):
    text = raw.raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

check(cuda.cuInit(0))
check(cuda.cuDeviceGetCount(ctypes.byref(count)))
found = []
for number in range(count.value):
    check(cuda.cuDeviceGet(ctypes.byref(device), number))
    check(cuda.cuDeviceGetName(name, 256, device))
    check(cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device))
    check(cuda.cuDeviceGetPCIBusId(bus, 64, device))
    check(cuda.cuDeviceGetUuid(whole, device))
    check((cuda.cuDeviceGetUuid_v2 if hasattr(cuda, "cuDeviceGetUuid_v2") else cuda.cuDeviceGetUuid)(own, device))
    said = {"name": name.value.decode(), "memory_bytes": size.value}
    for field, (attribute, unit) in json.loads(sys.argv[1]).items():
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        said[field] = value.value * unit
    kind = "GPU-" if whole.raw == own.raw else "MIG-"
    found.append({"uuid": kind + uuid(own), "bus_id": bus.value.decode(), "attributes": said})
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or a MIG instance of one: its number by CUDA, its UUID as CUDA_VISIBLE_DEVICES takes it."""

    number: int
    uuid: str  # "GPU-..." or "MIG-..."
    bus_id: str  # PCI, by which NVML finds the whole GPU
    attributes: GpuAttributes

    def __str__(self) -> str:
        return f"{self.number} ({self.attributes.name}, {self.uuid[:12]})"


_selected: list[Gpu] = []


@functools.cache
def list_gpus() -> tuple[Gpu, ...] | str:
    """CUDA's visible devices, at least one, or a phrase that says why there is none."""
    command = [sys.executable, "-I", "-S", "-c", ASK, json.dumps(ATTRIBUTES)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "the NVIDIA driver does not answer"
    why = next(iter(done.stderr.strip().splitlines()[-1:]), "it gave no reason")
    if "libcuda" in why:
        return f"no NVIDIA driver was found ({why})"
    said = json.loads(done.stdout) if done.returncode == 0 else []
    if not said:
        hidden = os.environ.get(VISIBLE)
        asked = f"; {VISIBLE} is {hidden!r}, which may hide it" if hidden is not None else ""
        return f"the NVIDIA driver finds no GPU ({why if done.returncode else 'there is none'}){asked}"
    return tuple(
        Gpu(number=n, uuid=one["uuid"], bus_id=one["bus_id"], attributes=GpuAttributes(**one["attributes"]))
        for n, one in enumerate(said)
    )


def select(asked: str) -> Gpu:
    """Work on the GPU with this number, or with a UUID that begins so, from now on, in this process and its children.

    Raises `UserError` with what there is, `Unavailable` without a GPU. CUDA that has started here keeps its GPU.
    """
    found = list_gpus()
    if isinstance(found, str):
        raise Unavailable(f"--gpu {asked}: {found}")
    wanted = asked.strip().lower()
    fitting = [one for one in found if wanted == str(one.number) or (wanted and one.uuid.lower().startswith(wanted))]
    if len(fitting) != 1:
        why = "several GPUs begin so" if fitting else "there is no such GPU"
        raise UserError(f"--gpu {asked}: {why}; there are: {', '.join(map(str, found))}")
    _selected[:] = fitting
    os.environ[VISIBLE] = fitting[0].uuid
    return fitting[0]


def find_gpu() -> Gpu | str:
    """The GPU that this process works on, or a phrase that says why there is none."""
    found = list_gpus()
    return found if isinstance(found, str) else _selected[0] if _selected else found[0]


def gpu_at_hand() -> Gpu:
    """The GPU that this process works on. Raises `Unavailable` if there is none."""
    found = find_gpu()
    if isinstance(found, str):
        raise Unavailable(found)
    return found


def gpus_to_use() -> tuple[Gpu, ...]:
    """The selected GPU, else all visible ones that are like the first one; () if there is none."""
    found = list_gpus()
    if isinstance(found, str):
        return ()
    return tuple(_selected) or tuple(one for one in found if one.attributes.name == found[0].attributes.name)


def why_no_gpu() -> str | None:
    """None if there is a GPU, else a phrase that says why none can be used."""
    found = find_gpu()
    return found if isinstance(found, str) else None


def device_at_hand() -> Device | None:
    """The GPU that this process works on as a device with its own name and rates; None if there is none."""
    found = find_gpu()
    return None if isinstance(found, str) else _remember_device(found.attributes)


@functools.cache
def _remember_device(attributes: GpuAttributes) -> Device:
    device = describe_device(attributes)
    devices.remember(device)
    return device
