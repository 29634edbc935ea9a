"""tests/bench/foreign_kernels.py without a GPU: a dry run, the counts of one case, and cases that fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import foreign_count
import foreign_kernels
from foreign_cases import Case, difference

ROOT = Path(__file__).parents[2]


def run(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tests/bench/foreign_kernels.py", *arguments, "--out", str(out)]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )


@pytest.mark.slow
def test_a_dry_run_compares_with_torch_and_goes_on_where_it_was(tmp_path: Path) -> None:
    out = tmp_path / "times.json"
    first = run(out, "time", "--dry", "--only", "TMA 128")
    rows = json.loads(out.read_text())["rows"]
    assert first.returncode == 0, first.stdout + first.stderr
    assert [(row["correct"], row["error"]) for row in rows] == [(True, 0.0)]
    assert "1 rows" in run(out, "time", "--dry", "--only", "TMA 128").stdout
    assert json.loads(out.read_text())["rows"] == rows


def test_a_case_is_counted_at_its_full_size() -> None:
    case = next(case for case in foreign_kernels.all_cases(None, False) if case.name.endswith("TMA 256"))
    row = foreign_count.count(case)
    (launch,) = row["launches"]
    moved = launch["total"]["global_read_bytes"] + launch["total"]["global_write_bytes"]
    assert row["work"]["least_bytes"] == 2 * 16384 * 8192 * 2 == moved
    assert launch["sampled"] == 4 and launch["paced"]["cycles"] > 0 and row["builds"][0]["registers"] > 0


def start() -> Any:
    def make_row(case: Case) -> dict[str, Any]:
        if case.name == "dies":
            os._exit(7)
        if case.name == "hangs":
            time.sleep(60)
        if case.name == "raises":
            raise ValueError("two\nlines")
        return {"correct": True}

    return make_row


@pytest.mark.slow
def test_a_case_that_fails_is_named_and_the_others_go_on() -> None:
    names = ["good", "dies", "raises", "hangs", "fine"]
    cases = [Case(name, "group", None, None) for name in names]  # type: ignore[arg-type]
    pool = foreign_kernels.Pool(cases, start, workers=2, limit_s=3.0, fresh=False)
    rows = {row["label"]: row for row in pool.rows(list(range(5)), 60.0)}
    assert rows["good"]["correct"] and rows["fine"]["correct"]
    assert rows["dies"]["left_out"] == "the process ended with 7"
    assert rows["raises"]["left_out"] == "ValueError: two lines"
    assert rows["hangs"]["left_out"] == "longer than 3 s"
    assert not pool.running


@pytest.mark.parametrize(("got", "error"), [([1.0, 4.0], 0.0), ([1.0, 3.0], 0.25), ([1.0, float("nan")], float("inf"))])
def test_differences_are_relative_to_the_largest_element(got: list[float], error: float) -> None:
    import torch

    expected = torch.tensor([1.0, 4.0])
    assert difference(torch.tensor(got), expected) == error
    assert difference([expected, torch.tensor(got)], [expected, expected]) == error
    assert difference(torch.ones(3), expected) == float("inf")
