"""Small charts from plain numbers: bars, timeline lanes, a curve with marks, source lines with heat.

Each chart comes as SVG, plotly JSON, an HTML table and plain text. Text and grid use JupyterLab's text colour if it is
known, else a grey that is readable on light and dark grounds. Nothing is expressed by colour alone.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from workbench.views.text.mime_bundle import MimeBundle, render_table

WIDTH = 700
COLOURS = ("#2b83c6", "#c0504d", "#3f8f43", "#b8740b", "#8064a2", "#2a9d96", "#8c6d5a", "#c2538f")
QUIET = "#7a7a7a"
ROW = 20
LABEL_WIDTH = 190  # pixels for the names of bars
LOG = {"type": "log", "minor": {"ticks": "outside", "ticklen": 3, "showgrid": False}}
RATES = {**LOG, "tickformat": "~s"}  # 900G, 1T: with exponentformat alone, ticks between powers of ten read 0.9 x 10^12
INTENSITIES = {**LOG, "tickformat": "~g"}  # 0.5, 100


class Bar(NamedTuple):
    """One bar: its name, its length, the text at its end, and its tooltip."""

    label: str
    value: float
    note: str
    tip: str = ""


class Block(NamedTuple):
    """One block in a lane of a timeline. Times are in seconds."""

    lane: str
    label: str
    start: float
    length: float
    tip: str
    colour: int = 0


class Heat(NamedTuple):
    """One source line: its number, its text, its heat from 0 to 1, and a note."""

    line: int
    text: str
    heat: float
    note: str


def draw_svg(height: float, title: str, described: str, body: Sequence[str], *, size: int = 11) -> str:
    """An SVG drawing with a title and a description for screen readers."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" role="img" '
        f'font-family="sans-serif" font-size="{size}" '
        f'style="max-width:100%;color:var(--jp-ui-font-color1,{QUIET})">'
    )
    return f"{head}<title>{html.escape(title)}</title><desc>{html.escape(described)}</desc>{''.join(body)}</svg>"


def draw_text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 0, more: str = "") -> str:
    """An SVG text in the text colour."""
    sized = f' font-size="{size}"' if size else ""
    placed = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{sized} fill="currentColor"{more}'
    return f"<text {placed}>{html.escape(words)}</text>"


def draw_horizontal_rule(y: float, left: float, right: float, *, more: str = ' stroke-opacity=".2"') -> str:
    """A horizontal grid line in the text colour."""
    return f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor"{more}/>'


def draw_vertical_rule(x: float, top: float, bottom: float, *, more: str = ' stroke-opacity=".2"') -> str:
    """A vertical grid line in the text colour."""
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" stroke="currentColor"{more}/>'


def draw_titled(tag: str, tip: str) -> str:
    """An SVG element with a tooltip. `tag` is the text between < and >."""
    return f"<{tag}><title>{html.escape(tip)}</title></{tag.partition(' ')[0]}>"


def shorten(words: str, length: int) -> str:
    """The text, shortened to at most `length` characters by cutting out the middle."""
    return words if len(words) <= length else f"{words[: length * 2 // 3]}…{words[-(length // 3 - 1) :]}"


def figure_layout(
    title: str,
    height: int,
    *,
    xaxis: Mapping[str, object] | None = None,
    yaxis: Mapping[str, object] | None = None,
    **more: object,
) -> dict[str, object]:
    """The layout of a plotly figure. The background is transparent, so the theme's shows."""
    axis = {"gridcolor": "rgba(128,128,128,.25)", "color": QUIET, "automargin": True}
    made: dict[str, object] = {
        "title": {"text": title, "font": {"size": 14}},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": QUIET},
        "height": height,
        "margin": {"l": 60, "r": 20, "t": 46, "b": 46},
    }
    return {**made, "xaxis": {**axis, **(xaxis or {})}, "yaxis": {**axis, **(yaxis or {})}, **more}


def ticks(limit: float, count: int = 5) -> list[float]:
    """About `count` round numbers from 0 to `limit`."""
    if limit <= 0:
        return [0.0]
    raw = limit / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    return [step * n for n in range(int(limit / step + 1e-9) + 1)]


def inline_svg(drawing: str) -> str:
    """A drawing for a page. Its text inherits the colour of the page."""
    return drawing.replace(f"var(--jp-ui-font-color1,{QUIET})", "inherit", 1)


