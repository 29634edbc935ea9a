"""Prepares the folder of a job, and reads it when the job's process has ended.

A candidate may read `given/`. It cannot read `private/` (seeds and expected outputs). `scratch/` is its working folder,
the only one that it can write. The reply of a trusted role is beside these folders.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import secrets
import signal
import stat
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

from workbench.errors import ProblemError
from workbench.executors.jobs.journal import find_unlike, sum_torch_work
from workbench.executors.jobs.sandbox import WORKER_FAILED, list_missing
from workbench.executors.jobs.trials import AT_CASE, list_runs
from workbench.problems.inputs.init_arguments import fit_candidate
from workbench.records import Failure, Job, KernelBuild, Launch, Outcome, Refusal
from workbench.toolchain.compiled import CompiledCache
from workbench.wire import Json, from_plain, to_plain

# one for all: a compiled kernel names its file, so paths have one length (toolchain/compiled.py)
JOB_PREFIX = "cutegen-job-"
REPLY_BYTES = 256 << 20
SPARE_BYTES = 1 << 30  # on disk, for compiled kernels and caches
OUTPUT_CHARACTERS = 100_000
WAITING = 5  # seconds that may pass per second of CPU time
INSTALLATION = "the last line names what failed in the worker; if it is a missing module, install the workbench again"
COMPILER = "/nvidia_cutlass_dsl/"  # CuTe DSL's folder
FRAME = re.compile(r'^  File "(.+)", line (\d+) in ', re.MULTILINE)  # as Python's faulthandler prints it
UNCOMPILED = "the compiler has no message for it; mostly a tile, a layout or a copy does not divide what it splits"
TOO_MUCH = "an endless loop on the host or in the kernel, or far too much work"


class JobFolder(tempfile.TemporaryDirectory[str]):
    """The temporary folder of a job. It goes also if a candidate left folders that are too deep to be walked through by
    recursion, or closed to everybody.
    """

    def __init__(self, prefix: str = JOB_PREFIX, place: Path | None = None) -> None:
        super().__init__(prefix=prefix, dir=str(place) if place else None, ignore_cleanup_errors=True)

    def cleanup(self) -> None:
        """Remove the folder."""
        _flatten(self.name)
        super().cleanup()


def _flatten(root: str) -> None:
    """Move all folders below `root` into it, whose names are free, and open them."""
    waiting = [root]
    for number in itertools.count():
        if not waiting:
            return
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for index, entry in enumerate(list(entries)):
                if entry.is_dir(follow_symlinks=False):
                    target = f"{root}/moved-{number}-{index}"
                    os.chmod(entry.path, 0o700)
                    os.rename(entry.path, target)
                    waiting.append(target)


def prepare(folder: Path, job: Job) -> Path:
    """Prepare the job's folder. Seeds come from the operating system, and the candidate cannot read them."""
    for name in ("given", "private", "scratch"):
        (folder / name).mkdir(mode=0o700)
    (folder / "given" / "job.json").write_text(json.dumps(to_plain(job)))
    (folder / "scratch" / "candidate.py").write_text(fit_candidate(job.candidate.source, job.problem))
    CompiledCache(job.candidate.source, job.arch).copy_to(folder / "given" / "compiled")
    names = [run.place for run in list_runs(job)]
    (folder / "private" / "seeds.json").write_text(json.dumps({name: secrets.randbits(48) for name in names}))
    return folder


def read_reply(folder: Path, role: str, end: Json) -> Json:
    """The reply of a trusted role whose process ended with `end`. Raises `ProblemError` if it left none."""
    path = folder / f"reply-{role}.json"
    if not path.exists():
        case = folder / "private" / AT_CASE
        where = f" at case {case.read_text()}" if role == "reference" and case.exists() else ""
        if end["end"] in ("wall", "cpu"):
            raise ProblemError(
                f"the problem gave no answer within {end.get('limit_s', 0):g} s{where} (the {role} process): its code "
                "may loop for ever, or it is too large for this machine: make sizes smaller with --set NAME=VALUE"
            )
        said = end.get("output", "").strip()[-300:]
        raise ProblemError(
            f"the {role} process ended without an answer{where} ({end['end']}){f': {said}' * bool(said)}"
        )
    reply: Json = json.loads(path.read_text())
    if "error" in reply:
        raise ProblemError(str(reply["error"]))
    return reply


