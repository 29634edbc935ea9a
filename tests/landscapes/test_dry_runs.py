"""A measuring script tried out without a GPU leaves nothing behind, unless it is told where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "only"), [("rows_on_gpu.py", "tanh"), ("scans_on_gpu.py", "pool")])
def test_a_dry_run_writes_only_where_it_is_told(tmp_path: Path, script: str, only: str) -> None:
    def dry(*more: str) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "OUT"} | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, str(ROOT / "tests" / "bench" / script), "--dry-run", "--only", only, *more],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=110,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    dry()
    assert not list(tmp_path.iterdir())
    if script != "rows_on_gpu.py":
        return
    dry("--out", "told.json")
    assert [path.name for path in tmp_path.iterdir()] == ["told.json"] and json.loads(
        (tmp_path / "told.json").read_text()
    )["rows"]
