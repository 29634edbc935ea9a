"""Draws a plotly figure as SVG: the traces (scatter, bar, heatmap) and the parts of a layout that figures here use.

Plotly's own export needs a browser. Here nothing is measured: a character is LETTER pixels wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from workbench.views.figures import objects as go
from workbench.views.figures.axes import Axis
from workbench.views.figures.colours import pick
from workbench.views.figures.style import LETTER, QUIET, WIDTH
from workbench.views.figures.svg import (
    Place,
    draw_line,
    draw_mark,
    draw_picture,
    draw_text,
    draw_titled,
    read_words,
    turn_from,
)

MOST_TIPS = 300  # marks of a trace; more of them are drawn as one path, without tooltips
GRID = ' stroke-opacity=".2"'
LINE = 17  # pixels of a line of the title and of the legend
ANCHORS_AT = {"left": "start", "center": "middle", "right": "end"}
ANCHORS = {"left": "end", "center": "middle", "right": "start"}
Trace = Mapping[str, Any]


class Frame(NamedTuple):
    """The axes that a trace is drawn on."""

    x: Axis
    y: Axis

    def place(self, x: Any, y: Any) -> Place:
        """The pixel of a point."""
        return self.x.place(x), self.y.place(y)


def draw_static(figure: go.Figure, described: str = "", width: float = WIDTH) -> str:
    """The figure as SVG. `described` is for screen readers."""
    made = figure.to_plotly_json()
    traces, layout = made["data"], made["layout"]
    height, title = layout["height"], layout.get("title", {}).get("text", "")
    axes = _make_axes(traces, layout, width)
    body = [draw_text(6, 6 + LINE * n, line, more=' font-size="12.5"') for n, line in enumerate(title.split("<br>"), 1)]
    for name, axis in axes.items():
        other = axes[_key(axis.spec.get("anchor") or ("y" if name[0] == "x" else "x"))]
        body += _draw_across(axis, other) if name[0] == "x" else _draw_up(axis, other)
    previous: list[Place] = []
    for trace in traces:
        frame = Frame(axes[_key(trace.get("xaxis", "x"))], axes[_key(trace.get("yaxis", "y"))])
        drawn = {"bar": _draw_bars, "heatmap": _draw_cells}.get(trace["type"])
        body += drawn(trace, frame) if drawn else _draw_scatter(trace, frame, previous)
        previous = _steps(trace, frame) if trace["type"] == "scatter" else []
    first = Frame(axes["xaxis"], axes["yaxis"])
    for shape in layout.get("shapes", ()):
        body += _draw_shape(shape, first)
    body += [_draw_note(note, layout, width) for note in layout.get("annotations", ())]
    if layout["showlegend"]:
        body += _draw_keys(traces, height)
    return draw_picture((width, height), read_words(title).replace("\n", "; "), described, body)


def _key(axis: str) -> str:
    """The layout's name of a trace's axis: "x2" is "xaxis2"."""
    return f"{axis[0]}axis{axis[1:]}"


def _make_axes(traces: Sequence[Trace], layout: Mapping[str, Any], width: float) -> dict[str, Axis]:
    """All axes, within the margins. At the left there is room for what stands at the axes."""
    margin, height = layout["margin"], layout["height"]
    found = {name: spec for name, spec in layout.items() if name[1:5] == "axis"}
    values = {name: list(_values(traces, name)) for name in found}
    made = {}
    left = float(margin["l"])
    for name in sorted(found, reverse=True):  # those upwards first: their texts need room
        spec = found[name]
        begin, end = spec.get("domain", (0.0, 1.0))
        if name[0] == "y":
            top, bottom = margin["t"], height - margin["b"]
            made[name] = Axis(
                name, spec, values[name], (bottom - begin * (bottom - top), bottom - end * (bottom - top))
            )
            across = found[_key(spec.get("anchor", "x"))].get("domain", (0.0, 1.0))
            left = max(left, _room(made[name]) - across[0] * (width - left - margin["r"]))
        else:
            span = width - left - margin["r"]
            made[name] = Axis(name, spec, values[name], (left + begin * span, left + end * span))
    return made


def _room(axis: Axis) -> float:
    """The pixels that the texts and the title of an axis upwards need."""
    if "inside" in axis.spec.get("ticklabelposition", ""):
        return 0.0
    longest = max((len(read_words(said)) for _, said in axis.ticks()), default=0)
    return 14 + LETTER * longest + (18 if axis.spec.get("title", {}).get("text") else 0)


def _values(traces: Sequence[Trace], name: str) -> Iterator[Any]:
    """The values of all traces on an axis, with the ends of intervals."""
    letter = name[0]
    for trace in traces:
        if _key(trace.get(f"{letter}axis", letter)) != name:
            continue
        values = trace.get(letter) or ()
        yield from values
        error = trace.get(f"error_{letter}")
        if error:
            for value, more, less in zip(values, error["array"], error["arrayminus"], strict=True):
                yield from (value - less, value + more)


def _draw_across(axis: Axis, up: Axis) -> Iterator[str]:
    """Grid, numbers and title of an axis across."""
    if axis.spec.get("visible") is False:
        return
    for value, said in axis.ticks():
        x = axis.place(value)
        if axis.spec.get("showgrid") is not False and not axis.names:
            yield draw_line([(x, up.start), (x, up.end)], "currentColor", more=GRID)
        yield draw_text(x, up.start + 15, said, anchor="middle")
    title = axis.spec.get("title", {}).get("text", "")
    if title:
        yield draw_text((axis.start + axis.end) / 2, up.start + (31 if axis.ticks() else 16), title, anchor="middle")


def _draw_up(axis: Axis, across: Axis) -> Iterator[str]:
    """Grid, numbers and title of an axis upwards."""
    if axis.spec.get("visible") is False:
        return
    font, is_inside = axis.spec.get("tickfont", {}), "inside" in axis.spec.get("ticklabelposition", "")
    more = f' font-family="{font["family"]}" xml:space="preserve"' if "family" in font else ""
    for value, said in axis.ticks():
        y = axis.place(value)
        if axis.spec.get("showgrid") is not False and not axis.names:
            yield draw_line([(across.start, y), (across.end, y)], "currentColor", more=GRID)
        x, anchor = (across.start + 4, "start") if is_inside else (across.start - 6, "end")
        yield draw_text(x, y + 4, said, anchor=anchor, more=more)
    title = axis.spec.get("title", {}).get("text", "")
    if title:
        turned = f' transform="rotate(-90 13 {(axis.start + axis.end) / 2:.0f})"'
        yield draw_text(13, (axis.start + axis.end) / 2, title, anchor="middle", more=turned)


def _at(values: Any, n: int, default: Any = "") -> Any:
    """An entry of a value that is one for all points or one for each."""
    return default if values is None else values[n] if isinstance(values, (list, tuple)) else values


def _draw_bars(trace: Trace, frame: Frame) -> Iterator[str]:
    """Bars to the right, with a text at each end."""
    width, offset = trace.get("width", 0.8), trace.get("offset", -trace.get("width", 0.8) / 2)
    marker = trace["marker"]
    faint = f' fill-opacity="{marker["opacity"]}"' if marker.get("opacity", 1) != 1 else ""
    for n, (name, value) in enumerate(zip(trace["y"], trace["x"], strict=True)):
        begin = _at(trace.get("base"), n, 0.0)
        x1, x2 = frame.x.place(begin), frame.x.place(begin + value)
        top, bottom = sorted((frame.y.place(name, offset), frame.y.place(name, offset + width)))
        x2 = max(x2, min(x1 + 0.8, frame.x.end)) if value else x2
        box = f'x="{x1:.1f}" y="{top:.1f}" width="{max(x2 - x1, 0):.1f}" height="{bottom - top:.1f}"'
        yield draw_titled(f'rect {box} fill="{_at(marker["color"], n)}"{faint}', _at(trace.get("hovertext"), n))
        if trace.get("text"):
            more = f' font-size="{trace["textfont"]["size"]}"' if "textfont" in trace else ""
            yield draw_text(x2 + 5, (top + bottom) / 2 + 4, _at(trace["text"], n), more=more)


def _draw_cells(trace: Trace, frame: Frame) -> Iterator[str]:
    """The cells of a heat map, and the key of its colours."""
    low, high, scale = trace["zmin"], trace["zmax"], trace["colorscale"]
    for row, line in zip(trace["y"], trace["z"], strict=True):
        top, bottom = sorted((frame.y.place(row, -0.5), frame.y.place(row, 0.5)))
        for n, (column, value) in enumerate(zip(trace["x"], line, strict=True)):
            if value is None:
                continue
            x1, x2 = frame.x.place(column, -0.5), frame.x.place(column, 0.5)
            box = f'x="{x1 + 0.5:.1f}" y="{top + 0.5:.1f}" width="{x2 - x1 - 1:.1f}" height="{bottom - top - 1:.1f}"'
            tip = trace["hovertext"][trace["y"].index(row)][n]
            yield draw_titled(f'rect {box} fill="{pick(scale, (value - low) / (high - low))}"', tip)
    if trace.get("showscale") is not False:
        yield from _draw_scale(trace, frame)


def _draw_scale(trace: Trace, frame: Frame, steps: int = 24) -> Iterator[str]:
    """The key of the colours of a heat map, at its right."""
    bar, left = trace["colorbar"], frame.x.end + 12
    low, high, top, bottom = trace["zmin"], trace["zmax"], frame.y.end + 30, frame.y.start
    yield draw_text(left, frame.y.end + 8, bar["title"]["text"])
    for n in range(steps):
        y, fill = bottom - (n + 1) / steps * (bottom - top), pick(trace["colorscale"], (n + 0.5) / steps)
        yield f'<path d="M{left} {y:.1f}h14v{(bottom - top) / steps + 0.3:.1f}h-14z" fill="{fill}"/>'
    for value, said in zip(bar["tickvals"], bar["ticktext"], strict=True):
        yield draw_text(left + 18, bottom - (value - low) / (high - low) * (bottom - top) + 4, said)


def _steps(trace: Trace, frame: Frame) -> list[Place]:
    """The pixels of a line without its gaps; steps have their corners."""
    places: list[Place] = []
    for x, y in zip(trace["x"], trace["y"], strict=True):
        if x is None or y is None:
            continue
        at = frame.place(x, y)
        if places and trace.get("line", {}).get("shape") == "hv":
            places.append((at[0], places[-1][1]))
        places.append(at)
    return places


def _draw_scatter(trace: Trace, frame: Frame, previous: list[Place]) -> Iterator[str]:
    """Lines, areas, intervals, marks and texts of a trace."""
    mode, line = trace["mode"], trace.get("line", {})
    if trace.get("fill") == "tonexty":
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*_steps(trace, frame), *previous[::-1]])
        yield f'<polygon points="{points}" fill="{trace["fillcolor"]}"/>'
    if "lines" in mode and line.get("width", 2):
        yield from _draw_lines(trace, frame)
    for letter in "xy":
        if f"error_{letter}" in trace:
            yield from _draw_intervals(trace, frame, letter)
    if "markers" in mode:
        yield from _draw_marks(trace, frame)
    if "text" in mode:
        yield from _draw_words(trace, frame)


def _draw_lines(trace: Trace, frame: Frame) -> Iterator[str]:
    """A line for each part without a gap; short ones of a trace with gaps share a path."""
    line, ink = trace["line"], trace["line"]["color"]
    pieces: list[list[tuple[Any, Any]]] = [[]]
    for x, y in zip(trace["x"], trace["y"], strict=True):
        if x is None or y is None:
            pieces.append([])
        else:
            pieces[-1].append((x, y))
    found = [_steps({**trace, "x": [x for x, _ in one], "y": [y for _, y in one]}, frame) for one in pieces if one]
    ink, width, dash = "currentColor" if ink == QUIET else ink, line.get("width", 2), line.get("dash", "solid")
    faint = f' stroke-opacity="{trace["opacity"]}"' if "opacity" in trace else ""
    if len(found) <= 1:
        yield from (draw_line(places, ink, width, dash, faint) for places in found)
        return
    path = "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places) for places in found)
    yield f'<path d="{path}" fill="none" stroke="{ink}" stroke-width="{width:g}"{faint}/>'


def _draw_intervals(trace: Trace, frame: Frame, letter: str) -> Iterator[str]:
    """The intervals of points in one direction."""
    error = trace[f"error_{letter}"]
    for x, y, more, less in zip(trace["x"], trace["y"], error["array"], error["arrayminus"], strict=True):
        if more or less:
            ends = ((x - less, y), (x + more, y)) if letter == "x" else ((x, y - less), (x, y + more))
            yield draw_line([frame.place(*end) for end in ends], error["color"], 1.5)


def _draw_marks(trace: Trace, frame: Frame) -> Iterator[str]:
    marker, tips = trace["marker"], trace.get("hovertext")
    symbols, sizes, colours = marker.get("symbol", "circle"), marker.get("size", 6), marker["color"]
    faint = f' fill-opacity="{marker["opacity"]}"' if marker.get("opacity", 1) != 1 else ""
    places = [frame.place(x, y) for x, y in zip(trace["x"], trace["y"], strict=True)]
    if symbols == "circle" and isinstance(colours, str) and (not tips or len(places) > MOST_TIPS):
        path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in places)
        round_dots = f'stroke-linecap="round" stroke-width="{sizes:g}"{faint.replace("fill", "stroke")}'
        yield f'<path d="{path}" fill="none" stroke="{colours}" {round_dots}/>'
        return
    is_turned = marker.get("angleref") == "previous"
    for n, at in enumerate(places):
        if _at(sizes, n):
            turn, at = turn_from(places[n - 1], at, marker["standoff"]) if is_turned and n else (0.0, at)
            ink, tip = _at(colours, n), _at(tips, n)
            yield draw_mark(_at(symbols, n), at, _at(sizes, n), ink, tip, more=faint, turn=turn)


def _draw_words(trace: Trace, frame: Frame) -> Iterator[str]:
    """Texts at points, beside their marks if there are any."""
    font, size = trace.get("textfont", {}), trace.get("marker", {}).get("size", 0) if "markers" in trace["mode"] else 0
    for n, (x, y, words) in enumerate(zip(trace["x"], trace["y"], trace["text"], strict=True)):
        if not words:
            continue
        (right, up), (height, side) = frame.place(x, y), _at(trace.get("textposition"), n, "middle center").split()
        away = 4 + _at(size, n) / 2
        right += {"left": -away, "center": 0, "right": away}[side]
        up += {"top": -away - 1, "middle": 4, "bottom": away + 9}[height]
        more = f' font-size="{font["size"]}"' if "size" in font else ""
        weight = _at(font.get("weight"), n)
        more += f' font-weight="{weight}"' if weight in ("bold", 700) else ""
        ink = _at(font.get("color"), n, QUIET)
        tip = draw_text(right, up, words, anchor=ANCHORS[side], ink="currentColor" if ink == QUIET else ink, more=more)
        yield tip


def _draw_shape(shape: Trace, frame: Frame) -> Iterator[str]:
    """A straight line across the plot, with its label at the upper end."""
    x = (
        [frame.x.start, frame.x.end]
        if shape.get("xref") == "paper"
        else [frame.x.place(shape[k]) for k in ("x0", "x1")]
    )
    y = (
        [frame.y.start, frame.y.end]
        if shape.get("yref") == "paper"
        else [frame.y.place(shape[k]) for k in ("y0", "y1")]
    )
    line, words = shape["line"], shape.get("label", {}).get("text", "")
    ink = "currentColor" if line["color"] == QUIET else line["color"]
    yield draw_line(list(zip(x, y, strict=True)), ink, line.get("width", 1), line.get("dash", "solid"))
    if words:
        up = min(y) + (-3 if shape["label"].get("yanchor") == "bottom" else 10)
        yield draw_text(x[1] + 3, up, words, ink=ink, more=' font-size="10"')


def _draw_note(note: Trace, layout: Mapping[str, Any], width: float) -> str:
    """A text at a part of the plot area's width and height."""
    margin = layout["margin"]
    x = margin["l"] + note["x"] * (width - margin["l"] - margin["r"])
    y = margin["t"] + (1 - note["y"]) * (layout["height"] - margin["t"] - margin["b"])
    return draw_text(
        x, y - 4, note["text"], anchor=ANCHORS_AT[note["xanchor"]], more=f' font-size="{note["font"]["size"]}"'
    )


