"""The role `profile`: a candidate is warmed up and called under a profiler, in a confined process.

Modes of a request (its options are in `given/profile.json`):

    emulator   one call on the emulator at the job's first case, with its first CTAs followed in time; with `sample`,
               only so many CTAs of each launch are executed
    ncu        Nsight Compute as a child of this process, in the same confinement; it starts this module with FOLDER,
               which imports the candidate in mode `inner`; then ncu prints its report as CSV, confined as well
    timeline   some calls under torch's profiler (CUPTI), its trace in `scratch/trace.json`
    energy     a steady loop in several windows, their times in `scratch/marks.json`; the parent reads the energy

A candidate runs in the same process as the profiler, so it could falsify its own profile. The verdict does not depend
on profiles.
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
from types import ModuleType

import torch

from workbench.emulator.hook import emulated, record_modules
from workbench.executors.jobs import sandbox
from workbench.executors.jobs.exchange import Values
from workbench.executors.jobs.replaced import remember_functions
from workbench.executors.workers.candidate import limit_steps
from workbench.executors.workers.effects import list_returned, name_tensors
from workbench.executors.workers.gpu_candidate import set_tf32
from workbench.executors.workers.outputs import (
    check_untouched,
    explain_failure,
    find_case,
    import_candidate,
    load_case,
    source_path,
)
from workbench.problems import loading
from workbench.problems.inputs.integers import make_integer_inputs
from workbench.records import Case, Job, TensorSpec
from workbench.toolchain import describe_module
from workbench.toolchain.compiled import reuse_compiled
from workbench.wire import Json, from_plain, to_plain

KEPT = ("PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
WARM_UP = 3
TOOL_OUTPUT = 20_000  # characters of a tool's output that are kept
MADE_BYTES = 64 << 20  # larger inputs of a sampled call are zeros instead of the problem's own inputs
AHEAD_S = 0.025  # seconds of work in one batch of the steady loop


def kept_environment() -> dict[str, str]:
    """Environment variables that a tool's own processes need, read before the environment is cleared."""
    return {name: os.environ[name] for name in KEPT if name in os.environ}


def run(job: Job, folder: Path, kept: dict[str, str], *, limit_s: float, namespaces: bool) -> Json:
    """Profile the candidate in this confined process. A failure is in the reply."""
    options = json.loads((folder / "given" / "profile.json").read_text())
    if options["mode"] == "ncu":
        reached = sandbox.raise_loopback() if namespaces else True
        found = _under_ncu(folder, options, {**os.environ, **kept}, limit_s)
        alone = (
            ()
            if namespaces
            else (
                "the network is not closed: ncu talks to the candidate's process over TCP, "
                "and no network namespace could be made here",
            )
        )
        return {
            **found,
            "open": [
                *alone,
                *(() if reached else ("the loopback device of the network namespace could not be brought up",)),
            ],
        }
    return watch(job, folder, options)


def _under_ncu(folder: Path, options: Json, environment: dict[str, str], limit_s: float) -> Json:
    """Run ncu with the candidate's process as its child, then write its report as CSV."""
    scratch = folder / "scratch"
    report = scratch / "report.ncu-rep"
    environment = {
        **environment,
        "LC_ALL": "C",
        **dict.fromkeys(("TMPDIR", "TMP", "TEMP", "TEMPDIR"), str(scratch)),
    }  # its lock file lies where it may write
    done = _tool(
        [
            *options["command"],
            "-f",
            "-o",
            str(report.with_suffix("")),
            sys.executable,
            "-P",
            "-m",
            "workbench.executors.workers.profile_worker",
            str(folder),
        ],
        environment,
        limit_s,
    )
    left = scratch / "profiled.json"
    reply: Json = (
        json.loads(left.read_text())
        if left.is_file() and not left.is_symlink()
        else {"failure": None, "builds": [], "launches": []}
    )
    for page, arguments in options["pages"].items():
        if report.is_file():
            (scratch / f"{page}.csv").write_text(
                _tool([options["command"][0], "--import", str(report), *arguments], environment, limit_s)["out"]
            )
    return {**reply, "tool": {"status": done["status"], "said": (done["out"] + done["error"])[-TOOL_OUTPUT:]}}


