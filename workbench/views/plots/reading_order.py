"""Draws the order in which mini-batches read rows of features: time to the right, the row's number upwards."""

from __future__ import annotations

import math
from collections.abc import Sequence

from workbench.graphs.batches import Batch, MiniBatches, Policy
from workbench.graphs.graph import Graph
from workbench.graphs.locality import CacheModel, EpochLocality, measure_batches, summarise
from workbench.views.plots.svg import (
    COLOURS,
    WIDTH,
    draw_horizontal_rule,
    draw_svg,
    draw_text,
    draw_titled,
    draw_vertical_rule,
    html_figure,
)
from workbench.views.text.mime_bundle import MimeBundle, format_amount, render_table

LEFT, RIGHT, TOP, BOTTOM = 62, WIDTH - 8, 58, 238  # pixels of the plot
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
    body = [draw_text(8, 16, title, size=13), draw_text(8, 34, f"row of the features, 0 to {graph.nodes - 1}")]
    body += _draw_dots(graph, batches)
    body.append(draw_text((LEFT + RIGHT) / 2, BOTTOM + 16, "reads in their order", anchor="middle"))
    for n, (name, written, share) in enumerate(rows):
        body.append(_draw_figure(BOTTOM + 34 + 22 * n, name, written, share))
    text, page = render_table(["figure", "value"], [row[:2] for row in rows], title)
    described = "; ".join(f"{name} {written}" for name, written, _ in rows)
    drawing = draw_svg(BOTTOM + 40 + 22 * len(rows), title, described, body)
    return MimeBundle(text, html=html_figure(drawing, page), svg=drawing)


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


def _draw_figure(y: float, name: str, written: str, share: float) -> str:
    left, span = 200, WIDTH - 200 - 130
    whole = f'<rect x="{left}" y="{y}" width="{span}" height="15" fill="currentColor" fill-opacity=".08"/>'
    bar = f'rect x="{left}" y="{y}" width="{span * min(share, 1.0):.1f}" height="15" fill="{COLOURS[0]}"'
    return (
        draw_text(left - 8, y + 12, name, anchor="end")
        + whole
        + draw_titled(bar, f"{name}: {written}")
        + draw_text(left + span + 8, y + 12, written)
    )


def _draw_dots(graph: Graph, batches: Sequence[Batch]) -> list[str]:
    """A frame, a rule where each batch begins, and a dot for each read that is drawn."""
    total = sum(len(batch.indices) for batch in batches)
    every = max(1, total // DOTS)
    out = [draw_horizontal_rule(y, LEFT, RIGHT) for y in (TOP, BOTTOM)]
    path, before = [], 0
    for number, batch in enumerate(batches, 1):
        x = LEFT + (RIGHT - LEFT) * before / total
        out.append(draw_vertical_rule(x, TOP, BOTTOM) + draw_text(x + 3, TOP - 3, f"batch {number}", size=10))
        reads = batch.reads()
        for at in range(-before % every, len(reads), every):
            right = LEFT + (RIGHT - LEFT) * (before + at) / total
            up = BOTTOM - (BOTTOM - TOP) * int(reads[at]) / max(graph.nodes - 1, 1)
            path.append(f"M{right:.1f} {up:.1f}h0")
        before += len(reads)
    dots = f'd="{"".join(path)}" stroke="{COLOURS[0]}" stroke-width="2" stroke-linecap="round" fill="none"'
    out += [f"<path {dots}/>", draw_text(LEFT - 6, TOP + 9, str(graph.nodes - 1), anchor="end")]
    return [*out, draw_text(LEFT - 6, BOTTOM, "0", anchor="end")]
