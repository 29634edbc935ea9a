"""Hides the workbench from imports, in this process and in others, for what has to run without it."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Hidden:
    """A finder that comes before all others and refuses the workbench."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.split(".")[0] == "workbench":
            raise ImportError(f"an exported file imports {name}")


@contextmanager
def without_workbench() -> Iterator[None]:
    """`import workbench` raises ImportError in the block."""
    hidden = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "workbench"}
    for name in hidden:
        del sys.modules[name]
    finder: Any = Hidden()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.modules.update(hidden)


def run_without_workbench(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder; `import workbench` raises ImportError in each Python that it starts."""
    hidden = folder.parent / "hidden"
    hidden.mkdir(exist_ok=True)
    install = "import sys\nsys.meta_path.insert(0, Hidden())\n"
    (hidden / "sitecustomize.py").write_text(inspect.getsource(Hidden) + install)
    paths = os.pathsep.join((str(hidden), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
