"""Compares the planner's time model of Hopper matrix products with measured times.

The result is a plot, and a table by the number of pipeline stages.
"""

from __future__ import annotations

import html
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence

from workbench.analysis import devices
from workbench.errors import UserError
from workbench.landscapes import Landscape
from workbench.language import check, parse
from workbench.language.ir import setting
from workbench.language.operations.gemm.sm90 import config_of
from workbench.problems import inspection
from workbench.proposers.ladders import gemm_hopper_model, gemm_size
from workbench.records import record
from workbench.views.plots.heat_map import figure_layout
from workbench.views.plots.roofline import INK, MEASURED, MODELLED, ROOF
from workbench.views.text.mime_bundle import MimeBundle, format_seconds, render_table

FEW = 4  # kernels with more stages form one group
COLOURS = (ROOF, MODELLED, INK, MEASURED)  # for 2, 3, 4 and more stages


@record
class Kernel:
    """One kernel of a landscape: its modelled and measured time in seconds, and the stages of its pipeline."""

    program: str
    modelled_s: float
    measured_s: float
    stages: int


def modelled_kernels(place: Landscape, device: str = "") -> tuple[Kernel, ...]:
    """The legal kernels of a landscape that the model covers (gemm with a schedule), fastest first.

    `device` is modelled, by default the one that was measured. Raises `UserError` if there are none.
    """
    size = gemm_size.size_of(inspection.inspect(place.problem()))
    found = []
    for row in place.correct if size is not None else ():
        program = parse(row.program)
        stage = program.stages[0]
        if (
            stage.operation.name == "gemm"
            and setting(stage, "schedule") is not None
            and row.median_s
            and not check(program)
        ):
            config = config_of(stage)
            gpu = devices.find(device or place.device)
            modelled = gemm_hopper_model.model_time(config, size, gpu)  # type: ignore[arg-type]
            found.append(
                Kernel(
                    program=row.program,
                    modelled_s=modelled[0],
                    measured_s=row.median_s,
                    stages=config.stages,
                )
            )
    if not found:
        raise UserError(
            f"{place.name} has no gemm with a schedule (cooperative or pingpong); the model covers only those"
        )
    return tuple(found)


def rank_correlation(kernels: Sequence[Kernel]) -> float:
    """Spearman's rank correlation of modelled and measured times."""
    if len(kernels) < 2:
        return 1.0
    return statistics.correlation(
        _ranks([kernel.modelled_s for kernel in kernels]), _ranks([kernel.measured_s for kernel in kernels])
    )


