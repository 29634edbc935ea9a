"""Programs that were measured on a device, with what the emulator counted of them at full size.

Those of an H100 come with the package, written by tests/bench/device_rows.py. `cutegen tune` adds those of the user's
own GPU (workbench/tuning/refining.py), in a file beside the calibrations. What the time model says of them is computed
when it is asked for: it depends on the fit, and on the device's rates, which `cutegen calibrate` may measure later.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

from workbench.analysis import calibration
from workbench.errors import UserError, WorkbenchError
from workbench.records import KernelBuild, Launch, Work, record
from workbench.wire import from_plain, to_plain

SHIPPED = Path(__file__).parent / "measured_programs"
LARGEST_BYTES = 16 << 20
MOST = 400  # programs of a device that are kept, the newest


@record
class MeasuredProgram:
    """One program: its problem, its seconds on the device, the problem's work, and its launches and kernels."""

    device: str  # by the name of the device table
    key: str  # of the problem (landscapes.problem_key)
    problem: str  # its name
    program: str
    seconds: float
    work: Work
    launches: tuple[Launch, ...]
    builds: tuple[KernelBuild, ...]

    def shorten(self) -> MeasuredProgram:
        """Without source lines, findings and code, which the time model does not need."""
        return dataclasses.replace(
            self,
            launches=tuple(_shorten(launch) for launch in self.launches),
            builds=tuple(dataclasses.replace(build, ptx="", sass="") for build in self.builds),
        )


def _shorten(launch: Launch) -> Launch:
    assert launch.paced is not None
    return dataclasses.replace(launch, lines=(), findings=(), paced=dataclasses.replace(launch.paced, stalls=()))


def file_name(device: str) -> str:
    """The name of the file of a device."""
    return calibration.file_name(device) + "l"


def user_file(device: str) -> Path:
    """The file of what this user's GPU measured."""
    return calibration.user_folder().parent / "time_model" / file_name(device)


def stamp_files(device: str) -> tuple[tuple[str, int, int], ...]:
    """Paths, times and sizes of the files of a device: they change if what was measured does."""
    found = []
    for path in (SHIPPED / file_name(device), user_file(device)):
        try:
            status = path.stat()
        except OSError:  # there is no such file, or this process may not look at it
            continue
        found.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(found)


def find_programs(device: str) -> tuple[MeasuredProgram, ...]:
    """The programs that were measured on a device: the user's own, and the shipped ones that are not among them."""
    found = {
        (one.key, one.program): one
        for path, _, _ in stamp_files(device)
        for one in load_programs(Path(path))
        if one.device == device
    }
    return tuple(found.values())


def find_user_programs(device: str) -> tuple[MeasuredProgram, ...]:
    """The programs that this user's GPU measured."""
    path = user_file(device)
    return load_programs(path) if path.exists() else ()


def load_programs(path: Path) -> tuple[MeasuredProgram, ...]:
    """The programs of a file. Raises `UserError` if it cannot be read."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ValueError("it is too large")
        found = tuple(from_plain(json.loads(line), MeasuredProgram) for line in path.read_text().splitlines())
        if not all(0 < one.seconds < math.inf and one.launches for one in found):
            raise ValueError("a program with no time or no launch")
        return found
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, WorkbenchError) as error:
        raise UserError(f"{path} holds no measured programs ({error}); remove it") from None


def save_programs(programs: Sequence[MeasuredProgram], path: Path) -> Path:
    """Write programs to a file, atomically. Raises `UserError` if it fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text("".join(json.dumps(to_plain(one.shorten())) + "\n" for one in programs))
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"measured programs cannot be stored at {path}: {error.strerror or error}") from None
    return path


def add_user_programs(programs: Sequence[MeasuredProgram], device: str) -> Path:
    """Keep programs that this user's GPU measured; the same ones from before are replaced."""
    kept = {(one.key, one.program): one for one in find_user_programs(device)}
    for one in programs:
        kept.pop((one.key, one.program), None)
        kept[one.key, one.program] = one
    return save_programs(tuple(kept.values())[-MOST:], user_file(device))
