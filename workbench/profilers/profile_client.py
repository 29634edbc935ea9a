"""The parent's side of a profile: prepares a job, starts a confined process that profiles it, reads the files.

Nothing that comes back is trusted. The process runs executors/workers/profile_worker.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.errors import UserError
from workbench.executors.gpu.presence import find_gpu, why_no_gpu
from workbench.executors.gpu.turns import take_turn
from workbench.executors.jobs.client import server
from workbench.executors.jobs.folder import JobFolder, end_failure, prepare
from workbench.protocols import PLAIN, RunContext
from workbench.records import Failure, Job, KernelBuild, Launch, record
from workbench.wire import Json, from_plain

LARGEST = 256 << 20  # bytes; a larger file is not read back
PROCESSES = 64


@record
class ProfiledRun:
    """What a confined process left: builds, launches (of the emulator), a tool's output, sandbox layers and gaps."""

    folder: Path
    builds: tuple[KernelBuild, ...] = ()
    launches: tuple[Launch, ...] = ()
    failure: Failure | None = None
    tool_status: int | None = None
    tool_said: str = ""
    protections: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()

    def text(self, name: str) -> str:
        """A text file of the scratch folder; "" if it is missing, no plain file, or too large."""
        path = self.folder / "scratch" / name
        if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
            return ""
        return path.read_text(errors="replace")


def needs_gpu() -> str | None:
    """None if there is a GPU, else a sentence that says why none can be used and what to do."""
    missing = why_no_gpu()
    advice = "profile on a machine with an NVIDIA GPU, or here by counters, sampled or sass, which need none"
    return missing and f"{missing}; {advice}"


@contextlib.contextmanager
def run_profiled(
    job: Job,
    mode: str,
    context: RunContext = PLAIN,
    *,
    case: str,
    wall_s: float,
    options: Json | None = None,
    **request: Any,
) -> Iterator[ProfiledRun]:
    """Run the job's candidate at `case` in a confined process, in a `mode` of profile_worker.py.

    Its files exist until the `with` block ends. On a GPU it waits for its turn, and holds it while the process runs.
    """
    gpu = mode != "emulator"
    chosen = dataclasses.replace(job, cases=(case,), trials=1, timed_calls=0, want_sass=True, wall_limit_s=wall_s)
    if not any(known.name == case for known in job.facts.cases):
        raise UserError(
            f"this problem has no case {case!r} to profile at; "
            f"there are: {', '.join(known.name for known in job.facts.cases) or 'none'}"
        )
    with JobFolder() as name:
        folder = prepare(Path(name), chosen)
        (folder / "given" / "profile.json").write_text(json.dumps({"mode": mode, **(options or {})}))
        workers = server()
        here = find_gpu()
        extra: dict[str, Any] = {"device": "cuda", "gpu": "" if isinstance(here, str) else here.uuid} if gpu else {}
        memory = (64 << 30) if gpu else job.memory_limit_bytes
        with take_turn(context) if gpu else contextlib.nullcontext():
            end = workers.wait(
                workers.start_job(
                    "profile",
                    str(folder),
                    wall_s=wall_s,
                    memory_bytes=memory,
                    connection=None,
                    processes=PROCESSES,
                    tools=True,
                    **extra,
                    **request,
                ),
                context.stop,
            )
        yield _read_back(chosen, folder, end)


def _read_back(job: Job, folder: Path, end: Json) -> ProfiledRun:
    """The run from its folder. A missing or unreadable reply is a failure of the run."""
    seen = ProfiledRun(folder=folder, failure=end_failure(job, end), protections=tuple(end.get("protections", ())))
    text = seen.text("reply.json")
    if not text:
        message = f"the profiled process left no answer: {end.get('output', '').strip()[-300:]}"
        return dataclasses.replace(
            seen, failure=seen.failure or Failure(stage="run", kind="no_answer", message=message)
        )
    try:
        return _parse_reply(json.loads(text), seen)
    except Exception as error:
        message = f"the profiled process left an unreadable answer: {error}"
        return dataclasses.replace(seen, failure=Failure(stage="integrity", kind="bad_reply", message=message))


def _parse_reply(reply: Json, seen: ProfiledRun) -> ProfiledRun:
    tool = reply.get("tool", {})
    return dataclasses.replace(
        seen,
        failure=seen.failure or (from_plain(reply["failure"], Failure) if reply["failure"] else None),
        builds=tuple(from_plain(item, KernelBuild) for item in reply["builds"]),
        launches=tuple(from_plain(item, Launch) for item in reply["launches"]),
        tool_status=tool.get("status"),
        tool_said=str(tool.get("said", "")),
        exposed=tuple(reply.get("open", ())),
        versions=tuple((str(key), str(value)) for key, value in reply.get("versions", {}).items()),
    )
