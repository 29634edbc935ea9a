"""Plots of recorded landscapes: regret curves of search strategies, and a summary of all problems.

The heat map over two settings is in heat_map.py. Each plot has a table as text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from workbench.analysis import devices, speed_of_light
from workbench.errors import UserError
from workbench.landscapes import Landscape
from workbench.records import Bound, Work
from workbench.views.figures import objects as go
from workbench.views.figures.describe import escape, make_figure, room_beside, show
from workbench.views.figures.style import MEASURED, MODELLED, QUIET, ROOF, dash_of
from workbench.views.plots.heat_map import heat_map
from workbench.views.text.mime_bundle import MimeBundle, format_seconds, render_table

__all__ = ["heat_map", "landscape_summary", "regret_curves"]

COLOURS = (MEASURED, MODELLED, ROOF, QUIET)
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
        go.Scatter(
            mode="lines",
            name=name,
            line={"shape": "hv", "color": colour, "dash": dash_of(n), "width": 2},
            x=list(range(1, len(points) + 1)),
            y=[None if math.isinf(value) else round(100 * value, 3) for value in points],
        )
        for n, ((name, curve), colour) in enumerate(zip(named.items(), COLOURS, strict=False))
        if (points := curve[:most])
    ]
    figure = make_figure(
        title,
        data,
        height=230,
        xaxis={"type": "log", "title": {"text": "tries"}, "range": [0, math.log10(max(most, 2))]}
        | {"tickvals": marks, "ticktext": list(map(str, marks))},
        yaxis={"title": {"text": "slower than the best, %"}, "range": [0, 100]},
    )
    return show(figure, text, page)


def _format_regret(value: float) -> str:
    return "none correct" if math.isinf(value) else f"{value:.1%}"


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
    return show(_make_bars(title, notes, bars), text, page) if bars else MimeBundle(text, html=page)


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


def _make_bars(title: str, notes: Sequence[str], bars: Sequence[tuple[str, float, float]]) -> go.Figure:
    """A thick bar for the fastest configuration and a thin one for torch eager, as shares of the bound."""
    names = escape([name for name, _, _ in bars])
    looks = ((1, "fastest configuration", MEASURED, -0.4, 0.45), (2, "torch eager", QUIET, 0.08, 0.27))
    data = [
        go.Bar(
            orientation="h",
            name=name,
            x=[min(bar[at], MOST_OF_BOUND) for bar in bars],
            y=names,
            offset=offset,
            width=width,
            text=[f"{bar[at]:.0%}" if bar[at] else "" for bar in bars],
            textfont={"size": 9},
            constraintext="none",
            hovertext=[f"{label}: {name}, {bar[at]:.0%} of the bound" for label, bar in zip(names, bars, strict=True)],
            hoverinfo="text",
            textposition="outside",
            cliponaxis=False,
            marker={"color": colour},
        )
        for at, name, colour, offset, width in looks
    ]
    bound = {
        "type": "line",
        "x0": 1,
        "x1": 1,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": ROOF, "dash": "dash"},
    }
    return make_figure(
        "\n".join((title, *notes)),
        data,
        height=26 * len(bars),
        xaxis={"title": {"text": "part of the bound (dashed)"}, "tickformat": ".0%", "range": [0, MOST_OF_BOUND]},
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False},
        shapes=[bound],
        right=room_beside([(share / MOST_OF_BOUND, f"{share:.0%}") for _, *both in bars for share in both]),
    )
