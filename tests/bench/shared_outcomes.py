"""Keeps the outcomes of jobs in a folder, so that searches for one problem on one GPU run each program once.

    with share_outcomes(Path("shared")) as shared:
        ...                                   # jobs of the GPU's and of the emulator's executor
    source in shared.sources                  # whether the quick trial of a candidate came from the folder

A job's key is its content hash without the parent version, with the GPU. What was timed beside another parent comes
back without that parent's times. An outcome that is a fault of the machine (no memory, no time) is not kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from workbench.executors.emulator import EmulatorExecutor
from workbench.executors.gpu.executor import GpuExecutor
from workbench.protocols import PLAIN, Executor, RunContext
from workbench.records import Job, Outcome
from workbench.wire import content_hash, dumps, loads

Run = Callable[..., Outcome]


class SharedOutcomes:
    """The outcomes of a folder, which several processes may use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources: set[str] = set()  # of candidates whose quick trial was found
        folder.mkdir(parents=True, exist_ok=True)

    def wrap(self, run: Run) -> Run:
        """An executor's `run` that looks in the folder first."""

        def look_first(executor: Executor, job: Job, context: RunContext = PLAIN, /) -> Outcome:
            here = executor.device_name() or ""
            key = content_hash(f"{executor.name} {here} {content_hash(dataclasses.replace(job, rival=None))}")
            path = self.folder / f"{key}.json"
            with contextlib.suppress(FileNotFoundError):
                found = loads(path.read_text(), Outcome)
                if job.quick:
                    self.sources.add(job.candidate.source)
                return found
            made = run(executor, job, context)
            if made.failure is None or made.failure.stage != "limits":
                ratios = tuple(one for one in made.ratios if one.against != "parent")
                part = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
                part.write_text(dumps(dataclasses.replace(made, rival_timing=None, ratios=ratios)))
                os.replace(part, path)
            return made

        return look_first


@contextlib.contextmanager
def share_outcomes(folder: Path) -> Iterator[SharedOutcomes]:
    """Within the block, both executors look in the folder first, and keep there what they run."""
    shared = SharedOutcomes(folder)
    with contextlib.ExitStack() as stack:
        for executor in (EmulatorExecutor, GpuExecutor):
            stack.enter_context(mock.patch.object(executor, "run", shared.wrap(executor.run)))
        yield shared
