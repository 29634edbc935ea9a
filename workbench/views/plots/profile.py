"""The plots of a profile: roofline, pipes, stalls, occupancy limits, source heat, timeline, energy.

Each function returns None if the profile lacks the data. Each title gives the source of the numbers: "measured" by
ncu, CUPTI or NVML, "counted" or "modelled" on the emulator.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

from workbench.analysis import devices
from workbench.analysis.devices import Device
from workbench.analysis.time_model import fitted_model, terms
from workbench.errors import UserError
from workbench.profilers.counters import CounterProfiler
from workbench.profilers.ncu import PROBLEM_FLOPS
from workbench.records import KernelMetrics, LineProfile, Profile, kernel_function
from workbench.views.figures.describe import Bar, show_bars
from workbench.views.figures.style import COLOURS, shorten
from workbench.views.plots import charts
from workbench.views.plots.level_roofline import Point, draw_levels
from workbench.views.text.mime_bundle import MimeBundle, format_amount, format_seconds, render_table

MOST_BARS = 12
LEAST_PART = 0.001  # of the time: smaller parts of it are not drawn
MOST_LINES = 28  # in the source heat
MOST_BLOCKS = 400  # in the timeline


def short_kernel_name(name: str) -> str:
    """The name of a CuTe DSL kernel without the encoded types of its arguments."""
    return shorten(kernel_function(name), 40)


def _busiest_kernel(found: Profile) -> KernelMetrics | None:
    return max(found.kernels, key=lambda item: item.duration_s or item.modelled_s or 0.0, default=None)


def _describe_source(found: Profile, kernel: KernelMetrics | None = None) -> str:
    """The device, case and kernel of the numbers, for a title."""
    where = f"{found.device}, case {found.case}" if found.case else found.device
    return f"{short_kernel_name(kernel.kernel)}, {where}" if kernel else where


def roofline(found: Profile) -> MimeBundle | None:
    """A roofline with a point for each kernel and memory level."""
    device = devices.find(found.device) if found.device else None
    points = [point for kernel in found.kernels for point in _points(kernel)]
    if device is None or not points:
        return None
    kinds = {kernel.provenance for kernel in found.kernels}
    made = (
        "the kernel's bytes and FLOPs counted, times modelled"
        if kinds == {"counted"}
        else "measured by ncu, caches cold"
    )
    roofs, peaks = _modelled_ceilings(device) if kinds == {"counted"} else (_roofs(device), _peaks(device))
    whose = "problem's" if PROBLEM_FLOPS in found.notes else "kernel's"
    return draw_levels(f"Roofline by memory level, {_describe_source(found)}: {made}", points, roofs, peaks, whose)


def _points(kernel: KernelMetrics) -> list[Point]:
    taken = kernel.duration_s or kernel.modelled_s
    if not kernel.flops or not taken:
        return []
    dram = None if kernel.dram_read_bytes is None else kernel.dram_read_bytes + (kernel.dram_write_bytes or 0.0)
    moved = (("DRAM", dram), ("L2", kernel.l2_bytes), ("shared memory", kernel.shared_bytes))
    return [
        Point(short_kernel_name(kernel.kernel), level, kernel.flops / number, kernel.flops / taken)
        for level, number in moved
        if number
    ]


def _roofs(device: Device) -> list[tuple[str, float, str]]:
    out = [
        (
            "DRAM",
            device.copy_bandwidth or device.bandwidth,
            "measured: a copy" if device.copy_bandwidth else "data sheet",
        )
    ]
    if device.l2_bandwidth:
        out.append(("L2", device.l2_bandwidth, "measured"))
    out.append(
        (
            "shared memory",
            device.shared_bandwidth or device.sms * device.clock_hz * 128,
            "measured" if device.shared_bandwidth else "128 B per SM and cycle",
        )
    )
    return out


def _modelled_ceilings(device: Device) -> tuple[list[tuple[str, float, str]], list[tuple[str, float, str]]]:
    """(roofs, peaks) of the time model, for modelled times."""
    rates = terms.ceilings(device, fitted_model().constants)
    copied = "modelled: 1.05 times a measured copy" if device.copy_bandwidth else "modelled from the data sheet"
    roofs = [
        (
            name,
            rates[name],
            copied if name == "DRAM" else "fitted to measured times" if name == "L2" else "128 B per SM and cycle",
        )
        for name in ("DRAM", "L2", "shared memory")
    ]
    return roofs, [(name, rates[name], "data sheet") for name in ("fp32", "bf16 tensor cores")]


def _peaks(device: Device) -> list[tuple[str, float, str]]:
    best = device.attainable_rate("bfloat16", tensor_cores=True)
    return [
        ("fp32", device.fp32, "data sheet"),
        ("bf16 tensor cores", best or device.fp16, "measured" if best else "data sheet"),
    ]


def pipes(found: Profile) -> MimeBundle | None:
    """The resources of the call as parts of its modelled time, else the utilisation of each pipe by the busiest kernel.

    Modelled resources overlap. The largest of them and "other" add up to the time, which is that of the verdict.
    """
    modelled = sum(kernel.modelled_s or 0.0 for kernel in found.kernels)
    if found.case == "full" and found.limits and modelled and found.provenance == "counted":
        return _draw_parts(found.limits, modelled, _describe_source(found))
    kernel = _busiest_kernel(found)
    if kernel is None or not kernel.pipes:
        return None
    if kernel.provenance == "counted" and kernel.modelled_s:
        parts = [(name, share * kernel.modelled_s) for name, share in kernel.pipes]
        return _draw_parts(parts, kernel.modelled_s, _describe_source(found, kernel))
    rows = [Bar(name, share, f"{share:.1%}") for name, share in kernel.pipes[:MOST_BARS] if share > 0]
    title = f"Pipes, part of their peak while SMs are active (measured): {_describe_source(found, kernel)}"
    return show_bars(title, rows, head=("pipe", "busy"), full=1.0) if rows else None


def _draw_parts(parts: Sequence[tuple[str, float]], whole: float, where: str) -> MimeBundle:
    """Bars of the resources' seconds, and of what the largest leaves over.

    No part is longer than the time: where a term alone is, measured kernels have shown that it is too long.
    """
    parts = [(name, min(seconds, whole)) for name, seconds in parts]
    kept = [(name, seconds) for name, seconds in parts if seconds / whole >= LEAST_PART]
    other = max(whole - max((seconds for _, seconds in parts), default=0.0), 0.0)
    rows = [
        Bar(name, seconds / whole, f"{seconds / whole:.1%}, {format_seconds(seconds)}")
        for name, seconds in [*kept, ("other", other)]
    ]
    title = f"Where {format_seconds(whole)} go (modelled): {where}; resources overlap, other is what the largest leaves"
    return show_bars(title, rows, head=("resource", "share of the time"), full=1.0)


def stalls(found: Profile) -> MimeBundle | None:
    """The stalls of warps by reason (measured by ncu). Modelled waiting is by source line: `source`."""
    kernel = _busiest_kernel(found)
    if kernel is None or not kernel.stalls or kernel.provenance != "measured":
        return None
    whole = sum(value for _, value in kernel.stalls)
    rows = [
        Bar(name.replace("_", " "), value, f"{value:.2f} ({value / whole:.0%})")
        for name, value in kernel.stalls[:MOST_BARS]
    ]
    return show_bars(
        f"Stalls, warp cycles per issued instruction (measured): {_describe_source(found, kernel)}",
        rows,
        head=("reason", "cycles"),
        colour=COLOURS[3],
    )


def occupancy(found: Profile) -> MimeBundle | None:
    """The CTAs per SM that each resource allows. The smallest number is the limit."""
    kernel = _busiest_kernel(found)
    if kernel is None or not kernel.limits:
        return None
    least = min(value for _, value in kernel.limits)
    rows = [Bar(name, value, f"{value:g}" + (" ← limits" if value == least else "")) for name, value in kernel.limits]
    fractions = [
        f"{value:.0%} {name}"
        for name, value in (
            ("in theory", kernel.theoretical_occupancy),
            ("achieved (measured)", kernel.achieved_occupancy),
        )
        if value is not None
    ]
    return show_bars(
        f"CTAs of an SM by resource; occupancy {', '.join(fractions)}: {_describe_source(found, kernel)}",
        rows,
        head=("resource", "CTAs"),
        colour=COLOURS[4],
    )


def _total_stalls(line: LineProfile) -> float:
    return sum(value for _, value in line.stalls)


def source(found: Profile) -> MimeBundle | None:
    """The source lines with the most stalls (else executed or static instructions), with their heat."""
    if not found.lines:
        return None
    waiting = any(line.stalls for line in found.lines)
    executed = any(line.executed for line in found.lines)
    weigh: Callable[[LineProfile], float] = (
        _total_stalls
        if waiting
        else (lambda line: line.executed or 0.0)
        if executed
        else (lambda line: float(sum(count for _, count in line.instructions)))
    )
    kept = sorted(
        sorted((line for line in found.lines if weigh(line)), key=lambda line: -weigh(line))[:MOST_LINES],
        key=lambda line: line.line,
    )
    if not kept:
        return None
    whole, most = sum(weigh(line) for line in found.lines), max(weigh(line) for line in kept)
    unit = (
        found.lines[0].stall_unit if waiting else "executed instructions" if executed else "instructions in the binary"
    )
    made = {"samples": "stall samples (measured)", "modelled cycles": "cycles that a warp waits (modelled)"}.get(
        unit, f"{unit} (counted)"
    )
    rows = [
        charts.Heat(line.line, line.text, weigh(line) / most, _heat_label(line, weigh(line) / whole)) for line in kept
    ]
    return charts.draw_heat(f"Source lines by {made}: {_describe_source(found)}", rows)


def _heat_label(line: LineProfile, share: float) -> str:
    parts = [f"{share:.0%}"]
    if line.stalls and line.stall_unit == "samples":
        parts.append(line.stalls[0][0].replace("_", " "))
    elif line.stalls:
        parts.append(f"{_total_stalls(line):,.0f} cycles")
    if line.instructions:
        parts.append(", ".join(f"{count} {pipe}" for pipe, count in line.instructions[:2]))
    return " · ".join(parts)


def line_table(found: Profile) -> MimeBundle | None:
    """A table of all source lines: machine instructions by pipe, and stalls. Most stalls come first."""
    if not found.lines:
        return None
    measured = any(line.stalls and line.stall_unit == "samples" for line in found.lines)
    order = sorted(found.lines, key=lambda line: (-_total_stalls(line), -sum(count for _, count in line.instructions)))
    rows = [
        [
            line.line,
            shorten(line.text, 60),
            "—" if line.executed is None else format_amount(line.executed),
            ", ".join(f"{count} {pipe}" for pipe, count in line.instructions) or "—",
            _stall_text(line),
        ]
        for line in order
    ]
    head = [
        "line",
        "source",
        "warp-instructions executed",
        "machine instructions in the binary, by pipe",
        "stall samples (measured)" if measured else "waiting (modelled)",
    ]
    plain, listed = render_table(head, rows, f"SASS by source line: {_describe_source(found)}")
    return MimeBundle(plain, html=f"<details><summary>SASS by source line, pipe and stall</summary>{listed}</details>")


def _stall_text(line: LineProfile) -> str:
    if line.stall_unit == "modelled cycles":
        return f"{_total_stalls(line):.0f} cycles" if line.stalls else "—"
    return ", ".join(f"{reason.replace('_', ' ')} {count:.0f}" for reason, count in line.stalls[:4]) or "—"


def timeline(found: Profile) -> MimeBundle | None:
    """The kernels, copies and memsets of each stream over time."""
    if found.timeline is None or not found.timeline.spans:
        return None
    spans = found.timeline.spans[:MOST_BLOCKS]
    colours = {name: n for n, name in enumerate(dict.fromkeys(span.name for span in spans))}
    blocks = [
        charts.Block(
            f"stream {span.stream}",
            short_kernel_name(span.name) if span.kind == "kernel" else span.name,
            span.start_s,
            span.duration_s,
            f"{short_kernel_name(span.name)}: {format_seconds(span.duration_s)} from "
            f"{format_seconds(span.start_s)}, grid {span.grid}, block {span.block}",
            colours[span.name],
        )
        for span in spans
    ]
    total = max(span.start_s + span.duration_s for span in spans)
    gap = f", longest gap {format_seconds(found.timeline.launch_gaps[0])}" if found.timeline.launch_gaps else ""
    note = (
        f"{found.timeline.calls} calls, device busy {found.timeline.busy_s / found.timeline.total_s:.0%}{gap}"
        if found.timeline.total_s
        else f"{found.timeline.calls} calls"
    )
    return charts.draw_lanes(f"Timeline (measured): {_describe_source(found)}", blocks, total, note)


def energy(found: Profile) -> MimeBundle | None:
    """The energy counter of NVML over time, with the windows of the loop."""
    if found.energy is None or len(found.energy.samples) < 2:
        return None
    made = found.energy
    marks = [(name, when) for name, when in made.marks if not name.startswith("pause")]
    note = (
        f"{made.joules_per_call:.3g} J a call ({made.low_joules:.3g} to "
        f"{made.high_joules:.3g}), {made.average_w:.0f} W in the loop, {made.idle_w:.0f} W "
        f"idle, duty {made.duty:.0%}; uncorrected {made.uncorrected_joules:.3g} J"
    )
    return charts.draw_curve(
        f"Energy against time (measured by NVML): {_describe_source(found)}",
        made.samples,
        marks,
        x="seconds",
        y="joules",
        note=note,
    )


PLOTS: dict[str, Callable[[Profile], MimeBundle | None]] = {
    "roofline": roofline,
    "pipes": pipes,
    "stalls": stalls,
    "occupancy": occupancy,
    "source": source,
    "timeline": timeline,
    "energy": energy,
}


def plot(found: Profile, name: str) -> MimeBundle:
    """A plot by name. Raises `UserError` for an unknown name, or if the profile lacks its data."""
    if name not in PLOTS:
        raise UserError(f"no plot is called {name!r}; there are: {', '.join(PLOTS)}")
    made = PLOTS[name](found)
    if made is None:
        raise UserError(
            f"this profile (by {found.by}) has nothing for the plot {name!r}; it has: "
            f"{', '.join(available_plots(found)) or 'none'}"
        )
    return made


def available_plots(found: Profile) -> tuple[str, ...]:
    """Names of the plots for which a profile has data."""
    return tuple(name for name, make in PLOTS.items() if make(found) is not None)


def all_plots(found: Profile, *, has_summary: bool = True) -> MimeBundle:
    """The summary (unless it stands elsewhere) and notes of a profile, then all its plots and the table of lines."""
    made = [plot for make in (*PLOTS.values(), line_table) if (plot := make(found)) is not None]
    lines = [*([found.summary] if has_summary else []), *(f"note: {note}" for note in found.notes)]
    if found.protections and found.by != CounterProfiler.name:
        lines.append(f"protections while it was profiled: {', '.join(found.protections)}")
    listed = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    parts = [*([MimeBundle("\n".join(lines), html=listed)] if lines else []), *made]
    return MimeBundle(
        "\n\n".join(part.text for part in parts), html="".join(part.html for part in parts), parts=tuple(parts)
    )


def kernel_table(found: Profile) -> MimeBundle:
    """A table with one row per launch."""
    rows = [
        [
            short_kernel_name(k.kernel),
            format_seconds(k.duration_s) if k.duration_s else "—",
            format_seconds(k.modelled_s) if k.modelled_s else "—",
            _format_bytes(k.dram_read_bytes),
            _format_bytes(k.dram_write_bytes),
            _format_bytes(k.l2_bytes),
            _format_percent(k.l2_hit_rate),
            _format_percent(k.l1_hit_rate),
            "—" if k.shared_wavefronts is None else format_amount(k.shared_wavefronts),
            "—" if k.shared_bank_conflicts is None else format_amount(k.shared_bank_conflicts),
            k.registers or "—",
            _format_percent(k.achieved_occupancy if k.achieved_occupancy is not None else k.theoretical_occupancy),
        ]
        for k in found.kernels
    ]
    head = (
        *("kernel", "measured", "modelled", "DRAM read", "DRAM written", "asked of L2", "L2 hits", "L1 hits"),
        *("wavefronts", "conflicts", "registers", "occupancy"),
    )
    plain, listed = render_table(head, rows, f"Launches: {_describe_source(found)}")
    return MimeBundle(plain, html=listed)


def _format_bytes(value: float | None) -> str:
    return "—" if value is None else f"{format_amount(value)}B"


def _format_percent(value: float | None) -> str:
    return "—" if value is None else f"{value:.0%}"