def _tool(command: list[str], environment: dict[str, str], limit_s: float) -> Json:
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return {"status": None, "out": "", "error": f"no end within {limit_s:g} s"}
    except OSError as error:
        return {"status": None, "out": "", "error": f"{command[0]} cannot be started: {error}"}
    return {"status": done.returncode, "out": done.stdout, "error": done.stderr}


def watch(job: Job, folder: Path, options: Json) -> Json:
    """Import the candidate in this process and call it according to the mode."""
    reply: Json = {"failure": None, "builds": [], "launches": [], "versions": {}}
    source_file, find_replaced = source_path(folder), remember_functions()
    try:
        loading.provide_modules(job.problem)
        module = import_candidate(source_file)
        if options["mode"] == "emulator":
            with reuse_compiled(folder / "given" / "compiled", folder / "scratch" / "compiled", str(folder)):
                _emulate(job, module, source_file, options, reply)
        else:
            with _warm_call(job, module, reply) as call:
                MODES[options["mode"]](call, folder / "scratch", options, reply)
        check_untouched(find_replaced)
    except BaseException as error:  # whatever a candidate raises is its failure
        reply["failure"] = explain_failure(error, source_file, "run")
    return reply


def _subject(job: Job, module: ModuleType, device: str, *, made: bool = True) -> tuple[torch.nn.Module, Values]:
    """The candidate's model with the reference's parameters, and inputs, at the job's first case.

    If not `made`, large inputs are zeros that take no memory before they are written, and so are large parameters.
    """
    case = find_case(job, job.cases[0])
    problem_module = load_case(job, case.name)
    torch.manual_seed(1)
    states = [spec for spec in job.facts.full if spec.name.startswith(("param:", "buffer:"))]
    if not made and sum(spec.size_bytes for spec in states or job.facts.parameters) > MADE_BYTES:
        model = loading.build_model(
            module, "ModelNew", job.problem, "meta", init_from=problem_module, changed=list_returned(job.facts)
        )
        return model.to_empty(device=device), _zero_inputs(job, case)
    reference = loading.build_model(problem_module, "Model", job.problem)
    model = loading.build_model(
        module, "ModelNew", job.problem, init_from=problem_module, changed=list_returned(job.facts)
    )
    if device == "cuda":
        reference, model = reference.cuda(), model.cuda()
    loading.copy_parameters(reference, model)
    size = sum(math.prod(spec.shape) * getattr(torch, spec.dtype).itemsize for spec in case.inputs)
    return model, loading.make_inputs(
        problem_module, job.problem, 2, device
    ) if made or size < MADE_BYTES else _zero_inputs(job, case)


def _zero_inputs(job: Job, case: Case) -> Values:
    """Inputs of the shapes of `case`: integers as the problem makes them, zeros for other tensors.

    What is no tensor is that of the smallest case.
    """
    small = min(job.facts.cases, key=lambda one: sum(math.prod(spec.shape) for spec in one.inputs))
    values = loading.make_inputs(loading.load_module(job.problem, small.settings), job.problem, 2)
    specs, integers = iter(case.inputs), make_integer_inputs(job.problem, case)

    def make(spec: TensorSpec) -> torch.Tensor:
        return integers[spec.name] if spec.name in integers else loading.lazy_zeros(spec)

    return [make(next(specs)) if isinstance(value, torch.Tensor) else value for value in values]


def _l2_share(job: Job) -> float:
    """The bytes of inputs and parameters at the job's first case as a share of those of the full one, at most 1."""
    read = {case.name: sum(spec.size_bytes for spec in case.inputs) for case in job.facts.cases}
    state = [spec for spec in job.facts.full if spec.name.startswith(("param:", "buffer:"))]
    own = read.get(job.cases[0], 0) + sum(spec.size_bytes for spec in job.facts.parameters if state)
    full = read.get("full", 0) + sum(spec.size_bytes for spec in state)
    return min(own / full, 1.0) if own and full else 1.0


