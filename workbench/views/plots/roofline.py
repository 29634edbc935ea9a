"""The roofline of a session with its versions."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from workbench.analysis import devices
from workbench.analysis import roofline as points_of
from workbench.analysis.roofline import RooflinePoint
from workbench.records import Bound
from workbench.session import Session
from workbench.views.figures import objects as go
from workbench.views.figures.describe import escape, is_near, make_figure, share_labels, show
from workbench.views.figures.style import INTENSITIES, MEASURED, MODELLED, QUIET, RATES, ROOF, mark_of
from workbench.views.text.mime_bundle import MimeBundle, format_amount, format_seconds, format_share, render_table

HEIGHT = 310  # pixels


def roofline(session: Session) -> MimeBundle:
    """The roofline of a session's device. Each correct version is a point; arrows connect them in order."""
    points = points_of.roofline_points(session.versions)
    bound = next(
        (v.trials[-1].verdict.bound for v in reversed(session.versions) if v.trials and v.trials[-1].verdict.bound),
        None,
    )
    if bound is None:
        return MimeBundle("no version has been tested yet: nothing to place on the roofline")
    return draw_roofline(points, bound, devices.find(bound.device).copy_bandwidth)


@functools.lru_cache(maxsize=4)  # the panel asks for it with each of its states
def draw_roofline(points: tuple[RooflinePoint, ...], bound: Bound, copy: float | None) -> MimeBundle:
    """Points under the roof of the data sheet, and under that of a copy if one was measured."""
    text, page = _version_table(points, bound, copy)
    described = "; ".join(f"v{p.version} {format_amount(p.rate)}FLOP/s {p.provenance}" for p in points)
    return show(_make_figure(points, bound, copy), text, page, described or "no timed version")


def _title(bound: Bound) -> str:
    return f"Roofline, {bound.device}, case {bound.case}: bound by {bound.limited_by}"


def _version_table(points: Sequence[RooflinePoint], bound: Bound, copy: float | None) -> tuple[str, str]:
    rows = [
        [
            f"v{p.version}",
            p.title,
            format_seconds(p.time_s) if p.provenance == "modelled" else "—",
            format_seconds(p.time_s) if p.provenance == "measured" else "—",
            format_amount(p.rate) + "FLOP/s",
            format_share(bound.bound_s / p.time_s),
            p.standing,
        ]
        for p in points
    ]
    source, _, measured = bound.rates.partition("; attainable: ")
    caption = f"{_title(bound)}; bound {format_seconds(bound.bound_s)} ({source})"
    if bound.attainable_s is not None:
        caption += f", attainable {format_seconds(bound.attainable_s)}" + (
            f" (ceilings {measured})" if measured else ""
        )
        if any(p.provenance == "modelled" and p.time_s < bound.attainable_s for p in points):
            caption += "; a modelled time below that is at it, within the model's error"
    caption += (
        f"; intensity {bound.intensity:.3g} FLOP/B (the problem's FLOPs, counted), ridge {bound.ridge:.3g} FLOP/B"
    )
    if copy:
        caption += f"; a copy reaches {format_amount(copy)}B/s (measured)"
    return render_table(
        ["version", "title", "modelled", "measured", "rate, problem's FLOPs", "of bound", "decision"], rows, caption
    )


def _fit_ranges(points: Sequence[RooflinePoint], bound: Bound) -> tuple[list[float], list[float]]:
    """The ranges of both axes, as base-10 logarithms: they hold the roofs and all points."""
    least = max(bound.intensity, 1e-3)
    xs = [bound.ridge, least, *(p.intensity for p in points if p.intensity > 0)]
    ys = [bound.peak_flops, *(p.rate for p in points if p.rate > 0), bound.bandwidth * least]
    return (
        [math.floor(math.log10(min(xs))) - 0.3, math.ceil(math.log10(max(xs))) + 0.5],
        [math.floor(math.log10(min(ys))) - 0.3, math.ceil(math.log10(max(ys))) + 0.2],
    )


