"""Draws a recorded landscape as a heat map over two settings, with a table as text."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping, Sequence

from workbench.errors import UserError
from workbench.landscapes import Landscape, Row
from workbench.landscapes.keys import format_settings, format_value, settings_of
from workbench.records import record
from workbench.views.figures.colours import pick
from workbench.views.figures.describe import make_cells, make_figure, show
from workbench.views.figures.style import MEASURED, PALE, SLOW, WIDTH
from workbench.views.text.mime_bundle import MimeBundle, format_seconds, render_table

MOST = 14  # values on an axis at most
# The colours of the fastest cell, of one that takes twice its time (then the logarithm counts), and of MUCH times.
SCALE = ((0.0, MEASURED), (0.5, PALE), (1.0, SLOW))
MUCH = 20.0
NOT_SET = "not set"
# Setting that changes the meaning of others -> (mark of cells with it, the settings that it changes, explanation).
ALTERS = {
    "streamk": ("*", ("splitk",), ".streamk(yes): tiles of the last wave are cut along k"),
    "swap": (
        "†",
        ("tile", "cluster", "raster"),
        ".swap(): of the transposed product, whose rows are the result's columns",
    ),
}


def _sort_key(value: str) -> tuple[float, ...] | tuple[float, str]:
    """Sort numbers and sizes such as 128x64 by value, and words after them."""
    parts = value.split("x")
    return tuple(map(float, parts)) if all(part.isdigit() for part in parts) else (math.inf, value)


def varying_settings(place: Landscape) -> dict[str, tuple[str, ...]]:
    """Name -> values of each setting that varies. The value is "" for programs without the setting."""
    rows = [format_settings(program) for program in place.rows]
    names = sorted({name for row in rows for name in row})
    found = {name: tuple(sorted({row.get(name, "") for row in rows}, key=_sort_key)) for name in names}
    return {name: values for name, values in found.items() if len(values) > 1}


def heat_map(place: Landscape, x: str = "", y: str = "", where: Mapping[str, object] | None = None) -> MimeBundle:
    """The fastest correct configuration for each pair of values of two settings.

    `where` keeps only rows with those values, each a text or a tuple. Raises `UserError` for a setting that does not
    vary, and if no correct configuration is left.
    """
    free = varying_settings(place)
    x, y = _choose_axes(place.name, free, x, y)
    for name in where or {}:
        _check_varies(place.name, free, name)
    kept = _spell_values(where or {})
    cells = _fastest_rows(place, (x, y), kept)
    if not cells:
        measured = "; ".join(f"{name} {_list_values(free[name])}" for name in kept)
        raise UserError(
            f"no correct configuration of {place.name} has {_describe_values(kept)}; measured were {measured}"
        )
    columns, rows = (_axis_values(cells, at) for at in (0, 1))
    found = [[cells.get((column, row)) for column in columns] for row in rows]
    altered = _altering_settings(found, (x, y), kept)
    among = f", {_describe_values(kept)}" if kept else ""
    title = f"{place.name}: {x} and {y}{among}; the fastest of each pair, measured, {place.provenance}"
    notes = _omission_notes(cells, (x, y), (columns, rows))
    notes += [f"{ALTERS[name][0]} {ALTERS[name][2]}" for name in altered]
    return _render(title, notes, (x, y), columns, rows, _make_cells(found, altered))


def _omission_notes(
    cells: Mapping[tuple[str, str], Row], axes: tuple[str, str], shown: tuple[list[str], list[str]]
) -> list[str]:
    """A note for each axis that shows only some of its values."""
    counts = [len({pair[at] for pair in cells}) for at in (0, 1)]
    return [
        f"{len(values)} of {count} values of {name}, those with the fastest"
        for name, values, count in zip(axes, shown, counts, strict=True)
        if count > len(values)
    ]


def _render(
    title: str, notes: list[str], axes: tuple[str, str], columns: list[str], rows: list[str], grid: Grid
) -> MimeBundle:
    """The heat map with its table."""
    names = [value or NOT_SET for value in columns], [value or NOT_SET for value in rows]
    written = [[cell.label if cell else "" for cell in line] for line in grid]
    lines = [[name, *line] for name, line in zip(names[1], written, strict=True)]
    text, page = render_table([f"{axes[1]} \\ {axes[0]}", *names[0]], lines, "; ".join((title, *notes)))
    z = [[_place_slowdown(cell.slowdown) if cell else None for cell in line] for line in grid]
    tips = [[_break_lines(cell.tip) if cell else "" for cell in line] for line in grid]
    key = {
        "thickness": 14,
        "title": {"text": "times the<br>fastest<br>&nbsp;", "font": {"size": 11}},
        "tickvals": [0, 1, _place_slowdown(5.0), 2],
        "ticktext": ["1", "2", "5", f"{MUCH:.0f} or more"],
    }
    axis = {"type": "category", "showgrid": False}
    figure = make_figure(
        "\n".join((title, *notes)),
        make_cells(names, z, (written, tips), SCALE, zmax=2, colorbar=key),
        height=max(150, 30 * len(rows)) + (40 if len(columns) > 8 else 0),  # for names that plotly turns
        xaxis={**axis, "title": {"text": axes[0]}},
        yaxis={**axis, "title": {"text": axes[1]}},
        right=100,
    )
    return show(figure, text, page, width=max(WIDTH, 62 * len(columns) + 200))


def _spell_values(where: Mapping[str, object]) -> dict[str, str]:
    """The values of `where`, spelt as in a program."""
    return {
        name: format_value(value) if isinstance(value, tuple) else str(value).removeprefix(NOT_SET)
        for name, value in where.items()
    }


def _altering_settings(
    found: Sequence[Sequence[Row | None]], axes: tuple[str, str], kept: Mapping[str, str]
) -> tuple[str, ...]:
    """Settings of the rows that change the meaning of an axis and are neither on an axis nor in `where`."""
    return tuple(
        name
        for name, (_, whose, _) in ALTERS.items()
        if name not in (*axes, *kept)
        and {*axes} & {*whose}
        and any(row and name in format_settings(row.program) for line in found for row in line)
    )


def parse_where(items: Sequence[str]) -> dict[str, str]:
    """Setting -> value from the texts of `--where`. Raises `UserError` for a text without "="."""
    for item in items:
        if "=" not in item:
            raise UserError(
                f"--where {item}: write SETTING=VALUE, such as --where schedule=pingpong; SETTING= if it was not set"
            )
    return dict(item.partition("=")[::2] for item in items)


def _fastest_rows(place: Landscape, axes: tuple[str, str], kept: Mapping[str, str]) -> dict[tuple[str, str], Row]:
    """Values of the two settings -> the fastest correct row with them, ordered by time."""
    cells: dict[tuple[str, str], Row] = {}
    for row in place.correct:
        values = format_settings(row.program)
        if all(values.get(name, "") == value for name, value in kept.items()):
            cells.setdefault((values.get(axes[0], ""), values.get(axes[1], "")), row)
    return cells


def _choose_axes(name: str, free: Mapping[str, tuple[str, ...]], x: str, y: str) -> tuple[str, str]:
    """The settings of the two axes. Missing ones are chosen from those that vary."""
    for one in filter(None, (x, y)):
        _check_varies(name, free, one)
    if x == y != "":
        others = ", ".join(other for other in free if other != x)
        raise UserError(
            f"{x} is named for both axes of the heat map: name another setting for one of them, of {others}"
        )
    x = x or next((one for one in ("tile", "threads_per_row", "threads", *free) if one in free and one != y), "")
    y = y or next((one for one in ("cluster", "vector", *free) if one in free and one != x), "")
    if not x or not y:
        raise UserError(f"a heat map needs two settings, but {name} varies only in {x or 'none'}")
    return x, y


def _check_varies(name: str, free: Mapping[str, tuple[str, ...]], one: str) -> None:
    if one not in free:
        raise UserError(f"{name} was not measured over {one!r}; settings that vary: {', '.join(free)}")


def _describe_values(kept: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value or NOT_SET}" for name, value in kept.items())


def _list_values(values: Sequence[str]) -> str:
    return ", ".join(value or NOT_SET for value in values)


@record
class _Cell:
    """A cell: `slowdown` is the time over that of the fastest, `defaults` lists settings that the program omits."""

    row: Row
    slowdown: float
    label: str
    defaults: str

    @property
    def tip(self) -> str:
        """The tooltip."""
        return (
            f"{self.row.program}\n{format_seconds(self.row.median_s)} (measured), {self.slowdown:.2f}x the fastest"
            + (f"\nleft out: {self.defaults}" if self.defaults else "")
        )


Grid = Sequence[Sequence[_Cell | None]]


def _axis_values(cells: Mapping[tuple[str, str], Row], at: int) -> list[str]:
    """The values of an axis; of more than MOST, those with the fastest configurations."""
    values: dict[str, None] = {}
    for pair in cells:  # fastest first
        values.setdefault(pair[at])
    return sorted(list(values)[:MOST], key=_sort_key)


def _make_cells(found: Sequence[Sequence[Row | None]], altered: Sequence[str]) -> Grid:
    """The rows as cells with their slow-down. Rows with a setting of `altered` get its mark."""
    least = min(row.median_s or math.inf for line in found for row in line if row)

    def cell(row: Row) -> _Cell:
        values = format_settings(row.program)
        defaults = ", ".join(
            f"{name} {value}" for name, value in values.items() if name not in settings_of(row.program)
        )
        return _Cell(
            row=row,
            slowdown=(row.median_s or math.inf) / least,
            label=format_seconds(row.median_s) + "".join(ALTERS[name][0] for name in altered if name in values),
            defaults=defaults,
        )

    return [[cell(row) if row else None for row in line] for line in found]


def _place_slowdown(slow: float) -> float:
    """The place of a slow-down on the scale of colours: 0 for the fastest, 1 at twice its time, 2 at MUCH times."""
    return slow - 1 if slow <= 2 else min(1 + math.log(slow / 2) / math.log(MUCH / 2), 2.0)


def _cell_colour(slow: float) -> str:
    """The colour of a cell: full for the fastest, pale at twice its time, brown at MUCH times or more."""
    return pick(SCALE, _place_slowdown(slow) / 2)


def _break_lines(text: str) -> str:
    """HTML with line breaks, because plotly does not wrap text."""
    return "<br>".join(html.escape(part, quote=False) for line in text.splitlines() for part in textwrap.wrap(line, 90))
