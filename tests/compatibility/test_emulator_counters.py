"""What the emulator counts and finds in examples and small programs is what it counted and found when
emulator_counters.json was written: every counter, every finding, every modelled time."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.cli import main

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parent / "emulator_counters.json"
EXAMPLES, PROGRAMS = "workbench/examples/", "tests/emulator/programs/"

CASES = (
    EXAMPLES + "bandwidth.py --passes 1",
    EXAMPLES + "conv2d.py --batch 1 --channels 8 --filters 24 --size 9",
    EXAMPLES + "flash_attention.py --heads 1 --queries 70 --keys 90",
    EXAMPLES + "flash_attention.py --heads 1 --queries 130 --keys 130 --causal --dtype float16",
    EXAMPLES + "gemm_hopper.py --m 136 --n 120 --k 72",
    EXAMPLES + "gemm_hopper.py --m 72 --n 136 --k 40 --dtype float16 --add --tile 64 64 64 --cluster 1 2",
    EXAMPLES + "grouped_gemm.py --problems 2 --size 64",
    EXAMPLES + "histogram.py --count 5003 --bins 100",
    EXAMPLES + "norm.py --rows 5 --columns 1000",
    EXAMPLES + "reduce_all.py --count 20011",
    EXAMPLES + "scan.py --rows 3 --columns 4001",
    EXAMPLES + "split_k.py --m 16 --n 16 --k 70",
    EXAMPLES + "top_k.py --rows 2 --columns 501 --k 5",
    EXAMPLES + "transpose.py --rows 70 --columns 50",
    "--device A100 " + EXAMPLES + "transpose.py --rows 33 --columns 65",
    "--sanitize " + EXAMPLES + "norm.py --rows 3 --columns 77",
    "--follow " + EXAMPLES + "reduce_all.py --count 3001",
    "--follow " + EXAMPLES + "gemm_hopper.py --m 72 --n 72 --k 40",
    PROGRAMS + "scale.py",
    PROGRAMS + "scale.py --over 100",
    "--device A100 --sanitize " + PROGRAMS + "scale.py --n 777",
    PROGRAMS + "driver_memory.py",
    PROGRAMS + "driver_memory.py freed",
    PROGRAMS + "driver_memory.py unwritten",
    PROGRAMS + "tvm_ffi_scale.py",
)


def short(value: Any) -> str:
    """A hash in place of what would take many lines."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


# of lines, which edits move; and counters that came later, as the traffic of an L2 of the device ("l2") did
LATER = ("stalls", "waits", "active_threads")


def launch(found: dict[str, Any]) -> dict[str, Any]:
    """A launch without its kernel's name and its zeros.

    The counters of its lines, in their order, as a hash, since edits move lines.
    """
    kept = {
        name: value
        for name, value in found.items()
        if name not in ("kernel", "lines", "total", "findings", "paced", "l2")
    }
    paced = found["paced"] and {name: value for name, value in found["paced"].items() if name not in LATER}
    return {
        **kept,
        "total": {name: value for name, value in found["total"].items() if value},
        "paced": paced,
        "findings": [finding(one) for one in found["findings"]],
        "lines": short([[value for name, value in row.items() if name != "line"] for row in found["lines"]]),
    }


def finding(found: dict[str, Any]) -> list[Any]:
    """What was found, how often and by whom."""
    return [found[name] for name in ("kind", "severity", "message", "count", "block", "thread")]


def counted(case: str, folder: Path) -> dict[str, Any]:
    """What `cutegen emulate` says of a program, as far as it stays the same from run to run."""
    file = folder / "out.json"
    torch.manual_seed(0)  # examples draw their inputs
    status = main(["emulate", "--counters", str(file), *case.split()])
    document = json.loads(file.read_text())
    errors = [
        {
            "kind": error["failure"]["kind"],
            "message": error["failure"]["message"],
            "finding": error["finding"] and finding(error["finding"]),
        }
        for error in document["errors"]
    ]
    return {
        "status": status,
        "device": document["device"],
        "arch": document["arch"],
        "errors": errors,
        "launches": [launch(found) for found in document["launches"]],
    }


@pytest.fixture
def seen(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], dict[str, Any]]:
    monkeypatch.chdir(ROOT)
    return lambda case: counted(case, tmp_path)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if "split_k" in case else case for case in CASES]
)
def test_counters_and_findings_are_as_written_down(case: str, seen: Callable[[str], dict[str, Any]]) -> None:
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    found = json.loads(json.dumps(seen(case)))
    if os.environ.get("CUTEGEN_GOLDEN"):
        recorded[case] = found
        RECORDED.write_text(
            "{\n"
            + ",\n".join(f"{json.dumps(name)}: {json.dumps(recorded[name])}" for name in CASES if name in recorded)
            + "\n}\n"
        )
    assert comparable(found, case) == comparable(recorded[case], case)


def comparable(found: dict[str, Any], case: str) -> dict[str, Any]:
    """What must stay: of an example, whose lines are written anew with the library, all but the counters of single
    lines."""
    if EXAMPLES not in case:
        return found
    launches = [{name: value for name, value in one.items() if name != "lines"} for one in found["launches"]]
    return {**found, "launches": launches}
