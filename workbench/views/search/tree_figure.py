"""The tree of a search as text for a terminal and as a figure: a node in a row, with its visits, its value with the
interval, its time and why it is closed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from workbench.policies.search import SearchTree
from workbench.records import Version
from workbench.views.figures import objects as go
from workbench.views.figures.describe import NO_AXIS, escape, make_figure, show
from workbench.views.figures.style import LETTER, MEASURED, MODELLED, QUIET, SCREENED, WRONG, shorten
from workbench.views.search.outline import Row, find_rows, fold, summarise
from workbench.views.text.mime_bundle import MimeBundle, render_table

ROW, INDENT, INDENTED = 21, 13.0, 150.0  # pixels; of a deep tree each level gets less
TRIES, VALUE, TIME, END = 300, (322, 454), 468, 684  # pixels where the columns begin or end
BEST = MEASURED
INK = {"root": QUIET, "open": QUIET, "passed": MODELLED, "failed": WRONG, "screened": SCREENED, "pruned": QUIET}
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


def draw_search_tree(
    tree: SearchTree,
    opened: Collection[int] = (),
    *,
    closed: Collection[int] = (),
    versions: Sequence[Version] = (),
    said: Sequence[str] = (),
    in_shell: bool = False,
) -> MimeBundle:
    """The tree with the paths to the best node, to a pinned one and to the last one tried open, and with the nodes in
    `opened` and all of their children. "Value" is the mean reward of a subtree: 0 is the first correct time, 1 is 16
    times as fast; its bar holds 90 %. `said` follows the summary.
    """
    rows, title = fold(tree, opened, closed=closed), "; ".join((summarise(tree, versions, in_shell), *said))
    head = ["node", "parent", "change", "status", "tries", "value (90 %)", "time", "why"]
    _, page = render_table(head, [_cells(row) for row in find_rows(tree)[:MOST_LISTED]], title)
    described = "; ".join(row.words for row in rows[:60])
    return show(_make_figure(rows, title), "\n".join([title, *_lines(rows)]), page, described)


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


def _make_figure(rows: Sequence[Row], title: str) -> go.Figure:
    """Three columns beside each other, with a row for each node: the tree with the tries, the values, the times."""
    lefts = _place_nodes(rows)
    traces = [_make_links(rows, lefts), _make_nodes(rows, lefts), _make_tries(rows), _make_values(rows)]
    traces.append(_make_times(rows))
    found = [value for row in rows for value in (row.low, row.value, row.high) if value is not None]
    low, high = min([0.0, *found]), max([0.05, *found])
    margin = 0.04 * (high - low)
    heads = (
        (TRIES, "right", "tries"),
        (sum(VALUE) / 2, "center", "value, 90 %"),
        (TIME, "left", "time; why it is closed"),
    )
    above = {"showarrow": False, "xref": "paper", "yref": "paper", "y": 1, "yanchor": "bottom", "font": {"size": 10}}
    return make_figure(
        f"{title}\n{KEY}",
        traces,
        height=ROW * len(rows) + 8,
        xaxis={**NO_AXIS, "domain": [0, TRIES / END], "range": [0, TRIES]},
        xaxis2={"domain": [one / END for one in VALUE], "range": [low - margin, high + margin], "anchor": "y"},
        xaxis3={**NO_AXIS, "domain": [TIME / END, 1], "range": [0, 1], "anchor": "y"},
        yaxis={**NO_AXIS, "range": [len(rows) - 0.4, -0.6]},
        annotations=[{**above, "x": x / END, "xanchor": side, "text": text} for x, side, text in heads],
        right=0,
        above=14,
    )


def _place_nodes(rows: Sequence[Row]) -> dict[int, float]:
    """Where each node stands across, by its depth."""
    step = min(INDENT, INDENTED / max([1, *(row.depth for row in rows)]))
    return {row.number: 10 + step * row.depth for row in rows}


def _ink(row: Row) -> str:
    return BEST if row.best else INK[row.status]


def _tips(rows: Sequence[Row]) -> list[str]:
    return escape([row.words for row in rows])


def _make_links(rows: Sequence[Row], lefts: Mapping[int, float]) -> Any:
    """From each node a line to its parent."""
    ends = {row.number: n + 0.35 for n, row in enumerate(rows)}  # of the line below each node
    x: list[float | None] = []
    y: list[float | None] = []
    for n, row in enumerate(rows):
        if row.parent is not None:
            left = lefts[row.parent]
            x += [left, left, max(lefts[row.number] - 6, left + 3), None]
            y += [ends[row.parent], n, n, None]
            ends[row.parent] = n
    return go.Scatter(mode="lines", x=x, y=y, line={"color": QUIET, "width": 1}, opacity=0.45, hoverinfo="skip")


def _make_nodes(rows: Sequence[Row], lefts: Mapping[int, float]) -> Any:
    """The signs of the nodes, each status with a form of its own, and their changes."""
    words = []
    for row in rows:
        more = f"  (+{row.hidden})" if row.hidden else ""
        flags = "".join(mark for mark, on in (("⚑ ", row.pinned), ("⇒ ", row.taken)) if on)
        room = int((TRIES - 26 - lefts[row.number] - 12) / LETTER) - len(more) - len(flags)
        words.append("\u00a0" + flags + shorten(f"{row.number} {row.change}", max(8, room)) + more)
    return go.Scatter(
        mode="markers+text",
        x=[lefts[row.number] for row in rows],
        y=list(range(len(rows))),
        text=escape(words),
        textposition="middle right",
        textfont={"size": 11, "weight": _weights(rows)},
        hovertext=_tips(rows),
        hoverinfo="text",
        marker={
            "color": [_ink(row) for row in rows],
            "symbol": ["star" if row.best else SYMBOLS[row.status] for row in rows],
            "size": [12 if row.best else 10 for row in rows],
            "opacity": 1,  # plotly draws marks of several sizes paler, with an outline
            "line": {"width": 0},
        },
    )


def _weights(rows: Sequence[Row]) -> list[str]:
    return ["bold" if row.best else "normal" for row in rows]


def _make_tries(rows: Sequence[Row]) -> Any:
    return go.Scatter(
        mode="text",
        x=[TRIES] * len(rows),
        y=list(range(len(rows))),
        text=[str(row.visits) if row.visits else "" for row in rows],
        textposition="middle left",
        textfont={"size": 11},
        hoverinfo="skip",
    )


def _make_values(rows: Sequence[Row]) -> Any:
    """The value of each node with its interval."""
    found = [(n, row, row.value) for n, row in enumerate(rows) if row.value is not None]
    return go.Scatter(
        mode="markers",
        xaxis="x2",
        x=[value for _, _, value in found],
        y=[n for n, _, _ in found],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [(row.high if row.high is not None else value) - value for _, row, value in found],
            "arrayminus": [value - (row.low if row.low is not None else value) for _, row, value in found],
            "color": QUIET,
            "width": 0,
        },
        hovertext=_tips([row for _, row, _ in found]),
        hoverinfo="text",
        marker={"color": [_ink(row) for _, row, _ in found], "size": 7},
    )


def _make_times(rows: Sequence[Row]) -> Any:
    """The time of each node, and why it is closed; the whole is in the tooltip."""
    said = ["; ".join(filter(None, [row.time, row.note])) for row in rows]
    return go.Scatter(
        mode="text",
        xaxis="x3",
        x=[0.0] * len(rows),
        y=list(range(len(rows))),
        text=escape([shorten(one, int((END - TIME) / LETTER)) for one in said]),
        textposition="middle right",
        textfont={"size": 11, "weight": _weights(rows)},
        hovertext=_tips(rows),
        hoverinfo="text",
    )
