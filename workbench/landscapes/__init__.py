"""A landscape holds every configuration of a problem that was tried on one kind of GPU, with its measured time.

    find(problem, device)         its `Landscape` on that device, or None
    find_near(problem, device)    the same, else one of another device, which its `provenance` names
    landscapes()                  all of them, by the problem's name
    describe_recorded(problem)    a sentence on what was recorded, for a problem that has no landscape

The data were recorded and come with the workbench: `*.csv.gz` beside this module (see `table`). The person's own files
are in the folder $CUTEGEN_LANDSCAPES.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench import problems, trust
from workbench.analysis import devices
from workbench.codegen.canonical import canonical, code, equal_code
from workbench.errors import ProgramError, UserError
from workbench.folders import sessions_root
from workbench.landscapes import table
from workbench.landscapes.keys import distance, format_value, problem_key, settings_of, strip_settings, with_arch
from workbench.landscapes.table import Row
from workbench.records import Problem, record
from workbench.wire import Json

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "Landscape",
    "Row",
    "describe_recorded",
    "find",
    "find_all",
    "find_near",
    "landscapes",
    "not_recorded",
    "problem_key",
]

OWN = "CUTEGEN_LANDSCAPES"
MEASURED_ARCH = "sm_90a"
FEW = 8  # at most so many landscapes are listed in one line


@record
class Landscape:
    """All rows of one problem on one kind of GPU. `facts` and `runs` come from the file's header: the problem, and the
    measuring runs.
    """

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
    def device(self) -> str:
        """The name of the GPU, as its driver says it."""
        return str(self.runs[-1]["device"])

    @property
    def provenance(self) -> str:
        """The device and the dates of the measurement, in a few words."""
        dates = sorted({str(run["date"])[:10] for run in self.runs})
        return f"recorded on {self.device}, {dates[0]}" + (f" to {dates[-1]}" if dates[1:] else "")

    def row(self, program: str, arch: str = "sm_90a") -> Row | None:
        """The row of this program, or of one with the same code; None if neither was measured.

        The order of the settings does not matter.
        """
        try:
            text = canonical(with_arch(program, arch))
        except ProgramError:
            return None
        what = strip_settings(text)
        return self.rows.get(text) or next(
            (
                row
                for row in self.rows.values()
                if strip_settings(row.program) == what and code(row.program) == code(text)
            ),
            None,
        )

    def row_of_same_code(self, program: str, arch: str) -> Row | None:
        """The row of this program for the architecture that was measured, if its code does not depend on that."""
        try:
            own = with_arch(program, arch)
            row = self.row(own.replace(f".arch({arch})", f".arch({MEASURED_ARCH})"), MEASURED_ARCH)
            same = row is not None and equal_code(row.program, canonical(own))
        except ProgramError:
            return None
        return row if same else None

    def nearest(self, program: str) -> Row | None:
        """The measured row with the closest settings among those with the same operation, epilogues and result."""
        what, wanted = strip_settings(program), settings_of(program)
        near = [row for row in self.rows.values() if strip_settings(row.program) == what]
        return min(near, key=lambda row: (distance(wanted, settings_of(row.program)), row.program), default=None)

    def frame(self) -> DataFrame:
        """A pandas DataFrame with a row per configuration.

        Each setting is a column of text ("" if the program leaves it out). The measured columns follow.
        """
        import pandas

        made = []
        for row in self.rows.values():
            settings = {name: format_value(value) for name, value in settings_of(row.program).items()}
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
        """The problem with its sizes written into its source.

        Raises `ProblemError` if it is no shipped problem and its file is not here, `UserError` if the file is one that
        the user neither tuned here nor trusts: a landscape could name any.
        """
        origin = str(self.facts["origin"])
        if origin not in problems.shipped() and "\n" in origin:
            raise UserError(f"the landscape of {self.name[:80]} names no problem, but holds a text; remove it")
        found = problems.load(origin, name=self.name, precision=self.facts["precision"], mode=self.facts["mode"])
        found = dataclasses.replace(
            found, source=problems.with_settings(found.source, tuple(self.facts["settings"].items()))
        )
        if origin not in problems.shipped() and not self._is_as_shipped(found):
            what = f"{origin} is a file that the landscape of {self.name} names; looking at the problem runs its code"
            trust.require(Path(origin), trust.hash_file(Path(origin)), what)
        return found

    def _is_as_shipped(self, problem: Problem) -> bool:
        """Whether a problem's code is what a landscape that comes with the workbench was recorded for."""
        return problem_key(problem) == self.key and self.key in _shipped_keys()


