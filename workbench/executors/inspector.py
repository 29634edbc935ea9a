"""Inspects problems in a trusted worker of the warm server."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from workbench.executors.jobs.client import server
from workbench.executors.jobs.folder import read_reply
from workbench.records import Facts, Problem
from workbench.wire import from_plain, to_plain

LIMIT_S = 120.0


class WorkerInspector:
    """Inspects problems outside this process."""

    def inspect(self, problem: Problem, /) -> Facts:
        """Facts of the problem; raises `ProblemError` with file and line when it cannot be used."""
        with tempfile.TemporaryDirectory(prefix="cutegen-job-") as name:
            folder = Path(name)
            (folder / "given").mkdir()
            (folder / "given" / "problem.json").write_text(json.dumps(to_plain(problem)))
            workers = server()
            end = workers.wait(workers.start_job("inspect", name, wall_s=LIMIT_S))
            return from_plain(read_reply(folder, "inspect", end)["facts"], Facts)
