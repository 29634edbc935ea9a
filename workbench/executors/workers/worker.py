"""Carries out a job in a worker process according to its role. A role that runs a candidate's code is confined first.

The modules of roles that need CuTe DSL are imported late, because an inspection does without; the server has imported
them before it forked such a role. The reply is a JSON file in the job's folder (jobs/folder.py).
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.executors.jobs import rpc, sandbox, seccomp
from workbench.executors.jobs.journal import Journal
from workbench.executors.workers import trusted
from workbench.wire import Json


def _serve_referee(folder: Path) -> Json:
    from workbench.executors.workers import referee

    return referee.serve(rpc.open_inherited())


TRUSTED = {
    "inspect": trusted.inspect_problem,
    "reference": trusted.make_reference,
    "check": trusted.check_outputs,
    "referee": _serve_referee,
}


def main(request: Json, left: sandbox.Left, report: int, notes: int) -> None:
    """Carry out the request; `left` says what of its parent's this process has left.

    A candidate on the emulator notes what it does in the descriptor `notes` (jobs/journal.py). A role that is confined
    writes the layers of its sandbox to the descriptor `report`, which is closed before any code of a candidate runs.
    """
    folder, role = Path(request["folder"]), request["role"]
    if request.get("gpu"):  # before CUDA starts
        os.environ["CUDA_VISIBLE_DEVICES"] = request["gpu"]
    if role in sandbox.CONFINED:
        run = run_candidate if role == "candidate" else profile_candidate
        reply, target = run(folder, request, left, report, notes), folder / "scratch" / "reply.json"
    else:
        os.close(report)
        os.close(notes)
        reply, target = _answer(role, folder), folder / f"reply-{role}.json"
    temporary = target.with_suffix(".tmp")
    temporary.write_text(json.dumps(reply))
    os.replace(temporary, target)


def _answer(role: str, folder: Path) -> Json:
    """The reply of a trusted role. A reply may be an error."""
    try:
        return TRUSTED[role](folder)
    except WorkbenchError as error:
        return {"error": str(error)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


def run_candidate(folder: Path, request: Json, left: sandbox.Left, report: int, notes: int) -> Json:
    """Confine this process, then import and run the candidate at every case and trial."""
    from workbench.executors.workers.candidate import attempt

    job = trusted.read_job(folder)
    connection = rpc.open_inherited() if request.get("connected") else None
    gpu = request.get("device") == "cuda"
    if gpu:
        os.close(notes)
    _confine(folder, request, left, report, sealed=None if gpu else notes)
    return attempt(job, folder, gpu=gpu, connection=connection, journal=Journal(None if gpu else notes))


def profile_candidate(folder: Path, request: Json, left: sandbox.Left, report: int, notes: int) -> Json:
    """Confine this process, then let a profiler watch the candidate."""
    from workbench.executors.workers import profile_worker

    os.close(notes)
    job, kept = trusted.read_job(folder), profile_worker.kept_environment()
    _confine(folder, request, left, report)
    return profile_worker.run(job, folder, kept, limit_s=request["wall_s"], namespaces=left.namespaces)


def _confine(folder: Path, request: Json, left: sandbox.Left, report: int, sealed: int | None = None) -> None:
    """Confine this process, and say in `report` how far that went. It can no longer close the descriptor `sealed`.

    A process on a GPU may also write to its own folder of /proc, where CUDA names its threads, and to NVIDIA's devices.
    One beside which a tool runs (`loopback`) may see other processes, write to /proc and speak TCP in its own network.
    """
    scratch, gpu = folder / "scratch", request.get("device") == "cuda"
    os.chdir(scratch)
    os.environ.clear()
    os.environ.update(
        {
            "PATH": "/usr/bin:/bin:/usr/local/cuda/bin",
            "HOME": str(scratch),
            "USER": "candidate",
            "LOGNAME": "candidate",
            "TMPDIR": str(scratch),
            "LANG": "C.UTF-8",
            "CUTE_DSL_CACHE_DIR": str(scratch / "cache"),
            **({"CUDA_VISIBLE_DEVICES": request["gpu"]} if request.get("gpu") else {}),
        }
    )
    tempfile.tempdir = str(scratch)
    loopback = bool(request.get("loopback"))  # a tool beside the candidate talks to it over TCP
    sandbox.set_limits(cpu_s=int(request["cpu_s"]) + 5, file_bytes=request["disk_bytes"])
    if not loopback:
        sandbox.drop_capabilities()
    counted = not loopback and sandbox.limit_processes(
        alone=left.user or (left.namespaces and sandbox.counts_by_namespace())
    )
    own = "/proc" if loopback else "/proc/self"  # a tool starts the candidate in another process
    devices = (own, *map(str, Path("/dev").glob("nvidia*"))) if gpu else ()
    about = ("/proc",) if loopback else sandbox.process_paths()
    locked = sandbox.landlock(
        (*sandbox.library_paths(), *about, str(folder / "given"), *request.get("readable", ())),
        (str(scratch), "/dev/null", *devices),
        network=loopback,
    )
    filtered = seccomp.refuse_calls(network=loopback, other_processes=loopback, cuda=gpu, sealed=sealed)
    active = {
        sandbox.NAMESPACES: left.namespaces,
        sandbox.PROCESSES: counted,
        sandbox.LANDLOCK: locked,
        sandbox.SECCOMP: filtered,
    }
    layers = ["clean environment", "resource limits", "watchdog", *(name for name, found in active.items() if found)]
    os.write(report, json.dumps(layers).encode() + b"\n")
    os.close(report)
