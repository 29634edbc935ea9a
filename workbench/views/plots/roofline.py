"""Roofline and profile plots from a session or records: plotly JSON, our own SVG, and a table as text."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable

from workbench.analysis import devices
from workbench.analysis import roofline as points_of
from workbench.analysis.roofline import RooflinePoint
from workbench.records import Bound, Profile, Version
from workbench.session import Session
from workbench.views.plots.svg import INTENSITIES, RATES
from workbench.views.text.mime_bundle import Shown, amount, seconds, table

INK, ROOF, MEASURED, MODELLED = "#7a7a7a", "#c0504d", "#3f8f43", "#2b83c6"  # mid tones: read on light and on dark
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 700, 400, 70, 50, 34, 20


def roofline(session: Session) -> Shown:
    """The roofline of a session's device, with every correct version as a point, joined in order."""
    points = points_of.roofline_points(session.versions)
    bound = next(
        (v.trials[-1].verdict.bound for v in reversed(session.versions) if v.trials and v.trials[-1].verdict.bound),
        None,
    )
    if bound is None:
        return Shown("no version has been tested yet: nothing to place on the roofline")
    copy = devices.find(bound.device).copy_bandwidth
    text, page = _table(points, bound, copy)
    return Shown(
        text, html=_svg(points, bound, copy) + page, svg=_svg(points, bound, copy), plotly=_plotly(points, bound, copy)
    )


def _title(bound: Bound) -> str:
    return f"Roofline, {bound.device}, case {bound.case}: limited by {bound.limited_by}"


def _table(points: tuple[RooflinePoint, ...], bound: Bound, copy: float | None) -> tuple[str, str]:
    rows = [
        [
            f"v{p.version}",
            p.title,
            seconds(p.time_s) if p.provenance == "modelled" else "—",
            seconds(p.time_s) if p.provenance == "measured" else "—",
            amount(p.rate) + "FLOP/s",
            f"{bound.bound_s / p.time_s:.0%}",
            {True: "accepted", False: "rejected", None: "pending"}[p.accepted],
        ]
        for p in points
    ]
    source, _, measured = bound.rates.partition("; attainable: ")
    caption = f"{_title(bound)}; bound {seconds(bound.bound_s)} ({source})"
    if bound.attainable_s is not None:
        caption += f", attainable {seconds(bound.attainable_s)}" + (f" (ceilings {measured})" if measured else "")
    caption += f"; intensity {bound.intensity:.3g} FLOP/B (counted), ridge {bound.ridge:.3g} FLOP/B"
    if copy:
        caption += f"; a copy reaches {amount(copy)}B/s (measured)"
    return table(["version", "title", "modelled", "measured", "rate", "of bound", "decision"], rows, caption)