def legend_rows(traces: Sequence[Any]) -> list[list[Trace]]:
    """The traces in the legend, in rows; none if there is one trace."""
    named = [trace for trace in traces if trace["name"] and trace["showlegend"] is not False]
    rows: list[list[Trace]] = [[]]
    left = 0.0
    for trace in named if len(named) > 1 else ():
        wide = 44 + LETTER * len(read_words(trace["name"]))
        if rows[-1] and left + wide > WIDTH - 60:
            rows.append([])
            left = 0.0
        rows[-1].append(trace)
        left += wide
    return rows if rows[0] else []


def _draw_keys(traces: Sequence[Trace], height: float) -> Iterator[str]:
    """The legend below the picture."""
    plain = [{"name": "", "showlegend": None, **trace} for trace in traces]
    rows = legend_rows(plain)
    for n, row in enumerate(rows):
        x, y = 40.0, height - 8 - LINE * (len(rows) - 1 - n)
        for trace in row:
            mode, line, marker = trace.get("mode", "bar"), trace.get("line", {}), trace.get("marker", {})
            if "lines" in mode:
                ink = "currentColor" if line["color"] == QUIET else line["color"]
                yield draw_line([(x, y - 4), (x + 24, y - 4)], ink, line.get("width", 2), line.get("dash", "solid"))
            if "markers" in mode or mode == "bar":
                symbol, ink = _at(marker.get("symbol", "square" if mode == "bar" else "circle"), 0), marker["color"]
                yield draw_mark(symbol, (x + 12, y - 4), min(_at(marker.get("size", 10), -1), 10), _at(ink, -1))
            yield draw_text(x + 30, y, trace["name"])
            x += 44 + LETTER * len(read_words(trace["name"]))
