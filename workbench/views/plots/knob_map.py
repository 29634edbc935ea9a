"""Draws what the two knobs of a mini-batch do, a heat map over (mix, p) for each measure, with a table of all results.

In each map the full colour is the best cell and the pale one the worst; the number stands in the cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from workbench.errors import UserError
from workbench.records import record
from workbench.views.figures import objects as go
from workbench.views.figures.describe import make_cells, make_figure, show
from workbench.views.figures.style import MEASURED, PALE
from workbench.views.text.mime_bundle import MimeBundle, format_amount, format_seconds, render_table

if TYPE_CHECKING:
    from workbench.graphs.study import Studied
    from workbench.graphs.training import Result

SCALE = ((0.0, PALE), (1.0, MEASURED))
CELL_HEIGHT, HEAD_HEIGHT, AXIS_HEIGHT = 26, 26, 40  # pixels of a row, and above and below a map


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
    """The maps, and all results as text and HTML. Raises `UserError` without a pair."""
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
    place = ", features in the host's memory" * (first.training.features == "host")
    epochs = f"{first.training.epochs} epoch{'s' * (first.training.epochs != 1)}"
    title = f"{first.graph}, {first.training.model}, {epochs} on {first.device}{place}: mix and p"
    kib = studied.study.cache_kib
    cache = f"cache of {kib >> 10} MiB" if kib and not kib % 1024 else f"cache of {kib} KiB"
    parts = [f"mean of {seeds} seed{'s' * (seeds > 1)}", cache, studied.recorded, "the full colour is the best"]
    note = "; ".join(part for part in parts if part)
    text, page = _table(studied.results, f"{title}; {note}")
    labels = [f"{value:g}" for value in columns], [f"{value:g}" for value in rows]
    described = "; ".join(
        f"{panel.knob.name}: {panel.knob.write(panel.values[0][0])} at mix {labels[0][0]}, p {labels[1][0]}, "
        f"{panel.knob.write(panel.values[-1][-1])} at mix {labels[0][-1]}, p {labels[1][-1]}"
        for panel in panels
    )
    return show(_make_figure(f"{title}\n{note}", *labels, panels), text, page, described)


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


def _make_figure(title: str, columns: list[str], rows: list[str], panels: Sequence[Panel]) -> go.Figure:
    """Maps beside and below each other, each with axes of its own; plotly's rows count from below."""
    across = 2 if len(columns) <= 5 else 1
    high = HEAD_HEIGHT + CELL_HEIGHT * len(rows) + AXIS_HEIGHT
    whole = high * -(-len(panels) // across)
    traces: list[Any] = []
    axes: dict[str, Any] = {}
    heads: list[dict[str, object]] = []
    for number, panel in enumerate(panels):
        mark = str(number + 1) if number else ""
        left, top = (number % across) * 0.54, whole - high * (number // across) - HEAD_HEIGHT
        up = [(top - CELL_HEIGHT * len(rows)) / whole, top / whole]
        look = {"type": "category", "showgrid": False}
        sides = {"domain": [left, left + (0.46 if across == 2 else 1.0)], "title": {"text": "mix"}}
        axes[f"xaxis{mark}"] = {**look, "anchor": f"y{mark}", **sides}
        axes[f"yaxis{mark}"] = {**look, "anchor": f"x{mark}", "domain": up, "title": {"text": "p"}}
        lines, name = panel.values[::-1], panel.knob.name
        written = [[panel.knob.write(value) for value in line] for line in lines]
        tips = [
            [f"{name}: {said} at mix {mix}, p {p}" for mix, said in zip(columns, line, strict=True)]
            for p, line in zip(rows[::-1], written, strict=True)
        ]
        z = [[panel.goodness(value) for value in line] for line in lines]
        traces += make_cells(
            (columns, rows[::-1]), z, (written, tips), SCALE, showscale=False, xaxis=f"x{mark}", yaxis=f"y{mark}"
        )
        head = {"text": name, "font": {"size": 12}, "showarrow": False, "xref": "paper", "yref": "paper"}
        heads.append({**head, "x": left, "xanchor": "left", "y": up[1], "yanchor": "bottom"})
    return make_figure(title, traces, height=whole, annotations=heads, **axes)
