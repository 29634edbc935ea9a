"""Describes figures with plotly's graph objects, and shows them: live, as SVG, as a table and as text.

A picture of a kernel, a session or a search is a `go.Figure`; `show` makes the live and the static form from it.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from workbench.views.figures import objects as go
from workbench.views.figures.colours import pick, readable_ink
from workbench.views.figures.static import LINE, draw_static, legend_rows
from workbench.views.figures.style import CLEAR, COLOURS, GRID, LETTER, QUIET, WIDTH, shorten
from workbench.views.figures.svg import inline_svg
from workbench.views.text.mime_bundle import MimeBundle, render_table

TITLE = 110  # characters of a line of the title
NO_AXIS: Mapping[str, object] = {"visible": False}
ROW = 20  # pixels of a bar
MOST_NAMED = 4  # points at one place that are named
NEAR = 0.02, 0.045  # of the axes: points that are nearer to each other share a label
Options = Mapping[str, Any] | None


def make_figure(
    title: str,
    traces: Sequence[Any],
    *,
    height: float,
    xaxis: Options = None,
    yaxis: Options = None,
    above: int = 0,
    right: int = 20,
    **more: Any,
) -> go.Figure:
    """A figure whose plot area is `height` pixels high, with `above` pixels between it and the title, and a margin at
    the `right`. `more` is for the layout. The background is transparent, so the theme's shows.
    """
    axes = {"xaxis": xaxis, "yaxis": yaxis, **{name: more.pop(name) for name in list(more) if name[1:5] == "axis"}}
    axes = {name: _make_axis(spec or {}) for name, spec in axes.items()}
    for trace in traces:
        trace.showlegend = bool(trace.name) and trace.showlegend is not False
    lines = [line for part in title.split("\n") for line in textwrap.wrap(part, TITLE)]
    keys = legend_rows(traces)
    top, below = 16 + LINE * len(lines) + above, 8 + LINE * len(keys)
    across = [spec for name, spec in axes.items() if name[0] == "x" and spec.get("visible") is not False]
    below += 16 * bool(across) + 20 * any("title" in spec for spec in across)
    layout = {
        "title": {"text": "<br>".join(html.escape(line, quote=False) for line in lines), "font": {"size": 12}}
        | {"x": 0, "xanchor": "left", "y": 1, "yanchor": "top", "pad": {"t": 8 if len(lines) < 2 else 18, "l": 6}},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"color": QUIET, "size": 12},
        "height": round(height + top + below),
        "margin": {"l": 16, "r": right, "t": top, "b": below},
        "showlegend": bool(keys),
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "traceorder": "normal"},
        "barmode": "overlay",
        "hoverlabel": {"align": "left"},
    }
    return go.Figure(list(traces), {**layout, **axes, **more})


def _make_axis(spec: Mapping[str, Any]) -> dict[str, Any]:
    """An axis with the looks that all of them share."""
    made = {"gridcolor": GRID, "color": QUIET, "automargin": True, "zeroline": False, "ticklabelstandoff": 3, **spec}
    if "title" in spec:
        made["title"] = {"font": {"size": 12}, "standoff": 6, **spec["title"]}
    return made


def show(figure: go.Figure, text: str, listed: str = "", described: str = "", *, width: float = WIDTH) -> MimeBundle:
    """A figure with its numbers as text and as an HTML table, which is folded below the picture. `width`: in pixels, of
    the static form; the live one is as wide as its cell.
    """
    drawing = draw_static(figure, described, width)
    live = figure.to_plotly_json()
    live["layout"].pop("template", None)
    page = html_figure(drawing, listed)
    return MimeBundle(text, html=page, svg=drawing, plotly=live)


def html_figure(drawing: str, listed: str) -> str:
    """A drawing with its numbers folded below."""
    numbers = f"<details><summary>numbers</summary>{listed}</details>" if listed else ""
    return f'<figure style="margin:0 0 8px">{inline_svg(drawing)}{numbers}</figure>'


def escape(words: Sequence[str]) -> list[str]:
    """Texts as plotly reads them."""
    return [html.escape(one, quote=False) for one in words]


def is_near(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two places, as shares of the axes, are too near to each other for two labels."""
    return all(abs(a - b) < near for a, b, near in zip(one, other, NEAR, strict=True))