def html_figure(drawing: str, listed: str) -> str:
    """A drawing with its numbers folded below."""
    numbers = f"<details><summary>numbers</summary>{listed}</details>"
    return f'<figure style="margin:0 0 8px">{inline_svg(drawing)}{numbers}</figure>'


def draw_bars(
    title: str, rows: Sequence[Bar], *, head: tuple[str, str], full: float | None = None, colour: int = 0
) -> MimeBundle:
    """Horizontal bars in the given order. `full` is the value of a whole row (default: the longest bar)."""
    whole = full or max((row.value for row in rows), default=0.0) or 1.0
    span = WIDTH - LABEL_WIDTH - 120
    body = [draw_text(8, 16, title, size=13)]
    for n, row in enumerate(rows):
        y = 28 + n * ROW
        length = max(min(row.value / whole, 1.0) * span, 0.0)
        body.append(draw_text(LABEL_WIDTH - 8, y + 13, shorten(row.label, 32), anchor="end"))
        if full:
            whole_row = f'x="{LABEL_WIDTH}" y="{y + 2}" width="{span}" height="{ROW - 5}"'
            body.append(f'<rect {whole_row} fill="currentColor" fill-opacity=".08"/>')
        filled = f'x="{LABEL_WIDTH}" y="{y + 2}" width="{length:.1f}" height="{ROW - 5}" fill="{COLOURS[colour]}"'
        body.append(draw_titled(f"rect {filled}", f"{row.label}: {row.note} {row.tip}".strip()))
        body.append(draw_text(LABEL_WIDTH + length + 6, y + 13, row.note))
    plain, listed = render_table(list(head), [[row.label, row.note] for row in rows], title)
    drawing = draw_svg(36 + ROW * len(rows), title, "; ".join(f"{row.label} {row.note}" for row in rows), body)
    figure = {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "x": [row.value for row in rows],
                "y": [row.label for row in rows],
                "text": [row.note for row in rows],
                "hovertext": [row.tip or row.label for row in rows],
                "textposition": "auto",
                "marker": {"color": COLOURS[colour]},
            }
        ],
        "layout": figure_layout(
            title,
            120 + 24 * len(rows),
            yaxis={"autorange": "reversed"},
            xaxis={
                "title": {"text": head[1]},
                **({"range": [0, full]} if full else {}),
                **({"tickformat": ".0%"} if full == 1.0 else {}),
            },
        ),
    }
    return MimeBundle(plain, html=html_figure(drawing, listed), svg=drawing, plotly=figure)


LANE_LEFT, LANE_SPAN, LANE_HEIGHT = 90, WIDTH - 90 - 16, 30  # pixels of a timeline


def draw_lanes(title: str, blocks: Sequence[Block], total: float, note: str = "") -> MimeBundle:
    """Blocks in lanes, over a common time axis from 0 to `total` seconds."""
    names = list(dict.fromkeys(block.lane for block in blocks))
    unit, factor = ("ms", 1e3) if total >= 1e-3 else ("µs", 1e6)
    bottom = 32 + LANE_HEIGHT * len(names)
    keys = list({block.label: block.colour for block in blocks}.items())[:6]
    body = [
        draw_text(8, 16, title, size=13),
        *_draw_time_axis(names, bottom, total * factor, unit),
        *_draw_blocks(names, blocks, total),
        *_draw_lane_keys(keys, bottom),
    ]
    if note:
        body.append(draw_text(LANE_LEFT, bottom + 36 + 15 * len(keys), note))
    plain, listed = render_table(
        ["lane", "what", "start", "length"],
        [
            [b.lane, shorten(b.label, 60), f"{b.start * factor:.4g} {unit}", f"{b.length * factor:.4g} {unit}"]
            for b in blocks[:30]
        ],
        f"{title}{'; ' + note if note else ''}",
    )
    drawing = draw_svg(bottom + 46 + 15 * len(keys), title, note or f"{len(blocks)} blocks in {len(names)} lanes", body)
    figure = {
        "data": [
            _lane_trace(label, colour, [block for block in blocks if block.label == label], factor)
            for label, colour in {b.label: b.colour for b in blocks}.items()
        ],
        "layout": figure_layout(
            title,
            160 + 40 * len(names),
            barmode="overlay",
            xaxis={"title": {"text": unit}},
            legend={"orientation": "h"},
        ),
    }
    return MimeBundle(plain, html=html_figure(drawing, listed), svg=drawing, plotly=figure)


