"""The candidate under a profiler, in a confined process: warm it up, then call it as the profiler needs it. What is found is left in `scratch/`.

Modes of a request (its options are in `given/observe.json`):

    emulator   one call on the emulator at the job's first case, with its first CTAs followed in time; with `sample`, so many CTAs of each launch are all that is executed
    ncu        Nsight Compute started as a child of this process, in the same confinement; it starts `python -m workbench.executors.observe FOLDER`, which is
               then confined too, and imports the candidate there; then the report is printed as CSV, confined as well. `inner` is the mode in there
    timeline   some calls under torch's profiler (CUPTI), its trace in `scratch/trace.json`
    energy     a steady loop in several windows, what began when in `scratch/marks.json`; the energy itself is read by the parent

A candidate runs beside what watches it here, as it does beside the clock: it could falsify its own profile. The verdict is made elsewhere.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from workbench.emulator import EmulationFault
from workbench.emulator.hook import emulated, recording
from workbench.executors import sandbox
from workbench.problems import loading
from workbench.records import Case, Job
from workbench.toolchain import describe_module, explain_error
from workbench.wire import from_plain, to_plain

KEPT = ("PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
WARM_UP = 3
TOOL_OUTPUT = 20_000  # characters of what a tool said that are kept
MADE_BYTES = 1.5e9  # inputs of a sampled call up to here are made as the problem makes them
AHEAD_S = 0.025  # of work in one batch of the steady loop


def kept_environment() -> dict[str, str]:
    """What a tool's own processes need of the environment, read before it is cleared."""
    return {name: os.environ[name] for name in KEPT if name in os.environ}


def run(job: Job, folder: Path, request: dict[str, Any], kept: dict[str, str], namespaces: bool) -> dict[str, Any]:
    """Carry out a request in this confined process; failures are in the reply."""
    options = json.loads((folder / "given" / "observe.json").read_text())
    if options["mode"] == "ncu":
        reached = sandbox.raise_loopback() if namespaces else True
        found = _under_ncu(folder, options, {**os.environ, **kept}, request["wall_s"])
        alone = () if namespaces else ("the network is not closed: ncu talks to the candidate's process over TCP, and no network namespace could be made here",)
        return {**found, "open": [*alone, *(() if reached else ("the loopback device of the network namespace could not be brought up",))]}
    return watch(job, folder, options)


def _under_ncu(folder: Path, options: dict[str, Any], environment: dict[str, str], limit_s: float) -> dict[str, Any]:
    """ncu with the candidate's process as its child, then its report as CSV."""
    scratch = folder / "scratch"
    report = scratch / "report.ncu-rep"
    environment = {**environment, "LC_ALL": "C", **dict.fromkeys(("TMPDIR", "TMP", "TEMP", "TEMPDIR"), str(scratch))}  # its lock file lies where it may write
    done = _tool([*options["command"], "-f", "-o", str(report.with_suffix("")), sys.executable, "-P", "-m", "workbench.executors.observe", str(folder)], environment, limit_s)
    left = scratch / "observed.json"
    reply: dict[str, Any] = json.loads(left.read_text()) if left.is_file() and not left.is_symlink() else {"failure": None, "builds": [], "launches": []}
    for page, arguments in options["pages"].items():
        if report.is_file():
            (scratch / f"{page}.csv").write_text(_tool([options["command"][0], "--import", str(report), *arguments], environment, limit_s)["out"])
    return {**reply, "tool": {"status": done["status"], "said": (done["out"] + done["error"])[-TOOL_OUTPUT:]}}


def _tool(command: list[str], environment: dict[str, str], limit_s: float) -> dict[str, Any]:
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"status": None, "out": "", "error": f"no end within {limit_s:g} s"}
    except OSError as error:
        return {"status": None, "out": "", "error": f"{command[0]} cannot be started: {error}"}
    return {"status": done.returncode, "out": done.stdout, "error": done.stderr}