class _Axes:
    """Log-log axes that hold the roofs and all points.

    Work without FLOPs (a histogram, a transposition) stands at their lower left.
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


def _svg(points: tuple[RooflinePoint, ...], bound: Bound, copy: float | None) -> str:
    axes = _Axes(points, bound)
    left, right = 10**axes.x0, 10**axes.x1
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" role="img" font-family="sans-serif" font-size="11">'
    ]
    described = "; ".join(f"v{p.version} {amount(p.rate)}FLOP/s {p.provenance}" for p in points) or "no timed version"
    out.append(f"<title>{html.escape(_title(bound))}</title><desc>{html.escape(described)}</desc>")
    for power in range(math.ceil(axes.x0), math.floor(axes.x1) + 1):
        at = axes.x(10**power)
        out.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" '
            f'stroke="{INK}" stroke-opacity=".2"/><text x="{at:.1f}" '
            f'y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" '
            f'fill="{INK}">{10.0**power:g}</text>'
        )
    for power in range(math.ceil(axes.y0), math.floor(axes.y1) + 1):
        at = axes.y(10**power)
        out.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" '
            f'stroke="{INK}" stroke-opacity=".2"/><text x="{LEFT - 6}" y="{at + 4:.1f}" '
            f'text-anchor="end" fill="{INK}">{amount(10.0**power)}</text>'
        )
    roof = [(left, left * bound.bandwidth), (bound.ridge, bound.peak_flops), (right, bound.peak_flops)]
    out.append(f'<polyline fill="none" stroke="{ROOF}" stroke-width="2" points="{_path(axes, roof)}"/>')
    if copy:
        out.append(
            f'<polyline fill="none" stroke="{ROOF}" stroke-dasharray="5 4" '
            f'points="{_path(axes, [(left, left * copy), (bound.peak_flops / copy, bound.peak_flops)])}"/>'
        )
    at = axes.x(bound.ridge)
    out.append(
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{axes.y(bound.peak_flops):.1f}" '
        f'y2="{HEIGHT - BOTTOM}" stroke="{ROOF}" stroke-dasharray="1 3"/>'
    )
    out.append(f'<text x="{at + 4:.1f}" y="{HEIGHT - BOTTOM - 6}" fill="{ROOF}">ridge {bound.ridge:.3g} FLOP/B</text>')
    out += [_step(axes, before, after) for before, after in itertools.pairwise(points)]
    out += [_marker(axes, point) for point in points] + _labels(axes, points)
    out += _legend(axes, points, bound, copy)
    out.append(
        f'<text x="{WIDTH / 2}" y="16" text-anchor="middle" fill="{INK}" '
        f'font-size="13">{html.escape(_title(bound))}</text>'
    )
    out.append(
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle" fill="{INK}">FLOP '
        f"per byte of least traffic (counted)</text>"
    )
    out.append(
        f'<text transform="translate(14 {HEIGHT / 2}) rotate(-90)" text-anchor="middle" '
        f'fill="{INK}">FLOP/s</text></svg>'
    )
    return "".join(out)


def _step(axes: _Axes, before: RooflinePoint, after: RooflinePoint) -> str:
    """A dotted line from one version to the next, with an arrow head where there is room for one."""
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


def _labels(axes: _Axes, points: tuple[RooflinePoint, ...]) -> list[str]:
    """One label beside each cluster of markers: versions that lie on each other share it."""
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


def _legend(axes: _Axes, points: tuple[RooflinePoint, ...], bound: Bound, copy: float | None) -> list[str]:
    """What each line and marker is, and where its numbers come from: at the right, under the compute roof."""
    x, y = WIDTH - RIGHT - 232, axes.y(bound.peak_flops) + 22
    rows = [
        (
            f'<line x1="0" x2="16" y1="-4" y2="-4" stroke="{ROOF}" stroke-width="2"/>',
            f"{amount(bound.peak_flops)}FLOP/s, {amount(bound.bandwidth)}B/s ({bound.rates.split(';')[0]})",
        )
    ]
    if copy:
        rows.append(
            (
                f'<line x1="0" x2="16" y1="-4" y2="-4" stroke="{ROOF}" stroke-dasharray="5 4"/>',
                f"copy {amount(copy)}B/s (measured)",
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
        f'fill="{INK}">{html.escape(said)}</text></g>'
        for n, (mark, said) in enumerate(rows)
    ]


def _path(axes: _Axes, pairs: list[tuple[float, float]]) -> str:
    return " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in pairs if x > 0 and y > 0)


def _marker(axes: _Axes, point: RooflinePoint) -> str:
    """A circle (modelled) or a square (measured), filled when accepted; its tooltip names it."""
    x, y = axes.x(point.intensity), axes.y(point.rate)
    colour = MEASURED if point.provenance == "measured" else MODELLED
    fill = colour if point.accepted else "none"
    said = f"<title>v{point.version} {html.escape(point.title)}: {seconds(point.time_s)} ({point.provenance})</title>"
    if point.provenance == "measured":
        return (
            f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="{fill}" '
            f'stroke="{colour}" stroke-width="2">{said}</rect>'
        )
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}" stroke="{colour}" stroke-width="2">{said}</circle>'


def _plotly(points: tuple[RooflinePoint, ...], bound: Bound, copy: float | None) -> dict[str, object]:
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
        mine = [point for point in points if point.provenance == kind]
        if mine:
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers+text",
                    "name": f"versions ({kind})",
                    "x": [p.intensity for p in mine],
                    "y": [p.rate for p in mine],
                    "text": [f"v{p.version}" for p in mine],
                    "textposition": "middle right",
                    "hovertext": [f"v{p.version} {p.title}: {seconds(p.time_s)}" for p in mine],
                    "line": {"color": colour, "dash": "dot"},
                    "marker": {"symbol": [symbol if p.accepted else symbol + "-open" for p in mine], "size": 10},
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


def profile(version: Version, found: Profile) -> Shown:
    """Counters on each source line, instruction mix, occupancy, modelled seconds by resource, findings.

    Then the plots. Without emulated launches: the kernels, and the plots.
    """
    from workbench.views.plots import profile

    drawn = profile.all_of(found)
    if not found.launches:
        launched = profile.kernels(found) if found.kernels else Shown("")
        return _with(Shown("\n\n".join(filter(None, [f"v{version.number}", launched.text])), html=launched.html), drawn)
    source = version.proposal.candidate.source.splitlines()
    said: Callable[[int], str] = (
        amount if found.case == "full" else str
    )  # what was multiplied up is not known to the digit
    rows = []
    for launch in found.launches:
        for line in sorted(launch.lines, key=lambda row: -row.instructions)[:20]:
            text = source[line.line - 1].strip()[:70] if 0 < line.line <= len(source) else ""
            counts = (
                said(count)
                for count in (line.instructions, line.flops, line.global_read_bytes, line.global_write_bytes)
            )
            rows.append(
                [
                    line.line,
                    text,
                    *counts,
                    _against(said, line.global_sectors, line.global_ideal_sectors),
                    _against(said, line.shared_wavefronts, line.shared_ideal_wavefronts),
                ]
            )
    text, page = table(
        [
            "line",
            "source",
            "instructions",
            "FLOPs",
            "bytes read",
            "bytes written",
            "sectors / ideal",
            "wavefronts / ideal",
        ],
        rows,
        f"v{version.number}: {found.summary}. {_counted(found)}, busiest lines first",
    )
    limits, limits_page = table(
        ["resource", "modelled at full size"],
        [[name, seconds(value)] for name, value in found.limits],
        "Where the time goes (modelled; the largest limits)",
    )
    mix, mix_page = table(
        ["class", "thread-instructions"],
        [[name, said(count)] for launch in found.launches for name, count in launch.classes],
        "Instructions executed (counted)",
    )
    built = [[b.kernel[:40], b.registers, b.spill_bytes, b.static_shared_bytes] for b in found.builds]
    compiled, compiled_page = table(["kernel", "registers", "spilled bytes", "static shared bytes"], built, "Compiled")
    resident = [f"occupancy {fraction:.0%}, limited by {limiter}" for _, fraction, limiter in found.occupancy]
    findings = [f"line {item.line}: {item.message}" for item in found.findings]
    tail = resident + (["findings:", *findings] if findings else [])
    listed = "<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in resident + findings) + "</ul>"
    return _with(
        Shown(
            "\n\n".join([text, limits, mix, compiled, "\n".join(tail)]),
            html=page + limits_page + mix_page + compiled_page + listed,
        ),
        drawn,
    )


def _counted(found: Profile) -> str:
    if found.case != "full":
        return "Counted on the emulated case"
    parts = [f"{launch.sampled} of {math.prod(launch.grid)}" for launch in found.launches if launch.sampled]
    return f"Counted on {', '.join(parts)} CTAs at full size and multiplied" if parts else "Counted at full size"


def _with(head: Shown, drawn: Shown) -> Shown:
    return Shown(f"{head.text}\n\n{drawn.text}", html=head.html + drawn.html, parts=(head, *drawn.parts))


def _against(said: Callable[[int], str], count: int, ideal: int) -> str:
    return f"{said(count)} / {said(ideal)}" if count else ""