def _draw_time_axis(names: Sequence[str], bottom: int, total: float, unit: str) -> list[str]:
    """Grid lines at round times, in units of the axis, and the names of the lanes."""
    body = []
    for moment in ticks(total):
        x = LANE_LEFT + LANE_SPAN * moment / total if total else LANE_LEFT
        body.append(draw_vertical_rule(x, 26, bottom) + draw_text(x, bottom + 15, f"{moment:g}", anchor="middle"))
    body.append(draw_text(LANE_LEFT - 8, bottom + 15, unit, anchor="end"))
    for n, name in enumerate(names):
        body.append(draw_text(LANE_LEFT - 8, 32 + n * LANE_HEIGHT + 18, shorten(name, 14), anchor="end"))
    return body


def _draw_blocks(names: list[str], blocks: Sequence[Block], total: float) -> list[str]:
    """The blocks in their lanes."""
    scale = LANE_SPAN / total if total else 0.0
    body = []
    for block in blocks:
        x, wide = LANE_LEFT + LANE_SPAN * block.start / total if total else LANE_LEFT, max(scale * block.length, 0.8)
        y = 32 + names.index(block.lane) * LANE_HEIGHT
        size = f'x="{x:.1f}" y="{y + 4}" width="{wide:.1f}" height="{LANE_HEIGHT - 10}"'
        body.append(
            draw_titled(f'rect {size} fill="{COLOURS[block.colour % len(COLOURS)]}" fill-opacity=".85"', block.tip)
        )
    return body


def _draw_lane_keys(keys: Sequence[tuple[str, int]], bottom: int) -> list[str]:
    """The legend of the colours."""
    return [
        f'<rect x="{LANE_LEFT}" y="{bottom + 24 + 15 * n}" width="10" height="10" '
        f'fill="{COLOURS[colour % len(COLOURS)]}"/>'
        + draw_text(LANE_LEFT + 16, bottom + 33 + 15 * n, shorten(label, 90))
        for n, (label, colour) in enumerate(keys)
    ]