def _make_figure(points: Sequence[RooflinePoint], bound: Bound, copy: float | None) -> go.Figure:
    x, y = _fit_ranges(points, bound)
    # work without FLOPs (a histogram, a transposition) stands at the lower left
    places = [(max(p.intensity, 10.0 ** x[0]), max(p.rate, 10.0 ** y[0])) for p in points]
    ridge = {
        "type": "line",
        "x0": bound.ridge,
        "x1": bound.ridge,
        "y0": 10.0 ** y[0],
        "y1": bound.peak_flops,
        "line": {"color": ROOF, "dash": "dot", "width": 1},
        "label": {"text": f"ridge {bound.ridge:.3g} FLOP/B", "textposition": "end", "textangle": 0, "xanchor": "left"}
        | {"yanchor": "top", "font": {"size": 10, "color": ROOF}},
    }
    return make_figure(
        _title(bound),
        [*_make_roofs(10.0 ** x[0], 10.0 ** x[1], bound, copy), *_make_versions(points, places, x, y)],
        height=HEIGHT,
        xaxis={**INTENSITIES, "range": x, "title": {"text": "problem's FLOP per byte of least traffic (counted)"}},
        yaxis={**RATES, "range": y, "title": {"text": "problem's FLOP/s"}},
        shapes=[ridge],
    )


def _make_roofs(left: float, right: float, bound: Bound, copy: float | None) -> list[Any]:
    """The roof of the data sheet, and the bandwidth of a copy (dashed)."""
    rates = f"{format_amount(bound.peak_flops)}FLOP/s, {format_amount(bound.bandwidth)}B/s"
    roofs = [
        go.Scatter(
            mode="lines",
            name=f"{rates} ({bound.rates.split(';')[0]})",
            x=[left, bound.ridge, right],
            y=[left * bound.bandwidth, bound.peak_flops, bound.peak_flops],
            line={"color": ROOF, "width": 2},
        )
    ]
    if copy:
        copied = go.Scatter(
            mode="lines",
            name=f"copy {format_amount(copy)}B/s (measured)",
            x=[left, bound.peak_flops / copy],
            y=[left * copy, bound.peak_flops],
            line={"color": ROOF, "width": 1.5, "dash": "dash"},
        )
        roofs.append(copied)
    return roofs


def _make_versions(
    points: Sequence[RooflinePoint], places: Sequence[tuple[float, float]], x: Sequence[float], y: Sequence[float]
) -> list[Any]:
    """Arrows from each version to the next, and the marks of both provenances."""
    shares = [
        [(math.log10(value) - low) / (high - low) for value, (low, high) in zip(place, (x, y), strict=True)]
        for place in places
    ]
    arrows = go.Scatter(
        mode="lines+markers",
        x=[place[0] for place in places],
        y=[place[1] for place in places],
        line={"color": QUIET, "dash": "dot", "width": 1},
        marker={"color": QUIET, "symbol": "arrow", "angleref": "previous", "standoff": 6}
        | {"size": [8 if n and not is_near(shares[n - 1], share) else 0 for n, share in enumerate(shares)]},
        hoverinfo="skip",
    )
    labels = share_labels(shares, [f"v{point.version}" for point in points])
    found = [arrows] if len(points) > 1 else []
    for kind, colour in (("modelled", MODELLED), ("measured", MEASURED)):
        at = [n for n, point in enumerate(points) if point.provenance == kind]
        if not at:
            continue
        tips = [f"v{points[n].version} {points[n].title}: {format_seconds(points[n].time_s)} ({kind})" for n in at]
        marks = go.Scatter(
            mode="markers+text",
            name=f"version, {kind} (filled: accepted)",
            x=[places[n][0] for n in at],
            y=[places[n][1] for n in at],
            text=[labels[n] for n in at],
            textposition="middle right",
            hovertext=escape(tips),
            hoverinfo="text",
            marker={
                "color": colour,
                "size": 10,
                "symbol": [mark_of(kind, points[n].standing == "accepted") for n in at],
            },
        )
        found.append(marks)
    return found
