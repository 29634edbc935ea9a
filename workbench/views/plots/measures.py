"""The measures behind an advice: a bar each, with its limit as a mark; as SVG and as text."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.probes.directives import describe_measure, format_measure
from workbench.records import Measure
from workbench.views.plots import svg

LEFT, SPAN = 210, 300  # pixels of the names and of the longest bar
CELLS = 24  # characters of the longest bar
PASSED, WITHIN = svg.COLOURS[1], svg.COLOURS[0]


def _whole(measure: Measure) -> float:
    """The value of a whole row: 1 for a share, else a little more than the value and the limit."""
    if measure.unit == "%":
        return 1.0
    return 1.15 * max(measure.value, measure.limit or 0.0) or 1.0


def _note(measure: Measure) -> str:
    return describe_measure(measure).removeprefix(f"{measure.name} ")


def draw_measures(measures: Sequence[Measure]) -> str:
    """An SVG drawing with a bar for each measure and a mark at its limit; "" without measures."""
    if not measures:
        return ""
    body = []
    for n, measure in enumerate(measures):
        y, whole = 2 + n * svg.ROW, _whole(measure)
        length = SPAN * min(max(measure.value / whole, 0.0), 1.0)
        row = f'x="{LEFT}" y="{y + 3}" height="{svg.ROW - 7}"'
        body.append(svg.draw_text(0, y + 14, svg.shorten(measure.name, 36)))
        body.append(f'<rect {row} width="{SPAN}" fill="currentColor" fill-opacity=".1"/>')
        tip = f"{measure.name}: {_note(measure)}"
        body.append(svg.draw_titled(f'rect {row} width="{length:.1f}" fill="{WITHIN}"', tip))
        if measure.limit is not None:
            at = LEFT + SPAN * min(measure.limit / whole, 1.0)
            mark = f' stroke="{PASSED}" stroke-width="3"'
            body.append(
                f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y}" y2="{y + svg.ROW - 1}"{mark}>'
                f"<title>limit {format_measure(measure.limit, measure.unit)}</title></line>"
            )
        body.append(svg.draw_text(LEFT + SPAN + 8, y + 14, _note(measure)))
    described = "; ".join(f"{measure.name} {_note(measure)}" for measure in measures)
    return svg.draw_svg(4 + svg.ROW * len(measures), "the counters behind the advice", described, body, size=12)


def write_measures(measures: Sequence[Measure]) -> list[str]:
    """A line of text for each measure: its bar with a mark (|) at its limit, and the numbers."""
    wide = max((len(measure.name) for measure in measures), default=0)
    return [f"{measure.name.ljust(wide)}  {_bar(measure)}  {_note(measure)}" for measure in measures]


def _bar(measure: Measure) -> str:
    whole = _whole(measure)
    filled = round(CELLS * min(max(measure.value / whole, 0.0), 1.0))
    cells = ["█"] * filled + ["·"] * (CELLS - filled)
    if measure.limit is not None:
        cells[min(round(CELLS * min(measure.limit / whole, 1.0)), CELLS - 1)] = "|"
    return "".join(cells)
