"""The roofline of a session with its versions: plotly JSON, SVG, HTML table and plain text."""

from __future__ import annotations

import html
import itertools
import math

from workbench.analysis import devices
from workbench.analysis import roofline as points_of
from workbench.analysis.roofline import RooflinePoint
from workbench.records import Bound
from workbench.session import Session
from workbench.views.plots.svg import INTENSITIES, RATES
from workbench.views.text.mime_bundle import MimeBundle, format_amount, format_seconds, render_table

INK, ROOF, MEASURED, MODELLED = "#7a7a7a", "#c0504d", "#3f8f43", "#2b83c6"  # mid tones, readable on light and dark
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 700, 400, 70, 50, 34, 20


def roofline(session: Session) -> MimeBundle:
    """The roofline of a session's device. Each correct version is a point; lines connect them in order."""
    points = points_of.roofline_points(session.versions)
    bound = next(
        (v.trials[-1].verdict.bound for v in reversed(session.versions) if v.trials and v.trials[-1].verdict.bound),
        None,
    )
    if bound is None:
        return MimeBundle("no version has been tested yet: nothing to place on the roofline")
    copy = devices.find(bound.device).copy_bandwidth
    text, page = _version_table(points, bound, copy)
    return MimeBundle(
        text,
        html=_draw_svg(points, bound, copy) + page,
        svg=_draw_svg(points, bound, copy),
        plotly=_make_figure(points, bound, copy),
    )


def _title(bound: Bound) -> str:
    return f"Roofline, {bound.device}, case {bound.case}: limited by {bound.limited_by}"


def _version_table(points: tuple[RooflinePoint, ...], bound: Bound, copy: float | None) -> tuple[str, str]:
    rows = [
        [
            f"v{p.version}",
            p.title,
            format_seconds(p.time_s) if p.provenance == "modelled" else "—",
            format_seconds(p.time_s) if p.provenance == "measured" else "—",
            format_amount(p.rate) + "FLOP/s",
            f"{bound.bound_s / p.time_s:.0%}",
            {True: "accepted", False: "rejected", None: "pending"}[p.accepted],
        ]
        for p in points
    ]
    source, _, measured = bound.rates.partition("; attainable: ")
    caption = f"{_title(bound)}; bound {format_seconds(bound.bound_s)} ({source})"
    if bound.attainable_s is not None:
        caption += f", attainable {format_seconds(bound.attainable_s)}" + (
            f" (ceilings {measured})" if measured else ""
        )
    caption += f"; intensity {bound.intensity:.3g} FLOP/B (counted), ridge {bound.ridge:.3g} FLOP/B"
    if copy:
        caption += f"; a copy reaches {format_amount(copy)}B/s (measured)"
    return render_table(["version", "title", "modelled", "measured", "rate", "of bound", "decision"], rows, caption)


class _Axes:
    """Log-log axes that contain the roofs and all points.

    Work without FLOPs (a histogram, a transposition) is placed at the lower left.
    """

    def __init__(self, points: tuple[RooflinePoint, ...], bound: Bound) -> None:
        xs = [bound.ridge, max(bound.intensity, 1e-3), *(p.intensity for p in points if p.intensity > 0)]
        ys = [bound.peak_flops, *(p.rate for p in points if p.rate > 0), bound.bandwidth * max(bound.intensity, 1e-3)]
        self.x0, self.x1 = math.floor(math.log10(min(xs))) - 0.3, math.ceil(math.log10(max(xs))) + 0.5
        self.y0, self.y1 = math.floor(math.log10(min(ys))) - 0.3, math.ceil(math.log10(max(ys))) + 0.2

    def x(self, value: float) -> float:
        return LEFT + (math.log10(max(value, 10**self.x0)) - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return (
            HEIGHT
            - BOTTOM
            - (math.log10(max(value, 10**self.y0)) - self.y0) / (self.y1 - self.y0) * (HEIGHT - BOTTOM - TOP)
        )


def _draw_svg(points: tuple[RooflinePoint, ...], bound: Bound, copy: float | None) -> str:
    axes = _Axes(points, bound)
    described = "; ".join(f"v{p.version} {format_amount(p.rate)}FLOP/s {p.provenance}" for p in points)
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" role="img" font-family="sans-serif" font-size="11">'
            f"<title>{html.escape(_title(bound))}</title>"
            f"<desc>{html.escape(described or 'no timed version')}</desc>",
            *_draw_grid(axes),
            *_draw_roofs(axes, bound, copy),
            *(_draw_step(axes, before, after) for before, after in itertools.pairwise(points)),
            *(_draw_marker(axes, point) for point in points),
            *_draw_labels(axes, points),
            *_draw_legend(axes, points, bound, copy),
            *_draw_titles(bound),
            "</svg>",
        ]
    )


