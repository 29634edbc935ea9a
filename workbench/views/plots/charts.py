"""Charts from plain numbers: timeline lanes, a curve with named moments, source lines with heat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from workbench.views.figures import objects as go
from workbench.views.figures.describe import escape, make_figure, show
from workbench.views.figures.style import COLOURS, QUIET, colour_of, shorten
from workbench.views.text.mime_bundle import MimeBundle, render_table

MOST_KEYS = 6  # kernels in the legend of a timeline


class Block(NamedTuple):
    """One block in a lane of a timeline. Times are in seconds."""

    lane: str
    label: str
    start: float
    length: float
    tip: str
    colour: int = 0


class Heat(NamedTuple):
    """One source line: its number, its text, its heat from 0 to 1, and a note."""

    line: int
    text: str
    heat: float
    note: str


def draw_lanes(title: str, blocks: Sequence[Block], total: float, note: str = "") -> MimeBundle:
    """Blocks in lanes, over a common time axis from 0 to `total` seconds."""
    unit, factor = ("ms", 1e3) if total >= 1e-3 else ("µs", 1e6)
    labels = list({block.label: block.colour for block in blocks}.items())
    traces = []
    for n, (label, colour) in enumerate(labels):
        own = [block for block in blocks if block.label == label]
        bars = go.Bar(
            orientation="h",
            name=shorten(label, 60),
            showlegend=n < MOST_KEYS and None,
            base=[block.start * factor for block in own],
            x=[block.length * factor for block in own],
            y=escape([block.lane for block in own]),
            width=0.7,
            hovertext=escape([block.tip for block in own]),
            hoverinfo="text",
            marker={"color": colour_of(colour)},
        )
        traces.append(bars)
    plain, listed = render_table(
        ["lane", "what", "start", "length"],
        [
            [b.lane, shorten(b.label, 60), f"{b.start * factor:.4g} {unit}", f"{b.length * factor:.4g} {unit}"]
            for b in blocks[:30]
        ],
        f"{title}{'; ' + note if note else ''}",
    )
    lanes = list(dict.fromkeys(block.lane for block in blocks))
    figure = make_figure(
        f"{title}\n{note}",
        traces,
        height=30 * len(lanes),
        xaxis={"title": {"text": unit}, "range": [0, total * factor]},
        yaxis={"type": "category", "autorange": "reversed"},
        barmode="overlay",
    )
    return show(figure, plain, listed, note or f"{len(blocks)} blocks in {len(lanes)} lanes")


def draw_curve(
    title: str,
    points: Sequence[tuple[float, float]],
    marks: Sequence[tuple[str, float]],
    *,
    x: str,
    y: str,
    note: str = "",
) -> MimeBundle:
    """A line through (x, y) points on axes from (0, 0). `marks` are (name, x) of moments; `x` and `y` name the axes."""
    ends = [max((point[n] for point in points), default=1.0) or 1.0 for n in (0, 1)]
    line = go.Scatter(
        mode="lines", x=[a for a, _ in points], y=[b for _, b in points], line={"color": COLOURS[0], "width": 2}
    )
    moments = [
        {
            "type": "line",
            "x0": when,
            "x1": when,
            "y0": 0,
            "y1": ends[1] * (1 - 0.07 * (n % 3)),  # names of near moments stand below each other
            "line": {"color": QUIET, "dash": "dot", "width": 1},
            "label": {"text": name, "textposition": "end", "textangle": 0, "xanchor": "left"}
            | {"yanchor": "top", "font": {"size": 10}},
        }
        for n, (name, when) in enumerate(marks)
    ]
    plain, listed = render_table(
        [x, y],
        [[f"{a:.4g}", f"{b:.4g}"] for a, b in points[:: max(1, len(points) // 12)]],
        f"{title}{'; ' + note if note else ''}",
    )
    figure = make_figure(
        f"{title}\n{note}",
        [line],
        height=200,
        xaxis={"title": {"text": x}, "range": [0, ends[0]]},
        yaxis={"title": {"text": y}, "range": [0, ends[1]]},
        shapes=moments,
    )
    return show(figure, plain, listed, note)


def draw_heat(title: str, rows: Sequence[Heat]) -> MimeBundle:
    """Source lines in order, each with a bar for its heat below it; the whole line is in the tooltip."""
    names = [f"{row.line:>4}  {shorten(row.text, 66)}".replace(" ", "\u00a0") for row in rows]
    names = escape(names)
    bars = go.Bar(
        orientation="h",
        x=[row.heat for row in rows],
        y=names,
        width=0.15,
        offset=0.34,  # below the text, which stays on the ground of the page
        hovertext=escape([f"{row.line}: {row.text}; {row.note}" for row in rows]),
        hoverinfo="text",
        marker={"color": COLOURS[1]},
    )
    notes = go.Scatter(
        mode="text",
        x=[1.0] * len(rows),
        y=names,
        text=escape([shorten(row.note, 40) for row in rows]),
        textposition="middle left",
        textfont={"size": 10},
        hoverinfo="skip",
    )
    plain, listed = render_table(
        ["line", "heat", "source", "why"],
        [[row.line, "█" * round(8 * row.heat) or "·", row.text[:70], row.note] for row in rows],
        title,
    )
    figure = make_figure(
        title,
        [bars, notes],
        height=8 + 18 * len(rows),
        xaxis={"range": [0, 1], "title": {"text": "bar: part of the hottest line"}, "showticklabels": False}
        | {"showgrid": False},
        yaxis={"type": "category", "autorange": "reversed", "ticklabelposition": "inside"}
        | {"tickfont": {"family": "monospace", "size": 11, "color": QUIET}, "showgrid": False},
    )
    hottest = sorted(rows, key=lambda row: -row.heat)[:5]
    return show(figure, plain, listed, "; ".join(f"line {row.line}: {row.note}" for row in hottest))
