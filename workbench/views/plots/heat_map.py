"""A recorded landscape as a heat map over two of its settings, with its table as text."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Mapping, Sequence

from workbench.errors import UserError
from workbench.landscapes import Landscape, Row
from workbench.landscapes.keys import format_settings, format_value, settings_of
from workbench.records import record
from workbench.views.plots.colours import blend, ink_on
from workbench.views.plots.roofline import INK, MEASURED
from workbench.views.text.mime_bundle import Shown, seconds, table

CLEAR = "rgba(0,0,0,0)"
MOST = 14  # values on an axis
# A cell twice as slow as the fastest and slower. Cells are opaque, so that what is written on them reads the same on
# light and on dark.
PALE = "#c9c9c9"
NOT_SET = "not set"
# Settings that change what others mean -> (the mark of a cell whose fastest has it, whose meaning changes, how).
ALTERS = {
    "streamk": ("*", ("splitk",), ".streamk(yes): tiles of the last wave are cut along k"),
    "swap": (
        "†",
        ("tile", "cluster", "raster"),
        ".swap(): of the transposed product, whose rows are the result's columns",
    ),
}


def _order(value: str) -> tuple[float, ...] | tuple[float, str]:
    """Numbers by size, words after them."""
    parts = value.split("x")
    return tuple(map(float, parts)) if all(part.isdigit() for part in parts) else (math.inf, value)


def varying_settings(place: Landscape) -> dict[str, tuple[str, ...]]:
    """Every setting that varies, with its values; "" where it was left out."""
    rows = [format_settings(program) for program in place.rows]
    names = sorted({name for row in rows for name in row})
    found = {name: tuple(sorted({row.get(name, "") for row in rows}, key=_order)) for name in names}
    return {name: values for name, values in found.items() if len(values) > 1}


def heat_map(place: Landscape, x: str = "", y: str = "", where: Mapping[str, object] | None = None) -> Shown:
    """For each pair of values of two settings the fastest correct configuration that has them.

    `where` keeps only rows with those values, each a text or a tuple. Raises `UserError` for a setting that does not
    vary, and where no correct configuration is left.
    """
    free = varying_settings(place)
    x, y = _axes(place.name, free, x, y)
    for name in where or {}:
        _varies(place.name, free, name)
    kept = _spell_values(where or {})
    cells = _fastest(place, (x, y), kept)
    if not cells:
        measured = "; ".join(f"{name} {_listed(free[name])}" for name in kept)
        raise UserError(f"no correct configuration of {place.name} has {_said(kept)}; measured were {measured}")
    columns, rows = (_shown_values(cells, at) for at in (0, 1))
    found = [[cells.get((column, row)) for column in columns] for row in rows]
    altered = _altering_settings(found, (x, y), kept)
    among = f", {_said(kept)}" if kept else ""
    title = f"{place.name}: {x} and {y}{among}; the fastest of each pair, measured, {place.provenance}"
    notes = [
        f"{len(shown)} of {count} values of {name}, those with the fastest"
        for name, at, shown in ((x, 0, columns), (y, 1, rows))
        if (count := len({pair[at] for pair in cells})) > len(shown)
    ]
    notes += [f"{ALTERS[name][0]} {ALTERS[name][2]}" for name in altered]
    grid = _cells(found, altered)
    lines = [
        [row or NOT_SET, *(cell.said if cell else "" for cell in line)] for row, line in zip(rows, grid, strict=True)
    ]
    text, page = table([f"{y} \\ {x}", *(value or NOT_SET for value in columns)], lines, "; ".join((title, *notes)))
    return Shown(
        text,
        html=page,
        svg=_svg(title, notes, columns, rows, grid),
        plotly=_plotly(title, notes, (x, y), columns, rows, grid),
    )


def _spell_values(where: Mapping[str, object]) -> dict[str, str]:
    """The values to keep as a program writes them."""
    return {
        name: format_value(value) if isinstance(value, tuple) else str(value).removeprefix(NOT_SET)
        for name, value in where.items()
    }


def _altering_settings(
    found: Sequence[Sequence[Row | None]], axes: tuple[str, str], kept: Mapping[str, str]
) -> tuple[str, ...]:
    """The settings of some row that change what an axis means and are neither on an axis nor kept."""
    return tuple(
        name
        for name, (_, whose, _) in ALTERS.items()
        if name not in (*axes, *kept)
        and {*axes} & {*whose}
        and any(row and name in format_settings(row.program) for line in found for row in line)
    )


def parse_where(items: Sequence[str]) -> dict[str, str]:
    """What `--where` was given, setting -> value; raises `UserError` for what is no pair."""
    for item in items:
        if "=" not in item:
            raise UserError(
                f"--where {item}: write SETTING=VALUE, such as --where schedule=pingpong; SETTING= where it was not set"
            )
    return dict(item.partition("=")[::2] for item in items)


def _fastest(place: Landscape, axes: tuple[str, str], kept: Mapping[str, str]) -> dict[tuple[str, str], Row]:
    """Values of the two settings -> the fastest correct row that has them, the fastest of all first."""
    cells: dict[tuple[str, str], Row] = {}
    for row in place.correct:
        values = format_settings(row.program)
        if all(values.get(name, "") == value for name, value in kept.items()):
            cells.setdefault((values.get(axes[0], ""), values.get(axes[1], "")), row)
    return cells


def _axes(name: str, free: Mapping[str, tuple[str, ...]], x: str, y: str) -> tuple[str, str]:
    """The two settings, chosen where they were left out."""
    for one in filter(None, (x, y)):
        _varies(name, free, one)
    if x == y != "":
        others = ", ".join(other for other in free if other != x)
        raise UserError(
            f"{x} is named for both axes of the heat map: name another setting for one of them, of {others}"
        )
    x = x or next((one for one in ("tile", "threads_per_row", "threads", *free) if one in free and one != y), "")
    y = y or next((one for one in ("cluster", "vector", *free) if one in free and one != x), "")
    if not x or not y:
        raise UserError(f"a heat map is over two settings, and of {name} {x or 'none'} alone varies")
    return x, y


def _varies(name: str, free: Mapping[str, tuple[str, ...]], one: str) -> None:
    if one not in free:
        raise UserError(f"{name} was not measured over {one!r}; settings that vary: {', '.join(free)}")


def _said(kept: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value or NOT_SET}" for name, value in kept.items())


def _listed(values: Sequence[str]) -> str:
    return ", ".join(value or NOT_SET for value in values)


@record
class _Cell:
    """What stands in a cell: `slow` in times of the fastest, `filled` the settings that its program leaves out."""

    row: Row
    slow: float
    said: str
    filled: str

    @property
    def tip(self) -> str:
        """Under the pointer, a line each."""
        return f"{self.row.program}\n{seconds(self.row.median_s)} (measured), {self.slow:.2f}x the fastest" + (
            f"\nleft out: {self.filled}" if self.filled else ""
        )


def _shown_values(cells: Mapping[tuple[str, str], Row], at: int) -> list[str]:
    """The values that go on an axis: of too many, those with the fastest configurations."""
    values: dict[str, None] = {}
    for pair in cells:  # fastest first
        values.setdefault(pair[at])
    return sorted(list(values)[:MOST], key=_order)


def _cells(found: Sequence[Sequence[Row | None]], altered: Sequence[str]) -> list[list[_Cell | None]]:
    """The rows as cells, beside the fastest of them; those with a setting of `altered` get its mark."""
    least = min(row.median_s or math.inf for line in found for row in line if row)

    def cell(row: Row) -> _Cell:
        values = format_settings(row.program)
        filled = ", ".join(f"{name} {value}" for name, value in values.items() if name not in settings_of(row.program))
        return _Cell(
            row=row,
            slow=(row.median_s or math.inf) / least,
            said=seconds(row.median_s) + "".join(ALTERS[name][0] for name in altered if name in values),
            filled=filled,
        )

    return [[cell(row) if row else None for row in line] for line in found]


def _shade(slow: float) -> str:
    """The colour of a cell: full for the fastest, pale from twice its time on."""
    return blend(2.0 - slow, MEASURED, PALE)


def _svg(
    title: str, notes: Sequence[str], columns: list[str], rows: list[str], grid: Sequence[Sequence[_Cell | None]]
) -> str:
    wide, high, top = 62, 30, 30 + 14 * len(notes)
    left = max(110, 12 + 6 * max(map(len, rows)))
    across = max(left + wide * len(columns) + 10, 12 + 6 * max(map(len, (title, *notes))))
    ink = f'fill="{INK}"'
    size = f'viewBox="0 0 {across} {top + high * len(rows) + 34}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif" font-size="10">'
        f"<title>{html.escape(title)}</title>",
        f'<text x="6" y="16" {ink} font-size="12">{html.escape(title)}</text>',
    ]
    out += [
        f'<text x="6" y="{31 + 14 * n}" {ink} font-size="11">{html.escape(note)}</text>' for n, note in enumerate(notes)
    ]
    for j, line in enumerate(grid):
        label = html.escape(rows[j] or NOT_SET)
        out.append(f'<text x="{left - 6}" y="{top + high * j + 19}" text-anchor="end" {ink}>{label}</text>')
        for i, cell in enumerate(line):
            if cell is not None:
                shade = _shade(cell.slow)
                box = f'x="{left + wide * i}" y="{top + high * j}" width="{wide - 2}" height="{high - 2}"'
                centre = f'x="{left + wide * i + wide / 2 - 1}" y="{top + high * j + 18}" text-anchor="middle"'
                tip = html.escape(cell.tip)
                out.append(f'<rect {box} fill="{shade}" stroke="{INK}" stroke-opacity=".3"><title>{tip}</title></rect>')
                out.append(f'<text {centre} fill="{ink_on(shade)}">{cell.said}</text>')
    for i, column in enumerate(columns):
        below = f'x="{left + wide * i + wide / 2}" y="{top + high * len(rows) + 16}" text-anchor="middle"'
        out.append(f"<text {below} {ink}>{html.escape(column or NOT_SET)}</text>")
    return "".join(out) + "</svg>"


def _plotly(
    title: str,
    notes: Sequence[str],
    names: tuple[str, str],
    columns: list[str],
    rows: list[str],
    grid: Sequence[Sequence[_Cell | None]],
) -> dict[str, object]:
    x, y = ([value or NOT_SET for value in values] for values in (columns, rows))
    trace = {
        "type": "heatmap",
        "x": x,
        "y": y,
        "z": [[round(cell.slow, 4) if cell else None for cell in line] for line in grid],
        "zmin": 1,
        "zmax": 2,
        "colorscale": [[0, MEASURED], [1, PALE]],
        "text": [[_break_lines(cell.tip) if cell else "" for cell in line] for line in grid],
        "hovertemplate": "%{text}<extra></extra>",
        "hoverongaps": False,
        "hoverlabel": {"align": "left"},
        "colorbar": {
            "thickness": 14,
            "title": {"text": "times the<br>fastest"},
            "tickvals": [1, 2],
            "ticktext": ["1", "2 or more"],
        },
        "xgap": 1,
        "ygap": 1,
    }
    # places and not names: of a category called "4", plotly takes the fourth
    written_on = [
        {
            "x": i,
            "y": j,
            "text": cell.said,
            "showarrow": False,
            "font": {"color": ink_on(_shade(cell.slow)), "size": 11 if len(columns) < 10 else 10},
        }
        for j, line in enumerate(grid)
        for i, cell in enumerate(line)
        if cell
    ]
    across, up = (
        {"type": "category", "automargin": True, "title": {"text": name, "standoff": 12}} for name in names
    )  # beyond the longest of the values, which the margin grows with
    above = [title.replace("; the", "<br>the", 1), *notes]
    return {
        "data": [trace],
        "layout": layout("<br>".join(above), across, up, 190 + 16 * len(notes) + 28 * len(rows))
        | {"annotations": written_on, "margin": {"t": 80 + 16 * len(notes), "b": 60}},
    }


def _break_lines(text: str) -> str:
    """For plotly, which breaks no lines."""
    return "<br>".join(html.escape(part, quote=False) for line in text.splitlines() for part in textwrap.wrap(line, 90))


def layout(title: str, x: dict[str, object], y: dict[str, object], height: int) -> dict[str, object]:
    """Of a plotly figure that reads on light and on dark; `x` and `y` add to its axes."""
    axis = {"gridcolor": "rgba(128,128,128,.25)", "color": INK}
    return {
        "title": {"text": title, "font": {"size": 12}},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"color": INK},
        "height": height,
        "xaxis": axis | x,
        "yaxis": axis | y,
    }