def _draw_grid(axes: _Axes) -> list[str]:
    """Grid lines with numbers at the powers of ten."""
    out = []
    for power in range(math.ceil(axes.x0), math.floor(axes.x1) + 1):
        at = axes.x(10**power)
        out.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="{INK}" stroke-opacity=".2"/>'
            f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" fill="{INK}">{10.0**power:g}</text>'
        )
    for power in range(math.ceil(axes.y0), math.floor(axes.y1) + 1):
        at = axes.y(10**power)
        out.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="{INK}" stroke-opacity=".2"/>'
            f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end" fill="{INK}">{format_amount(10.0**power)}</text>'
        )
    return out


def _draw_roofs(axes: _Axes, bound: Bound, copy: float | None) -> list[str]:
    """The roof of the data sheet, the bandwidth of a copy (dashed), and the ridge (dotted)."""
    left, right = 10**axes.x0, 10**axes.x1
    roof = [(left, left * bound.bandwidth), (bound.ridge, bound.peak_flops), (right, bound.peak_flops)]
    out = [f'<polyline fill="none" stroke="{ROOF}" stroke-width="2" points="{_svg_points(axes, roof)}"/>']
    if copy:
        copied = _svg_points(axes, [(left, left * copy), (bound.peak_flops / copy, bound.peak_flops)])
        out.append(f'<polyline fill="none" stroke="{ROOF}" stroke-dasharray="5 4" points="{copied}"/>')
    at = axes.x(bound.ridge)
    out.append(
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{axes.y(bound.peak_flops):.1f}" '
        f'y2="{HEIGHT - BOTTOM}" stroke="{ROOF}" stroke-dasharray="1 3"/>'
        f'<text x="{at + 4:.1f}" y="{HEIGHT - BOTTOM - 6}" fill="{ROOF}">ridge {bound.ridge:.3g} FLOP/B</text>'
    )
    return out


def _draw_titles(bound: Bound) -> list[str]:
    """The title of the plot and those of the axes."""
    centred = f'text-anchor="middle" fill="{INK}"'
    return [
        f'<text x="{WIDTH / 2}" y="16" {centred} font-size="13">{html.escape(_title(bound))}</text>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" {centred}>FLOP per byte of least traffic (counted)</text>',
        f'<text transform="translate(14 {HEIGHT / 2}) rotate(-90)" {centred}>FLOP/s</text>',
    ]


def _draw_step(axes: _Axes, before: RooflinePoint, after: RooflinePoint) -> str:
    """A dotted line from one version to the next, with an arrow head if it is long enough."""
    (x0, y0), (x1, y1) = (axes.x(before.intensity), axes.y(before.rate)), (axes.x(after.intensity), axes.y(after.rate))
    line = f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{INK}" stroke-dasharray="2 3"/>'
    length = math.hypot(x1 - x0, y1 - y0)
    if length < 24:
        return line
    turn, gap = math.degrees(math.atan2(y1 - y0, x1 - x0)), 7 / length
    return (
        line + f'<path d="M0 0L-8 -4L-8 4Z" fill="{INK}" '
        f'transform="translate({x1 - gap * (x1 - x0):.1f} {y1 - gap * (y1 - y0):.1f}) '
        f'rotate({turn:.1f})"/>'
    )


def _draw_labels(axes: _Axes, points: tuple[RooflinePoint, ...]) -> list[str]:
    """The version numbers beside the markers. Overlapping markers share one label."""
    clusters: list[tuple[float, float, list[int]]] = []
    for point in points:
        x, y = axes.x(point.intensity), axes.y(point.rate)
        near = next((members for a, b, members in clusters if abs(a - x) < 12 and abs(b - y) < 12), None)
        if near is None:
            clusters.append((x, y, [point.version]))
        else:
            near.append(point.version)
    return [
        f'<text x="{x + 10:.1f}" y="{y + 4:.1f}" fill="{INK}">{", ".join(f"v{number}" for number in numbers)}</text>'
        for x, y, numbers in clusters
    ]


