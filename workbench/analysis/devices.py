"""GPUs by name: peak rates and limits from the data sheets, with the rates that were measured (calibration.py) beside
them. A bound uses the data sheet.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from dataclasses import replace
from pathlib import Path

from workbench.analysis import calibration
from workbench.analysis.device_table import DEVICES, Device
from workbench.errors import UserError, WorkbenchError
from workbench.wire import from_plain, to_plain

__all__ = [
    "ARCHES",
    "Device",
    "add_calibration",
    "check_arch",
    "default_arch",
    "find",
    "is_same",
    "match",
    "names",
    "remember",
    "runs",
]

ARCHES = ("sm_80", "sm_90a")  # architectures that kernels are written and compiled for


def names() -> tuple[str, ...]:
    """The names of all devices."""
    return tuple(device.name for device in DEVICES)


def find(name: str) -> Device:
    """Returns the device called `name`, as in the table or as its driver says, with its measured rates.

    Case, spaces and hyphens do not matter. A GPU that is not in the table is found if this user's machine had it
    (`remember`). Raises `UserError` with the known names.
    """
    device = match(name) or _remembered(name)
    if device is None:
        raise UserError(f"no device is called {name!r}; there are: {', '.join(names())}")
    return add_calibration(device, calibration.find(device.name))


@functools.cache
def match(name: str) -> Device | None:
    """The device of the table that a driver's name stands for: "NVIDIA H100 80GB HBM3" is the H100.

    All words of the device must be there in order, and no other word but those of `_COMMON`. So an "RTX A1000" is no
    A100, a "GH200" no H200, and an "RTX 4090 Laptop GPU" no RTX4090. Of several, the one with the most words is taken.
    """
    said = _words(name)
    found = [(len(words), device) for device in DEVICES if (words := _words(device.name)) and _stands_for(said, words)]
    return max(found, key=lambda item: item[0])[1] if found else None


_COMMON = {
    "nvidia",
    "geforce",
    "tesla",
    "graphics",
    "device",
    "sxm",
    "sxm2",
    "sxm4",
    "sxm5",
    "sxm6",
    "hbm2e",
    "hbm3",
    "hbm3e",
}
_MEMORY = re.compile(r"\d+gb")


def _words(name: str) -> list[str]:
    spaced = re.sub(r"(?i)(rtx)\s*(\d)", r"\1 \2", name)
    return re.findall(r"[a-z0-9]+", spaced.lower())


def _stands_for(said: list[str], words: list[str]) -> bool:
    rest = list(said)
    for word in words:
        if word not in rest:
            return False
        rest.remove(word)
    return all(word in _COMMON or _MEMORY.fullmatch(word) for word in rest)


def is_same(one: str, other: str) -> bool:
    """Whether two names, of the table or of a driver, stand for the same GPU."""
    found = [match(name) for name in (one, other)]
    return one == other or (found[0] is not None and found[0] == found[1])


def runs(device: str, arch: str) -> bool:
    """Whether a device runs code for an architecture: its own, or an older one without a suffix.

    sm_80 runs on everything from Ampere on, sm_90a only on Hopper.
    """
    own = find(device).arch
    return arch == own or (not arch.endswith("a") and _generation(arch) <= _generation(own))


def default_arch(preferred: str, device: str) -> str:
    """`preferred` where the device runs it, else the newest of ARCHES that it runs."""
    own = find(device).arch
    if preferred.endswith("a") and preferred != own:
        return own if own in ARCHES else ARCHES[0]
    return preferred


def check_arch(device: str, arch: str) -> None:
    """Raise `UserError` for an unknown device, and for an architecture that it does not run."""
    if not runs(device, arch):
        found = find(device)
        raise UserError(
            f"--arch {arch} is not for the {found.name}, which is {found.arch}: leave --arch out, "
            "or name a device that has it"
        )


def _generation(arch: str) -> int:
    return int(re.sub(r"\D", "", arch) or 0)


def user_folder() -> Path:
    """The folder for devices that are not in the table, beside the user's calibrations."""
    return calibration.user_folder().parent / "devices"


def remember(device: Device) -> None:
    """Store a device that is not in the table, so that its sessions open later. A read-only folder is no error."""
    if match(device.name) is None:
        _HERE[device.name] = device
        with contextlib.suppress(OSError):
            user_folder().mkdir(parents=True, exist_ok=True)
            (user_folder() / calibration.file_name(device.name)).write_text(
                json.dumps(to_plain(device), indent=1) + "\n"
            )


_HERE: dict[str, Device] = {}  # devices of this machine that are not in the table


def _remembered(name: str) -> Device | None:
    if name in _HERE:
        return _HERE[name]
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, WorkbenchError):
        return from_plain(json.loads((user_folder() / calibration.file_name(name)).read_text()), Device)
    return None


def add_calibration(device: Device, found: calibration.Calibration | None) -> Device:
    """Returns the device with its measured rates. The copy rate is at most the data sheet's bandwidth."""
    if found is None:
        return device
    copy = found.rate("copy")
    return replace(
        device,
        copy_bandwidth=None if copy is None else min(copy, device.bandwidth),
        l2_bandwidth=found.rate("l2"),
        shared_bandwidth=found.rate("shared"),
        measured=found.matmul_rates,
        measured_on=found.summary,
    )
