"""Problem -> Facts in a trusted worker of the warm server."""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path

from workbench.executors.client import server
from workbench.executors.emulator import require
from workbench.records import Facts, Problem
from workbench.wire import from_plain, to_plain

LIMIT_S = 120.0


class WorkerInspector:
    """Inspects problems outside this process."""

    def __init__(self) -> None:
        self.stop: threading.Event | None = None

    def inspect(self, problem: Problem, /) -> Facts:
        """Facts of the problem; raises `ProblemError` with file and line when it cannot be used."""
        with tempfile.TemporaryDirectory(prefix="cutegen-job-") as name:
            folder = Path(name)
            (folder / "given").mkdir()
            (folder / "given" / "problem.json").write_text(json.dumps(to_plain(problem)))
            workers = server()
            said = workers.wait(workers.start_job("inspect", name, wall_s=LIMIT_S), self.stop)
            return from_plain(require(folder, "inspect", said)["facts"], Facts)
