"""What runs inside a worker process: inspect a problem, make inputs and references, run a candidate, check its outputs.

Folder of a job: `given/` (what a candidate may read), `private/` (seeds and expected outputs, never readable by a candidate),
`scratch/` (the candidate's working folder and the only place it can write), `reply-<role>.json` next to them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from workbench.analysis import correctness
from workbench.emulator import EmulationFault
from workbench.emulator.hook import emulated
from workbench.errors import WorkbenchError
from workbench.executors import sandbox
from workbench.executors.exchange import read_outputs, read_values, write_values
from workbench.problems import inspection, loading
from workbench.records import Case, Check, Failure, Job, Problem
from workbench.toolchain import describe_module, explain_error
from workbench.toolchain.compiled import keeping
from workbench.wire import from_plain, to_plain

READY_LIMIT_S = 120.0
STEP_LIMIT = 8_000_000  # a shipped kernel takes under a tenth of it at its emulated size
MODIFIED = Failure(stage="check", kind="input_modified", message="the candidate changed its inputs", hint="write to the output only; clone what you need to change")


class Rejected(Exception):
    """The candidate failed in a way that is already a `Failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def main(request: dict[str, Any], namespaces: bool) -> None:
    """Dispatch on the role; the reply is a JSON file."""
    folder, role = Path(request["folder"]), request["role"]
    roles = {"inspect": inspect_problem, "reference": make_reference, "candidate": run_candidate, "check": check_outputs, "referee": serve_referee, "observe": observe_candidate}
    if role in sandbox.CONFINED:
        reply = roles[role](folder, request, namespaces)
        target = folder / "scratch" / "reply.json"
    else:
        try:
            reply = roles[role](folder, request, namespaces)
        except WorkbenchError as error:
            reply = {"error": str(error)}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        target = folder / f"reply-{role}.json"
    temporary = target.with_suffix(".tmp")
    temporary.write_text(json.dumps(reply))
    os.replace(temporary, target)


def inspect_problem(folder: Path, request: dict[str, Any], _: bool) -> dict[str, Any]:
    """Facts of `given/problem.json`."""
    problem = from_plain(json.loads((folder / "given" / "problem.json").read_text()), Problem)
    return {"facts": to_plain(inspection.inspect(problem))}


def _job(folder: Path) -> Job:
    return from_plain(json.loads((folder / "given" / "job.json").read_text()), Job)


def _case(job: Job, name: str) -> Case:
    return next(case for case in job.facts.cases if case.name == name)


def _trials(job: Job) -> list[tuple[str, int]]:
    known = {case.name for case in job.facts.cases}
    return [(name, trial) for name in job.cases if name in known for trial in range(job.trials)]


def make_reference(folder: Path, request: dict[str, Any], _: bool) -> dict[str, Any]:
    """Inputs and parameters into `given/`, expected outputs in float64 into `private/`, trial by trial."""
    job = _job(folder)
    seeds = json.loads((folder / "private" / "seeds.json").read_text())
    for name, trial in _trials(job):
        seed = seeds[f"{name}-{trial}"]
        module = loading.load_module(job.problem, _case(job, name).settings)
        torch.manual_seed(seed)
        model = loading.build_model(module, "Model", job.problem)
        inputs = loading.make_inputs(module, job.problem, seed ^ 1)
        write_values(folder / "given" / f"{name}-{trial}-state", list(loading._state(model).values()))
        write_values(folder / "given" / f"{name}-{trial}", inputs)
        torch.manual_seed(seed)
        with torch.no_grad():
            exact = [value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in inputs]
            result = model.double()(*exact)
        write_values(folder / "private" / f"{name}-{trial}", list(result) if isinstance(result, (tuple, list)) else [result])
    return {"done": True}


def run_candidate(folder: Path, request: dict[str, Any], namespaces: bool) -> dict[str, Any]:
    """Confine this process, then import and run the candidate at every case and trial."""
    job = _job(folder)
    layers = _confine(folder, request, namespaces)
    return {**attempt(job, folder, gpu=request.get("device") == "cuda"), "protections": layers}


def observe_candidate(folder: Path, request: dict[str, Any], namespaces: bool) -> dict[str, Any]:
    """Confine this process, then let a profiler watch the candidate (observe.py)."""
    from workbench.executors import observe

    job, kept = _job(folder), observe.kept_environment()
    layers = _confine(folder, request, namespaces)
    return {**observe.run(job, folder, request, kept, namespaces), "protections": layers}


def attempt(job: Job, folder: Path, *, gpu: bool = False) -> dict[str, Any]:
    """Import and run the candidate in this process, on the emulator or the GPU; what failed is in the reply."""
    with keeping(folder / "given" / "compiled", folder / "scratch" / "compiled", str(folder)) as counts:
        reply = _attempt(job, folder, gpu)
    reply["phases"]["compiling"] = counts["seconds"]  # 0 when all was compiled in an earlier run of the same source
    return reply


def _attempt(job: Job, folder: Path, gpu: bool) -> dict[str, Any]:
    reply: dict[str, Any] = {"failure": None, "launches": [], "builds": [], "unmapped": [], "phases": {}, "trials": []}
    source_file = str(folder / "scratch" / "candidate.py")
    stage = "import"
    try:
        if gpu:
            from workbench.executors import cuda  # before the candidate, so that what it replaces in torch.cuda is not what times it
        start = time.perf_counter()
        module = _import(source_file)
        reply["phases"]["import"] = time.perf_counter() - start
        stage = "run"
        if gpu:
            cuda.run_candidate(job, folder, module, reply, _validate, _digest, lambda: Rejected(MODIFIED))
        for name, trial in [] if gpu else _trials(job):
            _run_trial(job, folder, module, name, trial, source_file, reply)
    except EmulationFault as fault:
        reply["failure"] = to_plain(fault.failure)
    except Rejected as rejected:
        reply["failure"] = to_plain(rejected.failure)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            error = RuntimeError(f"the candidate called {type(error).__name__}")
        reply["failure"] = to_plain(explain_error(error, source_file, "source" if isinstance(error, SyntaxError) else stage))  # type: ignore[arg-type]
    return reply


def _confine(folder: Path, request: dict[str, Any], namespaces: bool) -> list[str]:
    scratch, gpu = folder / "scratch", request.get("device") == "cuda"
    os.chdir(scratch)
    os.environ.clear()
    os.environ.update({"PATH": "/usr/bin:/bin:/usr/local/cuda/bin", "HOME": str(scratch), "USER": "candidate", "LOGNAME": "candidate", "TMPDIR": str(scratch), "LANG": "C.UTF-8", "CUTE_DSL_CACHE_DIR": str(scratch / "cache")})
    tempfile.tempdir = str(scratch)
    sandbox.limits(cpu_s=int(request["wall_s"]) + 5, file_bytes=(32 if gpu else 8) << 30)
    devices = ("/dev/shm", "/proc", *map(str, Path("/dev").glob("nvidia*"))) if gpu else ()
    loopback = bool(request.get("loopback"))  # a tool beside the candidate talks to it over TCP
    locked = sandbox.landlock((*sandbox.library_paths(), str(folder / "given"), *request.get("readable", ())), (str(scratch), "/dev/null", *devices), network=loopback)
    layers = ["clean environment", "resource limits", "watchdog"]
    return layers + (["namespaces (network, processes)"] if namespaces else []) + (["Landlock"] if locked else [])


def _import(source_file: str) -> Any:
    spec = importlib.util.spec_from_file_location("cutegen_candidate", source_file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cutegen_candidate"] = module
    spec.loader.exec_module(module)
    if not isinstance(getattr(module, "ModelNew", None), type):
        raise Rejected(Failure(stage="import", kind="no_model", message="the file defines no class ModelNew", hint="a candidate is a KernelBench file: class ModelNew(torch.nn.Module) with forward"))
    return module


def _wait(path: Path) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the reference did not deliver {path.name}")
        time.sleep(0.002)


def _digest(values: list[Any]) -> str:
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_cuda:
            digest.update(str(_device_sum(value)).encode())
        elif isinstance(value, torch.Tensor) and value.numel():
            digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _device_sum(value: torch.Tensor) -> int:
    """A sum over the bits of a CUDA tensor weighted by position, so that neither a changed nor a moved element keeps it."""
    flat = value.contiguous().reshape(-1).view(torch.uint8)
    size = next(size for size in (4, 2, 1) if flat.numel() % size == 0)
    words = flat.view({4: torch.int32, 2: torch.int16, 1: torch.uint8}[size])
    total = 0
    for at in range(0, words.numel(), 1 << 26):
        part = words[at : at + (1 << 26)].to(torch.int64)
        weight = torch.arange(at, at + part.numel(), device=value.device, dtype=torch.int64).mul_(0x9E3779B1).bitwise_or_(1)
        total += int((part * weight).sum().item())
    return total


def _run_trial(job: Job, folder: Path, module: Any, name: str, trial: int, source_file: str, reply: dict[str, Any]) -> None:
    first = not reply["trials"]
    problem_module = loading.load_module(job.problem, _case(job, name).settings)
    _wait(folder / "given" / f"{name}-{trial}-state" / "list.json")
    _wait(folder / "given" / f"{name}-{trial}" / "list.json")
    reference = loading.build_model(problem_module, "Model", job.problem)
    with torch.no_grad():
        for value, given in zip(loading._state(reference).values(), read_values(folder / "given" / f"{name}-{trial}-state"), strict=True):
            value.copy_(given)
    inputs = read_values(folder / "given" / f"{name}-{trial}")
    before = _digest(inputs)
    start = time.perf_counter()
    with emulated(arch=job.arch, device=job.device, counters=first, source_file=source_file, step_limit=STEP_LIMIT) as emulation, torch.no_grad():
        model = loading.build_model(module, "ModelNew", job.problem, init_from=problem_module)
        unmapped = loading.copy_parameters(reference, model)
        output = model(*inputs)
        unwritten = [emulation.watch.unwritten(value) for value in (output if isinstance(output, (tuple, list)) else [output]) if isinstance(value, torch.Tensor)]
    seconds = time.perf_counter() - start
    reply["trials"].append([name, trial, seconds])
    values = _validate(job, name, output, unwritten)
    if _digest(inputs) != before:
        raise Rejected(MODIFIED)
    if first:
        reply["phases"]["compile and emulate"] = seconds
        reply["unmapped"] = list(unmapped)
        reply["launches"] = [to_plain(launch) for launch in emulation.launches]
        builds = [build for item in emulation.modules for build in describe_module(item.ptx, item.cubin, job.arch, want_sass=job.want_sass)]
        reply["builds"] = [to_plain(build) for build in builds]
    write_values(folder / "scratch" / "out" / f"{name}-{trial}", values)


def _validate(job: Job, name: str, output: Any, unwritten: list[int]) -> list[torch.Tensor]:
    """The outputs as a list, if they are exactly what the reference's outputs look like."""
    expected = _case(job, name).outputs
    values = list(output) if isinstance(output, (tuple, list)) else [output]
    if len(values) != len(expected):
        raise Rejected(Failure(stage="check", kind="wrong_outputs", message=f"forward returned {len(values)} outputs, the reference {len(expected)}"))
    for n, (value, spec) in enumerate(zip(values, expected, strict=True)):
        which = f"output {n}" if len(values) > 1 else "the output"
        if type(value) is not torch.Tensor:
            raise Rejected(Failure(stage="check", kind="wrong_type", message=f"{which} is a {type(value).__name__}, not a torch.Tensor"))
        if tuple(value.shape) != spec.shape:
            raise Rejected(Failure(stage="check", kind="wrong_shape", message=f"{which} has shape {list(value.shape)}, expected {list(spec.shape)} (case {name})"))
        if str(value.dtype) != f"torch.{spec.dtype}":
            raise Rejected(Failure(stage="check", kind="wrong_dtype", message=f"{which} is {str(value.dtype).removeprefix('torch.')}, expected {spec.dtype}"))
        if value.numel() > 1 and not value.is_contiguous():
            raise Rejected(Failure(stage="check", kind="wrong_strides", message=f"{which} has strides {list(value.stride())}, expected a contiguous tensor"))
        if n < len(unwritten) and unwritten[n]:
            size = value.numel() * value.element_size()
            raise Rejected(Failure(stage="check", kind="partial_write", message=f"{unwritten[n]} of {size} bytes of {which} were never written (case {name})", hint="cover every element, the tail at odd sizes included"))
    return values


def check_outputs(folder: Path, request: dict[str, Any], _: bool) -> dict[str, Any]:
    """Compare what the candidate left in `scratch/out` with the expected outputs."""
    job = _job(folder)
    checks = []
    for name, trial in _trials(job):
        expected = read_values(folder / "private" / f"{name}-{trial}")
        case = _case(job, name)
        try:
            got = read_outputs(folder, f"scratch/out/{name}-{trial}", case.outputs)
        except (OSError, ValueError) as error:
            return {"error": f"the candidate's output for case {name} cannot be read: {error}"}
        length = correctness.terms(case, job.facts)
        for n, (value, wanted, spec) in enumerate(zip(got, expected, case.outputs, strict=True)):
            here = value.to(torch.float64).numpy() if value.is_floating_point() else value.numpy()
            fields = correctness.compare(here, wanted.numpy(), dtype=spec.dtype, precision=job.problem.precision, length=length, products=correctness.in_a_row(job.facts.graph))
            checks.append(to_plain(Check(case=name, trial=trial, timed=False, output=n, **fields)))
    return {"checks": checks}


def serve_referee(folder: Path, request: dict[str, Any], _: bool) -> dict[str, Any]:
    """The trusted side of GPU jobs: carries out orders until it is ended."""
    from workbench.executors import referee

    return referee.serve(folder)

