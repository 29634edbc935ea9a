"""Recorded landscapes as pictures: a heat map over two settings, regret curves of search strategies, and where problems stand. Each with its table as text."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.analysis import devices, speed_of_light
from workbench.errors import UserError
from workbench.landscapes import Landscape, Row
from workbench.landscapes.keys import explicit, spelt
from workbench.records import Work
from workbench.views.colours import blend, ink_on
from workbench.views.plots import INK, MEASURED, MODELLED, ROOF
from workbench.views.shown import Shown, seconds, table

MOST = 14  # values on an axis
COLOURS = (MEASURED, MODELLED, ROOF, INK)
CLEAR = "rgba(0,0,0,0)"
PALE = "#c9c9c9"  # a cell twice as slow as the fastest and slower; cells are opaque, so that what is written on them reads the same on light and on dark


def _values(row: Row) -> dict[str, str]:
    return {name: spelt(value) for name, value in explicit(row.program).items()}


def _order(value: str) -> tuple[float, ...] | tuple[float, str]:
    """Numbers by size, words after them."""
    parts = value.split("x")
    return tuple(map(float, parts)) if all(part.isdigit() for part in parts) else (math.inf, value)


def settings(place: Landscape) -> dict[str, tuple[str, ...]]:
    """Every setting that varies, with its values; "" where it was left out."""
    rows = [_values(row) for row in place.rows.values()]
    names = sorted({name for row in rows for name in row})
    found = {name: tuple(sorted({row.get(name, "") for row in rows}, key=_order)) for name in names}
    return {name: values for name, values in found.items() if len(values) > 1}


def heat_map(place: Landscape, x: str = "", y: str = "", where: Mapping[str, object] | None = None) -> Shown:
    """For each pair of values of two settings the fastest correct configuration that has them; `where` keeps only rows with those values, as a text or a tuple."""
    free = settings(place)
    x, y = x or next((name for name in ("tile", "threads_per_row", "threads") if name in free), next(iter(free), "")), y or next((name for name in ("cluster", "vector") if name in free), "")
    for name in (x, y, *(where or {})):
        if name not in free:
            raise UserError(f"{place.name} was not measured over {name!r}; settings that vary: {', '.join(free)}")
    kept = {name: spelt(value) if isinstance(value, tuple) else str(value) for name, value in (where or {}).items()}
    cells: dict[tuple[str, str], Row] = {}
    for row in place.correct:
        values = _values(row)
        if all(values.get(name, "") == value for name, value in kept.items()):
            cells.setdefault((values.get(x, ""), values.get(y, "")), row)
    if not cells:
        raise UserError(f"no correct configuration of {place.name} has {', '.join(f'{name} {value}' for name, value in kept.items())}")
    columns, rows = (_axis(cells, at) for at in (0, 1))
    said = ", ".join(f"{name} {value}" for name, value in kept.items())
    title = f"{place.name}: {x} and {y}{f', {said}' if said else ''}; the fastest of each pair, measured, {place.said}"
    grid = [[cells.get((column, row)) for column in columns] for row in rows]
    text, page = table([f"{y} \\ {x}", *(value or "not set" for value in columns)], [[row or "not set", *(seconds(cell.median_s) if cell else "" for cell in line)] for row, line in zip(rows, grid, strict=True)], title)
    return Shown(text, html=page, svg=_cells(title, columns, rows, grid), plotly=_plotly_cells(title, (x, y), columns, rows, grid))


def _axis(cells: Mapping[tuple[str, str], Row], at: int) -> list[str]:
    """The values that go on an axis: of too many, those with the fastest configurations."""
    values: dict[str, None] = {}
    for pair in cells:  # fastest first
        values.setdefault(pair[at])
    return sorted(list(values)[:MOST], key=_order)


def _slowdown(grid: Sequence[Sequence[Row | None]]) -> list[list[float | None]]:
    least = min(cell.median_s or math.inf for line in grid for cell in line if cell)
    return [[(cell.median_s or math.inf) / least if cell else None for cell in line] for line in grid]


def _shade(slow: float) -> str:
    """The colour of a cell: full for the fastest, pale from twice its time on."""
    return blend(2.0 - slow, MEASURED, PALE)


def _cells(title: str, columns: list[str], rows: list[str], grid: list[list[Row | None]]) -> str:
    wide, high, left, top = 62, 30, 110, 44
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + wide * len(columns) + 10} {top + high * len(rows) + 34}" role="img" font-family="sans-serif" font-size="10"><title>{html.escape(title)}</title>']
    out.append(f'<text x="6" y="16" fill="{INK}" font-size="12">{html.escape(title)}</text>')
    for j, line in enumerate(_slowdown(grid)):
        out.append(f'<text x="{left - 6}" y="{top + high * j + 19}" text-anchor="end" fill="{INK}">{html.escape(rows[j] or "not set")}</text>')
        for i, (slow, cell) in enumerate(zip(line, grid[j], strict=True)):
            if slow is not None and cell is not None:
                shade = _shade(slow)
                tip = f"<title>{html.escape(cell.program)}: {seconds(cell.median_s)} (measured), {slow:.2f}x the fastest</title>"
                out.append(f'<rect x="{left + wide * i}" y="{top + high * j}" width="{wide - 2}" height="{high - 2}" fill="{shade}" stroke="{INK}" stroke-opacity=".3">{tip}</rect>')
                out.append(f'<text x="{left + wide * i + wide / 2 - 1}" y="{top + high * j + 18}" text-anchor="middle" fill="{ink_on(shade)}">{seconds(cell.median_s)}</text>')
    for i, column in enumerate(columns):
        out.append(f'<text x="{left + wide * i + wide / 2}" y="{top + high * len(rows) + 16}" text-anchor="middle" fill="{INK}">{html.escape(column or "not set")}</text>')
    return "".join(out) + "</svg>"


def _plotly_cells(title: str, names: tuple[str, str], columns: list[str], rows: list[str], grid: list[list[Row | None]]) -> dict[str, Any]:
    x, y = ([value or "not set" for value in values] for values in (columns, rows))
    slowdown = _slowdown(grid)
    trace = {"type": "heatmap", "x": x, "y": y, "z": [[None if value is None else round(value, 4) for value in line] for line in slowdown], "zmin": 1, "zmax": 2, "colorscale": [[0, MEASURED], [1, PALE]],
             "text": [[cell.program if cell else "" for cell in line] for line in grid], "hovertemplate": "%{text}<br>%{z:.2f}x the fastest<extra></extra>", "colorbar": {"title": {"text": "times the fastest"}}, "xgap": 1, "ygap": 1}  # fmt: skip
    # places and not names: of a category called "4", plotly takes the fourth
    written = [{"x": i, "y": j, "text": seconds(cell.median_s), "showarrow": False, "font": {"color": ink_on(_shade(slow)), "size": 11}}
               for j, line in enumerate(slowdown) for i, slow in enumerate(line) if slow is not None and (cell := grid[j][i])]  # fmt: skip
    return {"data": [trace], "layout": _layout(title.replace("; the", "<br>the", 1), {"type": "category", "title": {"text": names[0]}}, {"type": "category", "title": {"text": names[1]}}, 190 + 28 * len(rows)) | {"annotations": written}}


def _layout(title: str, x: dict[str, Any], y: dict[str, Any], height: int) -> dict[str, Any]:
    axis = {"gridcolor": "rgba(128,128,128,.25)", "color": INK}
    return {"title": {"text": title, "font": {"size": 12}}, "paper_bgcolor": CLEAR, "plot_bgcolor": CLEAR, "font": {"color": INK}, "height": height, "xaxis": axis | x, "yaxis": axis | y}


def curves(title: str, named: Mapping[str, Sequence[float]], most: int = 64) -> Shown:
    """Regret after each try: how much slower than the best configuration the best so far is, in percent; tries on a logarithmic axis."""
    marks = [tries for tries in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if tries <= most]
    lines = [[name, *(_percent(curve[min(tries, len(curve)) - 1]) for tries in marks)] for name, curve in named.items() if curve]
    text, page = table(["after tries", *map(str, marks)], lines, title)
    data = [{"type": "scatter", "mode": "lines", "name": name, "line": {"shape": "hv", "color": colour}, "x": list(range(1, len(points) + 1)), "y": [None if math.isinf(value) else round(100 * value, 3) for value in points]}
            for (name, curve), colour in zip(named.items(), COLOURS, strict=False) if (points := curve[:most])]  # fmt: skip
    layout = _layout(title, {"type": "log", "title": {"text": "tries"}}, {"title": {"text": "slower than the best, %"}, "range": [0, 100]}, 360)
    return Shown(text, html=page, svg=_lines(title, named, most), plotly={"data": data, "layout": layout})


def _percent(value: float) -> str:
    return "none correct" if math.isinf(value) else f"{value:.1%}"


def _lines(title: str, named: Mapping[str, Sequence[float]], most: int) -> str:
    width, height, left, bottom, top = 640, 300, 60, 40, 30

    def at(tries: int, value: float) -> tuple[float, float]:
        return left + math.log(tries) / math.log(max(most, 2)) * (width - left - 130), top + (1 - min(value, 1.0)) * (height - top - bottom)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif" font-size="11"><title>{html.escape(title)}</title><text x="6" y="16" fill="{INK}" font-size="12">{html.escape(title)}</text>']
    for level in (0, 0.25, 0.5, 0.75, 1.0):
        x, y = at(1, level)
        out.append(f'<line x1="{x}" x2="{width - 130}" y1="{y:.1f}" y2="{y:.1f}" stroke="{INK}" stroke-opacity=".2"/><text x="{x - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{INK}">{level:.0%}</text>')
    for tries in (tries for tries in (1, 2, 4, 8, 16, 32, 64, 128, 256) if tries <= most):
        out.append(f'<text x="{at(tries, 0)[0]:.1f}" y="{height - bottom + 16}" text-anchor="middle" fill="{INK}">{tries}</text>')
    for n, ((name, curve), colour) in enumerate(zip(named.items(), COLOURS, strict=False)):
        points = [at(tries, value) for tries, value in enumerate(curve[:most], 1) if not math.isinf(value)]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{"" if n == 0 else f"{8 - 2 * n} 3"}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
        out.append(f'<text x="{width - 124}" y="{top + 16 * n + 10}" fill="{colour}">{html.escape(name)}</text>')
    return "".join(out) + f'<text x="{width / 2 - 60}" y="{height - 8}" text-anchor="middle" fill="{INK}">tries; slower than the best there is</text></svg>'


def standing(places: Sequence[Landscape], device: str = "H200") -> Shown:
    """For each problem: the bound, the fastest configuration, torch eager, and both as fractions of the bound."""
    lines, bars = [], []
    for place in places:
        best, facts = place.best, place.facts
        if best is None or best.median_s is None:
            continue
        work = Work(case="full", flops=facts["flops"], least_bytes=facts["least_bytes"], dtype=facts["dtype"], tensor_cores=facts["tensor_cores"])
        bound = speed_of_light.bound(work, devices.find(device))
        eager = place.eager.median_s if place.eager else None
        slowest = place.correct[-1].median_s or 0.0
        lines.append([place.name, bound.limited_by, f"{bound.intensity:.3g}", seconds(bound.bound_s), seconds(best.median_s), f"{bound.bound_s / best.median_s:.0%}", seconds(eager), f"{bound.bound_s / eager:.0%}" if eager else "", seconds(slowest), len(place.rows)])
        bars.append((place.name, bound.bound_s / best.median_s, bound.bound_s / eager if eager else 0.0))
    title = f"Where problems stand: bound modelled from the data sheet, times measured, {places[0].said}" if places else "no landscape"
    text, page = table(["problem", "limited by", "FLOP/B", "bound", "fastest", "of bound", "torch eager", "of bound", "slowest correct", "configurations"], lines, title)
    return Shown(text, html=page, svg=_bars(title, bars))


def _bars(title: str, bars: Sequence[tuple[str, float, float]]) -> str:
    left, wide, high = 190, 420, 24
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + wide + 60} {high * len(bars) + 60}" role="img" font-family="sans-serif" font-size="11"><title>{html.escape(title)}</title><text x="6" y="16" fill="{INK}" font-size="12">{html.escape(title)}</text>']
    for n, (name, ours, eager) in enumerate(bars):
        y = 30 + high * n
        out.append(f'<text x="{left - 6}" y="{y + 14}" text-anchor="end" fill="{INK}">{html.escape(name)}</text>')
        out.append(f'<rect x="{left}" y="{y + 2}" width="{wide * min(ours, 1.1):.1f}" height="9" fill="{MEASURED}"/><rect x="{left}" y="{y + 12}" width="{wide * min(eager, 1.1):.1f}" height="6" fill="{INK}" fill-opacity=".6"/>')
        out.append(f'<text x="{left + wide * min(ours, 1.1) + 4:.1f}" y="{y + 11}" fill="{MEASURED}">{ours:.0%}</text>')
    out.append(f'<line x1="{left + wide}" x2="{left + wide}" y1="26" y2="{30 + high * len(bars)}" stroke="{ROOF}" stroke-dasharray="4 3"/><text x="{left + wide}" y="{high * len(bars) + 46}" text-anchor="middle" fill="{ROOF}">the bound</text>')
    return "".join(out) + f'<text x="{left}" y="{high * len(bars) + 46}" fill="{INK}">thick: fastest configuration; thin: torch eager</text></svg>'
