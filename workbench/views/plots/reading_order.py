"""Draws the order in which mini-batches read rows of features: time to the right, the row's number upwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from workbench.graphs.batches import Batch, MiniBatches, Policy
from workbench.graphs.graph import Graph
from workbench.graphs.locality import CacheModel, EpochLocality, measure_batches, summarise
from workbench.views.figures import objects as go
from workbench.views.figures.describe import NO_AXIS, make_figure, make_whole_bars, show
from workbench.views.figures.style import COLOURS, QUIET
from workbench.views.text.mime_bundle import MimeBundle, format_amount, render_table

DOTS_HEIGHT, BAR_HEIGHT, GAP = 190, 22, 60  # pixels of the dots, of a figure's bar and between both
DOTS = 2500  # reads that are drawn at most, evenly spread
BATCHES = 4  # mini-batches that are looked at


def look_at_batches(
    graph: Graph, policy: Policy, cache: CacheModel | None = None
) -> tuple[Sequence[Batch], EpochLocality]:
    """(the first mini-batches of epoch 0, their locality); enough to see an order, and quick."""
    found: list[Batch] = []
    for batch in MiniBatches(graph, policy).epoch(0):
        found.append(batch)
        if len(found) == BATCHES:
            break
    return found, summarise(measure_batches(graph, found, cache))


def draw_reads(graph: Graph, policy: Policy, cache: CacheModel | None = None) -> MimeBundle:
    """The reads of the first mini-batches as dots, with their figures; as SVG, HTML and text."""
    batches, figures = look_at_batches(graph, policy, cache)
    title = f"rows read by {len(batches)} mini-batches, mix {policy.mix:g}, p {policy.p:g}"
    rows = _figures(graph, figures)
    text, page = render_table(["figure", "value"], [row[:2] for row in rows], title)
    described = "; ".join(f"{name} {written}" for name, written, _ in rows)
    height = DOTS_HEIGHT + GAP + BAR_HEIGHT * len(rows)
    reads, begins = _make_dots(batches, graph.nodes - 1)
    figure = make_figure(
        f"{title}\nrow of the features, 0 to {graph.nodes - 1}",
        [reads, *_make_bars(rows)],
        height=height,
        xaxis={"title": {"text": "reads in their order", "standoff": 10}, "showticklabels": False, "showgrid": False}
        | {"range": [0, sum(len(batch.indices) for batch in batches)], "anchor": "y"},
        yaxis={"range": [0, 1.08 * (graph.nodes - 1)], "domain": [1 - DOTS_HEIGHT / height, 1], "showgrid": False}
        | {"tickvals": [0, graph.nodes - 1], "ticktext": ["0", str(graph.nodes - 1)]},
        xaxis2={**NO_AXIS, "range": [0, 1.3], "domain": [0.2, 1], "anchor": "y2"},
        yaxis2={"type": "category", "autorange": "reversed", "anchor": "x2", "showgrid": False}
        | {"domain": [0, BAR_HEIGHT * len(rows) / height]},
        shapes=begins,
    )
    return show(figure, text, page, described)


def _figures(graph: Graph, found: EpochLocality) -> list[tuple[str, str, float]]:
    """(name, value as written, share of the whole bar) of each figure."""
    most_bits = math.log2(max(graph.classes, 2))
    unique = found.unique_rows / graph.nodes
    return [
        ("unique rows a batch", f"{found.unique_rows:.0f} of {graph.nodes}", unique),
        ("feature bytes a batch", f"{format_amount(found.feature_bytes)}B", unique),
        ("hit rate of the cache model", f"{found.hit_rate:.1%}", found.hit_rate),
        ("edges inside communities", f"{found.inside_share:.1%}", found.inside_share),
        ("label entropy of the roots", f"{found.label_bits:.2f} bits", found.label_bits / most_bits),
    ]


def _make_bars(rows: Sequence[tuple[str, str, float]]) -> list[Any]:
    """A bar for each figure, before a pale one of the whole length."""
    names, on = (
        [name for name, _, _ in rows],
        {
            "xaxis": "x2",
            "yaxis": "y2",
        },
    )
    return [
        make_whole_bars(names, [said for _, said, _ in rows], **on),
        go.Bar(
            orientation="h",
            width=0.7,
            x=[min(share, 1.0) for _, _, share in rows],
            y=names,
            hovertext=[f"{name}: {said}" for name, said, _ in rows],
            hoverinfo="text",
            marker={"color": COLOURS[0]},
            **on,
        ),
    ]


def _make_dots(batches: Sequence[Batch], most: int) -> tuple[Any, list[dict[str, object]]]:
    """A dot for each read that is drawn, and a line where each batch begins."""
    total = sum(len(batch.indices) for batch in batches)
    every = max(1, total // DOTS)
    places: list[tuple[int, int]] = []
    begins: list[dict[str, object]] = []
    before = 0
    for number, batch in enumerate(batches, 1):
        label = {
            "text": f"batch {number}",
            "textposition": "end",
            "textangle": 0,
            "xanchor": "left",
            "yanchor": "bottom",
        }
        at = {"type": "line", "x0": before, "x1": before, "y0": 0, "y1": most}
        begins.append({**at, "line": {"color": QUIET, "width": 1}, "label": {**label, "font": {"size": 10}}})
        reads = batch.reads()
        places += [(before + n, int(reads[n])) for n in range(-before % every, len(reads), every)]
        before += len(reads)
    dots = go.Scatter(
        mode="markers",
        x=[x for x, _ in places],
        y=[y for _, y in places],
        hoverinfo="skip",
        marker={"color": COLOURS[0], "size": 2},
    )
    return dots, begins
