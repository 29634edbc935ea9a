"""The time model on a device that it was not fitted on, for the page of measurements."""

from __future__ import annotations

import math
from statistics import median

from page_parts import table, time

from workbench.analysis import devices
from workbench.analysis.time_model import compare_measured
from workbench.analysis.time_model.measured import SHIPPED, file_name, load_programs
from workbench.analysis.time_model.refinement import PLAIN, DeviceRow, Refinement, group_rows, refine

DEVICE = "H100"
HEAD = ("problem", "programs", "measured", "modelled", "interval", "refined", "interval", "in it")


def list_rows() -> list[DeviceRow]:
    """The shipped programs of the device beside the plain model, with the rates of its data sheet."""
    device = devices.match(DEVICE)
    assert device is not None
    return [compare_measured(one, device) for one in load_programs(SHIPPED / file_name(DEVICE))]


def leave_one_out(rows: list[DeviceRow]) -> list[tuple[DeviceRow, Refinement]]:
    """Each row with the refinement that the other problems' rows give."""
    return [(row, refine([other for other in rows if other.key != row.key])) for row in rows]


def describe_row(row: DeviceRow, refined: Refinement) -> tuple[float, float, float]:
    """Seconds of a row under a refinement, with their interval."""
    middle, width = row.modelled_s * math.exp(refined.shift), math.exp(row.width * refined.factor)
    return middle, middle / width, middle * width


def summarise(pairs: list[tuple[DeviceRow, Refinement]]) -> tuple[int, float, float]:
    """(rows in their interval, median factor between modelled and measured, median factor of an interval's half)."""
    inside, factors, widths = 0, [], []
    for row, refined in pairs:
        middle, low, high = describe_row(row, refined)
        inside += low <= row.measured_s <= high
        factors.append(math.exp(abs(math.log(row.measured_s / middle))))
        widths.append(high / middle)
    return inside, median(factors), median(widths)


def other_device() -> str:
    """The section of the page."""
    rows = list_rows()
    pairs, whole = leave_one_out(rows), refine(rows)
    before, after = summarise([(row, PLAIN) for row in rows]), summarise(pairs)
    shown = []
    for group in group_rows(rows).values():
        refined = {row.program: found for row, found in pairs if row.key == group[0].key}
        row = min(group, key=lambda one: one.measured_s)
        _, plain_low, plain_high = describe_row(row, PLAIN)
        middle, low, high = describe_row(row, refined[row.program])
        held = sum(describe_row(one, refined[one.program])[1] <= one.measured_s
                   <= describe_row(one, refined[one.program])[2] for one in group)  # fmt: skip
        shown.append(
            [
                *(row.problem, len(group), time(row.measured_s), time(row.modelled_s)),
                *(f"{time(plain_low)} to {time(plain_high)}", time(middle), f"{time(low)} to {time(high)}"),
                f"{held} of {len(group)}",
            ]
        )
    return "\n\n".join(
        [
            f"## The time model on an {DEVICE}",
            f"Fitted to kernels measured on an H200; {len(rows)} programs of {len(shown)} problems of KernelBench that "
            f"searches measured on an {DEVICE} (TF32), counted on the emulator at full size. Each problem is refined "
            "by the other problems' programs. Plain: "
            f"{before[0]} of {len(rows)} measured times are in their interval of 90 %, the median factor between "
            f"modelled and measured is {before[1]:.2f}, an interval reaches a factor of {before[2]:.2f} in the median. "
            f"Refined: {after[0]} of {len(rows)}, {after[1]:.2f}, {after[2]:.2f}. All {len(shown)} problems together "
            f"multiply times by {math.exp(whole.shift):.3f} and the width of intervals by {whole.factor:.2f}. The "
            "fastest program of each problem:",
            table(HEAD, shown),
            f"Source: `workbench/analysis/time_model/measured_programs/{file_name(DEVICE)}`, "
            "`tests/bench/device_rows.py`, from `results/h100_search_live.jsonl` and "
            "`results/thirty_search_live.jsonl`.",
        ]
    )
