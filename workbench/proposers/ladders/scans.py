"""Scans: a CTA per row, a CTA per tile of a row where there are few rows; columns by one thread each."""

from __future__ import annotations

import math

from workbench.analysis import devices
from workbench.proposers.ladders.base import Context, Rung, put


def scan(context: Context) -> tuple[Rung, ...]:
    """The rungs of a scan: what fills the device first."""
    if context.found.middle:
        return (
            Rung(
                settings=(put("threads", 128),),
                title="one thread per column",
                reason="neighbouring threads read neighbouring columns; eight rows are loaded before the first is used",
            ),
            Rung(
                settings=(put("threads", 64),),
                title="64 columns per CTA",
                reason="more CTAs, where there are few columns",
                need="parallel",
            ),
        )
    rows = (
        Rung(
            settings=(put("threads", 256), put("per_thread", 16), put("schedule", "rows")),
            title="one CTA per row",
            reason=(
                "a row goes through registers tile by tile, read once and written once; "
                "the next tile arrives while this one is scanned"
            ),
        ),
        Rung(
            settings=(put("threads", 512), put("per_thread", 16), put("schedule", "rows")),
            title="512 threads per row",
            reason="larger tiles: fewer rounds of a row",
            need="parallel",
        ),
        Rung(
            settings=(put("threads", 256), put("per_thread", 8), put("schedule", "rows")),
            title="8 elements per thread",
            reason="fewer registers, so more CTAs side by side",
            need="parallel",
        ),
    )
    tiles = Rung(
        settings=(put("threads", 256), put("per_thread", 16), put("schedule", "lookback")),
        title="one CTA per tile of a row",
        reason="tiles learn what came before them by look-back: few long rows fill the device too",
        need="parallel",
    )
    return (tiles, *rows) if _few_rows(context) else (*rows, tiles)


def _few_rows(context: Context) -> bool:
    """Whether a CTA per row would leave half of the device idle, at the full size: fewer than four rows for each SM."""
    case = (
        next((case for case in context.facts.cases if case.name == "full"), None) if context.facts is not None else None
    )
    if case is None or not case.outputs or not case.outputs[0].shape:
        return False
    *lead, columns = case.outputs[0].shape
    return math.prod(lead) < 4 * devices.find(context.device).sms and columns > 4096
