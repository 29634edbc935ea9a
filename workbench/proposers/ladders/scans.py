"""The ladder of scans: a CTA per row; a CTA per tile if there are few rows; a thread per column for other axes."""

from __future__ import annotations

import math

from workbench.analysis import devices
from workbench.proposers.ladders.base import Context, Rung, put


def scan_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs of a scan. Those that fill the device come first."""
    if context.found.middle:
        return _column_rungs()
    tiles = Rung(
        settings=(put("threads", 256), put("per_thread", 16), put("schedule", "lookback")),
        title="one CTA per tile of a row",
        reason="tiles learn what came before them by look-back: few long rows fill the device too",
        need="parallel",
    )
    return (tiles, *_row_rungs()) if _few_rows(context) else (*_row_rungs(), tiles)


def _column_rungs() -> tuple[Rung, ...]:
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


def _row_rungs() -> tuple[Rung, ...]:
    return (
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


def _few_rows(context: Context) -> bool:
    """Whether the full size has long rows but fewer than four per SM, so that a CTA per row leaves SMs idle."""
    case = (
        next((case for case in context.facts.cases if case.name == "full"), None) if context.facts is not None else None
    )
    if case is None or not case.outputs or not case.outputs[0].shape:
        return False
    *lead, columns = case.outputs[0].shape
    return math.prod(lead) < 4 * devices.find(context.device).sms and columns > 4096
