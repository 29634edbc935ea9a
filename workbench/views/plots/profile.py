"""The plots of a profile: roofline, pipes, stalls, occupancy limits, source heat, timeline, energy.

A plot is there only where the profile has what it shows. Every title says where the numbers come from: "measured" by
ncu, CUPTI or NVML, "counted" and "modelled" on the emulator.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable

from workbench.analysis import devices, sampled
from workbench.analysis.devices import Device
from workbench.errors import UserError
from workbench.records import KernelMetrics, LineProfile, Profile
from workbench.views.plots import svg
from workbench.views.plots.level_roofline import Point, draw_levels
from workbench.views.text.mime_bundle import Shown, amount, seconds, table

TYPES = re.compile(r"_(?:tensorptr|CopyAtom|Tiled|Layout|ptr[a-z0-9]+_)")
SHOWN = 12
HEATED = 28
BLOCKS = 400


def kernel_name(name: str) -> str:
    """A CuTe DSL kernel's name without what stands for its arguments' types."""
    short = TYPES.split(name.removeprefix("kernel_cutlass_"), maxsplit=1)[0]
    return svg.cut(short, 40)


def _busiest(found: Profile) -> KernelMetrics | None:
    return max(found.kernels, key=lambda item: item.duration_s or item.modelled_s or 0.0, default=None)


def _whose(found: Profile, kernel: KernelMetrics | None = None) -> str:
    """What a title says of where the numbers are from."""
    where = f"{found.device}, case {found.case}" if found.case else found.device
    return f"{kernel_name(kernel.kernel)}, {where}" if kernel else where


def roofline(found: Profile) -> Shown | None:
    """A point for each kernel and memory level, under the level's bandwidth."""
    device = devices.find(found.device) if found.device else None
    points = [point for kernel in found.kernels for point in _points(kernel)]
    if device is None or not points:
        return None
    kinds = {kernel.provenance for kernel in found.kernels}
    made = "bytes and FLOPs counted, times modelled" if kinds == {"counted"} else "measured by ncu, caches cold"
    roofs, peaks = _modelled_ceilings(device) if kinds == {"counted"} else (_roofs(device), _peaks(device))
    return draw_levels(f"Roofline by memory level, {_whose(found)}: {made}", points, roofs, peaks)


