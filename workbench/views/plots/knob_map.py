"""Draws what the two knobs of a mini-batch do, a heat map over (mix, p) for each measure, with a table of all results.

In each map the full colour is the best cell and the pale one the worst; the number stands in the cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from workbench.errors import UserError
from workbench.records import record
from workbench.views.plots.colours import blend, readable_ink
from workbench.views.plots.heat_map import PALE
from workbench.views.plots.roofline import MEASURED
from workbench.views.plots.svg import QUIET, WIDTH, draw_svg, draw_text, draw_titled, figure_layout, html_figure
from workbench.views.text.mime_bundle import MimeBundle, format_amount, format_seconds, render_table

if TYPE_CHECKING:
    from workbench.graphs.study import Studied
    from workbench.graphs.training import Result

CELL_HEIGHT, TITLE_HEIGHT, AXIS_HEIGHT = 26, 40, 34
LEFT = 52  # pixels for the values of p


@record
class Knob:
    """A measure: its name with where it is from, how a result gives it, whether more is better, how it is written."""

    name: str
    value: Callable[[Result], float | None]
    is_rising: bool
    write: Callable[[float], str]


KNOBS = (
    Knob(
        name="unique rows a batch (counted)",
        value=lambda result: result.locality.unique_rows,
        is_rising=False,
        write=format_amount,
    ),
    Knob(
        name="feature bytes a batch (counted)",
        value=lambda result: result.locality.feature_bytes,
        is_rising=False,
        write=lambda count: f"{format_amount(count)}B",
    ),
    Knob(
        name="hit rate (cache model)",
        value=lambda result: result.locality.hit_rate,
        is_rising=True,
        write=lambda share: f"{share:.1%}",
    ),
    Knob(
        name="time of an epoch (measured)", value=lambda result: result.epoch_s, is_rising=False, write=format_seconds
    ),
    Knob(
        name="validation accuracy (all neighbours)",
        value=lambda result: result.val,
        is_rising=True,
        write=lambda share: f"{share:.2%}",
    ),
)


@record
class Panel:
    """The map of one measure: `values` by row (p, the highest first) and column (mix, the lowest first)."""

    knob: Knob
    values: tuple[tuple[float, ...], ...]

    def goodness(self, value: float) -> float:
        """0 for the worst cell and 1 for the best; 1 if all are equal."""
        low, high = (chosen(map(chosen, self.values)) for chosen in (min, max))
        share = (value - low) / (high - low) if high > low else 1.0
        return share if self.knob.is_rising or high == low else 1 - share


def draw_knobs(studied: Studied) -> MimeBundle:
    """The maps as SVG and plotly JSON, and all results as text and HTML. Raises `UserError` without a pair."""
    pairs: dict[tuple[float, float], list[Result]] = {}
    for result in studied.results:
        if result.policy.name == "comm-rand":
            pairs.setdefault((result.policy.mix, result.policy.p), []).append(result)
    if not pairs:
        raise UserError("no pair of mix and p was measured: give --mix and --p")
    columns, rows = sorted({mix for mix, _ in pairs}), sorted({p for _, p in pairs}, reverse=True)
    panels = [panel for knob in KNOBS if (panel := _make_panel(knob, pairs, columns, rows)) is not None]
    first = studied.results[0]
    seeds = len({result.policy.seed for result in studied.results})
    title = f"{first.graph}, {first.training.model}, {first.training.epochs} epochs on {first.device}: mix and p"
    note = (
        f"mean of {seeds} seed{'s' * (seeds > 1)}; cache of {studied.study.cache_kib} KiB; the full colour is the best"
    )
    text, page = _table(studied.results, f"{title}; {note}")
    labels = [f"{value:g}" for value in columns], [f"{value:g}" for value in rows]
    drawing = _draw_svg(title, note, *labels, panels)
    return MimeBundle(
        text,
        html=html_figure(drawing, page),
        svg=drawing,
        plotly=_make_figure(title, note, *labels, panels),
    )


def _make_panel(
    knob: Knob, pairs: dict[tuple[float, float], list[Result]], columns: list[float], rows: list[float]
) -> Panel | None:
    """The panel of a measure; None if it was not taken."""
    cells = {at: [knob.value(result) for result in found] for at, found in pairs.items()}
    if any(value is None for found in cells.values() for value in found):
        return None
    means = {at: fmean(value for value in found if value is not None) for at, found in cells.items()}
    return Panel(knob=knob, values=tuple(tuple(means[mix, p] for mix in columns) for p in rows))


def _table(results: Sequence[Result], caption: str) -> tuple[str, str]:
    head = ["policy", "mix", "p", "seed", "unique rows", "bytes", "inside", "label bits", "hit rate"]
    head += ["epoch", "drawing", "validation", "test", "converged"]
    return render_table(head, [_cells(result) for result in results], caption)


def _cells(result: Result) -> list[str]:
    policy, found = result.policy, result.locality
    mix, p = (f"{knob:g}" for knob in policy.knobs) if policy.knobs else ("", f"{policy.p:g}")
    if policy.name in ("labor", "cluster-gcn"):
        p = ""
    cells = [policy.name, mix, p, str(policy.seed), f"{found.unique_rows:.0f}", f"{found.feature_bytes:.0f}"]
    cells += [f"{found.inside_share:.1%}", f"{found.label_bits:.2f}", f"{found.hit_rate:.1%}"]
    cells += [format_seconds(result.epoch_s), format_seconds(result.sample_s)]
    cells += ["—" if share is None else f"{share:.2%}" for share in (result.val, result.test)]
    reached = result.converged
    return [*cells, f"epoch {reached[0]}, {format_seconds(reached[1])}" if reached else "—"]


def _draw_svg(title: str, note: str, columns: list[str], rows: list[str], panels: Sequence[Panel]) -> str:
    across = 2 if len(columns) <= 5 else 1
    wide = (WIDTH - 20 * (across - 1)) / across
    high = TITLE_HEIGHT + CELL_HEIGHT * len(rows) + AXIS_HEIGHT
    body = [draw_text(4, 16, title, size=13), draw_text(4, 32, note)]
    for number, panel in enumerate(panels):
        left, top = (wide + 20) * (number % across), 40 + high * (number // across)
        body.append(_draw_panel(panel, left, top, wide, columns, rows))
    described = "; ".join(
        f"{panel.knob.name}: {panel.knob.write(panel.values[0][0])} at mix {columns[0]}, p {rows[0]}, "
        f"{panel.knob.write(panel.values[-1][-1])} at mix {columns[-1]}, p {rows[-1]}"
        for panel in panels
    )
    return draw_svg(44 + high * -(-len(panels) // across), title, described, body)


def _draw_panel(panel: Panel, left: float, top: float, wide: float, columns: list[str], rows: list[str]) -> str:
    out = [draw_text(left + 4, top + 20, panel.knob.name, size=12)]
    cell = (wide - LEFT) / len(columns)
    for j, (p, line) in enumerate(zip(rows, panel.values, strict=True)):
        y = top + TITLE_HEIGHT - 10 + CELL_HEIGHT * j
        out.append(draw_text(left + LEFT - 6, y + 17, f"p {p}", anchor="end"))
        for i, value in enumerate(line):
            shade, x = blend(panel.goodness(value), MEASURED, PALE), left + LEFT + cell * i
            box = f'rect x="{x:.1f}" y="{y}" width="{cell - 2:.1f}" height="{CELL_HEIGHT - 2}" fill="{shade}"'
            tip = f"{panel.knob.name}: {panel.knob.write(value)} at mix {columns[i]}, p {p}"
            out.append(draw_titled(box, tip))
            ink = f' style="fill:{readable_ink(shade)};pointer-events:none"'
            out.append(draw_text(x + cell / 2 - 1, y + 16, panel.knob.write(value), anchor="middle", more=ink))
    below = top + TITLE_HEIGHT + CELL_HEIGHT * len(rows) + 6
    out += [
        draw_text(left + LEFT + cell * (i + 0.5) - 1, below, f"mix {mix}", anchor="middle")
        for i, mix in enumerate(columns)
    ]
    return "".join(out)


def _make_figure(
    title: str, note: str, columns: list[str], rows: list[str], panels: Sequence[Panel]
) -> dict[str, object]:
    """Maps below each other, each with axes of its own; plotly's rows count from below."""
    count = len(panels)
    high = 1 / count
    data: list[dict[str, object]] = []
    axes: dict[str, object] = {}
    written: list[dict[str, object]] = []
    for number, panel in enumerate(panels):
        mark = str(number + 1) if number else ""
        upper = 1 - number * high
        domain = [upper - high + 0.32 * high, upper - 0.14 * high]
        look = {"type": "category", "color": QUIET, "showgrid": False}
        axes[f"xaxis{mark}"] = {**look, "anchor": f"y{mark}", "title": {"text": "mix", "standoff": 2}}
        axes[f"yaxis{mark}"] = {**look, "anchor": f"x{mark}", "domain": domain, "title": {"text": "p"}}
        lines = panel.values[::-1]
        data.append(
            {
                "type": "heatmap",
                "xaxis": f"x{mark}",
                "yaxis": f"y{mark}",
                "x": columns,
                "y": rows[::-1],
                "z": [[panel.goodness(value) for value in line] for line in lines],
                "zmin": 0,
                "zmax": 1,
                "colorscale": [[0, PALE], [1, MEASURED]],
                "showscale": False,
                "xgap": 1,
                "ygap": 1,
                "text": [[panel.knob.write(value) for value in line] for line in lines],
                "hovertemplate": f"mix %{{x}}, p %{{y}}: %{{text}}<extra>{panel.knob.name}</extra>",
            }
        )
        head = {"text": panel.knob.name, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0}
        written.append({**head, "y": domain[1], "yanchor": "bottom", "font": {"color": QUIET, "size": 12}})
        for j, line in enumerate(lines):
            for i, value in enumerate(line):
                ink = {"color": readable_ink(blend(panel.goodness(value), MEASURED, PALE)), "size": 11}
                at = {"x": i, "y": j, "xref": f"x{mark}", "yref": f"y{mark}", "showarrow": False}
                written.append({**at, "text": panel.knob.write(value), "font": ink})
    layout = figure_layout(f"{title}<br>{note}", 90 + count * (96 + 26 * len(rows)))
    return {"data": data, "layout": layout | axes | {"annotations": written, "margin": {"t": 60, "l": 60, "b": 10}}}
