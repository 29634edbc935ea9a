"""Curves of searches: the best so far against the candidates judged, with the trials that screening saved, and several
searches side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from workbench.errors import UserError
from workbench.policies.search import SearchTree
from workbench.records import Version
from workbench.views.figures import objects as go
from workbench.views.figures.describe import make_figure, show
from workbench.views.figures.style import COLOURS, SCREENED, colour_of, dash_of
from workbench.views.search.outline import summarise
from workbench.views.text.mime_bundle import MimeBundle, format_seconds, render_table

FEW = 12  # candidates that are each numbered at the axis
INNER = 0.1, 0.9  # the band holds the searches between these shares


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


def draw_curve(tree: SearchTree, versions: Sequence[Version] = ()) -> MimeBundle:
    """The best time so far in µs after each candidate that was judged, and each candidate's own as a dot. What was
    screened out without a GPU is marked at the axis: it cost no trial.

    Raises `UserError` where nothing was tried.
    """
    judged = [tree.nodes[number] for number in tree.tried]
    if not judged:
        raise UserError("nothing was tried yet: there is no curve")
    screened = [n for n, node in enumerate(judged, 1) if node.result is not None and node.result.screened]
    levels = best_so_far(tree)
    title = f"Best so far: {summarise(tree, versions)}"
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
    nodes = ((tree.nodes[number], level) for number, level in levels)
    return [level for node, level in nodes if node.result is not None and not (node.result.screened or node.is_given)]


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
    described = "; ".join(f"{curve.name} ends at {_last(curve):.4g}" for curve in curves)
    return show(_make_figure(title, curves, axes, marks, dots), text, page, described)


def _last(curve: Curve) -> float:
    return next((value for value in reversed(curve.values) if value is not None), math.nan)


def _fit_range(curves: Sequence[Curve], dots: Dots, is_log: bool) -> tuple[float, float]:
    """The least and the greatest value, with a margin."""
    found = [
        one for curve in curves for line in (curve.values, curve.low, curve.high) for one in line if one is not None
    ]
    found += [value for _, value in dots]
    low, high = min(found, default=1.0), max(found, default=1.0)
    if is_log:
        return low / 1.1, high * 1.1
    margin = 0.06 * (high - low or high or 1.0)
    return max(0.0, low - margin), high + margin


def _make_curve(curve: Curve, number: int) -> list[Any]:
    """The steps of a curve, before its band if it has one."""
    x, ink = list(range(1, len(curve.values) + 1)), colour_of(number)
    edge: dict[str, Any] = {"mode": "lines", "x": x, "hoverinfo": "skip"}
    edge["line"] = {"shape": "hv", "width": 0, "color": ink}
    band = [go.Scatter(y=list(curve.low), **edge)] if curve.low and curve.high else []
    if band:
        band.append(go.Scatter(y=list(curve.high), fill="tonexty", fillcolor=_fade(ink), **edge))
    line = {"shape": "hv", "color": ink, "dash": dash_of(number), "width": 2}
    return [*band, go.Scatter(mode="lines", name=curve.name, x=x, y=list(curve.values), line=line)]


def _count_all(longest: int) -> dict[str, object]:
    """Ticks at each number where they are few, so that there are none between two candidates."""
    numbers = list(range(1, longest + 1))
    return {"tickvals": numbers, "ticktext": list(map(str, numbers))} if longest <= FEW else {}


def _make_figure(title: str, curves: Sequence[Curve], axes: Axes, marks: Sequence[int], dots: Dots) -> go.Figure:
    low, high = _fit_range(curves, dots, axes.is_log)
    data = [trace for number, curve in enumerate(curves) for trace in _make_curve(curve, number)]
    if dots:
        own = go.Scatter(
            mode="markers",
            name="of each candidate",
            x=[n for n, _ in dots],
            y=[value for _, value in dots],
            hovertext=[f"candidate {n}: {value:.4g}" for n, value in dots],
            hoverinfo="text",
            marker={"color": COLOURS[0], "opacity": 0.8, "size": 6},
        )
        data.append(own)
    if marks:
        saved = go.Scatter(
            mode="markers",
            name="screened out without a GPU",
            x=list(marks),
            y=[low] * len(marks),
            hovertext=[f"candidate {n}: screened out without a GPU" for n in marks],
            hoverinfo="text",
            marker={"symbol": "line-ns-open", "color": SCREENED, "size": 10},
            cliponaxis=False,
        )
        data.append(saved)
    longest = max(len(curve.values) for curve in curves)
    is_log = {"type": "log", "dtick": "D2", "tickformat": "~g"}
    return make_figure(
        title,
        data,
        height=230,
        xaxis={"title": {"text": axes.x}, "range": [1 - longest / 100, longest * 1.01], **_count_all(longest)},
        yaxis={
            "title": {"text": axes.y},
            **(is_log if axes.is_log else {}),
            "range": [math.log10(low), math.log10(high)] if axes.is_log else [low, high],
        },
    )


def _fade(colour: str) -> str:
    red, green, blue = (int(colour[n : n + 2], 16) for n in (1, 3, 5))
    return f"rgba({red},{green},{blue},.14)"