def _points(kernel: KernelMetrics) -> list[Point]:
    taken = kernel.duration_s or kernel.modelled_s
    if not kernel.flops or not taken:
        return []
    dram = None if kernel.dram_read_bytes is None else kernel.dram_read_bytes + (kernel.dram_write_bytes or 0.0)
    moved = (("DRAM", dram), ("L2", kernel.l2_bytes), ("shared memory", kernel.shared_bytes))
    return [
        Point(kernel_name(kernel.kernel), level, kernel.flops / number, kernel.flops / taken)
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
    """(roofs, peaks) of the time model: modelled times stand against what they were modelled with."""
    rates = sampled.ceilings(device)
    copied = "modelled: 1.05 times a measured copy" if device.copy_bandwidth else "modelled from the data sheet"
    roofs = [
        (
            name,
            rates[name],
            copied
            if name == "DRAM"
            else "modelled: twice DRAM's data sheet"
            if name == "L2"
            else "128 B per SM and cycle",
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


def pipes(found: Profile) -> Shown | None:
    """How busy each pipe of the busiest kernel is."""
    kernel = _busiest(found)
    if kernel is None or not kernel.pipes:
        return None
    title = (
        "Pipes, part of their peak while SMs are active (measured)"
        if kernel.provenance == "measured"
        else "Resources, part of the modelled time (modelled)"
    )
    rows = [svg.Bar(name, share, f"{share:.1%}") for name, share in kernel.pipes[:SHOWN] if share > 0]
    return svg.bars(f"{title}: {_whose(found, kernel)}", rows, head=("pipe", "busy"), full=1.0) if rows else None


def stalls(found: Profile) -> Shown | None:
    """What warps wait for: by reason where ncu says so, else by source line (modelled)."""
    kernel = _busiest(found)
    if kernel is not None and kernel.stalls:
        whole = sum(value for _, value in kernel.stalls)
        rows = [
            svg.Bar(name.replace("_", " "), value, f"{value:.2f} ({value / whole:.0%})")
            for name, value in kernel.stalls[:SHOWN]
        ]
        return svg.bars(
            f"Stalls, warp cycles per issued instruction (measured): {_whose(found, kernel)}",
            rows,
            head=("reason", "cycles"),
            colour=3,
        )
    waits = sorted(
        (line for line in found.lines if line.stalls and line.stall_unit == "modelled cycles"),
        key=lambda line: -_waited(line),
    )[:SHOWN]
    if not waits:
        return None
    rows = [
        svg.Bar(f"{line.line}: {line.text[:24]}", _waited(line), f"{_waited(line):.0f} cycles", line.text)
        for line in waits
    ]
    return svg.bars(
        f"Waiting by source line, cycles of a warp of a followed CTA (modelled): {_whose(found, kernel)}",
        rows,
        head=("line", "cycles"),
        colour=3,
    )


def occupancy(found: Profile) -> Shown | None:
    """How many CTAs an SM may hold by each resource; the fewest decide."""
    kernel = _busiest(found)
    if kernel is None or not kernel.limits:
        return None
    least = min(value for _, value in kernel.limits)
    rows = [
        svg.Bar(name, value, f"{value:g}" + (" ← limits" if value == least else "")) for name, value in kernel.limits
    ]
    said = [
        f"{value:.0%} {name}"
        for name, value in (
            ("in theory", kernel.theoretical_occupancy),
            ("achieved (measured)", kernel.achieved_occupancy),
        )
        if value is not None
    ]
    return svg.bars(
        f"CTAs of an SM by resource; occupancy {', '.join(said)}: {_whose(found, kernel)}",
        rows,
        head=("resource", "CTAs"),
        colour=4,
    )


def _waited(line: LineProfile) -> float:
    return sum(value for _, value in line.stalls)


def source(found: Profile) -> Shown | None:
    """The source lines of the machine code, coloured by waits of warps (else by executed or static instructions)."""
    if not found.lines:
        return None
    waiting = any(line.stalls for line in found.lines)
    executed = any(line.executed for line in found.lines)
    weigh: Callable[[LineProfile], float] = (
        _waited
        if waiting
        else (lambda line: line.executed or 0.0)
        if executed
        else (lambda line: float(sum(count for _, count in line.instructions)))
    )
    kept = sorted(
        sorted((line for line in found.lines if weigh(line)), key=lambda line: -weigh(line))[:HEATED],
        key=lambda line: line.line,
    )
    if not kept:
        return None
    whole, most = sum(weigh(line) for line in found.lines), max(weigh(line) for line in kept)
    unit = (
        found.lines[0].stall_unit if waiting else "executed instructions" if executed else "instructions in the binary"
    )
    made = {"samples": "stall samples (measured)", "modelled cycles": "cycles of waiting (modelled)"}.get(
        unit, f"{unit} (counted)"
    )
    rows = [svg.Heat(line.line, line.text, weigh(line) / most, _why(line, weigh(line) / whole)) for line in kept]
    return svg.heat(f"Source lines by {made}: {_whose(found)}", rows)


def _why(line: LineProfile, share: float) -> str:
    said = [f"{share:.0%}"]
    if line.stalls and line.stall_unit == "samples":
        said.append(line.stalls[0][0].replace("_", " "))
    if line.instructions:
        said.append(", ".join(f"{count} {pipe}" for pipe, count in line.instructions[:2]))
    return " · ".join(said)


def lines(found: Profile) -> Shown | None:
    """Every source line with its machine instructions by pipe and what warps wait for there, most waited for first."""
    if not found.lines:
        return None
    measured = any(line.stalls and line.stall_unit == "samples" for line in found.lines)
    order = sorted(found.lines, key=lambda line: (-_waited(line), -sum(count for _, count in line.instructions)))
    rows = [
        [
            line.line,
            svg.cut(line.text, 60),
            "—" if line.executed is None else amount(line.executed),
            ", ".join(f"{count} {pipe}" for pipe, count in line.instructions) or "—",
            _waits(line),
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
    plain, listed = table(head, rows, f"SASS by source line: {_whose(found)}")
    return Shown(plain, html=f"<details><summary>SASS by source line, pipe and stall</summary>{listed}</details>")


def _waits(line: LineProfile) -> str:
    if line.stall_unit == "modelled cycles":
        return f"{_waited(line):.0f} cycles" if line.stalls else "—"
    return ", ".join(f"{reason.replace('_', ' ')} {count:.0f}" for reason, count in line.stalls[:4]) or "—"


def timeline(found: Profile) -> Shown | None:
    """What ran on which stream, when."""
    if found.timeline is None or not found.timeline.spans:
        return None
    spans = found.timeline.spans[:BLOCKS]
    colours = {name: n for n, name in enumerate(dict.fromkeys(span.name for span in spans))}
    blocks = [
        svg.Block(
            f"stream {span.stream}",
            kernel_name(span.name) if span.kind == "kernel" else span.name,
            span.start_s,
            span.duration_s,
            f"{kernel_name(span.name)}: {seconds(span.duration_s)} from "
            f"{seconds(span.start_s)}, grid {span.grid}, block {span.block}",
            colours[span.name],
        )
        for span in spans
    ]
    total = max(span.start_s + span.duration_s for span in spans)
    gap = f", longest gap {seconds(found.timeline.launch_gaps[0])}" if found.timeline.launch_gaps else ""
    note = (
        f"{found.timeline.calls} calls, device busy {found.timeline.busy_s / found.timeline.total_s:.0%}{gap}"
        if found.timeline.total_s
        else f"{found.timeline.calls} calls"
    )
    return svg.lanes(f"Timeline (measured): {_whose(found)}", blocks, total, note)


def energy(found: Profile) -> Shown | None:
    """NVML's counter against time, with the windows of the loop."""
    if found.energy is None or len(found.energy.samples) < 2:
        return None
    made = found.energy
    marks = [(name, when) for name, when in made.marks if not name.startswith("pause")]
    note = (
        f"{made.joules_per_call:.3g} J a call ({made.low_joules:.3g} to "
        f"{made.high_joules:.3g}), {made.average_w:.0f} W in the loop, {made.idle_w:.0f} W "
        f"idle, duty {made.duty:.0%}; uncorrected {made.uncorrected_joules:.3g} J"
    )
    return svg.curve(
        f"Energy against time (measured by NVML): {_whose(found)}",
        made.samples,
        marks,
        x="seconds",
        y="joules",
        note=note,
    )


PLOTS: dict[str, Callable[[Profile], Shown | None]] = {
    "roofline": roofline,
    "pipes": pipes,
    "stalls": stalls,
    "occupancy": occupancy,
    "source": source,
    "timeline": timeline,
    "energy": energy,
}


def plot(found: Profile, name: str) -> Shown:
    """One plot by name; raises `UserError` where there is none of this name, or the profile has nothing for it."""
    if name not in PLOTS:
        raise UserError(f"no plot is called {name!r}; there are: {', '.join(PLOTS)}")
    made = PLOTS[name](found)
    if made is None:
        raise UserError(
            f"this profile (by {found.by}) has nothing for the plot {name!r}; it has: "
            f"{', '.join(available(found)) or 'none'}"
        )
    return made


def available(found: Profile) -> tuple[str, ...]:
    """The plots that a profile has something for."""
    return tuple(name for name, make in PLOTS.items() if make(found) is not None)


def all_of(found: Profile) -> Shown:
    """All plots of a profile below each other, its summary first, what is missing and how it was confined last."""
    made = [plot for make in (*PLOTS.values(), lines) if (plot := make(found)) is not None]
    said = [found.summary, *(f"note: {note}" for note in found.notes)]
    if found.protections and found.by != "counters":
        said.append(f"protections while it was profiled: {', '.join(found.protections)}")
    listed = "".join(f"<p>{html.escape(line)}</p>" for line in said)
    head = Shown("\n".join(said), html=listed)
    return Shown(
        "".join([head.text, *(f"\n\n{plot.text}" for plot in made)]),
        html="".join(part.html for part in (head, *made)),
        parts=(head, *made),
    )


def kernels(found: Profile) -> Shown:
    """Every launch in a row."""
    rows = [
        [
            kernel_name(k.kernel),
            seconds(k.duration_s) if k.duration_s else "—",
            seconds(k.modelled_s) if k.modelled_s else "—",
            _bytes(k.dram_read_bytes),
            _bytes(k.dram_write_bytes),
            _bytes(k.l2_bytes),
            _percent(k.l2_hit_rate),
            _percent(k.l1_hit_rate),
            "—" if k.shared_wavefronts is None else amount(k.shared_wavefronts),
            "—" if k.shared_bank_conflicts is None else amount(k.shared_bank_conflicts),
            k.registers or "—",
            _percent(k.achieved_occupancy if k.achieved_occupancy is not None else k.theoretical_occupancy),
        ]
        for k in found.kernels
    ]
    head = [
        "kernel",
        "measured",
        "modelled",
        "DRAM read",
        "DRAM written",
        "asked of L2",
        "L2 hits",
        "L1 hits",
        "wavefronts",
        "conflicts",
        "registers",
        "occupancy",
    ]
    plain, listed = table(head, rows, f"Launches: {_whose(found)}")
    return Shown(plain, html=listed)


def _bytes(value: float | None) -> str:
    return "—" if value is None else f"{amount(value)}B"


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{value:.0%}"
