"""Curves of searches: the best so far against the candidates judged, with the trials that screening saved, and several
searches side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from workbench.errors import UserError
from workbench.policies.search import SearchTree
from workbench.views.plots.svg import (
    COLOURS,
    WIDTH,
    draw_horizontal_rule,
    draw_svg,
    draw_text,
    draw_titled,
    figure_layout,
    html_figure,
    shorten,
    ticks,
)
from workbench.views.search.outline import summarise
from workbench.views.text.mime_bundle import MimeBundle, format_seconds, render_table

LEFT, RIGHT, TOP, BOTTOM = 78, WIDTH - 20, 34, 250  # pixels of the plot area
DASHES = ("", "7 3", "2 3", "8 3 2 3", "1 5")  # curves differ by more than their colour
INNER = 0.1, 0.9  # the band holds the searches between these shares
NAMES = {"": "solid", "7 3": "dash", "2 3": "dot", "8 3 2 3": "dashdot", "1 5": "longdash"}


class Curve(NamedTuple):
    """A value after each candidate, from the first on; None before the first correct one. `low` and `high`: a band."""

    name: str
    values: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()


class Axes(NamedTuple):
    """The names of the axes, and whether equal steps of the values are equal factors."""

    x: str
    y: str
    is_log: bool = False


def draw_curve(tree: SearchTree) -> MimeBundle:
    """The best time so far in µs after each candidate that was judged, and each candidate's own as a dot. What was
    screened out without a GPU is marked at the axis: it cost no trial.

    Raises `UserError` where nothing was tried.
    """
    judged = [tree.nodes[number] for number in tree.tried]
    if not judged:
        raise UserError("nothing was tried yet: there is no curve")
    screened = [n for n, node in enumerate(judged, 1) if node.result is not None and node.result.screened]
    levels = best_so_far(tree)
    title = f"Best so far: {summarise(tree)}"
    # a time of what was screened out is modelled, and the others may be measured: it is in no column with them
    times = [None if node.result is None or node.result.screened else node.result.time_s for node in judged]
    rows = [
        [n, node.number, format_seconds(time), format_seconds(level), "yes" if n in screened else ""]
        for n, (node, time, level) in enumerate(zip(judged, times, levels, strict=True), 1)
    ]
    text, page = render_table(["candidate", "node", "its time", "best so far", "screened out"], rows, title)
    curve = Curve("best so far", [level * 1e6 if level is not None else None for level in levels])
    own = [(n, time * 1e6) for n, time in enumerate(times, 1) if time is not None]
    axes = Axes("candidates judged", "time of a call in µs", is_log=True)
    return _bundle(title, [curve], axes, text, page, marks=screened, dots=own)


def best_so_far(tree: SearchTree) -> list[float | None]:
    """The least time in seconds after each candidate that was judged, of those that were not screened out."""
    found: list[float | None] = []
    for number in tree.tried:
        result = tree.nodes[number].result
        counts = result is not None and result.outcome == "passed" and not result.screened
        before = found[-1] if found else None
        time_s = result.time_s if result is not None and counts else None
        found.append(min((one for one in (before, time_s) if one is not None), default=None))
    return found


def compare_searches(searches: Mapping[str, Sequence[SearchTree]], best_s: float | None = None) -> MimeBundle:
    """How near the best so far of several searches is to the best of all after each trial: a median over the trees of
    each name (one for each seed), and a band that holds 80 % of them.

    `best_s`: the best of all in seconds, such as a landscape's; by default the least that any of the trees found. A
    search that has ended keeps its last value. Raises `UserError` where nothing is correct.
    """
    found = {name: [_trial_times(tree) for tree in trees] for name, trees in searches.items()}
    times = [time for lists in found.values() for one in lists for time in one if time is not None]
    if not times:
        raise UserError("none of the searches has a correct candidate: there is nothing to compare")
    least = min(times) if best_s is None else best_s
    longest = max(len(one) for lists in found.values() for one in lists)
    curves = [_median_curve(name, lists, least, longest) for name, lists in found.items()]
    at = sorted({n for n in (1, 2, 5, 10, 15, 20, 30, 60, 100, 200, 500) if n < longest} | {longest})
    rows = [[curve.name, *(_percent(curve.values[n - 1]) for n in at)] for curve in curves]
    seeds = ", ".join(f"{name}: {len(lists)}" for name, lists in found.items())
    title = f"Share of the best after each trial ({format_seconds(least)} is 100 %); median of seeds, {seeds}"
    text, page = render_table(["search", *(f"{n} trials" for n in at)], rows, title)
    return _bundle(title, curves, Axes("trials", "best of all / best so far"), text, page)


def _trial_times(tree: SearchTree) -> list[float | None]:
    """The least time after each trial, without what was screened out."""
    levels = zip(tree.tried, best_so_far(tree), strict=True)
    results = ((tree.nodes[number].result, level) for number, level in levels)
    return [level for result, level in results if result is not None and not result.screened]


def _median_curve(name: str, lists: Sequence[Sequence[float | None]], least: float, longest: int) -> Curve:
    columns = [
        sorted(_share(one[min(n, len(one) - 1)], least) if one else 0.0 for one in lists) for n in range(longest)
    ]
    low, high = ([column[round(share * (len(column) - 1))] for column in columns] for share in INNER)
    return Curve(name, [median(column) for column in columns], low, high)


def _share(time_s: float | None, least: float) -> float:
    return least / time_s if time_s else 0.0


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{value:.1%}"


Dots = Sequence[tuple[int, float]]  # (candidate, its value)


def _bundle(
    title: str,
    curves: Sequence[Curve],
    axes: Axes,
    text: str,
    page: str,
    *,
    marks: Sequence[int] = (),
    dots: Dots = (),
) -> MimeBundle:
    drawing = _draw(title, curves, axes, marks, dots)
    figure = _make_figure(title, curves, axes, marks, dots)
    return MimeBundle(text, html=html_figure(drawing, page), svg=drawing, plotly=figure)


class _Frame:
    """The axes of some curves: candidates from 1 on, values from the least to the greatest."""

    def __init__(self, curves: Sequence[Curve], dots: Dots, is_log: bool) -> None:
        self.is_log = is_log
        self.longest = max(len(curve.values) for curve in curves)
        found = [
            one for curve in curves for line in (curve.values, curve.low, curve.high) for one in line if one is not None
        ]
        found += [value for _, value in dots]
        low, high = min(found, default=1.0), max(found, default=1.0)
        if is_log:
            self.low, self.high = low / 1.1, high * 1.1
        else:
            margin = 0.06 * (high - low or high or 1.0)
            self.low, self.high = max(0.0, low - margin), high + margin

    def x(self, n: float) -> float:
        """The pixel of a candidate."""
        return LEFT + (n - 1) / max(1, self.longest - 1) * (RIGHT - LEFT)

    def y(self, value: float) -> float:
        """The pixel of a value."""
        if self.is_log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return BOTTOM - share * (BOTTOM - TOP)

    def levels(self) -> list[float]:
        """Round values within the range."""
        if self.is_log and self.high > 3 * self.low:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            return [
                one for power in powers for one in (10.0**power * n for n in (1, 2, 5)) if self.low < one < self.high
            ]
        step = ticks(self.high - self.low, 4)[1]
        first = math.ceil(self.low / step)
        return [step * n for n in range(first, math.floor(self.high / step) + 1)]

    def steps(self, values: Sequence[float | None]) -> list[tuple[float, float]]:
        """The corners of the steps."""
        places: list[tuple[float, float]] = []
        for n, value in enumerate(values, 1):
            if value is None:
                continue
            if places:
                places.append((self.x(n), places[-1][1]))
            places.append((self.x(n), self.y(value)))
        return places


def _draw(title: str, curves: Sequence[Curve], axes: Axes, marks: Sequence[int], dots: Dots) -> str:
    frame = _Frame(curves, dots, axes.is_log)
    body = [draw_text(8, 16, shorten(title, 112), size=12)]
    for value in frame.levels():
        y = frame.y(value)
        body.append(draw_horizontal_rule(y, LEFT, RIGHT) + draw_text(LEFT - 6, y + 4, f"{value:.4g}", anchor="end"))
    for n in [1, *(round(value) for value in ticks(frame.longest)[1:] if 1 < value <= frame.longest)]:
        body.append(draw_text(frame.x(n), BOTTOM + 16, str(n), anchor="middle"))
    for at, curve in enumerate(curves):
        body += _draw_curve(frame, curve, at)
    for n, value in dots:
        dot = f'circle cx="{frame.x(n):.1f}" cy="{frame.y(value):.1f}" r="3" fill="{COLOURS[0]}" fill-opacity=".55"'
        body.append(draw_titled(dot, f"candidate {n}: {value:.4g}"))
    for n in marks:
        tick = f'rect x="{frame.x(n) - 1.5:.1f}" y="{BOTTOM - 9}" width="3" height="9" fill="{COLOURS[3]}"'
        body.append(draw_titled(tick, f"candidate {n}: screened out without a GPU"))
    body.append(draw_text((LEFT + RIGHT) / 2, BOTTOM + 32, axes.x, anchor="middle"))
    turned = f' transform="translate(14 {(TOP + BOTTOM) / 2:.0f}) rotate(-90)"'
    body.append(draw_text(0, 0, axes.y, anchor="middle", more=turned))
    body += _draw_keys(curves, has_marks=bool(marks), has_dots=bool(dots))
    described = "; ".join(f"{curve.name} ends at {_last(curve):.4g}" for curve in curves)
    return draw_svg(BOTTOM + 62, title, described, body)


def _last(curve: Curve) -> float:
    return next((value for value in reversed(curve.values) if value is not None), math.nan)


def _draw_curve(frame: _Frame, curve: Curve, at: int) -> list[str]:
    ink, dash = COLOURS[at % len(COLOURS)], DASHES[at % len(DASHES)]
    body = []
    if curve.low and curve.high:
        outline = [*frame.steps(curve.low), *reversed(frame.steps(curve.high))]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in outline)
        body.append(f'<polygon points="{points}" fill="{ink}" fill-opacity=".14"/>')
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in frame.steps(curve.values))
    style = f'fill="none" stroke="{ink}" stroke-width="2"' + (f' stroke-dasharray="{dash}"' if dash else "")
    return [*body, f'<polyline points="{points}" {style}/>']


def _draw_keys(curves: Sequence[Curve], *, has_marks: bool, has_dots: bool) -> list[str]:
    body, x = [], float(LEFT)
    for at, curve in enumerate(curves):
        ink, dash = COLOURS[at % len(COLOURS)], DASHES[at % len(DASHES)]
        style = f'stroke="{ink}" stroke-width="2"' + (f' stroke-dasharray="{dash}"' if dash else "")
        body.append(f'<line x1="{x:.0f}" x2="{x + 26:.0f}" y1="{BOTTOM + 48}" y2="{BOTTOM + 48}" {style}/>')
        body.append(draw_text(x + 31, BOTTOM + 52, curve.name))
        x += 50 + 6.2 * len(curve.name)
    if has_dots:
        body.append(f'<circle cx="{x:.0f}" cy="{BOTTOM + 48}" r="3" fill="{COLOURS[0]}" fill-opacity=".55"/>')
        body.append(draw_text(x + 9, BOTTOM + 52, "of each candidate"))
        x += 130
    if has_marks:
        body.append(f'<rect x="{x:.0f}" y="{BOTTOM + 43}" width="3" height="9" fill="{COLOURS[3]}"/>')
        body.append(draw_text(x + 9, BOTTOM + 52, "screened out without a GPU"))
    return body


def _make_figure(
    title: str, curves: Sequence[Curve], axes: Axes, marks: Sequence[int], dots: Dots
) -> dict[str, object]:
    data: list[dict[str, object]] = []
    for at, curve in enumerate(curves):
        x = list(range(1, len(curve.values) + 1))
        ink = COLOURS[at % len(COLOURS)]
        for edge, fill in ((curve.low, None), (curve.high, "tonexty")):
            if edge:
                faint = {"shape": "hv", "width": 0, "color": ink}
                data.append(
                    {"type": "scatter", "mode": "lines", "x": x, "y": list(edge), "line": faint, "showlegend": False}
                    | ({"fill": fill, "fillcolor": _fade(ink)} if fill else {})
                    | {"hoverinfo": "skip"}
                )
        line = {"shape": "hv", "color": ink, "dash": NAMES[DASHES[at % len(DASHES)]]}
        data.append(
            {"type": "scatter", "mode": "lines", "name": curve.name, "x": x, "y": list(curve.values), "line": line}
        )
    if dots:
        own: dict[str, object] = {"type": "scatter", "mode": "markers", "name": "of each candidate"}
        marker: dict[str, object] = {"color": COLOURS[0], "opacity": 0.55, "size": 6}
        data.append(own | {"x": [n for n, _ in dots], "y": [value for _, value in dots], "marker": marker})
    if marks:
        marker = {"symbol": "line-ns-open", "color": COLOURS[3], "size": 9}
        level = _Frame(curves, dots, axes.is_log).low
        data.append(
            {"type": "scatter", "mode": "markers", "name": "screened out without a GPU", "x": list(marks)}
            | {"y": [level] * len(marks), "marker": marker}
        )
    layout = figure_layout(
        shorten(title, 110),
        380,
        xaxis={"title": {"text": axes.x}},
        yaxis={"title": {"text": axes.y}, **({"type": "log", "dtick": "D1"} if axes.is_log else {})},
        legend={"orientation": "h", "y": -0.2, "yanchor": "top"},
    )
    return {"data": data, "layout": layout}


def _fade(colour: str) -> str:
    red, green, blue = (int(colour[n : n + 2], 16) for n in (1, 3, 5))
    return f"rgba({red},{green},{blue},.14)"