def _name_tensors(job: Job, model: torch.nn.Module, inputs: Values) -> dict[int, str]:
    """Names of forward's tensors, parameters and buffers by their addresses."""
    named = {**loading.state_of(model), **name_tensors(job.facts, inputs)}
    return {value.data_ptr(): name for name, value in named.items() if value.numel()}


def _emulate(job: Job, module: ModuleType, source_file: str, options: Json, reply: Json) -> None:
    sample = options.get("sample")
    with (
        torch.no_grad(),
        emulated(
            arch=job.arch,
            device=job.device,
            counters=True,
            source_file=source_file,
            step_limit=limit_steps(job, job.cases[0]),
            follow=True,
            sample=sample,
            limit_s=options.get("limit_s"),
            skip_repeats=bool(options.get("skip_repeats")),
            l2_share=_l2_share(job) if sample is None else None,
        ) as emulation,
    ):
        model, inputs = _subject(job, module, "cpu", made=sample is None)
        emulation.names = _name_tensors(job, model, inputs)
        model(*inputs)
    reply["launches"] = [to_plain(launch) for launch in emulation.launches]
    reply["builds"] = [
        to_plain(build)
        for item in emulation.modules
        for build in describe_module(item.ptx, item.cubin, job.arch, want_sass=options.get("sass", True))
    ]


@contextmanager
def _warm_call(job: Job, module: ModuleType, reply: Json) -> Iterator[Callable[[], object]]:
    """One call of the candidate on the device, compiled and warm; at the end what was compiled is in the reply."""
    set_tf32(job)
    with record_modules() as modules, torch.no_grad():
        model, inputs = _subject(job, module, "cuda")
        for _ in range(WARM_UP):
            model(*inputs)
        torch.cuda.synchronize()
        yield lambda: model(*inputs)
        torch.cuda.synchronize()
    reply["builds"] = [
        to_plain(build) for item in modules for build in describe_module(item.ptx, item.cubin, job.arch, want_sass=True)
    ]
    reply["versions"] = {"cuda": torch.version.cuda, "gpu": torch.cuda.get_device_name(0)}


def _profile_ncu(call: Callable[[], object], scratch: Path, options: Json, reply: Json) -> None:
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def _profile_timeline(call: Callable[[], object], scratch: Path, options: Json, reply: Json) -> None:
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as watched:
        for _ in range(options["calls"]):
            call()
        torch.cuda.synchronize()
    watched.export_chrome_trace(str(scratch / "trace.json"))


def _profile_energy(call: Callable[[], object], scratch: Path, options: Json, reply: Json) -> None:
    """Idle, then run the windows. Each starts `shift_s` later in the sensor's period than the one before."""
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


def _seconds(call: Callable[[], object], count: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return max(float(start.elapsed_time(end)) * 1e-3 / count, 1e-6)


def _steady(call: Callable[[], object], count: int, until: float) -> tuple[int, float]:
    """Run batches of `count` calls; one batch is always queued while the one before runs.

    Returns the calls made, and seconds from the first one's start to the last one's end on the device.
    """
    first = torch.cuda.Event(enable_timing=True)
    first.record()
    ends: list[torch.cuda.Event] = []
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


MODES: dict[str, Callable[..., None]] = {"ncu": _profile_ncu, "timeline": _profile_timeline, "energy": _profile_energy}


def main() -> None:
    """Entry point of the process that a tool starts. It is confined like its parent."""
    folder = Path(sys.argv[1])
    job = from_plain(json.loads((folder / "given" / "job.json").read_text()), Job)
    options = json.loads((folder / "given" / "profile.json").read_text())
    reply = watch(job, folder, {**options, "mode": options.get("inner", "ncu")})
    (folder / "scratch" / "profiled.json").write_text(json.dumps(reply))


if __name__ == "__main__":
    main()