@functools.cache
def _shipped_keys() -> frozenset[str]:
    """The keys of the landscapes that come with the workbench."""
    return frozenset(key for path in _files_in(Path(__file__).parent) for key in table.read(path)[0]["problems"])


def own_folder() -> Path:
    """The folder to which `cutegen tune` writes: $CUTEGEN_LANDSCAPES, else landscapes/ beside the sessions."""
    return Path(os.environ.get(OWN) or sessions_root() / "landscapes")


def files() -> tuple[Path, ...]:
    """Paths of the shipped files, then of the person's own."""
    return tuple(path for folder in (Path(__file__).parent, own_folder()) for path in _files_in(folder))


def _files_in(folder: Path) -> list[Path]:
    return [path for pattern in ("*.csv.gz", "*.csv") for path in sorted(folder.glob(pattern))]


@functools.lru_cache(maxsize=4)
def _read(paths: tuple[tuple[str, int], ...]) -> dict[str, tuple[Landscape, ...]]:
    """Key of a problem -> its landscapes, one for each kind of GPU in the order of the files."""
    header, rows = table.join(table.read(Path(path)) for path, _ in paths)
    parts: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.run):
        parts.setdefault((row.key, header["runs"][row.run]["device"]), []).append(row)
    found: dict[str, list[Landscape]] = {}
    for (key, _), mine in parts.items():
        used = sorted({row.run for row in mine})
        own = [dataclasses.replace(row, run=used.index(row.run)) for row in sorted(mine, key=lambda row: row.program)]
        facts = header["problems"][key]
        found.setdefault(key, []).append(
            Landscape(
                key=key,
                name=facts["name"],
                facts=facts,
                runs=tuple(header["runs"][n] for n in used),
                rows={row.program: row for row in own if row.program},
                eager=next((row for row in own if not row.program), None),
            )
        )
    return {key: tuple(places) for key, places in found.items()}


def _read_all() -> dict[str, tuple[Landscape, ...]]:
    return _read(tuple((str(path), path.stat().st_mtime_ns) for path in files()))


def landscapes() -> dict[str, Landscape]:
    """Every landscape, by its problem's name; "NAME on DEVICE" for each further GPU that measured the problem."""
    named = {
        place.name if number == 0 else f"{place.name} on {place.device}": place
        for places in _read_all().values()
        for number, place in enumerate(places)
    }
    return {name: named[name] for name in sorted(named)}


def find_all(problem: Problem) -> tuple[Landscape, ...]:
    """The landscapes of a problem, one for each kind of GPU."""
    return _read_all().get(problem_key(problem), ())


def find(problem: Problem, device: str) -> Landscape | None:
    """The landscape of a problem on a device; None where there is none."""
    return next((place for place in find_all(problem) if devices.is_same(place.device, device)), None)


def find_near(problem: Problem, device: str = "") -> Landscape | None:
    """The landscape of a problem on a device, else one of another device: to look at, not to compare with."""
    return find(problem, device) or next(iter(find_all(problem)), None)


def not_recorded(problem: Problem) -> str:
    """A line for a problem without a landscape: its precision and mode, and what was recorded instead."""
    mode = "" if problem.mode == "train" else f", {problem.mode} mode"
    return (
        f"nothing was recorded of {problem.name} at these sizes in {problem.precision}{mode}; "
        f"{describe_recorded(problem)}"
    )


def describe_recorded(problem: Problem) -> str:
    """A sentence on what was recorded, for a person whose problem has no landscape.

    It names the problem's other precisions and sizes if there are some, else all recorded problems.
    """
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
        return f"{problem.name} was recorded with {', or '.join(sorted(set(ways)))}"
    known = tuple(landscapes())
    return (
        f"recorded are {', '.join(known) or 'no problems'}"
        if len(known) <= FEW
        else f"recorded are {len(known)} problems, which cutegen landscape lists"
    )