def watch(job: Job, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Import the candidate in this process and call it as the mode says."""
    from workbench.executors import worker

    reply: dict[str, Any] = {"failure": None, "builds": [], "launches": [], "versions": {}}
    source_file = str(folder / "scratch" / "candidate.py")
    try:
        module = worker._import(source_file)
        if options["mode"] == "emulator":
            _emulate(job, module, source_file, options, reply)
        else:
            with _on_gpu(job, module, reply) as call:
                MODES[options["mode"]](call, folder / "scratch", options, reply)
    except EmulationFault as fault:
        reply["failure"] = to_plain(fault.failure)
    except worker.Rejected as rejected:
        reply["failure"] = to_plain(rejected.failure)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            error = RuntimeError(f"the candidate called {type(error).__name__}")
        reply["failure"] = to_plain(explain_error(error, source_file, "run"))
    return reply


def _subject(job: Job, module: Any, device: str, *, made: bool = True) -> tuple[torch.nn.Module, list[Any]]:
    """The candidate's model with the reference's parameters, and inputs, at the job's first case; if not `made`, large inputs are zeros that take no memory before they are written."""
    case = next(case for case in job.facts.cases if case.name == job.cases[0])
    problem_module = loading.load_module(job.problem, case.settings)
    torch.manual_seed(1)
    reference = loading.build_model(problem_module, "Model", job.problem)
    model = loading.build_model(module, "ModelNew", job.problem, init_from=problem_module)
    if device == "cuda":
        reference, model = reference.cuda(), model.cuda()
    loading.copy_parameters(reference, model)
    size = sum(math.prod(spec.shape) * getattr(torch, spec.dtype).itemsize for spec in case.inputs)
    return model, loading.make_inputs(problem_module, job.problem, 2, device) if made or size < MADE_BYTES else _untouched(job, case)


def _untouched(job: Job, case: Case) -> list[Any]:
    """Inputs of the shapes of `case`, without making them: what is no tensor is that of the smallest case, tensors are zeros."""
    small = min(job.facts.cases, key=lambda one: sum(math.prod(spec.shape) for spec in one.inputs))
    values = loading.make_inputs(loading.load_module(job.problem, small.settings), job.problem, 2)
    specs = iter(case.inputs)
    return [loading.untouched(next(specs)) if isinstance(value, torch.Tensor) else value for value in values]


def _emulate(job: Job, module: Any, source_file: str, options: dict[str, Any], reply: dict[str, Any]) -> None:
    from workbench.executors.worker import STEP_LIMIT

    sample = options.get("sample")
    with torch.no_grad():
        model, inputs = _subject(job, module, "cpu", made=sample is None)
        with emulated(arch=job.arch, device=job.device, counters=True, source_file=source_file, step_limit=STEP_LIMIT, follow=True, sample=sample, limit_s=options.get("limit_s")) as emulation:
            model(*inputs)
    reply["launches"] = [to_plain(launch) for launch in emulation.launches]
    reply["builds"] = [to_plain(build) for item in emulation.modules for build in describe_module(item.ptx, item.cubin, job.arch, want_sass=True)]


@contextmanager
def _on_gpu(job: Job, module: Any, reply: dict[str, Any]) -> Iterator[Callable[[], Any]]:
    """One call of the candidate on the device, compiled and warm; at the end what was compiled is in the reply."""
    from workbench.executors.cuda import policy

    policy(job)
    with recording() as modules, torch.no_grad():
        model, inputs = _subject(job, module, "cuda")
        for _ in range(WARM_UP):
            model(*inputs)
        torch.cuda.synchronize()
        yield lambda: model(*inputs)
        torch.cuda.synchronize()
    reply["builds"] = [to_plain(build) for item in modules for build in describe_module(item.ptx, item.cubin, job.arch, want_sass=True)]
    reply["versions"] = {"cuda": torch.version.cuda, "gpu": torch.cuda.get_device_name(0)}


def _for_ncu(call: Callable[[], Any], scratch: Path, options: dict[str, Any], reply: dict[str, Any]) -> None:
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def _timeline(call: Callable[[], Any], scratch: Path, options: dict[str, Any], reply: dict[str, Any]) -> None:
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as watched:
        for _ in range(options["calls"]):
            call()
        torch.cuda.synchronize()
    watched.export_chrome_trace(str(scratch / "trace.json"))


def _energy(call: Callable[[], Any], scratch: Path, options: dict[str, Any], reply: dict[str, Any]) -> None:
    """Idle, then the windows, each begun `shift_s` later against the sensor's clock than the one before."""
    count = max(1, int(AHEAD_S / _seconds(call, 5)))
    begun: list[tuple[str, float]] = [("idle", time.monotonic())]
    time.sleep(options["idle_s"])
    windows = []
    for number in range(options["windows"]):
        begun.append(("pause", time.monotonic()))
        time.sleep(options["pause_s"] + number * options["shift_s"])
        start = time.monotonic()
        begun.append((f"window {number + 1}", start))
        calls, busy = _steady(call, count, start + options["window_s"])
        windows.append({"start": start, "end": time.monotonic(), "calls": calls, "busy_s": busy})
    begun.append(("end", time.monotonic()))
    time.sleep(options["pause_s"])
    (scratch / "marks.json").write_text(json.dumps({"marks": begun, "windows": windows}))


def _seconds(call: Callable[[], Any], count: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return max(float(start.elapsed_time(end)) * 1e-3 / count, 1e-6)


def _steady(call: Callable[[], Any], count: int, until: float) -> tuple[int, float]:
    """Batches of `count` calls, one always queued while the one before runs; calls made, and seconds from the first one's start to the last one's end on the device."""
    first = torch.cuda.Event(enable_timing=True)
    first.record()
    ends: list[Any] = []
    while time.monotonic() < until:
        for _ in range(count):
            call()
        end = torch.cuda.Event(enable_timing=True)
        end.record()
        ends.append(end)
        if len(ends) > 1:
            ends[-2].synchronize()
    ends[-1].synchronize()
    return count * len(ends), float(first.elapsed_time(ends[-1])) * 1e-3


MODES: dict[str, Callable[..., None]] = {"ncu": _for_ncu, "timeline": _timeline, "energy": _energy}


def main() -> None:
    """What a tool starts: confined already, as its parent is."""
    folder = Path(sys.argv[1])
    job = from_plain(json.loads((folder / "given" / "job.json").read_text()), Job)
    options = json.loads((folder / "given" / "observe.json").read_text())
    reply = watch(job, folder, {**options, "mode": options.get("inner", "ncu")})
    (folder / "scratch" / "observed.json").write_text(json.dumps(reply))


if __name__ == "__main__":
    main()
