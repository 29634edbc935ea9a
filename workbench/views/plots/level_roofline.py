"""Draws a roofline with a slope for each memory level, and a horizontal line for each peak.

The ceilings are roofs (bytes/s of a level) and peaks (FLOP/s), each with its source. A point has the colour and the
mark of its level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from workbench.views.figures import objects as go
from workbench.views.figures.describe import escape, make_figure, show
from workbench.views.figures.style import INTENSITIES, LETTER, MARKS, QUIET, RATES, WIDTH, colour_of, dash_of
from workbench.views.text.mime_bundle import MimeBundle, format_amount, render_table

BESIDE = 80  # pixels beside the axis in a static picture
X_TITLE = "FLOP per byte of each level"
Ceiling = tuple[str, float, str]  # (name; for a roof the level, bytes/s or FLOP/s, source of the number)


class Point(NamedTuple):
    """One point of a roofline: its name, its level, FLOPs per byte of that level, FLOP/s."""

    label: str
    level: str
    intensity: float
    rate: float


def draw_levels(
    title: str, points: Sequence[Point], roofs: Sequence[Ceiling], peaks: Sequence[Ceiling], whose: str = "kernel's"
) -> MimeBundle:
    """Draw a slope for each of `roofs`, a horizontal line for each of `peaks`, and a mark for each point. `whose`: the
    FLOPs that rates are of, the kernel's or the problem's.
    """
    order = list(dict.fromkeys([*(name for name, _, _ in roofs), *(point.level for point in points)]))
    top = max(peak for _, peak, _ in peaks)
    x, y = _fit_ranges(points, roofs, peaks)
    rows = [
        [p.label, p.level, f"{p.intensity:.3g}", format_amount(p.rate) + "FLOP/s", _roof_share(p, roofs, top)]
        for p in points
    ]
    plain, listed = render_table(
        ["kernel", "level", "FLOP per byte", f"rate, {whose} FLOPs", "of the level's roof"], rows, title
    )
    figure = make_figure(
        title,
        [*_make_ceilings(x, y, order, roofs, peaks), *_make_points(order, points, roofs)],
        height=280,
        xaxis={**INTENSITIES, "title": {"text": X_TITLE}, "range": x},
        yaxis={**RATES, "title": {"text": f"{whose} FLOP/s"}, "range": y},
    )
    return show(figure, plain, listed, "; ".join(map(_describe, points)))


def _describe(point: Point) -> str:
    return f"{point.label}, {point.level}: {point.intensity:.3g} FLOP/B, {format_amount(point.rate)}FLOP/s"


def _fit_ranges(
    points: Sequence[Point], roofs: Sequence[Ceiling], peaks: Sequence[Ceiling]
) -> tuple[list[float], list[float]]:
    """The ranges of both axes, as base-10 logarithms: they hold the points, and the roofs with the name of the highest
    peak to the right of their ends.
    """
    highest = max(peaks, key=lambda one: one[1])
    top = highest[1]
    xs = [point.intensity for point in points] + [top / rate for _, rate, _ in roofs]
    ys = [point.rate for point in points]
    left, right = math.log10(min(xs)) - 0.4, math.log10(max(xs)) + 0.1
    named = LETTER * len(_name_peak(*highest)) / (WIDTH - BESIDE)  # share of the axis
    return (
        [left, right + (right - left) * named / (1 - named)],
        [math.floor(math.log10(min(ys))) - 0.3, math.ceil(math.log10(top)) + 0.3],
    )


def _name_peak(name: str, peak: float, source: str) -> str:
    return f"{name} {format_amount(peak)}FLOP/s ({source})"


def _make_ceilings(
    x: Sequence[float], y: Sequence[float], order: list[str], roofs: Sequence[Ceiling], peaks: Sequence[Ceiling]
) -> list[Any]:
    """A slope for each memory level up to the highest peak, and a line for each peak, with their names."""
    top = max(peak for _, peak, _ in peaks)
    slowest = min((rate for _, rate, _ in roofs), default=0.0)
    begins = {name: max(10.0 ** x[0], 10.0 ** y[0] / rate) for name, rate, _ in roofs}
    slopes = [
        go.Scatter(
            mode="lines+text",
            x=[begins[name], top / rate],
            y=[begins[name] * rate, top],
            text=["", name],
            textposition="top right" if rate == slowest else "top left",  # beside the others' names
            textfont={"size": 11, "color": colour_of(order.index(name))},
            hovertext=f"{name} {format_amount(rate)}B/s ({source})",
            hoverinfo="text",
            line={"color": colour_of(order.index(name)), "dash": dash_of(order.index(name)), "width": 2},
        )
        for name, rate, source in roofs
    ]
    fastest = max((rate for _, rate, _ in roofs), default=0.0)
    return slopes + [
        go.Scatter(
            mode="lines+markers+text",
            x=[peak / fastest if roofs else 10.0 ** x[0], 10.0 ** x[1]],
            y=[peak, peak],
            text=["", _name_peak(name, peak, source)],
            # the levels have their names above the highest peak
            textposition="bottom left" if peak == top else "top left",
            textfont={"size": 11},
            hoverinfo="skip",
            marker={"size": 8, "opacity": 0, "color": QUIET},  # plotly keeps a text away from a mark, not from a line
            line={"color": QUIET, "dash": dash_of(n), "width": 1.5},
        )
        for n, (name, peak, source) in enumerate(peaks)
    ]


def _make_points(order: Sequence[str], points: Sequence[Point], roofs: Sequence[Ceiling]) -> list[Any]:
    """The points of each level, named after it and its roof. Where two lie on each other, the smaller mark is above."""
    names = {name: f"{name}: {format_amount(rate)}B/s ({source})" for name, rate, source in roofs}
    return [
        go.Scatter(
            mode="markers",
            name=names.get(level, f"{level}: no ceiling is known; cutegen calibrate measures it"),
            x=[point.intensity for point in own],
            y=[point.rate for point in own],
            hovertext=escape(list(map(_describe, own))),
            hoverinfo="text",
            marker={"symbol": MARKS[n % len(MARKS)], "size": max(15 - 3 * n, 6), "color": colour_of(n)},
        )
        for n, level in enumerate(order)
        if (own := [point for point in points if point.level == level])
    ]


def _roof_share(point: Point, roofs: Sequence[Ceiling], top: float) -> str:
    """The fraction of its level's roof that a point reaches, in percent."""
    rate = next((rate for level, rate, _ in roofs if level == point.level), None)
    return f"{point.rate / min(rate * point.intensity, top):.0%}" if rate else "—"
