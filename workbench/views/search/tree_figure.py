"""The tree of a search as text for a terminal, as SVG and as a plotly figure: a node in a row, with its visits, its
value with the interval, its time and why it is closed.
"""

from __future__ import annotations

import html
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from workbench.policies.search import SearchTree
from workbench.views.plots.svg import (
    COLOURS,
    QUIET,
    WIDTH,
    draw_svg,
    draw_text,
    draw_titled,
    draw_vertical_rule,
    figure_layout,
    html_figure,
    shorten,
    ticks,
)
from workbench.views.search.outline import Row, find_rows, fold, summarise
from workbench.views.text.mime_bundle import MimeBundle, render_table

ROW, TOP, INDENT, INDENTED = 21, 52, 13.0, 150.0  # pixels; of a deep tree each level gets less
VISITS, VALUE, VALUE_END, TIME = 318, 336, 468, 482  # where the columns begin
LETTER = 5.7  # pixels of a character, about
INK = {
    "root": QUIET,
    "open": QUIET,
    "passed": COLOURS[0],
    "failed": COLOURS[1],
    "screened": COLOURS[3],
    "pruned": QUIET,
}
BEST = COLOURS[2]
SYMBOLS = {
    "root": "diamond-open",
    "open": "circle-open",
    "passed": "circle",
    "failed": "x",
    "screened": "circle-open-dot",
    "pruned": "circle-x-open",
}
KEY = "● passed  ★ best  ○ open  ✗ failed  ◌ screened out  ⊘ pruned"
MOST_LISTED = 200  # rows of the table below the picture


def draw_search_tree(tree: SearchTree, opened: Collection[int] = (), *, closed: Collection[int] = ()) -> MimeBundle:
    """The tree with the paths to the best node, to a pinned one and to the last one tried open, and with the nodes in
    `opened` and all of their children. "Value" is the mean reward of a subtree: 0 is the first correct time, 1 is 16
    times as fast; its bar holds 90 %.
    """
    rows, title = fold(tree, opened, closed=closed), summarise(tree)
    head = ["node", "parent", "change", "status", "tries", "value (90 %)", "time", "why"]
    _, page = render_table(head, [_cells(row) for row in find_rows(tree)[:MOST_LISTED]], title)
    drawing = _draw(rows, title)
    return MimeBundle(
        "\n".join([title, *_lines(rows)]),
        html=html_figure(drawing, page),
        svg=drawing,
        plotly=_make_figure(rows, title),
    )


def _cells(row: Row) -> list[object]:
    status = f"{row.status}, best" if row.best else row.status
    parent = "" if row.parent is None else row.parent
    return [row.number, parent, row.change, status, row.visits, row.said_value, row.time, row.note]


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    """The tree as text, with lines that join a node to its children."""
    last = {row.parent: row.number for row in rows}
    stems: dict[int | None, str] = {None: ""}
    hidden = {row.number: row.hidden for row in rows}
    for at, row in enumerate(rows):
        ends = row.parent is None or (last[row.parent] == row.number and not hidden[row.parent])
        stem = stems[row.parent]
        joint = "" if row.parent is None else "└─ " if ends else "├─ "
        yield f"{stem}{joint}{row.mark} {_say(row)}"
        stems[row.number] = stem if row.parent is None else stem + ("   " if ends else "│  ")
        yield from _say_hidden(rows, at, stems)


def _say(row: Row) -> str:
    words = [f"{row.number} {row.change}", row.time]
    if row.visits > 1 and row.value is not None:
        words.append(f"{row.visits} tries, value {row.said_value}")
    flags = [word for word in ("best", "pinned", "taken") if getattr(row, word)]
    return "; ".join(filter(None, [*words, *flags, shorten(row.note, 90)]))


def _say_hidden(rows: Sequence[Row], at: int, stems: dict[int | None, str]) -> Iterator[str]:
    """After the last drawn node below some others: how many nodes of each are not drawn."""
    following = rows[at + 1] if at + 1 < len(rows) else None
    parents = {row.number: row.parent for row in rows}
    counts = {row.number: row.hidden for row in rows}
    above: list[int] = []
    number: int | None = rows[at].number
    keep = set()
    reached = following.parent if following is not None else None
    while reached is not None:
        keep.add(reached)
        reached = parents[reached]
    while number is not None and number not in keep:
        above.append(number)
        number = parents[number]
    for one in above:
        if counts[one]:
            yield f"{stems[one]}└─ … {counts[one]} more"


