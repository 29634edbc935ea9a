"""What a launch asked of the emulated L2 of the device: hits in total, by tensor and by source line."""

from __future__ import annotations

from workbench.records import L2Traffic, L2Use, Launch, Profile
from workbench.views.plots.profile import short_kernel_name
from workbench.views.text.mime_bundle import format_amount, render_table

MOST = 8  # lines of the source in the table
HEAD = ("L2", "of", "sectors loaded", "hits", "sectors stored")


def l2_tables(found: Profile, source: str) -> list[tuple[str, str]]:
    """A table for each launch of which all CTAs were followed, as text and HTML."""
    return [_table(launch, launch.l2, source.splitlines()) for launch in found.launches if launch.l2 is not None]


def _table(launch: Launch, l2: L2Traffic, source: list[str]) -> tuple[str, str]:
    rows = [_row("tensor", use.name.removeprefix("tensor"), use) for use in l2.tensors]
    for use in l2.lines[:MOST]:
        number = int(use.name)
        text = source[number - 1].strip()[:60] if 0 < number <= len(source) else ""
        rows.append(_row("line", f"{number}: {text}", use))
    return render_table(HEAD, rows, f"{short_kernel_name(launch.kernel)}: {describe_l2(l2)}")


def _row(kind: str, name: str, use: L2Use) -> list[object]:
    hits = "" if use.hit_rate is None else f"{use.hit_rate:.0%}"
    return [kind, name, format_amount(use.loaded), hits, format_amount(use.stored) if use.stored else ""]


def describe_l2(l2: L2Traffic) -> str:
    """One sentence: hits, and of which cache."""
    loads = f"{1 - l2.missed / l2.loaded:.0%} of loaded sectors hit L2" if l2.loaded else "no loads reach L2"
    again = f", and each that is needed comes from DRAM {l2.fetched / l2.touched:.2f} times" if l2.touched else ""
    size = f"{l2.capacity / 1e6:.3g} MB" if l2.capacity >= 1e5 else f"{l2.capacity / 1e3:.3g} KB"
    scaled = (
        ""
        if l2.share == 1
        else f", {l2.share:.2%} of the device's, as the inputs of this case have that share of the full case's bytes"
    )
    unseen = f"; {format_amount(l2.unseen_bytes)} bytes of bulk copies are not in it" if l2.unseen_bytes else ""
    return f"{loads}{again} (modelled: L2 of {size}{scaled}, {l2.in_flight} CTAs in flight, empty at the start){unseen}"
