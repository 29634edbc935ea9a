"""Joules of a call against its time, for the versions of a session, with the Pareto front: plotly JSON, SVG, HTML table
and plain text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from workbench.analysis import devices, energy_model
from workbench.records import Provenance, Version, record
from workbench.session import Session
from workbench.views.plots.svg import (
    COLOURS,
    QUIET,
    WIDTH,
    draw_horizontal_rule,
    draw_svg,
    draw_text,
    draw_titled,
    draw_vertical_rule,
    figure_layout,
    html_figure,
)
from workbench.views.text.mime_bundle import MimeBundle, format_joules, format_seconds, render_table

LEFT, RIGHT, TOP, BOTTOM = 78, WIDTH - 24, 34, 330  # pixels of the plot area
POINT, FRONT = COLOURS[0], COLOURS[1]
MARGIN = 0.12  # of the range, on each side of an axis
TICKS = 5


@record
class EnergyPoint:
    """A correct version: seconds and joules of a call, of one provenance, with the interval of the joules."""

    version: int
    title: str
    seconds: float
    joules: float
    low_joules: float
    high_joules: float
    provenance: Provenance
    accepted: bool | None

    @property
    def tip(self) -> str:
        """Its numbers in words."""
        return (
            f"v{self.version} {self.title}: {format_seconds(self.seconds)}, {format_joules(self.joules)} "
            f"({format_joules(self.low_joules)} to {format_joules(self.high_joules)}), {self.provenance}"
        )


def plot_energy(session: Session) -> MimeBundle:
    """Energy against time of the session's versions. Measured ones if there are any, else modelled ones: never both."""
    points = find_points(session.versions, session.device)
    if not points:
        return MimeBundle(explain_no_point(session.versions))
    title = f"Energy against time, {session.problem.name} on {session.device} ({points[0].provenance})"
    return draw_points(points, title, f"joules of one call, {_explain_intervals(session, points)}")


def draw_points(points: Sequence[EnergyPoint], title: str, note: str) -> MimeBundle:
    """Points of one provenance, at least one, and their Pareto front."""
    front = find_front(points)
    text, page = _table(points, front, f"{title}; {note}")
    drawing = _draw(points, front, title)
    return MimeBundle(text, html=html_figure(drawing, page), svg=drawing, plotly=_make_figure(points, front, title))


def find_points(versions: Sequence[Version], device: str) -> tuple[EnergyPoint, ...]:
    """A point for each correct version whose time and energy are both measured on the device; without any, both
    modelled.
    """
    tested = [version for version in versions if version.trials and version.trials[-1].verdict.correct]
    measured = [point for version in tested if (point := _measured_point(version, device))]
    return tuple(measured or [point for version in tested if (point := _modelled_point(version))])


def _measured_point(version: Version, device: str) -> EnergyPoint | None:
    energy, trial = version.energy, version.trials[-1]
    seconds, here = trial.verdict.time_s, trial.outcome.device
    if energy is None or seconds is None or trial.verdict.time_provenance != "measured":
        return None
    if not (devices.is_same(energy.device, device) and devices.is_same(here, device)):
        return None
    return _point(version, seconds, (energy.joules_per_call, energy.low_joules, energy.high_joules), "measured")


def _modelled_point(version: Version) -> EnergyPoint | None:
    verdict = version.trials[-1].verdict
    energy = verdict.energy
    if energy is None or verdict.time_s is None or verdict.time_provenance != "modelled":
        return None
    return _point(version, verdict.time_s, (energy.joules, energy.low_joules, energy.high_joules), "modelled")


def _point(version: Version, seconds: float, joules: tuple[float, float, float], provenance: Provenance) -> EnergyPoint:
    accepted = None if version.decision is None else version.decision.kind == "accept"
    return EnergyPoint(
        version=version.number,
        title=version.proposal.title,
        seconds=seconds,
        joules=joules[0],
        low_joules=joules[1],
        high_joules=joules[2],
        provenance=provenance,
        accepted=accepted,
    )


def find_front(points: Sequence[EnergyPoint]) -> tuple[EnergyPoint, ...]:
    """The Pareto front, fastest first: no other version has both less time and fewer joules."""
    front: list[EnergyPoint] = []
    for point in sorted(points, key=lambda one: (one.seconds, one.joules, one.version)):
        if not front or point.joules < front[-1].joules:
            front.append(point)
    return tuple(front)


def explain_no_point(versions: Sequence[Version]) -> str:
    """Why there is nothing to plot, and what to do."""
    correct = [version for version in versions if version.trials and version.trials[-1].verdict.correct]
    if not correct:
        return "no version is correct yet: nothing to plot"
    notes = dict.fromkeys(version.trials[-1].verdict.energy_note for version in correct)
    why = "; ".join(filter(None, notes))
    return (
        f"no version has a time and an energy{f' ({why})' if why else ''}; "
        "on a GPU measure one: %cutegen profile v1 --by energy"
    )


