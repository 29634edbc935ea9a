"""Small charts, each as our own SVG, plotly JSON, a table in HTML and plain text: bars, a timeline of lanes, a curve with marks, source lines with heat, a roofline with levels.

Input: plain numbers and words. Text and grid take JupyterLab's text colour where it is known, else a grey that reads on light and on dark; marks are mid tones. What a colour says is said in
words too.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from workbench.views.shown import Shown, amount, table

WIDTH = 700
COLOURS = ("#2b83c6", "#c0504d", "#3f8f43", "#b8740b", "#8064a2", "#2a9d96", "#8c6d5a", "#c2538f")
QUIET = "#7a7a7a"
ROW = 20
LABELLED = 190  # pixels for the names of bars
LOG = {"type": "log", "minor": {"ticks": "outside", "ticklen": 3, "showgrid": False}}
RATES = {**LOG, "tickformat": "~s"}  # 900G, 1T: with exponentformat alone, ticks between powers of ten read 0.9 x 10^12
INTENSITIES = {**LOG, "tickformat": "~g"}  # 0.5, 100


class Bar(NamedTuple):
    """One bar: its name, its length, what is written at its end, and a word that is shown on pointing at it."""

    label: str
    value: float
    said: str
    tip: str = ""


class Block(NamedTuple):
    """One stretch of a lane of a timeline, in seconds."""

    lane: str
    label: str
    start: float
    length: float
    tip: str
    colour: int = 0


class Heat(NamedTuple):
    """One source line: its number, text, heat from 0 to 1, and what is said beside it."""

    line: int
    text: str
    heat: float
    said: str


class Point(NamedTuple):
    """One point of a roofline: its name, its level, FLOPs per byte of that level, FLOP/s."""

    label: str
    level: str
    intensity: float
    rate: float


def svg(height: float, title: str, described: str, body: Sequence[str], *, size: int = 11) -> str:
    """A drawing with its title and description for those who do not see it."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" role="img" font-family="sans-serif" font-size="{size}" style="max-width:100%;color:var(--jp-ui-font-color1,{QUIET})">'
    return f"{head}<title>{html.escape(title)}</title><desc>{html.escape(described)}</desc>{''.join(body)}</svg>"


def text(x: float, y: float, said: str, *, anchor: str = "start", size: int = 0, more: str = "") -> str:
    """A word in the text's colour."""
    sized = f' font-size="{size}"' if size else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{sized} fill="currentColor"{more}>{html.escape(said)}</text>'


def cut(said: str, length: int) -> str:
    """At most `length` characters, the middle left out."""
    return said if len(said) <= length else f"{said[: length * 2 // 3]}…{said[-(length // 3 - 1) :]}"


def layout(title: str, height: int, **more: Any) -> dict[str, Any]:
    """What all plotly figures share: no background, so that the theme's shows."""
    axis = {"gridcolor": "rgba(128,128,128,.25)", "color": QUIET, "automargin": True}
    made: dict[str, Any] = {"title": {"text": title, "font": {"size": 14}}, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "font": {"color": QUIET}, "height": height, "margin": {"l": 60, "r": 20, "t": 46, "b": 46}}
    return {**made, "xaxis": {**axis, **more.pop("xaxis", {})}, "yaxis": {**axis, **more.pop("yaxis", {})}, **more}


def ticks(limit: float, count: int = 5) -> list[float]:
    """0 and round numbers up to `limit`, about `count` of them."""
    if limit <= 0:
        return [0.0]
    raw = limit / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    return [step * n for n in range(int(limit / step + 1e-9) + 1)]


def page(drawing: str, listed: str) -> str:
    """A drawing with its numbers folded below; on a page it takes the page's own colour of text."""
    inline = drawing.replace(f"var(--jp-ui-font-color1,{QUIET})", "inherit", 1)
    return f'<figure style="margin:0 0 8px">{inline}<details><summary>numbers</summary>{listed}</details></figure>'


