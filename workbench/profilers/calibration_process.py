"""Calibrates the GPU at hand in a process of its own, so that no CUDA context stays in this one.

`python -m workbench.profilers.calibration_process` prints JSON lines: {"step": [name, number, total]},
{"waiting": text}, and at the end {"calibration": {...}} or {"error": text}.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

from workbench.analysis.calibration import Calibration
from workbench.errors import Unavailable, WorkbenchError
from workbench.executors.gpu.presence import VISIBLE, gpu_at_hand
from workbench.protocols import PLAIN, RunContext
from workbench.records import Event
from workbench.wire import Json, from_plain, to_plain

MODULE = "workbench.profilers.calibration_process"
LOOK_S = 0.2


def calibrate_apart(context: RunContext = PLAIN, command: tuple[str, ...] = ("-m", MODULE)) -> Calibration:
    """Measure all ceilings of the GPU at hand. Raises `Unavailable` if that fails, `Stopped` if it is stopped.

    `command` are Python's arguments for the process.
    """
    environment = {**os.environ, VISIBLE: gpu_at_hand().uuid}
    with subprocess.Popen(
        [sys.executable, "-P", *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        ended = threading.Event()
        threading.Thread(target=_end_on_stop, args=(process, context, ended), daemon=True).start()
        try:
            return _follow(process, context)
        finally:
            ended.set()
            process.kill()


def _end_on_stop(process: subprocess.Popen[str], context: RunContext, ended: threading.Event) -> None:
    while not ended.wait(LOOK_S):
        if context.stop.is_set():
            process.kill()


def _follow(process: subprocess.Popen[str], context: RunContext) -> Calibration:
    for said in _messages(process):
        if "step" in said:
            name, number, total = said["step"]
            progress = Event(kind="running", message=f"measuring ceilings: {name}", fraction=number / max(total, 1))
            context.progress(progress)
        elif "waiting" in said:
            context.progress(Event(kind="waiting", message=said["waiting"]))
        elif "error" in said:
            raise Unavailable(str(said["error"]))
        elif "calibration" in said:
            return from_plain(said["calibration"], Calibration)
    context.raise_if_stopped()
    raise Unavailable(f"the process that measures them ended with status {process.wait()}")


def _messages(process: subprocess.Popen[str]) -> Iterator[Json]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            yield json.loads(line)


def main() -> None:
    """Calibrate, and print what is going on."""
    from workbench.profilers.calibrate import calibrate

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints does not come between

    def say(message: Json) -> None:
        print(json.dumps(message), file=out, flush=True)

    context = RunContext(progress=lambda event: say({"waiting": event.message}))
    try:
        found = calibrate(lambda name, number, total: say({"step": [name, number, total]}), context=context)
    except WorkbenchError as error:
        say({"error": str(error)})
        return
    if not found.rates:
        say({"error": f"no ceiling could be measured: {'; '.join(found.notes)}"})
        return
    say({"calibration": to_plain(found)})


if __name__ == "__main__":
    main()