def _draw_legend(axes: _Axes, points: tuple[RooflinePoint, ...], bound: Bound, copy: float | None) -> list[str]:
    """The legend of lines and markers with the sources of numbers: at the right, below the compute roof."""
    x, y = WIDTH - RIGHT - 232, axes.y(bound.peak_flops) + 22
    rows = [
        (
            f'<line x1="0" x2="16" y1="-4" y2="-4" stroke="{ROOF}" stroke-width="2"/>',
            f"{format_amount(bound.peak_flops)}FLOP/s, {format_amount(bound.bandwidth)}B/s "
            f"({bound.rates.split(';')[0]})",
        )
    ]
    if copy:
        rows.append(
            (
                f'<line x1="0" x2="16" y1="-4" y2="-4" stroke="{ROOF}" stroke-dasharray="5 4"/>',
                f"copy {format_amount(copy)}B/s (measured)",
            )
        )
    kinds = {point.provenance for point in points}
    if "modelled" in kinds:
        rows.append(
            (
                f'<circle cx="8" cy="-4" r="5" fill="{MODELLED}" stroke="{MODELLED}"/>',
                "version, modelled (filled: accepted)",
            )
        )
    if "measured" in kinds:
        rows.append(
            (
                f'<rect x="3" y="-9" width="10" height="10" fill="{MEASURED}" stroke="{MEASURED}"/>',
                "version, measured (filled: accepted)",
            )
        )
    return [
        f'<g transform="translate({x:.1f} {y + 16 * n:.1f})">{mark}<text x="22" '
        f'fill="{INK}">{html.escape(label)}</text></g>'
        for n, (mark, label) in enumerate(rows)
    ]


def _svg_points(axes: _Axes, pairs: list[tuple[float, float]]) -> str:
    return " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in pairs if x > 0 and y > 0)


def _draw_marker(axes: _Axes, point: RooflinePoint) -> str:
    """A circle (modelled) or a square (measured) with a tooltip. It is filled if the version was accepted."""
    x, y = axes.x(point.intensity), axes.y(point.rate)
    colour = MEASURED if point.provenance == "measured" else MODELLED
    fill = colour if point.accepted else "none"
    tip = f"v{point.version} {html.escape(point.title)}: {format_seconds(point.time_s)} ({point.provenance})"
    if point.provenance == "measured":
        return (
            f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="{fill}" '
            f'stroke="{colour}" stroke-width="2"><title>{tip}</title></rect>'
        )
    outline = f'fill="{fill}" stroke="{colour}" stroke-width="2"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {outline}><title>{tip}</title></circle>'


def _make_figure(points: tuple[RooflinePoint, ...], bound: Bound, copy: float | None) -> dict[str, object]:
    axes = _Axes(points, bound)
    left, right = 10**axes.x0, 10**axes.x1
    data: list[dict[str, object]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"roof ({bound.rates.split(';')[0]})",
            "x": [left, bound.ridge, right],
            "y": [left * bound.bandwidth, bound.peak_flops, bound.peak_flops],
            "line": {"color": ROOF},
        }
    ]
    if copy:
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "copy bandwidth (measured)",
                "x": [left, bound.peak_flops / copy],
                "y": [left * copy, bound.peak_flops],
                "line": {"color": ROOF, "dash": "dash"},
            }
        )
    for kind, symbol, colour in (("modelled", "circle", MODELLED), ("measured", "square", MEASURED)):
        shown = [point for point in points if point.provenance == kind]
        if shown:
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers+text",
                    "name": f"versions ({kind})",
                    "x": [p.intensity for p in shown],
                    "y": [p.rate for p in shown],
                    "text": [f"v{p.version}" for p in shown],
                    "textposition": "middle right",
                    "hovertext": [f"v{p.version} {p.title}: {format_seconds(p.time_s)}" for p in shown],
                    "line": {"color": colour, "dash": "dot"},
                    "marker": {"symbol": [symbol if p.accepted else symbol + "-open" for p in shown], "size": 10},
                }
            )
    axis = {"gridcolor": "rgba(128,128,128,.25)", "color": INK}
    layout = {
        "title": {"text": _title(bound)},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": INK},
        "height": 380,
        "xaxis": {**axis, **INTENSITIES, "title": {"text": "FLOP per byte of least traffic (counted)"}},
        "yaxis": {**axis, **RATES, "title": {"text": "FLOP/s"}},
    }
    return {"data": data, "layout": layout}