def _ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value. Equal values share the mean of their ranks."""
    places: dict[float, list[int]] = defaultdict(list)
    for place, value in enumerate(sorted(values)):
        places[value].append(place)
    return [statistics.mean(places[value]) for value in values]


def compare_with_model(place: Landscape) -> MimeBundle:
    """Modelled and measured times of a product's kernels.

    The table gives the ratio measured / modelled for each number of stages, the note the rank correlation.
    """
    kernels = modelled_kernels(place)
    groups = {str(count): [kernel for kernel in kernels if kernel.stages == count] for count in range(2, FEW + 1)}
    groups[f"over {FEW}"] = [kernel for kernel in kernels if kernel.stages > FEW]
    lines = []
    for name, group in groups.items():
        if group:
            factors = sorted(kernel.measured_s / kernel.modelled_s for kernel in group)
            lines.append(
                [
                    name,
                    len(group),
                    format_seconds(min(kernel.measured_s for kernel in group)),
                    f"{statistics.median(factors):.2f}",
                    f"{factors[0]:.2f} to {factors[-1]:.2f}",
                ]
            )
    picked = min(kernels, key=lambda kernel: kernel.modelled_s)
    title = f"{place.name}: time by the planner's model and measured, {len(kernels)} kernels, {place.provenance}"
    note = (
        f"rank correlation {rank_correlation(kernels):.2f}; what the model finds fastest is "
        f"{picked.measured_s / kernels[0].measured_s - 1:.1%} slower than the fastest"
    )
    text, page = render_table(
        ["stages", "kernels", "fastest, measured", "measured / modelled, median", "from least to most"],
        lines,
        f"{title}; {note}",
    )
    return MimeBundle(text, html=page, svg=_draw_svg(title, note, groups), plotly=_make_figure(title, note, groups))


def _distinct_settings(programs: Sequence[str]) -> dict[str, str]:
    """Program -> its settings that not all programs share."""
    parts = {program: program.split(" .")[1:] for program in programs}
    common = set.intersection(*map(set, parts.values()))
    return {program: " ".join(f".{part}" for part in found if part not in common) for program, found in parts.items()}


def _microseconds(value_s: float) -> float:
    return float(f"{value_s * 1e6:.4g}")


def _make_figure(title: str, note: str, groups: dict[str, list[Kernel]]) -> dict[str, object]:
    labels = _distinct_settings([kernel.program for group in groups.values() for kernel in group])
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{name} stages",
            "marker": {"color": colour, "size": 6, "opacity": 0.7},
            "x": [_microseconds(kernel.modelled_s) for kernel in group],
            "y": [_microseconds(kernel.measured_s) for kernel in group],
            "text": [html.escape(labels[kernel.program]) for kernel in group],
            "hovertemplate": "%{text}<br>modelled %{x} µs, measured %{y} µs<extra></extra>",
        }
        for (name, group), colour in zip(groups.items(), COLOURS, strict=True)
        if group
    ]
    both = [
        _microseconds(value)
        for group in groups.values()
        for kernel in group
        for value in (kernel.modelled_s, kernel.measured_s)
    ]
    data.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "equal",
            "line": {"color": INK, "dash": "dot", "width": 1},
            "x": [min(both), max(both)],
            "y": [min(both), max(both)],
            "hoverinfo": "skip",
        }
    )
    axis = {"type": "log", "dtick": "D2", "tickformat": "~s"}
    return {
        "data": data,
        "layout": figure_layout(
            f"{title}<br>{note}",
            {**axis, "title": {"text": "by the model, µs"}},
            {**axis, "title": {"text": "measured, µs"}},
            440,
        ),
    }


def _draw_svg(title: str, note: str, groups: dict[str, list[Kernel]]) -> str:
    width, height, left, bottom, top = 640, 340, 60, 40, 50
    both = [
        math.log(value)
        for group in groups.values()
        for kernel in group
        for value in (kernel.modelled_s, kernel.measured_s)
    ]
    low, span = min(both), max(max(both) - min(both), 1e-9)

    def at(modelled_s: float, measured_s: float) -> tuple[float, float]:
        return left + (math.log(modelled_s) - low) / span * (width - left - 130), height - bottom - (
            math.log(measured_s) - low
        ) / span * (height - top - bottom)

    ends = math.exp(low), math.exp(low + span)
    (x0, y0), (x1, y1) = at(ends[0], ends[0]), at(ends[1], ends[1])
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'role="img" font-family="sans-serif" font-size="11">'
        f'<title>{html.escape(title)}</title><text x="6" y="16" fill="{INK}" '
        f'font-size="12">{html.escape(title)}</text><text x="6" y="32" '
        f'fill="{INK}">{html.escape(note)}</text>'
    ]
    out.append(f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{INK}" stroke-dasharray="2 3"/>')
    for n, ((name, group), colour) in enumerate(zip(groups.items(), COLOURS, strict=True)):
        dots = "".join("M{:.0f} {:.0f}h0".format(*at(kernel.modelled_s, kernel.measured_s)) for kernel in group)
        out.append(f'<path d="{dots}" stroke="{colour}" stroke-width="5" stroke-linecap="round" stroke-opacity=".7"/>')
        out.append(
            f'<text x="{width - 124}" y="{top + 16 * n + 10}" fill="{colour}">{html.escape(name)} stages</text>'
            if group
            else ""
        )
    for value in ends:
        x, y = at(value, value)
        out.append(
            f'<text x="{x:.1f}" y="{height - bottom + 16}" text-anchor="middle" '
            f'fill="{INK}">{format_seconds(value)}</text><text x="{left - 6}" y="{y + 4:.1f}" '
            f'text-anchor="end" fill="{INK}">{format_seconds(value)}</text>'
        )
    return (
        "".join(out)
        + f'<text x="{width / 2 - 80}" y="{height - 8}" fill="{INK}">across: by the model; up: measured</text></svg>'
    )
