"""Compares the planner's time model of Hopper matrix products with measured times.

The result is a plot, and a table by the number of pipeline stages.
"""

from __future__ import annotations

import html
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
from workbench.views.figures import objects as go
from workbench.views.figures.describe import make_figure, show
from workbench.views.figures.style import MEASURED, MODELLED, QUIET, ROOF
from workbench.views.text.mime_bundle import MimeBundle, format_seconds, render_table

FEW = 4  # kernels with more stages form one group
COLOURS = (ROOF, MODELLED, QUIET, MEASURED)  # for 2, 3, 4 and more stages


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
    return show(_make_figure(title, note, groups), text, page, note)


def _distinct_settings(programs: Sequence[str]) -> dict[str, str]:
    """Program -> its settings that not all programs share."""
    parts = {program: program.split(" .")[1:] for program in programs}
    common = set.intersection(*map(set, parts.values()))
    return {program: " ".join(f".{part}" for part in found if part not in common) for program, found in parts.items()}


def _microseconds(value_s: float) -> float:
    return float(f"{value_s * 1e6:.4g}")


def _make_figure(title: str, note: str, groups: dict[str, list[Kernel]]) -> go.Figure:
    labels = _distinct_settings([kernel.program for group in groups.values() for kernel in group])
    data = [
        go.Scatter(
            mode="markers",
            name=f"{name} stages",
            marker={"color": colour, "size": 6, "opacity": 0.7},
            x=[_microseconds(kernel.modelled_s) for kernel in group],
            y=[_microseconds(kernel.measured_s) for kernel in group],
            text=[html.escape(labels[kernel.program]) for kernel in group],
            hovertemplate="%{text}<br>modelled %{x} µs, measured %{y} µs<extra></extra>",
        )
        for (name, group), colour in zip(groups.items(), COLOURS, strict=True)
        if group
    ]
    both = [value for trace in data for value in (*trace.x, *trace.y)]
    equal = go.Scatter(
        mode="lines",
        name="equal",
        line={"color": QUIET, "dash": "dot", "width": 1},
        x=[min(both), max(both)],
        y=[min(both), max(both)],
        hoverinfo="skip",
    )
    axis = {"type": "log", "dtick": "D2", "tickformat": "~s"}
    return make_figure(
        f"{title}\n{note}",
        [*data, equal],
        height=310,
        xaxis={**axis, "title": {"text": "by the model, µs"}},
        yaxis={**axis, "title": {"text": "measured, µs"}},
    )