def share_labels(places: Sequence[Sequence[float]], names: Sequence[str]) -> list[str]:
    """The label of each point; those that lie on each other have one label, at the first, which counts those beyond
    MOST_NAMED. `places` are shares of the axes.
    """
    shared: dict[int, list[str]] = {}
    for n, name in enumerate(names):
        first = next((other for other in shared if is_near(places[other], places[n])), n)
        shared.setdefault(first, []).append(name)
    return [_join_names(shared.get(n, [])) for n in range(len(names))]


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:MOST_NAMED])} and {more} more"


def make_whole_bars(names: Sequence[str], notes: Sequence[str], **more: Any) -> go.Bar:
    """Pale bars of the whole length, to stand behind others, with texts at their ends."""
    look = {"marker": {"color": QUIET, "opacity": 0.15}, "hoverinfo": "skip", "width": 0.7, "textposition": "outside"}
    return go.Bar(
        orientation="h", x=[1.0] * len(names), y=list(names), text=escape(notes), cliponaxis=False, **look, **more
    )


class Bar(NamedTuple):
    """One bar: its name, its length, the text at its end, and its tooltip."""

    label: str
    value: float
    note: str
    tip: str = ""


def show_bars(
    title: str, rows: Sequence[Bar], *, head: tuple[str, str], full: float | None = None, colour: str = COLOURS[0]
) -> MimeBundle:
    """Bars to the right in the given order. `full` is the end of the axis (default: the longest bar)."""
    whole = full or max((row.value for row in rows), default=0.0) or 1.0
    plain, listed = render_table(list(head), [[row.label, row.note] for row in rows], title)
    bars = go.Bar(
        orientation="h",
        x=[row.value for row in rows],
        y=escape([shorten(row.label, 40) for row in rows]),
        text=escape([row.note for row in rows]),
        hovertext=escape([f"{row.label}: {row.note} {row.tip}".strip() for row in rows]),
        hoverinfo="text",
        textposition="outside",
        cliponaxis=False,
        marker={"color": colour},
    )
    figure = make_figure(
        title,
        [bars],
        height=6 + ROW * len(rows),
        xaxis={"title": {"text": head[1]}, "range": [0, whole], **({"tickformat": ".0%"} if full == 1.0 else {})},
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False},
        right=room_beside([(row.value / whole, row.note) for row in rows]),
    )
    return show(figure, plain, listed, "; ".join(f"{row.label} {row.note}" for row in rows))


def room_beside(ends: Sequence[tuple[float, str]], span: float = 0.6 * WIDTH) -> int:
    """The margin at the right that the texts at the ends of bars need; a bar's length is a share of the axis."""
    beyond = [10 + LETTER * len(note) - (1 - min(share, 1.0)) * span for share, note in ends]
    return round(max([20.0, *beyond]))


def make_cells(
    names: tuple[Sequence[str], Sequence[str]],
    z: Sequence[Sequence[float | None]],
    words: tuple[Sequence[Sequence[str]], Sequence[Sequence[str]]],
    scale: Sequence[tuple[float, str]],
    **more: Any,
) -> tuple[go.Heatmap, go.Scatter]:
    """A heat map with `names` of columns and rows, and a trace that writes on its cells. `words`: what is written on a
    cell, and its tooltip. `more` is for the map; `zmax` is there the value of the last colour.
    """
    columns, rows = (list(one) for one in names)
    written, tips = words
    places = [(i, j) for j, line in enumerate(z) for i, value in enumerate(line) if value is not None]
    most = more.get("zmax", 1)
    inks = [readable_ink(pick(scale, (z[j][i] or 0.0) / most)) for i, j in places]
    axes = {name: more[name] for name in ("xaxis", "yaxis") if name in more}
    cells = go.Heatmap(
        x=columns,
        y=rows,
        z=[list(line) for line in z],
        colorscale=[list(stop) for stop in scale],
        hovertext=[list(line) for line in tips],
        hoverinfo="text",
        **{"zmin": 0, "zmax": 1, "xgap": 1, "ygap": 1, "hoverongaps": False, **more},
    )
    text = go.Scatter(
        mode="text",
        x=[columns[i] for i, _ in places],
        y=[rows[j] for _, j in places],
        text=[written[j][i] for i, j in places],
        textfont={"color": inks, "size": 11 if len(columns) < 10 else 9},
        hoverinfo="skip",
        showlegend=False,
        **axes,
    )
    return cells, text
