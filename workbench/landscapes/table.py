"""Reads and writes a landscape's file: CSV, gzipped if its name ends in .gz.

The first line is `# ` and a JSON object, the second the names of the columns. The object has two entries. `runs` holds
the device, its driver, versions, date and protocol of each measuring run. `problems` maps a key to the name, origin,
settings, precision, FLOPs and least bytes at full size, and the number of legal configurations. A row without a
program is torch eager. Times are in microseconds, and each sample is one call. No number of a row is modelled.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from workbench.analysis.statistics import median_interval
from workbench.errors import WorkbenchError
from workbench.records import Failure, record
from workbench.wire import Json

MOST_BYTES = 256 << 20  # of a file's text
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
    """One configuration of one problem. Times are in seconds, `error` in tolerances.

    Registers per thread and bytes per CTA are those of the program's largest kernel.
    """

    key: str
    run: int  # index of the run that measured it, in the file's header
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
    def failure_record(self) -> Failure | None:
        """The failure as a record; None if there is none."""
        if not self.failure:
            return None
        place, _, message = self.failure.partition(": ")
        stage, _, kind = place.partition("/")
        return Failure(stage=stage, kind=kind, message=message)  # type: ignore[arg-type]


class RowFields(TypedDict, total=False):
    """Measured fields of a program's row."""

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


def timing_fields(samples: Iterable[float]) -> RowFields:
    """Median, interval and samples of a row, from its samples in seconds."""
    kept = tuple(samples)
    median, low, high = median_interval(kept)
    return {"median_s": median, "low_s": low, "high_s": high, "samples_s": kept}


def format_row(row: Row) -> str:
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


def format_header(header: Json) -> str:
    """The first two lines of a file: the JSON object and the names of the columns."""
    return f"# {json.dumps(header, sort_keys=True)}\n{','.join(COLUMNS)}\n"


def write(path: Path, header: Json, rows: Iterable[Row]) -> None:
    """Write a whole file. The same contents give the same bytes."""
    text = format_header(header) + "".join(map(format_row, rows))
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    else:
        path.write_text(text)


def read(path: Path) -> tuple[Json, list[Row]]:
    """(header, rows) of a file, without a last line that was cut off. Raises `WorkbenchError` if it is no landscape."""
    try:
        return _parse(path, _read_text(path))
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError, zlib.error, csv.Error) as error:
        text = next(iter(str(error).splitlines()), "")
        raise WorkbenchError(f"{path} is no landscape: {type(error).__name__}: {text}; remove it") from None
    except gzip.BadGzipFile as error:
        raise WorkbenchError(f"{path} is no landscape: {error}; remove it") from None


def _read_text(path: Path) -> str:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise WorkbenchError(f"{path} has more than {MOST_BYTES >> 20} MiB of text, the limit of a landscape")
    return bytes(raw).decode()


def _parse(path: Path, text: str) -> tuple[Json, list[Row]]:
    first, _, rest = text.partition("\n")
    names, _, body = rest.partition("\n")
    if not first.startswith("# {") or tuple(names.split(",")) != COLUMNS:
        raise WorkbenchError(
            f"{path} is no landscape: its first line must be '# ' and a JSON object, its second {','.join(COLUMNS)}"
        )
    whole = body[: body.rfind("\n") + 1]
    header = json.loads(first[2:])
    for facts in header["problems"].values():
        _check_facts(path, facts)
    rows = [
        _row(dict(zip(COLUMNS, values, strict=True)))
        for values in csv.reader(io.StringIO(whole))
        if len(values) == len(COLUMNS)
    ]
    if not isinstance(header["runs"], list) or any(not 0 <= row.run < len(header["runs"]) for row in rows):
        raise WorkbenchError(f"{path} is no landscape: a row names a run that its header does not have; remove it")
    return header, rows


def _check_facts(path: Path, facts: Json) -> None:
    """Raise `WorkbenchError` if a problem of the header lacks what every problem has."""
    missing = [name for name in ("name", "origin", "settings", "precision") if name not in facts]
    if missing:
        raise WorkbenchError(f"{path} is no landscape: a problem of its header has no {missing[0]}; remove it")


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
    """Join several files into one.

    Of several rows for the same program, problem and GPU the last one stays, unless only an earlier one was timed.
    """
    runs: list[Json] = []
    problems: Json = {}
    rows: dict[tuple[str, str, str], Row] = {}
    for header, found in parts:
        numbers = [len(runs) + n for n in range(len(header["runs"]))]
        runs += header["runs"]
        problems |= header["problems"]
        for row in found:
            place = (row.key, row.program, str(header["runs"][row.run].get("device", "")))
            before = rows.get(place)
            if before is None or row.median_s is not None or before.median_s is None:
                rows[place] = dataclasses.replace(row, run=numbers[row.run])
    return {"runs": runs, "problems": problems}, [rows[place] for place in sorted(rows)]
