"""Parts of pages that are generated from raw numbers: sources, tables, sections."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def load(name: str) -> Any:
    """The raw numbers of a file."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def source(name: str, script: str) -> str:
    """Where a section's numbers come from: file, script, date, machine."""
    found = load(name)
    found = found if isinstance(found, dict) else {}
    machine = found.get("machine", found)
    gpu = machine.get("gpu") or machine.get("device") or machine.get("cpu") or ""
    parts = [f"`results/{name}.json`", f"`tests/bench/{script}`", str(machine.get("date", ""))[:10], gpu.split(",")[0]]
    return "Source: " + ", ".join(part for part in parts if part) + "."


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    head = list(head)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(
        [*lines, *("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)]
    )


def time(seconds: float | None) -> str:
    """A time with a unit that suits it."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of positive numbers."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def section(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
