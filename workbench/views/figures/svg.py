"""Elements of SVG: texts, lines, marks and the picture around them, with words for screen readers and tooltips."""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Sequence

from workbench.views.figures.style import DASHES, QUIET

Place = tuple[float, float]
PATHS = {  # symbols of radius 1 around (0, 0); "circle" and "square" have elements of their own
    "diamond": "M0-1.3L1.3 0L0 1.3L-1.3 0Z",
    "triangle-up": "M0-1.3L1.2.9H-1.2Z",
    "star": "M0-1.4L.36-.46L1.36-.44L.56.18L.84 1.16L0 .58L-.84 1.16L-.56.18L-1.36-.44L-.36-.46Z",
    "x": "M-.8-.8L.8.8M-.8.8L.8-.8",
    "circle-x": "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0M-.7-.7L.7.7M-.7.7L.7-.7",
    "circle-dot": "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0M0-.1V.1",
    "line-ns": "M0-1V1",
    "arrow": "M0 0L-.8 2H.8Z",
}
STROKED = ("x", "circle-x", "circle-dot", "line-ns")  # symbols that are lines


def draw_picture(size: Place, title: str, described: str, body: Sequence[str]) -> str:
    """An SVG picture with a title and a description. Text has JupyterLab's text colour if it is known."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]:.0f} {size[1]:.0f}" width="{size[0]:.0f}" '
        'role="img" font-family="sans-serif" font-size="11" '
        f'style="max-width:100%;color:var(--jp-ui-font-color1,{QUIET})">'
    )
    return f"{head}<title>{html.escape(title)}</title><desc>{html.escape(described)}</desc>{''.join(body)}</svg>"


def inline_svg(drawing: str) -> str:
    """A drawing for a page. Its text inherits the colour of the page."""
    return drawing.replace(f"var(--jp-ui-font-color1,{QUIET})", "inherit", 1)


def as_image(drawing: str, words: str) -> str:
    """A drawing as an image for HTML in a notebook: of an inline one, an untrusted notebook keeps only the texts.

    It sees nothing of the page, so its text has a colour that can be read on light and dark. `words` say what it shows.
    """
    data = base64.b64encode(drawing.encode()).decode()
    return f'<img style="max-width:100%" alt="{html.escape(words)}" src="data:image/svg+xml;base64,{data}">'


def draw_text(
    x: float, y: float, words: str, *, anchor: str = "start", ink: str = "currentColor", more: str = ""
) -> str:
    """A text; `words` are as plotly reads them, with entities and <br>."""
    placed = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{ink}"{more}'
    first, *lines = read_words(words).split("\n")
    rest = "".join(f'<tspan x="{x:.1f}" dy="1.2em">{html.escape(line)}</tspan>' for line in lines)
    return f"<text {placed}>{html.escape(first)}{rest}</text>"


def read_words(words: str) -> str:
    """What plotly shows for a text: entities and line breaks."""
    return html.unescape(re.sub(r"<br\s*/?>", "\n", words))


def draw_titled(tag: str, tip: str) -> str:
    """An element with a tooltip, if there is one. `tag` is the text between < and >."""
    return f"<{tag}><title>{html.escape(read_words(tip))}</title></{tag.partition(' ')[0]}>" if tip else f"<{tag}/>"


def draw_line(places: Sequence[Place], ink: str, width: float = 1.0, dash: str = "solid", more: str = "") -> str:
    """A line through pixels."""
    dashed = f' stroke-dasharray="{DASHES[dash]}"' if DASHES[dash] else ""
    style = f'stroke="{ink}" stroke-width="{width:g}"{dashed}{more}'
    if len(places) == 2:
        (x1, y1), (x2, y2) = places
        return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" {style}/>'
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline fill="none" points="{points}" {style}/>'


def draw_mark(
    symbol: str, at: Place, size: float, ink: str, tip: str = "", *, more: str = "", turn: float = 0.0
) -> str:
    """A symbol of plotly's; those that end with -open are not filled."""
    name, is_open = symbol.replace("-open", ""), "-open" in symbol
    (x, y), half = at, size / 2
    filled = f'fill="{ink}"' if not is_open and name not in STROKED else f'fill="none" stroke="{ink}" stroke-width="2"'
    if name == "circle":
        return draw_titled(f'circle cx="{x:.1f}" cy="{y:.1f}" r="{half:g}" {filled}{more}', tip)
    if name == "square":
        box = f'x="{x - half:.1f}" y="{y - half:.1f}" width="{size:g}" height="{size:g}"'
        return draw_titled(f"rect {box} {filled}{more}", tip)
    turned = f" rotate({turn:.0f})" if turn else ""
    moved = f'transform="translate({x:.1f} {y:.1f}){turned} scale({half:g})" vector-effect="non-scaling-stroke"'
    return draw_titled(f'path d="{PATHS[name]}" {moved} {filled}{more}', tip)


def turn_from(before: Place, at: Place, away: float) -> tuple[float, Place]:
    """An arrow from one pixel to another: the angle in degrees from upwards, and the place of its tip, `away` pixels
    before its end.
    """
    right, down = at[0] - before[0], at[1] - before[1]
    share = away / max(math.hypot(right, down), away)
    return math.degrees(math.atan2(right, -down)), (at[0] - share * right, at[1] - share * down)
