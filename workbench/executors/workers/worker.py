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
from workbench.executors.jobs import rpc, sandbox
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


def main(request: Json, namespaces: bool, report: int) -> None:
    """Carry out the request; `namespaces` says whether this process has left those of its parent.

    A role that is confined writes the layers of its sandbox to the descriptor `report`. It is closed before any code of
    a candidate runs.
    """
    folder, role = Path(request["folder"]), request["role"]
    if request.get("gpu"):  # before CUDA starts
        os.environ["CUDA_VISIBLE_DEVICES"] = request["gpu"]
    if role in sandbox.CONFINED:
        run = run_candidate if role == "candidate" else profile_candidate
        reply, target = run(folder, request, namespaces, report), folder / "scratch" / "reply.json"
    else:
        os.close(report)
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


def run_candidate(folder: Path, request: Json, namespaces: bool, report: int) -> Json:
    """Confine this process, then import and run the candidate at every case and trial."""
    from workbench.executors.workers.candidate import attempt

    job = trusted.read_job(folder)
    connection = rpc.open_inherited() if request.get("connected") else None
    _confine(folder, request, namespaces, report)
    return attempt(job, folder, gpu=request.get("device") == "cuda", connection=connection)


def profile_candidate(folder: Path, request: Json, namespaces: bool, report: int) -> Json:
    """Confine this process, then let a profiler watch the candidate."""
    from workbench.executors.workers import profile_worker

    job, kept = trusted.read_job(folder), profile_worker.kept_environment()
    _confine(folder, request, namespaces, report)
    return profile_worker.run(job, folder, kept, limit_s=request["wall_s"], namespaces=namespaces)


def _confine(folder: Path, request: Json, namespaces: bool, report: int) -> None:
    """Confine this process, and say in `report` how far that went."""
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
    sandbox.set_limits(cpu_s=int(request["cpu_s"]) + 5, file_bytes=(32 if gpu else 8) << 30)
    devices = ("/dev/shm", "/proc", *map(str, Path("/dev").glob("nvidia*"))) if gpu else ()
    loopback = bool(request.get("loopback"))  # a tool beside the candidate talks to it over TCP
    locked = sandbox.landlock(
        (*sandbox.library_paths(), str(folder / "given"), *request.get("readable", ())),
        (str(scratch), "/dev/null", *devices),
        network=loopback,
    )
    layers = ["clean environment", "resource limits", "watchdog"]
    layers += (["namespaces (network, processes)"] if namespaces else []) + (["Landlock"] if locked else [])
    os.write(report, json.dumps(layers).encode() + b"\n")
    os.close(report)
