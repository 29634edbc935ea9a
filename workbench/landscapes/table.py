"""A landscape's file: CSV, gzipped where its name says so. Its first line is `# ` and a JSON object, its second the names of the columns.

The object has `runs`: for each run of the measuring script the device, its driver, versions, date and protocol; and `problems`: key -> name, origin,
settings, precision, FLOPs and least bytes at full size, and how many legal configurations there are. A row without a program is torch eager.
Times are in microseconds, each sample one call; nothing in a row is modelled.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from workbench.analysis.statistics import median_interval
from workbench.errors import WorkbenchError
from workbench.records import Failure, record
from workbench.wire import Json

COLUMNS = (
    "key",
    "run",
    "program",
    "correct",
    "failure",
    "error",
    "median_us",
    "low_us",
    "high_us",
    "n",
    "samples_us",
    "registers",
    "spill_bytes",
    "shared_bytes",
    "compile_s",
)


@record
class Row:
    """One configuration of one problem. Seconds; `error` in tolerances; registers a thread, bytes a CTA, the largest of its kernels."""

    key: str
    run: int  # which of the file's runs measured it
    program: str  # canonical; "" is torch eager
    correct: bool
    failure: str = ""  # stage/kind: message
    error: float | None = None
    median_s: float | None = None
    low_s: float | None = None  # bootstrap 95 % interval of the median
    high_s: float | None = None
    samples_s: tuple[float, ...] = ()
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    compile_s: float | None = None

    @property
    def why(self) -> Failure | None:
        """The failure as a record; None where there is none."""
        if not self.failure:
            return None
        place, _, message = self.failure.partition(": ")
        stage, _, kind = place.partition("/")
        return Failure(stage=stage, kind=kind, message=message)  # type: ignore[arg-type]


class RowFields(TypedDict, total=False):
    """What was measured of a program: the fields of its row."""

    correct: bool
    failure: str
    error: float | None
    median_s: float | None
    low_s: float | None
    high_s: float | None
    samples_s: tuple[float, ...]
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int | None
    compile_s: float | None


def timed(samples: Iterable[float]) -> RowFields:
    """Fields of a row from its samples in seconds."""
    kept = tuple(samples)
    median, low, high = median_interval(kept)
    return {"median_s": median, "low_s": low, "high_s": high, "samples_s": kept}


def line(row: Row) -> str:
    """The row as a line of the file."""
    out = io.StringIO()
    times = ["" if value is None else f"{value * 1e6:.3f}" for value in (row.median_s, row.low_s, row.high_s)]
    samples = " ".join(f"{value * 1e6:.3f}".rstrip("0").rstrip(".") for value in row.samples_s)
    others = ["" if value is None else str(value) for value in (row.registers, row.spill_bytes, row.shared_bytes)]
    csv.writer(out, lineterminator="\n").writerow(
        [
            row.key,
            row.run,
            row.program,
            int(row.correct),
            " ".join(row.failure.split())[:200],
            "" if row.error is None else f"{row.error:.3g}",
            *times,
            len(row.samples_s) or "",
            samples,
            *others,
            "" if row.compile_s is None else f"{row.compile_s:.2f}",
        ]
    )
    return out.getvalue()


def start(header: Json) -> str:
    """The first two lines of a file."""
    return f"# {json.dumps(header, sort_keys=True)}\n{','.join(COLUMNS)}\n"


def write(path: Path, header: Json, rows: Iterable[Row]) -> None:
    """A whole file; the same contents give the same bytes."""
    text = start(header) + "".join(map(line, rows))
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    else:
        path.write_text(text)


def read(path: Path) -> tuple[Json, list[Row]]:
    """(header, rows); a last line that was cut off is left out. Raises `WorkbenchError` for another kind of file."""
    raw = path.read_bytes()
    first, _, rest = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode().partition("\n")
    names, _, body = rest.partition("\n")
    if not first.startswith("# {") or tuple(names.split(",")) != COLUMNS:
        raise WorkbenchError(
            f"{path} is no landscape: its first line must be '# ' and a JSON object, its second {','.join(COLUMNS)}"
        )
    whole = body[: body.rfind("\n") + 1]
    return json.loads(first[2:]), [
        _row(dict(zip(COLUMNS, values, strict=True)))
        for values in csv.reader(io.StringIO(whole))
        if len(values) == len(COLUMNS)
    ]


def _row(cell: dict[str, str]) -> Row:
    def number(name: str, scale: float = 1.0) -> float | None:
        return float(cell[name]) * scale if cell[name] else None

    def whole(name: str) -> int | None:
        return int(cell[name]) if cell[name] else None

    return Row(
        key=cell["key"],
        run=int(cell["run"]),
        program=cell["program"],
        correct=cell["correct"] == "1",
        failure=cell["failure"],
        error=number("error"),
        median_s=number("median_us", 1e-6),
        low_s=number("low_us", 1e-6),
        high_s=number("high_us", 1e-6),
        samples_s=tuple(float(value) * 1e-6 for value in cell["samples_us"].split()),
        registers=whole("registers"),
        spill_bytes=whole("spill_bytes"),
        shared_bytes=whole("shared_bytes"),
        compile_s=number("compile_s"),
    )


def join(parts: Iterable[tuple[Json, list[Row]]]) -> tuple[Json, list[Row]]:
    """Several files as one: of rows for the same program of the same problem the last stays, unless only an earlier one was timed."""
    runs: list[Json] = []
    problems: Json = {}
    rows: dict[tuple[str, str], Row] = {}
    for header, found in parts:
        numbers = [len(runs) + n for n in range(len(header["runs"]))]
        runs += header["runs"]
        problems |= header["problems"]
        for row in found:
            before = rows.get((row.key, row.program))
            if before is None or row.median_s is not None or before.median_s is None:
                rows[row.key, row.program] = dataclasses.replace(row, run=numbers[row.run])
    return {"runs": runs, "problems": problems}, sorted(rows.values(), key=lambda row: (row.key, row.program))