def _draw(rows: Sequence[Row], title: str) -> str:
    body = [draw_text(8, 16, shorten(title, 118), size=12)]
    body += [draw_text(8, 36, KEY, size=10)]
    body += [
        draw_text(VISITS, 36, "tries", anchor="end", size=10),
        draw_text((VALUE + VALUE_END) / 2, 36, "value, 90 %", anchor="middle", size=10),
        draw_text(TIME, 36, "time; why it is closed", size=10),
    ]
    bottom = TOP + ROW * len(rows)
    axis = _Axis(rows)
    for value in axis.ticks():
        body.append(draw_vertical_rule(axis.place(value), TOP - 8, bottom))
        body.append(draw_text(axis.place(value), bottom + 12, f"{value:g}", anchor="middle", size=10))
    lefts = _place_nodes(rows)
    body += _draw_links(rows, lefts)
    for at, row in enumerate(rows):
        body += _draw_row(row, lefts[row.number], TOP + ROW * at + ROW / 2, axis)
    return draw_svg(bottom + 20, title, "; ".join(row.words for row in rows[:60]), body)


class _Axis:
    """The axis of values."""

    def __init__(self, rows: Sequence[Row]) -> None:
        found = [value for row in rows for value in (row.low, row.value, row.high) if value is not None]
        self.low, self.high = min([0.0, *found]), max([0.05, *found])

    def place(self, value: float) -> float:
        """The pixel of a value."""
        return VALUE + (value - self.low) / (self.high - self.low) * (VALUE_END - VALUE)

    def ticks(self) -> list[float]:
        """Round values within the range, zero among them."""
        step = ticks(self.high - self.low, 3)[1]
        return [step * n for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def _place_nodes(rows: Sequence[Row]) -> dict[int, float]:
    """Where each node stands across, by its depth."""
    step = min(INDENT, INDENTED / max([1, *(row.depth for row in rows)]))
    return {row.number: 14 + step * row.depth for row in rows}


def _draw_links(rows: Sequence[Row], lefts: Mapping[int, float]) -> list[str]:
    """From each node a line to its parent."""
    ends = {row.number: TOP + ROW * n + ROW / 2 + 7 for n, row in enumerate(rows)}  # of the line below each node
    style = 'fill="none" stroke="currentColor" stroke-opacity=".45"'
    body = []
    for n, row in enumerate(rows):
        if row.parent is None:
            continue
        x, top, y = lefts[row.parent], ends[row.parent], TOP + ROW * n + ROW / 2
        body.append(f'<path d="M{x:.1f} {top:.1f}V{y:.1f}H{max(lefts[row.number] - 7, x + 3):.1f}" {style}/>')
        ends[row.parent] = y
    return body


def _draw_row(row: Row, x: float, y: float, axis: _Axis) -> list[str]:
    room = int((VISITS - 26 - x - 12) / LETTER)
    words = f"{row.number} {row.change}"
    more = f"  (+{row.hidden})" if row.hidden else ""
    flags = "".join(mark for mark, on in (("⚑ ", row.pinned), ("⇒ ", row.taken)) if on)
    weight = ' font-weight="bold"' if row.best else ""
    label = draw_text(x + 11, y + 4, flags + shorten(words, max(8, room - len(more) - len(flags))) + more, more=weight)
    body = [_draw_mark(row, x, y), label.replace("</text>", f"<title>{html.escape(row.words)}</title></text>")]
    if row.visits:
        body.append(draw_text(VISITS, y + 4, str(row.visits), anchor="end"))
    ink = BEST if row.best else INK[row.status]
    if row.value is not None:
        if row.low is not None and row.high is not None:
            ends = f'x1="{axis.place(row.low):.1f}" x2="{axis.place(row.high):.1f}" y1="{y:.1f}" y2="{y:.1f}"'
            body.append(f'<line {ends} stroke="{ink}" stroke-width="2" stroke-opacity=".6"/>')
        dot = f'circle cx="{axis.place(row.value):.1f}" cy="{y:.1f}" r="3.5" fill="{ink}"'
        body.append(draw_titled(dot, row.words))
    said = "; ".join(filter(None, [row.time, row.note]))
    body.append(draw_text(TIME, y + 4, shorten(said, int((WIDTH - 4 - TIME) / LETTER)), more=weight))
    return body


def _draw_mark(row: Row, x: float, y: float) -> str:
    """The sign of a node's status: each has a form of its own."""
    ink = BEST if row.best else INK[row.status]
    line = f'fill="none" stroke="{ink}" stroke-width="2"'
    if row.best:
        places = [(0, -7), (1.8, -2.3), (6.8, -2.2), (2.8, 0.9), (4.2, 5.8), (0, 2.9)]
        points = " ".join(
            f"{x + side * a:.1f},{y + b:.1f}" for side, half in ((1, places), (-1, places[::-1])) for a, b in half
        )
        return draw_titled(f'polygon points="{points}" fill="{ink}"', row.words)
    cross = f"M{x - 4} {y - 4}L{x + 4} {y + 4}"
    if row.status == "failed":
        return draw_titled(f'path d="{cross}M{x - 4} {y + 4}L{x + 4} {y - 4}" {line}', row.words)
    if row.status == "pruned":
        return f'<circle cx="{x}" cy="{y}" r="5" {line}/><path d="{cross}" {line}/>'
    if row.status == "root":
        return draw_titled(f'path d="M{x} {y - 6}L{x + 6} {y}L{x} {y + 6}L{x - 6} {y}Z" {line}', row.words)
    styles = {"open": line, "screened": f'{line} stroke-dasharray="2 2"'}
    style = styles.get(row.status, f'fill="{ink}"')
    return draw_titled(f'circle cx="{x}" cy="{y}" r="5" {style}', row.words)


def _make_figure(rows: Sequence[Row], title: str) -> dict[str, object]:
    """The same rows for plotly: the value of each node with its interval; the tree is written at the axis."""
    valued = [(n, row, row.value) for n, row in enumerate(rows) if row.value is not None]
    zero = [(n, row) for n, row in enumerate(rows) if row.value is None]
    data: list[dict[str, object]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "value",
            "x": [value for _, _, value in valued],
            "y": [n for n, _, _ in valued],
            "error_x": {
                "type": "data",
                "symmetric": False,
                "array": [(row.high if row.high is not None else value) - value for _, row, value in valued],
                "arrayminus": [value - (row.low if row.low is not None else value) for _, row, value in valued],
                "color": QUIET,
            },
            "hovertext": [html.escape(row.words) for _, row, _ in valued],
            "hoverinfo": "text",
            "marker": _markers([row for _, row, _ in valued]),
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "not tried",
            "x": [0.0] * len(zero),
            "y": [n for n, _ in zero],
            "hovertext": [html.escape(row.words) for _, row in zero],
            "hoverinfo": "text",
            "marker": _markers([row for _, row in zero]),
        },
    ]
    labels = [_label(row) for row in rows]
    widest = max(map(len, labels))
    stems = [
        html.escape(f"{label.ljust(widest)}  {row.time.rjust(9)}").replace(" ", "\u00a0")
        for label, row in zip(labels, rows, strict=True)
    ]
    layout = figure_layout(
        html.escape(shorten(title, 110)),
        110 + ROW * len(rows),
        xaxis={"title": {"text": "value: mean reward of the subtree, 90 %"}},
        yaxis={
            "tickvals": list(range(len(rows))),
            "ticktext": stems,
            "range": [len(rows) - 0.5, -0.5],
            "tickfont": {"family": "monospace", "size": 11},
            "showgrid": False,
            "zeroline": False,
        },
        showlegend=False,
    )
    return {"data": data, "layout": layout}


def _markers(rows: Sequence[Row]) -> dict[str, object]:
    return {
        "color": [BEST if row.best else INK[row.status] for row in rows],
        "symbol": ["star" if row.best else SYMBOLS[row.status] for row in rows],
        "size": [13 if row.best else 9 for row in rows],
    }


def _label(row: Row) -> str:
    """A row's name at the axis, moved by its depth."""
    more = f" (+{row.hidden})" if row.hidden else ""
    return f"{'  ' * row.depth}{row.mark} {row.number} {shorten(row.change, 34)}{more}"