def _lane_trace(label: str, colour: int, blocks: Sequence[Block], factor: float) -> dict[str, object]:
    """The blocks of one label for plotly. `factor` converts seconds to the unit of the axis."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": shorten(label, 40),
        "base": [block.start * factor for block in blocks],
        "x": [block.length * factor for block in blocks],
        "y": [block.lane for block in blocks],
        "hovertext": [block.tip for block in blocks],
        "marker": {"color": COLOURS[colour % len(COLOURS)]},
    }


CURVE_LEFT, CURVE_TOP, CURVE_SPAN, CURVE_HEIGHT = 76, 26, WIDTH - 76 - 16, 190  # pixels of a curve's plot area


def draw_curve(
    title: str,
    points: Sequence[tuple[float, float]],
    marks: Sequence[tuple[str, float]],
    *,
    x: str,
    y: str,
    note: str = "",
) -> MimeBundle:
    """A line through (x, y) points on axes from (0, 0). `marks` are (name, x) of moments; `x` and `y` name the axes."""
    bottom = CURVE_TOP + CURVE_HEIGHT
    body = [
        draw_text(8, 16, title, size=13),
        *_draw_curve_lines(points, marks),
        draw_text(CURVE_LEFT + CURVE_SPAN / 2, bottom + 31, x, anchor="middle"),
        draw_text(
            0, 0, y, anchor="middle", more=f' transform="translate(14 {bottom - CURVE_HEIGHT / 2:.0f}) rotate(-90)"'
        ),
    ]
    if note:
        body.append(draw_text(CURVE_LEFT, bottom + 48, note))
    plain, listed = render_table(
        [x, y],
        [[f"{a:.4g}", f"{b:.4g}"] for a, b in points[:: max(1, len(points) // 12)]],
        f"{title}{'; ' + note if note else ''}",
    )
    drawing = draw_svg(bottom + 56, title, note, body)
    figure = _curve_figure(title, points, marks, x=x, y=y)
    return MimeBundle(plain, html=html_figure(drawing, listed), svg=drawing, plotly=figure)


def _draw_curve_lines(points: Sequence[tuple[float, float]], marks: Sequence[tuple[str, float]]) -> list[str]:
    """Grid, numbers, named moments and the line itself."""
    wide, high = max((a for a, _ in points), default=1.0) or 1.0, max((b for _, b in points), default=1.0) or 1.0
    right, bottom = CURVE_LEFT + CURVE_SPAN, CURVE_TOP + CURVE_HEIGHT
    body = []
    for number in ticks(high, 4):
        level = CURVE_TOP + CURVE_HEIGHT * (1 - number / high)
        label = draw_text(CURVE_LEFT - 6, level + 4, f"{number:,g}", anchor="end")
        body.append(draw_horizontal_rule(level, CURVE_LEFT, right) + label)
    for moment in ticks(wide):
        body.append(draw_text(CURVE_LEFT + CURVE_SPAN * moment / wide, bottom + 15, f"{moment:g}", anchor="middle"))
    for n, (name, when) in enumerate(marks):
        at = CURVE_LEFT + CURVE_SPAN * when / wide
        line = draw_vertical_rule(at, CURVE_TOP, bottom, more=' stroke-opacity=".5" stroke-dasharray="2 3"')
        body.append(line + draw_text(at + 3, CURVE_TOP + 12 + 13 * (n % 3), name, size=10))
    path = " ".join(
        f"{CURVE_LEFT + CURVE_SPAN * a / wide:.1f},{CURVE_TOP + CURVE_HEIGHT * (1 - b / high):.1f}" for a, b in points
    )
    return [*body, f'<polyline fill="none" stroke="{COLOURS[0]}" stroke-width="2" points="{path}"/>']


def _curve_figure(
    title: str, points: Sequence[tuple[float, float]], marks: Sequence[tuple[str, float]], *, x: str, y: str
) -> dict[str, object]:
    """The curve for plotly."""
    line = {"dash": "dot", "color": QUIET}
    shapes = [
        {"type": "line", "x0": when, "x1": when, "y0": 0, "y1": 1, "yref": "paper", "line": line} for _, when in marks
    ]
    notes = [
        {"x": when, "y": 1, "yref": "paper", "text": name, "showarrow": False, "xanchor": "left"}
        for name, when in marks
    ]
    trace = {
        "type": "scatter",
        "mode": "lines",
        "x": [a for a, _ in points],
        "y": [b for _, b in points],
        "line": {"color": COLOURS[0]},
    }
    layout = figure_layout(
        title, 340, xaxis={"title": {"text": x}}, yaxis={"title": {"text": y}}, shapes=shapes, annotations=notes
    )
    return {"data": [trace], "layout": layout}


def draw_heat(title: str, rows: Sequence[Heat]) -> MimeBundle:
    """Source lines in order, each with its number and note. The opacity of the ground shows the heat."""
    body = [draw_text(8, 16, title, size=13)]
    for n, row in enumerate(rows):
        y = 26 + n * 17
        body.append(
            f'<rect x="8" y="{y}" width="{WIDTH - 16}" height="17" fill="{COLOURS[1]}" '
            f'fill-opacity="{0.55 * min(max(row.heat, 0.0), 1.0):.2f}"/>'
        )
        body.append(
            draw_text(38, y + 12, str(row.line), anchor="end", size=10)
            + draw_text(
                46, y + 12, shorten(row.text, 70), size=11, more=' font-family="monospace" xml:space="preserve"'
            )
        )
        body.append(draw_text(WIDTH - 14, y + 12, shorten(row.note, 44), anchor="end", size=10))
    plain, listed = render_table(
        ["line", "heat", "source", "why"],
        [[row.line, "█" * round(8 * row.heat) or "·", row.text[:70], row.note] for row in rows],
        title,
    )
    drawing = draw_svg(
        36 + 17 * len(rows),
        title,
        "; ".join(f"line {row.line}: {row.note}" for row in sorted(rows, key=lambda row: -row.heat)[:5]),
        body,
    )
    figure = {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "x": [row.heat for row in rows],
                "y": [f"{row.line}: {shorten(row.text, 60)}" for row in rows],
                "hovertext": [f"{row.line}: {row.text}<br>{row.note}" for row in rows],
                "marker": {"color": COLOURS[1]},
            }
        ],
        "layout": figure_layout(
            title,
            110 + 20 * len(rows),
            yaxis={"autorange": "reversed", "tickfont": {"family": "monospace", "size": 11}},
            xaxis={"title": {"text": "heat: 1 is the hottest line"}},
        ),
    }
    return MimeBundle(plain, html=html_figure(drawing, listed), svg=drawing, plotly=figure)
