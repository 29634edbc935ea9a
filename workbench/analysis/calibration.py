"""Ceilings measured on a device (`cutegen calibrate`), kept as JSON: those that are shipped, and over them those of the person's own machine.

Names of rates: "copy" (device to device, bytes read plus written), "read" and "write" (memory, one way), "l2", "shared" (bytes/s read by all SMs), "matmul DTYPE" (FLOP/s on random normal data, int8 in operations/s),
"launch torch", "launch cute" (seconds of the host for one call).
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
LARGEST = 1 << 20


@record
class Rate:
    """One ceiling: the median, its 95 % interval where it was kept, and what reached it."""

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    by: str = ""


@record
class Calibration:
    """What was measured on one device, when and with which software."""

    device: str
    date: str  # ISO, UTC
    gpu: str = ""
    driver: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    rates: tuple[Rate, ...] = ()
    notes: tuple[str, ...] = ()

    def rate(self, name: str) -> float | None:
        """A ceiling by name; None where it was not measured."""
        return next((item.value for item in self.rates if item.name == name), None)

    @property
    def products(self) -> tuple[tuple[str, float], ...]:
        """torch dtype name -> FLOP/s of a matrix product."""
        return tuple(
            (item.name.removeprefix("matmul "), item.value) for item in self.rates if item.name.startswith("matmul ")
        )

    @property
    def said(self) -> str:
        """Day and software, in a phrase."""
        software = ", ".join(
            f"{name} {version}" for name, version in (("driver", self.driver), *self.versions) if version
        )
        return f"{self.date[:10]}, {software}" if software else self.date[:10]


def folder() -> Path:
    """Where a machine's own are kept: $XDG_DATA_HOME/cutegen/calibrations, else ~/.local/share/cutegen/calibrations (a relative XDG_DATA_HOME counts for nothing, as its specification has it)."""
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".local" / "share") / "cutegen" / "calibrations"


def file_of(device: str) -> str:
    """The name of a device's file."""
    return "".join(letter if letter.isalnum() else "-" for letter in device.lower()) + ".json"


def save(found: Calibration, path: Path | None = None) -> Path:
    """Keep a calibration, in the person's folder or at `path`; it is there whole or not at all."""
    target = path or folder() / file_of(found.device)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        temporary.write_text(json.dumps({"schema": SCHEMA, "calibration": to_plain(found)}, indent=1) + "\n")
        os.replace(temporary, target)
    except OSError as error:
        raise UserError(f"the calibration cannot be kept at {target}: {error.strerror or error}") from None
    return target


def load(path: Path) -> Calibration:
    """A kept calibration; raises `UserError` for a file that is none."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError("it is too large")
        data = json.loads(path.read_text())
        if data["schema"] > SCHEMA:
            raise ValueError("it was written by a newer workbench")
        return from_plain(data["calibration"], Calibration)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, WorkbenchError) as error:
        raise UserError(f"{path} is no calibration ({error}); remove it and run cutegen calibrate again") from None


_known: dict[Path, tuple[tuple[int, int], Calibration]] = {}


def _read(path: Path) -> Calibration | None:
    """The file's calibration, read again only when the file has changed; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    stamp = (status.st_mtime_ns, status.st_size)
    if path not in _known or _known[path][0] != stamp:
        _known[path] = (stamp, load(path))
    return _known[path][1]


def kept(device: str) -> Calibration | None:
    """What is known of a device: this machine's own, else what is shipped."""
    return _read(folder() / file_of(device)) or _read(SHIPPED / file_of(device))


def listed() -> tuple[tuple[Path, Calibration], ...]:
    """All that are kept, this machine's first."""
    paths = [*sorted(folder().glob("*.json")), *sorted(SHIPPED.glob("*.json"))]
    return tuple((path, load(path)) for path in paths)
