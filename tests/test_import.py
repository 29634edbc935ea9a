"""`import workbench` is light, the layers contract holds, an exported file needs nothing of ours."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "cutlass", "IPython", "openai", "pandas", "plotly")


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, workbench; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_session_loads_nothing_heavy() -> None:
    code = f"import sys, workbench.session; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_import_takes_under_150_ms() -> None:
    def seconds(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    own = statistics.median(seconds("import workbench") for _ in range(7)) - statistics.median(seconds("pass") for _ in range(7))
    assert own < 0.150


def test_layers_contract() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([str(lint)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