def _table(points: Sequence[EnergyPoint], front: Sequence[EnergyPoint], caption: str) -> tuple[str, str]:
    kind = points[0].provenance
    rows = [
        [
            f"v{point.version}",
            point.title,
            format_seconds(point.seconds),
            format_joules(point.joules),
            f"{format_joules(point.low_joules)} to {format_joules(point.high_joules)}",
            f"{point.joules / point.seconds:.0f} W",
            "yes" if point in front else "",
            {True: "accepted", False: "rejected", None: "pending"}[point.accepted],
        ]
        for point in points
    ]
    head = ["version", "title", f"time, {kind}", f"energy, {kind}", "interval", "power", "on the front", "decision"]
    return render_table(head, rows, caption)


def _explain_intervals(session: Session, points: Sequence[EnergyPoint]) -> str:
    if points[0].provenance == "measured":
        return "corrected for the duty cycle; intervals are ranges over the windows"
    return f"intervals of 90 %; {energy_model.describe_fit(devices.find(session.device))}"


class _Axis:
    """A linear axis over the range of some values with a margin; `start` and `end` are pixels."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = min(values), max(values)
        margin = MARGIN * (high - low or high)
        self.low, self.high = max(low - margin, 0.0), high + margin
        self.start, self.end = start, end

    def place(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values within the range."""
        raw = (self.high - self.low) / TICKS
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
        first = math.ceil(self.low / step)
        return [step * n for n in range(first, math.floor(self.high / step) + 1)]


def _draw(points: Sequence[EnergyPoint], front: Sequence[EnergyPoint], title: str) -> str:
    across = _Axis([point.seconds for point in points], LEFT, RIGHT)
    up = _Axis([value for point in points for value in (point.low_joules, point.high_joules)], BOTTOM, TOP)
    body = [draw_text(8, 16, title, size=13)]
    for value in across.ticks():
        x = across.place(value)
        body.append(
            draw_vertical_rule(x, TOP, BOTTOM) + draw_text(x, BOTTOM + 16, format_seconds(value), anchor="middle")
        )
    for value in up.ticks():
        y = up.place(value)
        body.append(
            draw_horizontal_rule(y, LEFT, RIGHT) + draw_text(LEFT - 6, y + 4, format_joules(value), anchor="end")
        )
    body += [_draw_front(front, across, up), *(_draw_point(point, across, up) for point in points)]
    body.append(draw_text((LEFT + RIGHT) / 2, BOTTOM + 34, f"time of a call ({points[0].provenance})", anchor="middle"))
    key = "filled: accepted; line: the Pareto front; bars: intervals of the joules"
    body.append(draw_text(LEFT, BOTTOM + 52, key))
    return draw_svg(BOTTOM + 62, title, "; ".join(point.tip for point in points), body)


def _draw_front(front: Sequence[EnergyPoint], across: _Axis, up: _Axis) -> str:
    """The front as steps: between two of its versions the faster one needs the more joules."""
    steps: list[tuple[float, float]] = []
    for point in front:
        x, y = across.place(point.seconds), up.place(point.joules)
        if steps:
            steps.append((x, steps[-1][1]))
        steps.append((x, y))
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in steps)
    return f'<polyline fill="none" stroke="{FRONT}" stroke-width="2" stroke-dasharray="6 3" points="{path}"/>'


def _draw_point(point: EnergyPoint, across: _Axis, up: _Axis) -> str:
    x, y = across.place(point.seconds), up.place(point.joules)
    bar = (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{up.place(point.low_joules):.1f}" '
        f'y2="{up.place(point.high_joules):.1f}" stroke="{POINT}"/>'
    )
    fill = POINT if point.accepted else "none"
    outline = f'fill="{fill}" stroke="{POINT}" stroke-width="2"'
    if point.provenance == "measured":
        shape = f'rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" {outline}'
    else:
        shape = f'circle cx="{x:.1f}" cy="{y:.1f}" r="5" {outline}'
    return bar + draw_titled(shape, point.tip) + draw_text(x + 9, y - 6, f"v{point.version}")


def _make_figure(points: Sequence[EnergyPoint], front: Sequence[EnergyPoint], title: str) -> dict[str, object]:
    kind = points[0].provenance
    symbol = "square" if kind == "measured" else "circle"
    data: list[dict[str, object]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "Pareto front",
            "x": [point.seconds for point in front],
            "y": [point.joules for point in front],
            "line": {"color": FRONT, "dash": "dash", "shape": "hv"},
        },
        {
            "type": "scatter",
            "mode": "markers+text",
            "name": f"versions ({kind})",
            "x": [point.seconds for point in points],
            "y": [point.joules for point in points],
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": [point.high_joules - point.joules for point in points],
                "arrayminus": [point.joules - point.low_joules for point in points],
                "color": QUIET,
            },
            "text": [f"v{point.version}" for point in points],
            "textposition": "top right",
            "hovertext": [point.tip for point in points],
            "marker": {
                "color": POINT,
                "size": 10,
                "symbol": [symbol if point.accepted else f"{symbol}-open" for point in points],
            },
        },
    ]
    xaxis = {"title": {"text": f"time of a call, {kind}"}, "ticksuffix": "s", "tickformat": "~s"}
    yaxis = {"title": {"text": f"energy of a call, {kind}"}, "ticksuffix": "J", "tickformat": "~s"}
    layout = figure_layout(
        title, 400, xaxis=xaxis, yaxis=yaxis, legend={"orientation": "h", "y": 1, "yanchor": "bottom"}
    )
    return {"data": data, "layout": layout}