def candidate_outcome(job: Job, folder: Path, end: Json, executor: str) -> Outcome:
    """The outcome from the files of the candidate's process, or the failure with which it ended."""
    outcome = Outcome(
        executor=executor,
        arch=job.arch,
        device=job.device,
        output_text=end.get("output", "")[:OUTPUT_CHARACTERS],
        versions=tuple((name, version(name)) for name in ("torch", "nvidia-cutlass-dsl")),
        protections=tuple(end.get("protections", ())),
        unprotected=list_missing(end.get("protections", ())),
    )
    path = folder / "scratch" / "reply.json"
    failure = end_failure(job, end)
    CompiledCache(job.candidate.source, job.arch).add_from(folder / "scratch" / "compiled")
    failure = failure or _reply_failure(path, end)
    if failure is not None:
        return replace(outcome, failure=failure)
    try:
        reply = json.loads(path.read_text())
        launches = tuple(from_plain(item, Launch) for item in reply["launches"])
        failure = from_plain(reply["failure"], Failure) if reply["failure"] else None
        notes = end.get("notes") if executor == "emulator" else None
        return replace(
            outcome,
            failure=failure or (find_unlike(job, notes, launches) if notes else None),
            builds=tuple(from_plain(item, KernelBuild) for item in reply["builds"]),
            launches=launches,
            unmapped_parameters=from_plain(reply["unmapped"], tuple[str, ...]),
            reused=bool(reply.get("reused")),
            refusals=tuple(from_plain(item, Refusal) for item in reply["refusals"]),
            torch_work=sum_torch_work(job, notes) if notes else (),
            phases=_read_phases(reply["phases"]),
            findings=tuple(finding for launch in launches for finding in launch.findings),
        )
    except Exception as error:  # the candidate could have written anything
        message = f"the candidate's process left an unreadable answer: {error}"
        return replace(outcome, failure=Failure(stage="integrity", kind="bad_reply", message=message))


def _reply_failure(path: Path, end: Json) -> Failure | None:
    """The failure of a reply that is missing, or that is no plain file of a sensible size; else None."""
    if not os.path.lexists(path):
        return _early_exit(end)
    found = path.lstat()
    if stat.S_ISREG(found.st_mode) and found.st_size <= REPLY_BYTES:
        return None
    what = f"{found.st_size} bytes" if stat.S_ISREG(found.st_mode) else "no plain file"
    message = f"the candidate's process left an unreadable answer: {what}"
    return Failure(stage="integrity", kind="bad_reply", message=message)


def _read_phases(plain: Json) -> tuple[tuple[str, float], ...]:
    """Seconds by phase. Raises `ValueError` for what is no time."""
    phases = tuple((key, float(value)) for key, value in plain.items())
    for key, seconds in phases:
        if not 0 <= seconds < math.inf:
            raise ValueError(f"{key!r} took {seconds} s")
    return phases


def _early_exit(end: Json) -> Failure:
    """The failure of a process that ended without an answer; with the error, if it is the worker that failed."""
    code, lines = end.get("code"), str(end.get("output", "")).strip().splitlines()
    message = f"the candidate's process ended early with exit code {code}"
    if code == WORKER_FAILED and any(line.startswith("Traceback") for line in lines):
        return Failure(stage="run", kind="early_exit", message=f"{message}: {lines[-1]}", hint=INSTALLATION)
    return Failure(stage="run", kind="early_exit", message=message, hint="a candidate must not leave the process")


def disk_limit(job: Job) -> int:
    """Bytes that a job's processes may write: outputs, changed inputs and parameters of every call, and some room."""
    sizes = {
        case.name: sum(spec.size_bytes for spec in (*case.inputs, *case.outputs, *job.facts.parameters))
        for case in job.facts.cases
    }
    return SPARE_BYTES + sum(sizes.get(run.case, 0) * max(len(run.values), run.repeats) for run in list_runs(job))


class Limits(TypedDict):
    """Seconds after which a job is killed."""

    cpu_s: float
    wall_s: float


def cpu_limits(seconds: float) -> Limits:
    """Limits for `Server.start_job` that count CPU time, so that a busy machine fails nobody."""
    return {"cpu_s": seconds, "wall_s": WAITING * seconds}


def end_failure(job: Job, end: Json) -> Failure | None:
    """The failure of an abnormal end; None if the process ended by itself with code 0."""
    limits = {
        "cpu": ("timeout", f"no result within {end.get('limit_s', 0):g} s of CPU time", TOO_MUCH),
        "wall": ("timeout", f"no result within {end.get('limit_s', 0):g} s", TOO_MUCH),
        "memory": (
            "memory",
            f"more than {job.memory_limit_bytes >> 20} MiB of memory used",
            "allocate outputs of the problem's size only",
        ),
        "disk": (
            "disk",
            f"more than {end.get('limit_bytes', 0) >> 20} MiB written",
            "a candidate writes no files; only compiled kernels and outputs are kept in its folder",
        ),
        "output": ("output_flood", "more than 1 MiB printed", "print less"),
        "processes": ("processes", "too many processes started", "a candidate starts no processes"),
    }
    how = end["end"]
    if how in limits:
        kind, message, hint = limits[how]
        return Failure(stage="limits", kind=kind, message=message, hint=hint)
    if how == "signal":
        number = end["signal"]
        name = signal.Signals(number).name if number in signal.valid_signals() else str(number)
        return _describe_crash(name, str(end.get("output", "")))
    if how == "killed":
        return Failure(stage="run", kind="killed", message="the candidate's process was killed")
    return _early_exit(end) if end.get("code") else None


def _describe_crash(name: str, output: str) -> Failure:
    """The failure of a process that died of a signal, with the candidate's last line if its output has a traceback."""
    frames = FRAME.findall(output.partition("Fatal Python error: ")[2])  # the last call first
    line = next((int(number) for file, number in frames if file.endswith("/scratch/candidate.py")), None)
    if line is not None and COMPILER in frames[0][0]:
        message = f"the compiler of CuTe DSL ended its process ({name}) at this line"
        return Failure(stage="compile", kind="signal", message=message, line=line, hint=UNCOMPILED)
    return Failure(stage="run", kind="signal", message=f"the candidate's process died of {name}", line=line)
