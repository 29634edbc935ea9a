"""Plots of recorded landscapes: regret curves of search strategies, and a summary of all problems.

The heat map over two settings is in heat_map.py. Each plot has a table as text.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

from workbench.analysis import devices, speed_of_light
from workbench.errors import UserError
from workbench.landscapes import Landscape
from workbench.records import Bound, Work
from workbench.views.plots.heat_map import figure_layout, heat_map
from workbench.views.plots.roofline import INK, MEASURED, MODELLED, ROOF
from workbench.views.text.mime_bundle import MimeBundle, format_seconds, render_table

__all__ = ["heat_map", "landscape_summary", "regret_curves"]

COLOURS = (MEASURED, MODELLED, ROOF, INK)
MOST_OF_BOUND = 1.1  # bars end here, at 110 % of the bound; the number beside a bar is not cut


def regret_curves(title: str, named: Mapping[str, Sequence[float]], most: int = 64) -> MimeBundle:
    """Regret after each try, in percent: how much slower the best so far is than the best configuration.

    The axis of tries is logarithmic.
    """
    marks = [tries for tries in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if tries <= most]
    lines = [
        [name, *(_format_regret(curve[min(tries, len(curve)) - 1]) for tries in marks)]
        for name, curve in named.items()
        if curve
    ]
    text, page = render_table(["after tries", *map(str, marks)], lines, title)
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "line": {"shape": "hv", "color": colour},
            "x": list(range(1, len(points) + 1)),
            "y": [None if math.isinf(value) else round(100 * value, 3) for value in points],
        }
        for (name, curve), colour in zip(named.items(), COLOURS, strict=False)
        if (points := curve[:most])
    ]
    shape = figure_layout(
        title,
        {"type": "log", "title": {"text": "tries"}},
        {"title": {"text": "slower than the best, %"}, "range": [0, 100]},
        360,
    )
    return MimeBundle(text, html=page, svg=_draw_curves(title, named, most), plotly={"data": data, "layout": shape})


def _format_regret(value: float) -> str:
    return "none correct" if math.isinf(value) else f"{value:.1%}"


def _draw_curves(title: str, named: Mapping[str, Sequence[float]], most: int) -> str:
    width, height, left, bottom, top = 640, 300, 60, 40, 30

    def at(tries: int, value: float) -> tuple[float, float]:
        return left + math.log(tries) / math.log(max(most, 2)) * (width - left - 130), top + (1 - min(value, 1.0)) * (
            height - top - bottom
        )

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'role="img" font-family="sans-serif" font-size="11">'
        f'<title>{html.escape(title)}</title><text x="6" y="16" fill="{INK}" '
        f'font-size="12">{html.escape(title)}</text>'
    ]
    for level in (0, 0.25, 0.5, 0.75, 1.0):
        x, y = at(1, level)
        out.append(
            f'<line x1="{x}" x2="{width - 130}" y1="{y:.1f}" y2="{y:.1f}" stroke="{INK}" '
            f'stroke-opacity=".2"/><text x="{x - 6}" y="{y + 4:.1f}" text-anchor="end" '
            f'fill="{INK}">{level:.0%}</text>'
        )
    for tries in (tries for tries in (1, 2, 4, 8, 16, 32, 64, 128, 256) if tries <= most):
        out.append(
            f'<text x="{at(tries, 0)[0]:.1f}" y="{height - bottom + 16}" '
            f'text-anchor="middle" fill="{INK}">{tries}</text>'
        )
    for n, ((name, curve), colour) in enumerate(zip(named.items(), COLOURS, strict=False)):
        points = [at(tries, value) for tries, value in enumerate(curve[:most], 1) if not math.isinf(value)]
        out.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" '
            f'stroke-dasharray="{"" if n == 0 else f"{8 - 2 * n} 3"}" '
            f'points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'
        )
        out.append(f'<text x="{width - 124}" y="{top + 16 * n + 10}" fill="{colour}">{html.escape(name)}</text>')
    return (
        "".join(out) + f'<text x="{width / 2 - 60}" y="{height - 8}" text-anchor="middle" '
        f'fill="{INK}">tries; slower than the best there is</text></svg>'
    )


SUMMARY_HEAD = (
    *("problem", "limited by", "FLOP/B", "bound", "fastest", "of bound"),
    *("torch eager", "of bound", "slowest correct", "configurations"),
)


def landscape_summary(places: Sequence[Landscape]) -> MimeBundle:
    """For each problem: the bound, the fastest configuration and torch eager, both also as fractions of the bound.

    The bound is that of the GPU that measured. A problem whose GPU is not like the first one's is named with it.
    """
    lines, bars, notes = [], [], []
    for place in places:
        if place.best is None or place.best.median_s is None:
            continue
        try:
            bound = _bound(place)
        except UserError:
            notes.append(f"{place.name}: {place.provenance}, whose rates are not known here")
            continue
        best_s = place.best.median_s
        eager_s = place.eager.median_s if place.eager else None
        name = place.name if place.device == places[0].device else f"{place.name}, {place.provenance}"
        lines.append(_summary_row(place, name, bound, best_s, eager_s))
        if best_s < bound.bound_s:
            notes.append(_beyond_bound_note(name, place.best.program))
        bars.append((name, bound.bound_s / best_s, bound.bound_s / eager_s if eager_s else 0.0))
    title = (
        f"Where problems stand: bound modelled from the data sheet, times measured, {places[0].provenance}"
        if places
        else "no landscape"
    )
    text, page = render_table(SUMMARY_HEAD, lines, "; ".join((title, *notes)))
    return MimeBundle(text, html=page, svg=_draw_bars(title, notes, bars))


def _bound(place: Landscape) -> Bound:
    facts = place.facts
    work = Work(
        case="full",
        flops=facts["flops"],
        least_bytes=facts["least_bytes"],
        dtype=facts["dtype"],
        tensor_cores=facts["tensor_cores"],
    )
    return speed_of_light.bound(work, devices.find(place.device))


def _summary_row(place: Landscape, name: str, bound: Bound, best_s: float, eager_s: float | None) -> list[object]:
    return [
        name,
        bound.limited_by,
        f"{bound.intensity:.3g}",
        format_seconds(bound.bound_s),
        format_seconds(best_s),
        f"{bound.bound_s / best_s:.0%}",
        format_seconds(eager_s),
        f"{bound.bound_s / eager_s:.0%}" if eager_s else "",
        format_seconds(place.correct[-1].median_s or 0.0),
        len(place.rows),
    ]


def _beyond_bound_note(name: str, program: str) -> str:
    """The note on a configuration that is faster than its bound. TF32 products explain it."""
    by_tf32 = ", which counts on float32's own units: by three products of TF32 on tensor cores"
    return f"{name} is faster than its bound" + (by_tf32 if "tf32x3" in program else "")


def _draw_bars(title: str, notes: Sequence[str], bars: Sequence[tuple[str, float, float]]) -> str:
    """A thick bar for the fastest configuration and a thin one for torch eager, with numbers at the right."""
    left, wide, high, top = 190, 420, 24, 48
    numbers = left + wide * MOST_OF_BOUND
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {numbers + 100:.0f} '
        f'{high * len(bars) + top + 12 + 16 * len(notes)}" role="img" '
        f'font-family="sans-serif" font-size="11"><title>{html.escape(title)}</title><text '
        f'x="6" y="16" fill="{INK}" font-size="12">{html.escape(title)}</text>'
    ]
    heads = (
        (left, "start", INK, "thick: fastest configuration; thin: torch eager"),
        (left + wide, "end", ROOF, "the bound"),
        (numbers + 48, "end", MEASURED, "fastest"),
        (numbers + 94, "end", INK, "eager"),
    )
    out += [
        f'<text x="{x:.1f}" y="36" text-anchor="{anchor}" fill="{ink}">{label}</text>'
        for x, anchor, ink, label in heads
    ]
    for n, (name, ours, eager) in enumerate(bars):
        y = top + high * n
        out.append(f'<text x="{left - 6}" y="{y + 14}" text-anchor="end" fill="{INK}">{html.escape(name)}</text>')
        out.append(
            f'<rect x="{left}" y="{y + 2}" width="{wide * min(ours, MOST_OF_BOUND):.1f}" '
            f'height="9" fill="{MEASURED}"/><rect x="{left}" y="{y + 12}" '
            f'width="{wide * min(eager, MOST_OF_BOUND):.1f}" height="6" fill="{INK}" '
            f'fill-opacity=".6"/>'
        )
        out.append(
            f'<text x="{numbers + 48:.1f}" y="{y + 14}" text-anchor="end" fill="{MEASURED}">{ours:.0%}</text>'
            + (
                f'<text x="{numbers + 94:.1f}" y="{y + 14}" text-anchor="end" fill="{INK}">{eager:.0%}</text>'
                if eager
                else ""
            )
        )
    out += [
        f'<text x="6" y="{top + high * len(bars) + 14 + 16 * n}" fill="{INK}">{html.escape(note)}</text>'
        for n, note in enumerate(notes)
    ]
    return (
        "".join(out) + f'<line x1="{left + wide}" x2="{left + wide}" y1="{top - 8}" '
        f'y2="{top + high * len(bars)}" stroke="{ROOF}" stroke-dasharray="4 3"/></svg>'
    )
