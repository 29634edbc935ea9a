"""Landscapes: for a problem, every configuration that was tried on a GPU, with its measured time. Recorded data, shipped with the workbench.

    find(problem)           its `Landscape`, or None
    landscapes()            all of them, by the problem's name
    instead(problem)        in words, what was recorded where this problem was not

Files: `*.csv.gz` beside this module (see `table`), and those in the folder $CUTEGEN_LANDSCAPES.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench import problems
from workbench.codegen.canonical import canonical, code
from workbench.errors import ProgramError
from workbench.landscapes import table
from workbench.landscapes.keys import distance, head, problem_key, settings_of, spelt, with_arch
from workbench.landscapes.table import Row
from workbench.records import Problem, record
from workbench.wire import Json

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Landscape", "Row", "find", "instead", "landscapes", "problem_key"]

OWN = "CUTEGEN_LANDSCAPES"
FEW = 8  # landscapes that are listed in one line


@record
class Landscape:
    """All rows of one problem; `facts` is what the file's header says of it, `runs` what it says of who measured."""

    key: str
    name: str
    facts: Json
    runs: tuple[Json, ...]
    rows: Mapping[str, Row]  # by canonical program
    eager: Row | None = None

    @property
    def correct(self) -> tuple[Row, ...]:
        """Rows that passed and were timed, fastest first."""
        return tuple(
            sorted(
                (row for row in self.rows.values() if row.correct and row.median_s), key=lambda row: row.median_s or 0.0
            )
        )

    @property
    def best(self) -> Row | None:
        """The fastest correct configuration."""
        return next(iter(self.correct), None)

    @property
    def said(self) -> str:
        """Where and when it was measured, in a few words."""
        dates = sorted({str(run["date"])[:10] for run in self.runs})
        return f"recorded on {self.runs[-1]['device']}, {dates[0]}" + (f" to {dates[-1]}" if dates[1:] else "")

    def row(self, program: str, arch: str = "sm_90a") -> Row | None:
        """The row of a program or of one with the same code, however its settings are ordered; None where it was not measured."""
        try:
            text = canonical(with_arch(program, arch))
        except ProgramError:
            return None
        what = head(text)
        return self.rows.get(text) or next(
            (row for row in self.rows.values() if head(row.program) == what and code(row.program) == code(text)), None
        )

    def nearest(self, program: str) -> Row | None:
        """The measured row with the closest settings that computes it in the same way."""
        what, wanted = head(program), settings_of(program)
        near = [row for row in self.rows.values() if head(row.program) == what]
        return min(near, key=lambda row: (distance(wanted, settings_of(row.program)), row.program), default=None)

    def frame(self) -> DataFrame:
        """A pandas DataFrame, a row per configuration: its settings as columns (text, "" where left out), then what was measured."""
        import pandas

        made = []
        for row in self.rows.values():
            settings = {name: spelt(value) for name, value in settings_of(row.program).items()}
            made.append(
                {
                    **settings,
                    "correct": row.correct,
                    "measured_s": row.median_s,
                    "low_s": row.low_s,
                    "high_s": row.high_s,
                    "registers": row.registers,
                    "spill_bytes": row.spill_bytes,
                    "shared_bytes": row.shared_bytes,
                    "compile_s": row.compile_s,
                    "failure": row.failure,
                    "program": row.program,
                }
            )
        found = pandas.DataFrame(made)
        names = [name for name in found.columns if name not in Row.__dataclass_fields__ and name != "measured_s"]
        return found.fillna(dict.fromkeys(names, ""))

    def problem(self) -> Problem:
        """The problem with its sizes written into its source, where it is a shipped one or its file is here; else `ProblemError`."""
        found = problems.load(
            self.facts["origin"], name=self.name, precision=self.facts["precision"], mode=self.facts["mode"]
        )
        return dataclasses.replace(
            found, source=problems.with_settings(found.source, tuple(self.facts["settings"].items()))
        )


def own_folder() -> Path:
    """Where `cutegen tune` keeps what it measures: $CUTEGEN_LANDSCAPES, else landscapes/ beside the sessions."""
    return Path(os.environ.get(OWN) or Path(os.environ.get("CUTEGEN_ROOT", ".cutegen")) / "landscapes")


def files() -> tuple[Path, ...]:
    """Shipped files, then the person's own."""
    folders = [Path(__file__).parent, own_folder()]
    return tuple(
        path for folder in folders for pattern in ("*.csv.gz", "*.csv") for path in sorted(folder.glob(pattern))
    )


@functools.lru_cache(maxsize=4)
def _read(paths: tuple[tuple[str, int], ...]) -> dict[str, Landscape]:
    header, rows = table.join(table.read(Path(path)) for path, _ in paths)
    found = {}
    for key, facts in header["problems"].items():
        mine = [row for row in rows if row.key == key]
        used = sorted({row.run for row in mine})
        if mine:
            found[key] = Landscape(
                key=key,
                name=facts["name"],
                facts=facts,
                runs=tuple(header["runs"][n] for n in used),
                rows={row.program: row for row in mine if row.program},
                eager=next((row for row in mine if not row.program), None),
            )
    return found


def _all() -> dict[str, Landscape]:
    return _read(tuple((str(path), path.stat().st_mtime_ns) for path in files()))


def landscapes() -> dict[str, Landscape]:
    """Every landscape, by its problem's name."""
    return {one.name: one for one in sorted(_all().values(), key=lambda one: one.name)}


def find(problem: Problem) -> Landscape | None:
    """The landscape of a problem; None where there is none."""
    return _all().get(problem_key(problem))


def instead(problem: Problem) -> str:
    """What was recorded, for a person who asked for a problem that was not: the same one in other precisions or at other sizes, else which there are."""
    same = [one.facts for one in landscapes().values() if Path(one.facts["origin"]).stem == problem.name]
    if same:
        ways = (
            " ".join(
                (
                    f"--precision {facts['precision']}",
                    *([f"--mode {facts['mode']}"] if facts["mode"] != "train" else []),
                    *(f"--set {name}={value}" for name, value in facts["settings"].items()),
                )
            )
            for facts in same
        )
        return f"{problem.name} was recorded with {', or '.join(sorted(ways))}"
    known = tuple(landscapes())
    return (
        f"recorded are {', '.join(known) or 'no problems'}"
        if len(known) <= FEW
        else f"recorded are {len(known)} problems, which cutegen landscape lists"
    )
