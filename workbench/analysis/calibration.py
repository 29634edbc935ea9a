"""Ceilings measured on a device by `cutegen calibrate`, stored as JSON. Some are shipped; those that a user measured
come before them.

Names of rates: "copy" (device to device, bytes read plus written), "read" and "write" (memory, one way), "l2", "shared"
(bytes/s read by all SMs), "matmul DTYPE" (FLOP/s on random normal data, int8 in operations/s), "launch torch", "launch
cute" (seconds of the host for one call).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from workbench.errors import UserError, WorkbenchError
from workbench.records import record
from workbench.wire import from_plain, to_plain

SHIPPED = Path(__file__).parent / "calibrations"
SCHEMA = 1
LARGEST_BYTES = 1 << 20


@record
class Rate:
    """One ceiling: its median, the 95 % interval where it was stored, and the kernel or call that reached it (`by`)."""

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    by: str = ""


@record
class Calibration:
    """The rates measured on one device, with the date and the software versions."""

    device: str
    date: str  # ISO, UTC
    gpu: str = ""
    driver: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    rates: tuple[Rate, ...] = ()
    notes: tuple[str, ...] = ()

    def rate(self, name: str) -> float | None:
        """Returns the value of a rate; None where it was not measured."""
        return next((item.value for item in self.rates if item.name == name), None)

    @property
    def matmul_rates(self) -> tuple[tuple[str, float], ...]:
        """Pairs of torch dtype name and FLOP/s of a matrix product."""
        return tuple(
            (item.name.removeprefix("matmul "), item.value) for item in self.rates if item.name.startswith("matmul ")
        )

    @property
    def summary(self) -> str:
        """The day and the software versions as one phrase."""
        software = ", ".join(
            f"{name} {version}" for name, version in (("driver", self.driver), *self.versions) if version
        )
        return f"{self.date[:10]}, {software}" if software else self.date[:10]


def user_folder() -> Path:
    """The folder for a user's own calibrations: $XDG_DATA_HOME/cutegen/calibrations, else
    ~/.local/share/cutegen/calibrations. A relative XDG_DATA_HOME is ignored, as the XDG specification demands.
    """
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".local" / "share") / "cutegen" / "calibrations"


def file_name(device: str) -> str:
    """The file name for a device."""
    return "".join(letter if letter.isalnum() else "-" for letter in device.lower()) + ".json"


def save(found: Calibration, path: Path | None = None) -> Path:
    """Write a calibration to the user's folder, or to `path`. The write is atomic. Raises `UserError` if it fails."""
    target = path or user_folder() / file_name(found.device)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        temporary.write_text(json.dumps({"schema": SCHEMA, "calibration": to_plain(found)}, indent=1) + "\n")
        os.replace(temporary, target)
    except OSError as error:
        raise UserError(f"the calibration cannot be stored at {target}: {error.strerror or error}") from None
    return target


def load(path: Path) -> Calibration:
    """Read a calibration file. Raises `UserError` if it cannot be read or is not a calibration."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ValueError("it is too large")
        data = json.loads(path.read_text())
        if data["schema"] > SCHEMA:
            raise ValueError("it was written by a newer workbench")
        return from_plain(data["calibration"], Calibration)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, WorkbenchError) as error:
        raise UserError(f"{path} is no calibration ({error}); remove it and run cutegen calibrate again") from None


_cache: dict[Path, tuple[tuple[int, int], Calibration]] = {}


def _read(path: Path) -> Calibration | None:
    """Reads the file's calibration, from memory unless the file has changed; None where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    stamp = (status.st_mtime_ns, status.st_size)
    if path not in _cache or _cache[path][0] != stamp:
        _cache[path] = (stamp, load(path))
    return _cache[path][1]


def find(device: str) -> Calibration | None:
    """Returns the calibration of a device: the user's own, else the shipped one, else None."""
    return _read(user_folder() / file_name(device)) or _read(SHIPPED / file_name(device))


def load_all() -> tuple[tuple[Path, Calibration], ...]:
    """Loads all calibrations, the user's own first."""
    paths = [*sorted(user_folder().glob("*.json")), *sorted(SHIPPED.glob("*.json"))]
    return tuple((path, load(path)) for path in paths)