def bars(title: str, rows: Sequence[Bar], *, head: tuple[str, str], full: float | None = None, colour: int = 0) -> Shown:
    """Horizontal bars, in the order given; `full` is the length of a whole row (else the longest bar)."""
    whole = full or max((row.value for row in rows), default=0.0) or 1.0
    span = WIDTH - LABELLED - 120
    body = [text(8, 16, title, size=13)]
    for n, row in enumerate(rows):
        y = 28 + n * ROW
        length = max(min(row.value / whole, 1.0) * span, 0.0)
        body.append(text(LABELLED - 8, y + 13, cut(row.label, 32), anchor="end"))
        if full:
            body.append(f'<rect x="{LABELLED}" y="{y + 2}" width="{span}" height="{ROW - 5}" fill="currentColor" fill-opacity=".08"/>')
        body.append(f'<rect x="{LABELLED}" y="{y + 2}" width="{length:.1f}" height="{ROW - 5}" fill="{COLOURS[colour]}"><title>{html.escape(f"{row.label}: {row.said} {row.tip}".strip())}</title></rect>')
        body.append(text(LABELLED + length + 6, y + 13, row.said))
    plain, listed = table(list(head), [[row.label, row.said] for row in rows], title)
    drawing = svg(36 + ROW * len(rows), title, "; ".join(f"{row.label} {row.said}" for row in rows), body)
    figure = {"data": [{"type": "bar", "orientation": "h", "x": [row.value for row in rows], "y": [row.label for row in rows], "text": [row.said for row in rows], "hovertext": [row.tip or row.label for row in rows],
                        "textposition": "auto", "marker": {"color": COLOURS[colour]}}],
              "layout": layout(title, 110 + 24 * len(rows), yaxis={"autorange": "reversed"}, xaxis={"range": [0, full]} if full else {})}  # fmt: skip
    return Shown(plain, html=page(drawing, listed), svg=drawing, plotly=figure)


def lanes(title: str, blocks: Sequence[Block], total: float, note: str = "") -> Shown:
    """Blocks on a lane each, over a common axis of time from 0 to `total` seconds."""
    names = list(dict.fromkeys(block.lane for block in blocks))
    unit, factor = ("ms", 1e3) if total >= 1e-3 else ("µs", 1e6)
    left, span, deep = 90, WIDTH - 90 - 16, 30
    bottom = 32 + deep * len(names)
    body = [text(8, 16, title, size=13)]
    for moment in ticks(total * factor):
        x = left + span * moment / (total * factor) if total else left
        body.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="26" y2="{bottom}" stroke="currentColor" stroke-opacity=".2"/>' + text(x, bottom + 15, f"{moment:g}", anchor="middle"))
    body.append(text(left - 8, bottom + 15, unit, anchor="end"))
    for n, name in enumerate(names):
        body.append(text(left - 8, 32 + n * deep + 18, cut(name, 14), anchor="end"))
    for block in blocks:
        x, wide = left + span * block.start / total if total else left, max(span * block.length / total if total else 0.0, 0.8)
        y = 32 + names.index(block.lane) * deep
        body.append(f'<rect x="{x:.1f}" y="{y + 4}" width="{wide:.1f}" height="{deep - 10}" fill="{COLOURS[block.colour % len(COLOURS)]}" fill-opacity=".85"><title>{html.escape(block.tip)}</title></rect>')
    keys = list({block.label: block.colour for block in blocks}.items())[:6]
    for n, (label, colour) in enumerate(keys):
        body.append(f'<rect x="{left}" y="{bottom + 24 + 15 * n}" width="10" height="10" fill="{COLOURS[colour % len(COLOURS)]}"/>' + text(left + 16, bottom + 33 + 15 * n, cut(label, 90)))
    if note:
        body.append(text(left, bottom + 36 + 15 * len(keys), note))
    plain, listed = table(["lane", "what", "start", "length"], [[b.lane, cut(b.label, 60), f"{b.start * factor:.4g} {unit}", f"{b.length * factor:.4g} {unit}"] for b in blocks[:30]], f"{title}{'; ' + note if note else ''}")
    drawing = svg(bottom + 46 + 15 * len(keys), title, note or f"{len(blocks)} blocks in {len(names)} lanes", body)
    figure = {"data": [{"type": "bar", "orientation": "h", "name": cut(label, 40), "base": [b.start * factor for b in blocks if b.label == label], "x": [b.length * factor for b in blocks if b.label == label],
                        "y": [b.lane for b in blocks if b.label == label], "hovertext": [b.tip for b in blocks if b.label == label], "marker": {"color": COLOURS[colour % len(COLOURS)]}} for label, colour in {b.label: b.colour for b in blocks}.items()],
              "layout": layout(title, 160 + 40 * len(names), barmode="overlay", xaxis={"title": {"text": unit}}, legend={"orientation": "h"})}  # fmt: skip
    return Shown(plain, html=page(drawing, listed), svg=drawing, plotly=figure)


