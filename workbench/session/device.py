"""The device of a session: the GPU at hand, its calibration, and what happens when a session comes to another GPU."""

from __future__ import annotations

import os
import sys

from workbench.analysis import calibration, devices
from workbench.errors import Unavailable, UserError
from workbench.executors.gpu.presence import device_at_hand
from workbench.printing import make_printable
from workbench.profilers.calibration_process import calibrate_apart
from workbench.protocols import Executor, RunContext
from workbench.records import Event
from workbench.session.log import SessionLog

DEVICE = "H200"
SWITCH = "CUTEGEN_CALIBRATE"  # "0": no session measures ceilings by itself
_failed: set[str] = set()  # devices that could not be calibrated by this process


def choose_device(executor: Executor, asked: str | None) -> str:
    """The device of a session: the GPU on which the executor measures, else what was asked for, else DEVICE."""
    here = executor.device_name()
    if here is None:
        return asked or DEVICE
    if asked and devices.find(asked).name != here:
        raise UserError(
            f"--device {asked}: times are measured on the {here} that is here; leave --device out, or take "
            "--executor emulator, which stands for any device"
        )
    return here


def calibrate_first(executor: Executor, context: RunContext) -> None:
    """Measure the ceilings of the GPU on which the executor measures, if it is here and nobody has measured them.

    Failures are told, and are no error: bounds then use the data sheet.
    """
    name, here = executor.device_name(), device_at_hand()
    if name is None or here is None or name != here.name or name in _failed or os.environ.get(SWITCH) == "0":
        return
    if calibration.find(name) is not None:
        return
    said = f"the first session on this {name} measures its ceilings (about 20 s; --no-calibrate leaves it out)"
    context.progress(Event(kind="note", message=said))
    try:
        path = calibration.save(calibrate_apart(context))
    except (UserError, Unavailable) as error:
        _failed.add(name)
        message = f"the ceilings of the {name} are not known: {error}; its data sheet is used (cutegen calibrate)"
        context.progress(Event(kind="note", message=message))
        return
    context.progress(Event(kind="note", message=f"ceilings of the {name} are stored in {path}"))


def print_note(event: Event) -> None:
    """Print what is no running progress to standard error."""
    if event.kind in ("note", "waiting"):
        print(make_printable(event.message), file=sys.stderr, flush=True)


def follow_gpu(log: SessionLog, executor: Executor) -> None:
    """Let a session go on with the GPU on which its executor measures now, and say so if that is another one.

    Trials of the other GPU stay as they are, and are compared with none of this one. An architecture that this GPU
    does not run is replaced by the executor's default for it.
    """
    here = executor.device_name()
    if here is None or devices.is_same(here, log.device):
        return
    arch = log.arch if devices.runs(here, log.arch) else devices.default_arch(executor.default_arch, here)
    moved = f" for {arch}" if arch != log.arch else ""
    log.add_note(
        f"this session was on an {log.device} and goes on{moved} with the {here} that is here; versions are measured "
        "again before they are compared"
    )
    log.set_device(here, arch)
