"""The parent's side of observe.py: lay out a job, have its candidate watched in a confined process, read what was left. Nothing that comes back is trusted."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.errors import UserError
from workbench.executors.client import server
from workbench.executors.emulator import ended, prepare
from workbench.records import Failure, Job, KernelBuild, Launch, record
from workbench.wire import from_plain

LARGEST = 256 << 20  # bytes of a file that is read back
PROCESSES = 64


@record
class Seen:
    """What a confined process left: builds, launches (on the emulator), what a tool said, sandbox layers, and what is open."""

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
        """A text file of the scratch folder; empty where there is none, or where it is not a plain file of a sane size."""
        path = self.folder / "scratch" / name
        if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
            return ""
        return path.read_text(errors="replace")


def no_gpu() -> str | None:
    """Why nothing can be measured here; None with a GPU."""
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA driver was found (nvidia-smi is not on the path)"
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return "nvidia-smi does not answer"
    return None if not done.returncode and "GPU" in done.stdout else "nvidia-smi finds no GPU"


def needs_gpu() -> str | None:
    """As `no_gpu`, and what to do about it."""
    missing = no_gpu()
    return missing and f"{missing}; profile on a machine with an NVIDIA GPU, or here by counters, sampled or sass, which need none"


@contextlib.contextmanager
def watched(job: Job, mode: str, *, case: str, wall_s: float, stop: threading.Event | None = None, options: dict[str, Any] | None = None, **request: Any) -> Iterator[Seen]:
    """Run the job's candidate at `case` in a confined process under `mode` of observe.py; the files it left are there until the block ends."""
    gpu = mode != "emulator"
    chosen = dataclasses.replace(job, cases=(case,), trials=1, timed_calls=0, want_sass=True, wall_limit_s=wall_s)
    if not any(known.name == case for known in job.facts.cases):
        raise UserError(f"this problem has no case {case!r} to profile at; there are: {', '.join(known.name for known in job.facts.cases) or 'none'}")
    with tempfile.TemporaryDirectory(prefix="cutegen-profile-", ignore_cleanup_errors=True) as name:
        folder = prepare(Path(name), chosen)
        (folder / "given" / "observe.json").write_text(json.dumps({"mode": mode, **(options or {})}))
        workers = server()
        extra = {"device": "cuda"} if gpu else {}
        memory = (64 << 30) if gpu else job.memory_limit_bytes
        said = workers.wait(workers.start_job("observe", str(folder), wall_s=wall_s, memory_bytes=memory, processes=PROCESSES, **extra, **request), stop)
        yield _seen(chosen, folder, said)


def _seen(job: Job, folder: Path, said: dict[str, Any]) -> Seen:
    seen = Seen(folder=folder, failure=ended(job, said))
    text = seen.text("reply.json")
    if not text:
        return dataclasses.replace(seen, failure=seen.failure or Failure(stage="run", kind="no_answer", message=f"the profiled process left no answer: {said.get('output', '').strip()[-300:]}"))
    try:
        reply = json.loads(text)
        tool = reply.get("tool", {})
        return Seen(
            folder=folder, failure=seen.failure or (from_plain(reply["failure"], Failure) if reply["failure"] else None), builds=tuple(from_plain(item, KernelBuild) for item in reply["builds"]),
            launches=tuple(from_plain(item, Launch) for item in reply["launches"]), tool_status=tool.get("status"), tool_said=str(tool.get("said", "")), protections=tuple(reply["protections"]),
            exposed=tuple(reply.get("open", ())), versions=tuple((str(key), str(value)) for key, value in reply.get("versions", {}).items()),
        )  # fmt: skip
    except Exception as error:
        return dataclasses.replace(seen, failure=Failure(stage="integrity", kind="bad_reply", message=f"the profiled process left an unreadable answer: {error}"))
