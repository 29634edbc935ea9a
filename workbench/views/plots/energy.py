"""Joules of a call against its time, for the versions of a session, with the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.analysis import devices, energy_model
from workbench.records import Provenance, Version, record
from workbench.session import Session
from workbench.views.figures import objects as go
from workbench.views.figures.describe import escape, make_figure, share_labels, show
from workbench.views.figures.style import COLOURS, QUIET, mark_of
from workbench.views.text.mime_bundle import MimeBundle, format_joules, format_seconds, render_table

POINT, FRONT = COLOURS[0], COLOURS[1]
MARGIN = 0.12  # of the range, on each side of an axis


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
    standing: str  # as `Version.standing`; of a node of a search: best or correct

    @property
    def is_chosen(self) -> bool:
        """Whether its mark is filled."""
        return self.standing in ("accepted", "best")

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
    return show(_make_figure(points, front, title), text, page, "; ".join(point.tip for point in points))


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
    return EnergyPoint(
        version=version.number,
        title=version.proposal.title,
        seconds=seconds,
        joules=joules[0],
        low_joules=joules[1],
        high_joules=joules[2],
        provenance=provenance,
        standing=version.standing,
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
            point.standing,
        ]
        for point in points
    ]
    head = ["version", "title", f"time, {kind}", f"energy, {kind}", "interval", "power", "on the front", "decision"]
    return render_table(head, rows, caption)


def _explain_intervals(session: Session, points: Sequence[EnergyPoint]) -> str:
    if points[0].provenance == "measured":
        return "corrected for the duty cycle; intervals are ranges over the windows"
    return f"intervals of 90 %; {energy_model.describe_fit(devices.find(session.device))}"


def _range(values: Sequence[float]) -> list[float]:
    """The range of an axis: the values with a margin."""
    low, high = min(values), max(values)
    margin = MARGIN * (high - low or high)
    return [max(low - margin, 0.0), high + margin]


def _make_figure(points: Sequence[EnergyPoint], front: Sequence[EnergyPoint], title: str) -> go.Figure:
    kind = points[0].provenance
    across = _range([point.seconds for point in points])
    up = _range([value for point in points for value in (point.low_joules, point.high_joules)])
    shares = [
        [(value - low) / (high - low) for value in values]
        for values, (low, high) in (([p.seconds for p in points], across), ([p.joules for p in points], up))
    ]
    steps = go.Scatter(  # between two of its versions the faster one needs the more joules
        mode="lines",
        name="Pareto front",
        x=[point.seconds for point in front],
        y=[point.joules for point in front],
        line={"color": FRONT, "dash": "dash", "shape": "hv", "width": 2},
    )
    versions = go.Scatter(
        mode="markers+text",
        name=f"version, {kind} (filled: accepted; bar: interval of the joules)",
        x=[point.seconds for point in points],
        y=[point.joules for point in points],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [point.high_joules - point.joules for point in points],
            "arrayminus": [point.joules - point.low_joules for point in points],
            "color": QUIET,
        },
        text=share_labels(list(zip(*shares, strict=True)), [f"v{point.version}" for point in points]),
        textposition="top right",
        hovertext=escape([point.tip for point in points]),
        hoverinfo="text",
        marker={"color": POINT, "size": 10, "symbol": [mark_of(kind, point.is_chosen) for point in points]},
    )
    unit = {"tickformat": "~s"}
    return make_figure(
        title,
        [steps, versions],
        height=300,
        xaxis={**unit, "title": {"text": f"time of a call, {kind}"}, "ticksuffix": "s"} | {"range": across},
        yaxis={**unit, "title": {"text": f"energy of a call, {kind}"}, "ticksuffix": "J", "range": up},
    )
