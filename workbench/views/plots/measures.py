"""The measures behind an advice: a bar each, with its limit as a mark; as SVG and as text."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.probes.directives import describe_measure, format_measure
from workbench.records import Measure
from workbench.views.figures import objects as go
from workbench.views.figures.describe import NO_AXIS, ROW, escape, make_figure, make_whole_bars
from workbench.views.figures.static import draw_static
from workbench.views.figures.style import COLOURS, shorten

CELLS = 24  # characters of the longest bar


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
    names = escape([shorten(measure.name, 36) for measure in measures])
    notes = [_note(measure) for measure in measures]
    bars = go.Bar(
        orientation="h",
        x=[min(max(measure.value / _whole(measure), 0.0), 1.0) for measure in measures],
        y=names,
        width=0.7,
        hovertext=escape([f"{measure.name}: {note}" for measure, note in zip(measures, notes, strict=True)]),
        marker={"color": COLOURS[0]},
    )
    limited = [(name, measure) for name, measure in zip(names, measures, strict=True) if measure.limit is not None]
    limits = go.Scatter(
        mode="markers",
        x=[min((measure.limit or 0.0) / _whole(measure), 1.0) for _, measure in limited],
        y=[name for name, _ in limited],
        hovertext=[f"limit {format_measure(measure.limit or 0.0, measure.unit)}" for _, measure in limited],
        marker={"symbol": "line-ns-open", "size": ROW - 2, "color": COLOURS[1]},
    )
    figure = make_figure(
        "",
        [make_whole_bars(names, notes), bars, limits],
        height=ROW * len(measures),
        xaxis={**NO_AXIS, "range": [0, 1]},
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False},
        right=200,
    )
    return draw_static(figure, describe_measures(measures))


def describe_measures(measures: Sequence[Measure]) -> str:
    """What a drawing of measures shows, in words."""
    return "the counters behind the advice: " + "; ".join(map(describe_measure, measures))


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
