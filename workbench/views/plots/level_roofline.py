"""Draws a roofline with a slope for each memory level, as SVG, plotly JSON, HTML table and plain text.

The ceilings are roofs (bytes/s of a level) and peaks (FLOP/s), each with its source. A point has the colour and the
mark of its level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from workbench.views.plots.svg import (
    COLOURS,
    INTENSITIES,
    QUIET,
    RATES,
    WIDTH,
    draw_horizontal_rule,
    draw_svg,
    draw_text,
    draw_titled,
    draw_vertical_rule,
    figure_layout,
    html_figure,
)
from workbench.views.text.mime_bundle import MimeBundle, format_amount, render_table

MARKS = ("circle", "square", "diamond", "triangle-up")
OUTLINES = {
    "circle": "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0 -11 0Z",
    "square": "M-5 -5h10v10h-10Z",
    "diamond": "M0 -7l7 7l-7 7l-7 -7Z",
    "triangle-up": "M0 -7l7 12h-14Z",
}
LEFT, RIGHT, HIGH, LOW = 66, 16, 28, 300  # margins at the sides, and the y of the plot's upper and lower edge
DASHES = ("solid", "dash", "dot", "dashdot")  # of roofs and peaks, so that they differ by more than colour
STROKES = ("none", "9 5", "2 4", "9 4 2 4")  # the same in SVG
X_TITLE = "FLOP per byte of each level"
Ceiling = tuple[str, float, str]  # (name; for a roof the level, bytes/s or FLOP/s, source of the number)


class Point(NamedTuple):
    """One point of a roofline: its name, its level, FLOPs per byte of that level, FLOP/s."""

    label: str
    level: str
    intensity: float
    rate: float


class Axes(NamedTuple):
    """The ranges of the axes: base-10 logarithms of the smallest and largest intensity and rate."""

    x0: float
    x1: float
    y0: float
    y1: float

    def place(self, intensity: float, rate: float) -> tuple[float, float]:
        """The pixel position of a point. Rates outside the range are placed at the edge."""
        x = LEFT + (math.log10(intensity) - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)
        power = min(max(math.log10(rate), self.y0), self.y1)
        return x, LOW - (power - self.y0) / (self.y1 - self.y0) * (LOW - HIGH)


def draw_levels(title: str, points: Sequence[Point], roofs: Sequence[Ceiling], peaks: Sequence[Ceiling]) -> MimeBundle:
    """Draw a slope for each of `roofs`, a horizontal line for each of `peaks`, and a mark for each point."""
    order = list(dict.fromkeys([*(name for name, _, _ in roofs), *(point.level for point in points)]))
    top = max(peak for _, peak, _ in peaks)
    axes = _fit_axes(points, roofs, top)
    body = [
        draw_text(8, 16, title, size=13),
        *_draw_grid(axes),
        *_draw_ceilings(axes, order, roofs, peaks),
        *_draw_points(axes, order, points),
        *_draw_keys(order, roofs),
        draw_text(WIDTH / 2, LOW + 30, X_TITLE, anchor="middle"),
        draw_text(
            0, 0, "FLOP/s", anchor="middle", more=f' transform="translate(14 {(LOW + HIGH) / 2:.0f}) rotate(-90)"'
        ),
    ]
    plain, listed = render_table(
        ["kernel", "level", "FLOP per byte", "rate", "of the level's roof"],
        [
            [p.label, p.level, f"{p.intensity:.3g}", format_amount(p.rate) + "FLOP/s", _roof_share(p, roofs, top)]
            for p in points
        ],
        title,
    )
    drawing = draw_svg(
        LOW + 58 + 16 * ((len(order) - 1) // 2),
        title,
        "; ".join(f"{p.label} at {p.level}: {p.intensity:.3g} FLOP/B, {format_amount(p.rate)}FLOP/s" for p in points),
        body,
    )
    figure = {
        "data": _make_traces(axes, order, points, roofs, peaks),
        "layout": figure_layout(
            title,
            400,
            xaxis={**INTENSITIES, "title": {"text": X_TITLE}},
            yaxis={**RATES, "title": {"text": "FLOP/s"}},
            legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
            margin={"l": 60, "r": 20, "t": 46, "b": 120},
        ),
    }
    return MimeBundle(plain, html=html_figure(drawing, listed), svg=drawing, plotly=figure)


def _fit_axes(points: Sequence[Point], roofs: Sequence[Ceiling], top: float) -> Axes:
    """Axes that contain all points, and the ridge of each roof at the highest peak."""
    xs = [point.intensity for point in points] + [top / rate for _, rate, _ in roofs]
    ys = [point.rate for point in points]
    return Axes(
        math.floor(math.log10(min(xs))) - 0.2,
        math.ceil(math.log10(max(xs))) + 0.6,
        math.floor(math.log10(min(ys))) - 0.3,
        math.ceil(math.log10(top)) + 0.1,
    )


def _draw_grid(axes: Axes) -> list[str]:
    """Grid lines with numbers at the powers of ten."""
    body = []
    for power in range(math.ceil(axes.x0), math.floor(axes.x1) + 1):
        x = axes.place(10.0**power, 1.0)[0]
        body.append(draw_vertical_rule(x, HIGH, LOW) + draw_text(x, LOW + 15, f"{10.0**power:g}", anchor="middle"))
    for power in range(math.ceil(axes.y0), math.floor(axes.y1) + 1):
        y = axes.place(10.0**axes.x0, 10.0**power)[1]
        body.append(
            draw_horizontal_rule(y, LEFT, WIDTH - RIGHT)
            + draw_text(LEFT - 6, y + 4, format_amount(10.0**power), anchor="end")
        )
    return body


def _draw_ceilings(axes: Axes, order: list[str], roofs: Sequence[Ceiling], peaks: Sequence[Ceiling]) -> list[str]:
    """A slope for each memory level, a horizontal line for each peak."""
    body = []
    top = max(peak for _, peak, _ in peaks)
    for name, rate, source in roofs:
        begin = max(10.0**axes.x0, 10.0**axes.y0 / rate)
        (xa, ya), (xb, yb) = axes.place(begin, begin * rate), axes.place(top / rate, top)
        ends = f'x1="{xa:.1f}" y1="{ya:.1f}" x2="{xb:.1f}" y2="{yb:.1f}"'
        number = order.index(name)
        dashed = f' stroke-dasharray="{STROKES[number % len(STROKES)]}"'
        slope = f'line {ends} stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2"{dashed}'
        body.append(draw_titled(slope, f"{name} {format_amount(rate)}B/s ({source})"))
    fastest = max((rate for _, rate, _ in roofs), default=0.0)
    for n, (name, peak, source) in enumerate(peaks):
        (xa, ya), (xb, _) = (
            axes.place(peak / fastest if roofs else 10.0**axes.x0, peak),
            axes.place(10.0**axes.x1, peak),
        )
        ends = f'x1="{xa:.1f}" x2="{xb:.1f}" y1="{ya:.1f}" y2="{ya:.1f}"'
        body.append(
            draw_titled(
                f'line {ends} stroke="currentColor" stroke-width="1.5" stroke-dasharray="{STROKES[n % len(STROKES)]}"',
                f"{name} {format_amount(peak)}FLOP/s ({source})",
            )
            + draw_text(xb - 2, ya - 4, f"{name} {format_amount(peak)}FLOP/s", anchor="end", size=10)
        )
    return body


def _draw_mark(number: int, x: float, y: float, tip: str) -> str:
    """The mark of a level, in its colour, with a tooltip."""
    outline = OUTLINES[MARKS[number % len(MARKS)]]
    colour = COLOURS[number % len(COLOURS)]
    return draw_titled(f'path d="{outline}" transform="translate({x:.1f} {y:.1f})" fill="{colour}"', tip)


def _draw_points(axes: Axes, order: list[str], points: Sequence[Point]) -> list[str]:
    """The points, with their numbers as tooltips."""
    return [
        _draw_mark(
            order.index(point.level),
            *axes.place(point.intensity, point.rate),
            f"{point.label}, {point.level}: {point.intensity:.3g} FLOP/B, {format_amount(point.rate)}FLOP/s",
        )
        for point in points
    ]


def _draw_keys(order: Sequence[str], roofs: Sequence[Ceiling]) -> list[str]:
    """The legend of the marks, with the roof of each level and its source."""
    ceilings = {name: f"{name}: {format_amount(rate)}B/s ({source})" for name, rate, source in reversed(roofs)}
    body = []
    for n, name in enumerate(order):
        label = ceilings.get(name, f"{name}: no ceiling is known; cutegen calibrate measures it")
        x, y = 80 + (n % 2) * 310, LOW + 48 + 16 * (n // 2)
        body.append(_draw_mark(n, x, y - 4, name) + draw_text(x + 12, y, label))
    return body


def _make_traces(
    axes: Axes, order: list[str], points: Sequence[Point], roofs: Sequence[Ceiling], peaks: Sequence[Ceiling]
) -> list[dict[str, object]]:
    """The lines and marks for plotly."""
    top = max(peak for _, peak, _ in peaks)
    data: list[dict[str, object]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"{name} {format_amount(rate)}B/s ({source})",
            "x": [10.0**axes.x0, top / rate],
            "y": [10.0**axes.x0 * rate, top],
            "line": {
                "color": COLOURS[order.index(name) % len(COLOURS)],
                "dash": DASHES[order.index(name) % len(DASHES)],
            },
        }
        for name, rate, source in roofs
    ]
    data += [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"{name} ({source})",
            "x": [10.0**axes.x0, 10.0**axes.x1],
            "y": [peak, peak],
            "line": {"color": QUIET, "dash": DASHES[n % len(DASHES)]},
        }
        for n, (name, peak, source) in enumerate(peaks)
    ]
    data += [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{level}",
            "x": [p.intensity for p in points if p.level == level],
            "y": [p.rate for p in points if p.level == level],
            "hovertext": [p.label for p in points if p.level == level],
            "marker": {"symbol": MARKS[n % len(MARKS)], "size": 11, "color": COLOURS[n % len(COLOURS)]},
        }
        for n, level in enumerate(order)
    ]
    return data


def _roof_share(point: Point, roofs: Sequence[Ceiling], top: float) -> str:
    """The fraction of its level's roof that a point reaches, in percent."""
    rate = next((rate for level, rate, _ in roofs if level == point.level), None)
    return f"{point.rate / min(rate * point.intensity, top):.0%}" if rate else "—"
