"""Inspects problems in a trusted worker of the warm server, and keeps what was found."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

from workbench.errors import WorkbenchError
from workbench.executors.jobs.client import server
from workbench.executors.jobs.folder import read_reply
from workbench.folders import cache_root
from workbench.records import Facts, Opened, Problem
from workbench.wire import content_hash, from_plain, to_plain

LIMIT_S = 120.0
MOST_KEPT = 1000  # problems; the oldest are removed first
# whose text decides what an inspection finds, besides torch
DECIDING = ("problems/*.py", "records/problem.py", "wire.py")


class WorkerInspector:
    """Inspects problems outside this process."""

    def open(self, problem: Problem, /) -> Opened:
        """The problem as it is understood, and its facts.

        Raises `ProblemError` with file and line when it cannot be used. What was found about a problem that was
        inspected before is read from $CUTEGEN_CACHE.
        """
        kept = cache_root() / "facts" / f"{content_hash(f'{_inspection_version()} {content_hash(problem)}')}.json"
        with contextlib.suppress(OSError, ValueError, WorkbenchError):  # absent or not readable: inspect again
            return from_plain(json.loads(kept.read_text()), Opened)
        opened = _inspect(problem)
        with contextlib.suppress(OSError):
            _keep(kept, opened)
        return opened

    def inspect(self, problem: Problem, /) -> Facts:
        """Facts of the problem, as `open` finds them."""
        return self.open(problem).facts


def _inspect(problem: Problem) -> Opened:
    with tempfile.TemporaryDirectory(prefix="cutegen-job-") as name:
        folder = Path(name)
        (folder / "given").mkdir()
        (folder / "given" / "problem.json").write_text(json.dumps(to_plain(problem)))
        workers = server()
        end = workers.wait(workers.start_job("inspect", name, wall_s=LIMIT_S))
        return from_plain(read_reply(folder, "inspect", end)["opened"], Opened)


def _keep(path: Path, opened: Opened) -> None:
    """Store what was found under a name that only ever has whole files; remove the oldest of too many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(to_plain(opened)))
    os.replace(temporary, path)
    known = sorted(path.parent.glob("*.json"), key=lambda one: one.stat().st_mtime)
    for old in known[:-MOST_KEPT]:
        old.unlink(missing_ok=True)


@functools.cache
def _inspection_version() -> str:
    """A hash of torch's version and of the code that inspects."""
    root = Path(__file__).parents[1]
    texts = [path.read_bytes() for pattern in DECIDING for path in sorted(root.glob(pattern))]
    return hashlib.sha256(b"".join([version("torch").encode(), *texts])).hexdigest()