def curve(title: str, points: Sequence[tuple[float, float]], marks: Sequence[tuple[str, float]], *, x: str, y: str, note: str = "") -> Shown:
    """A line through points from (0, 0) on, with named moments."""
    left, top, height = 76, 26, 190
    span = WIDTH - left - 16
    wide, high = max((a for a, _ in points), default=1.0) or 1.0, max((b for _, b in points), default=1.0) or 1.0
    body = [text(8, 16, title, size=13)]
    for number in ticks(high, 4):
        level = top + height * (1 - number / high)
        body.append(f'<line x1="{left}" x2="{left + span}" y1="{level:.1f}" y2="{level:.1f}" stroke="currentColor" stroke-opacity=".2"/>' + text(left - 6, level + 4, f"{number:,g}", anchor="end"))
    body += [text(left + span * moment / wide, top + height + 15, f"{moment:g}", anchor="middle") for moment in ticks(wide)]
    for n, (name, when) in enumerate(marks):
        at = left + span * when / wide
        body.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{top + height}" stroke="currentColor" stroke-opacity=".5" stroke-dasharray="2 3"/>' + text(at + 3, top + 12 + 13 * (n % 3), name, size=10))
    path = " ".join(f"{left + span * a / wide:.1f},{top + height * (1 - b / high):.1f}" for a, b in points)
    body.append(f'<polyline fill="none" stroke="{COLOURS[0]}" stroke-width="2" points="{path}"/>')
    body += [text(left + span / 2, top + height + 31, x, anchor="middle"), text(0, 0, y, anchor="middle", more=f' transform="translate(14 {top + height / 2:.0f}) rotate(-90)"')]
    if note:
        body.append(text(left, top + height + 48, note))
    plain, listed = table([x, y], [[f"{a:.4g}", f"{b:.4g}"] for a, b in points[:: max(1, len(points) // 12)]], f"{title}{'; ' + note if note else ''}")
    drawing = svg(top + height + 56, title, note, body)
    shapes = [{"type": "line", "x0": when, "x1": when, "y0": 0, "y1": 1, "yref": "paper", "line": {"dash": "dot", "color": QUIET}} for _, when in marks]
    notes = [{"x": when, "y": 1, "yref": "paper", "text": name, "showarrow": False, "xanchor": "left"} for name, when in marks]
    figure = {"data": [{"type": "scatter", "mode": "lines", "x": [a for a, _ in points], "y": [b for _, b in points], "line": {"color": COLOURS[0]}}],
              "layout": layout(title, 340, xaxis={"title": {"text": x}}, yaxis={"title": {"text": y}}, shapes=shapes, annotations=notes)}  # fmt: skip
    return Shown(plain, html=page(drawing, listed), svg=drawing, plotly=figure)


def heat(title: str, rows: Sequence[Heat]) -> Shown:
    """Source lines in their order, each on a ground as strong as its heat, with its number and what is said of it."""
    body = [text(8, 16, title, size=13)]
    for n, row in enumerate(rows):
        y = 26 + n * 17
        body.append(f'<rect x="8" y="{y}" width="{WIDTH - 16}" height="17" fill="{COLOURS[1]}" fill-opacity="{0.55 * min(max(row.heat, 0.0), 1.0):.2f}"/>')
        body.append(text(38, y + 12, str(row.line), anchor="end", size=10) + text(46, y + 12, cut(row.text, 70), size=11, more=' font-family="monospace" xml:space="preserve"'))
        body.append(text(WIDTH - 14, y + 12, cut(row.said, 44), anchor="end", size=10))
    plain, listed = table(["line", "heat", "source", "why"], [[row.line, "█" * round(8 * row.heat) or "·", row.text[:70], row.said] for row in rows], title)
    drawing = svg(36 + 17 * len(rows), title, "; ".join(f"line {row.line}: {row.said}" for row in sorted(rows, key=lambda row: -row.heat)[:5]), body)
    figure = {"data": [{"type": "bar", "orientation": "h", "x": [row.heat for row in rows], "y": [f"{row.line}: {cut(row.text, 60)}" for row in rows], "hovertext": [row.said for row in rows], "marker": {"color": COLOURS[1]}}],
              "layout": layout(title, 110 + 20 * len(rows), yaxis={"autorange": "reversed", "tickfont": {"family": "monospace", "size": 11}})}  # fmt: skip
    return Shown(plain, html=page(drawing, listed), svg=drawing, plotly=figure)


MARKS = ("circle", "square", "diamond", "triangle-up")


OUTLINES = {"circle": "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0 -11 0Z", "square": "M-5 -5h10v10h-10Z", "diamond": "M0 -7l7 7l-7 7l-7 -7Z", "triangle-up": "M0 -7l7 12h-14Z"}


def _mark(kind: str, x: float, y: float, colour: str, tip: str) -> str:
    return f'<path d="{OUTLINES[kind]}" transform="translate({x:.1f} {y:.1f})" fill="{colour}"><title>{html.escape(tip)}</title></path>'


def levels(title: str, points: Sequence[Point], roofs: Sequence[tuple[str, float, str]], peaks: Sequence[tuple[str, float, str]]) -> Shown:
    """A roofline with a slope for each memory level: `roofs` are (level, bytes/s, where from), `peaks` (name, FLOP/s, where from); a point has its level's colour and mark."""
    order = list(dict.fromkeys([*(name for name, _, _ in roofs), *(point.level for point in points)]))
    top = max(peak for _, peak, _ in peaks)
    xs = [point.intensity for point in points] + [top / rate for _, rate, _ in roofs]
    x0, x1 = math.floor(math.log10(min(xs))) - 0.2, math.ceil(math.log10(max(xs))) + 0.6
    ys = [point.rate for point in points]
    y0, y1 = math.floor(math.log10(min(ys))) - 0.3, math.ceil(math.log10(top)) + 0.1
    left, right, high, low = 66, 16, 28, 300

    def at(a: float, b: float) -> tuple[float, float]:
        return left + (math.log10(a) - x0) / (x1 - x0) * (WIDTH - left - right), low - (min(max(math.log10(b), y0), y1) - y0) / (y1 - y0) * (low - high)

    body = [text(8, 16, title, size=13)]
    for power in range(math.ceil(x0), math.floor(x1) + 1):
        x = at(10.0**power, 1.0)[0]
        body.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{high}" y2="{low}" stroke="currentColor" stroke-opacity=".2"/>' + text(x, low + 15, f"{10.0**power:g}", anchor="middle"))
    for power in range(math.ceil(y0), math.floor(y1) + 1):
        y = at(10.0**x0, 10.0**power)[1]
        body.append(f'<line x1="{left}" x2="{WIDTH - right}" y1="{y:.1f}" y2="{y:.1f}" stroke="currentColor" stroke-opacity=".2"/>' + text(left - 6, y + 4, amount(10.0**power), anchor="end"))
    for name, rate, source in roofs:
        begin = max(10.0**x0, 10.0**y0 / rate)
        (xa, ya), (xb, yb) = at(begin, begin * rate), at(top / rate, top)
        body.append(f'<line x1="{xa:.1f}" y1="{ya:.1f}" x2="{xb:.1f}" y2="{yb:.1f}" stroke="{COLOURS[order.index(name) % len(COLOURS)]}" stroke-width="2"><title>{html.escape(f"{name} {amount(rate)}B/s ({source})")}</title></line>')
    for name, peak, source in peaks:
        (xa, ya), (xb, _) = at(peak / max(rate for _, rate, _ in roofs) if roofs else 10.0**x0, peak), at(10.0**x1, peak)
        body.append(f'<line x1="{xa:.1f}" x2="{xb:.1f}" y1="{ya:.1f}" y2="{ya:.1f}" stroke="currentColor" stroke-width="1.5"><title>{html.escape(f"{name} {amount(peak)}FLOP/s ({source})")}</title></line>' + text(xb - 2, ya - 4, f"{name} {amount(peak)}FLOP/s", anchor="end", size=10))
    for point in points:
        n = order.index(point.level)
        x, y = at(point.intensity, point.rate)
        body.append(_mark(MARKS[n % len(MARKS)], x, y, COLOURS[n % len(COLOURS)], f"{point.label}, {point.level}: {point.intensity:.3g} FLOP/B, {amount(point.rate)}FLOP/s"))
    for n, name in enumerate(order):
        known = next(((rate, source) for level, rate, source in roofs if level == name), None)
        said = f"{name}: {amount(known[0])}B/s ({known[1]})" if known else f"{name}: no ceiling is known; cutegen calibrate measures it"
        x, y = 80 + (n % 2) * 310, low + 48 + 16 * (n // 2)
        body.append(_mark(MARKS[n % len(MARKS)], x, y - 4, COLOURS[n % len(COLOURS)], name) + text(x + 12, y, said))
    body += [text(WIDTH / 2, low + 30, "FLOP per byte of each level", anchor="middle"), text(0, 0, "FLOP/s", anchor="middle", more=f' transform="translate(14 {(low + high) / 2:.0f}) rotate(-90)"')]
    plain, listed = table(["kernel", "level", "FLOP per byte", "rate", "of the level's roof"], [[p.label, p.level, f"{p.intensity:.3g}", amount(p.rate) + "FLOP/s", _share(p, roofs, top)] for p in points], title)
    drawing = svg(low + 58 + 16 * ((len(order) - 1) // 2), title, "; ".join(f"{p.label} at {p.level}: {p.intensity:.3g} FLOP/B, {amount(p.rate)}FLOP/s" for p in points), body)
    data: list[dict[str, Any]] = [{"type": "scatter", "mode": "lines", "name": f"{name} {amount(rate)}B/s ({source})", "x": [10.0**x0, top / rate], "y": [10.0**x0 * rate, top], "line": {"color": COLOURS[order.index(name) % len(COLOURS)]}} for name, rate, source in roofs]
    data += [{"type": "scatter", "mode": "lines", "name": f"{name} ({source})", "x": [10.0**x0, 10.0**x1], "y": [peak, peak], "line": {"color": QUIET}} for name, peak, source in peaks]
    data += [{"type": "scatter", "mode": "markers", "name": f"{level}", "x": [p.intensity for p in points if p.level == level], "y": [p.rate for p in points if p.level == level], "hovertext": [p.label for p in points if p.level == level],
              "marker": {"symbol": MARKS[n % len(MARKS)], "size": 11, "color": COLOURS[n % len(COLOURS)]}} for n, level in enumerate(order)]  # fmt: skip
    figure = {"data": data, "layout": layout(title, 400, xaxis={**INTENSITIES, "title": {"text": "FLOP per byte of each level"}}, yaxis={**RATES, "title": {"text": "FLOP/s"}}, legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}, margin={"l": 60, "r": 20, "t": 46, "b": 120})}
    return Shown(plain, html=page(drawing, listed), svg=drawing, plotly=figure)


def _share(point: Point, roofs: Sequence[tuple[str, float, str]], top: float) -> str:
    rate = next((rate for level, rate, _ in roofs if level == point.level), None)
    return f"{point.rate / min(rate * point.intensity, top):.0%}" if rate else "—"
