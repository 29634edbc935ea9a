"""The ladder of pooling: strips through shared memory first, one output per thread last. Whole planes are rows."""

from __future__ import annotations

import math

from workbench.language import Call
from workbench.language.operations.pool import MOST_LOADED, numbers
from workbench.proposers.ladders.base import Context, Rung, put


def pool_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs of a pooling."""
    return _plane_rungs(put("vector", context.wide)) if context.found.middle else _window_rungs(context)


def _plane_rungs(wide: Call) -> tuple[Rung, ...]:
    """Rungs of pooling over whole planes."""
    return (
        Rung(
            settings=(put("threads_per_row", 256), wide),
            title="one CTA per plane",
            reason="neighbouring threads read neighbouring vectors of the plane",
        ),
        Rung(
            settings=(put("threads_per_row", 32), wide),
            title="one warp per plane",
            reason="small planes: no barrier, more planes side by side",
            need="parallel",
        ),
        Rung(settings=(put("threads_per_row", 1),), title="one thread per plane", reason="the simplest correct kernel"),
    )


def _cell_rungs(context: Context) -> tuple[Rung, ...]:
    """Rungs of windows side by side, where neighbours in a row are loaded at once.

    They stand behind strips, which were measured: by the model they are at most 3 % faster (inferred).
    """
    named = dict(context.found.operation.named)
    window, shape = numbers(named.get("window")), _find_shape(context)
    if context.arch != "sm_90a" or not shape or {*named} - {"op", "window", "divisor"}:
        return ()
    vector = math.gcd(shape[-1], context.wide)
    if vector % window[-1] and math.gcd(vector, window[-1]) == 1:
        return ()  # threads would load single elements at a distance
    loaded = math.prod(window[:-1]) * max(window[-1], 4)
    most = min(MOST_LOADED // loaded, 4)
    counts = [count for count in (4, 2, 1) if count <= most][:2]
    return tuple(
        Rung(
            settings=(put("threads", 256), put("schedule", "cells"), put("rows", count)),
            title=f"windows in registers, {count} rows in flight",
            reason="windows lie side by side: a thread combines what it loads, and no element is loaded twice",
            need="parallel",
        )
        for count in counts
    )


def _find_shape(context: Context) -> tuple[int, ...]:
    """The shape at full size of what is pooled; () if it is not known."""
    facts, (_, name) = context.facts, context.found.operands[0]
    known = {spec.name: spec.shape for spec in (*facts.full, *facts.cases[-1].inputs)} if facts is not None else {}
    return known.get(name, ())


def _window_rungs(context: Context) -> tuple[Rung, ...]:
    """Rungs of pooling with a window."""
    strip = put("schedule", "strip")
    return (
        Rung(
            settings=(put("threads", 256), strip, put("rows", 8)),
            title="rows in registers, columns in shared memory",
            reason=(
                "every element is loaded in vectors of 16 bytes, and once for a row of outputs, "
                "however wide the window is"
            ),
        ),
        *_cell_rungs(context),
        Rung(
            settings=(put("threads", 128), strip, put("rows", 8)),
            title="128 threads per CTA",
            reason="smaller CTAs wait less for each other",
            need="parallel",
        ),
        Rung(
            settings=(put("threads", 256), strip, put("rows", 16)),
            title="16 rows for each group of threads",
            reason="more rows share what L1 holds",
            need="requests",
        ),
        Rung(
            settings=(put("threads", 256),),
            title="one output per thread",
            reason="the simplest correct kernel: every input is read as often as windows cover it",
        ),
    )


def poolwise_rungs(context: Context) -> tuple[Rung, ...]:
    """Rungs of a pool whose planes are reduced. How much a thread loads at once is inferred."""
    window = dict(context.found.operation.named).get("window")
    taps = math.prod(numbers(window)[:-1])
    turns = 4 if taps <= 2 else 2 if taps <= 4 else 1
    return tuple(
        Rung(
            settings=(put("threads", threads), put("unroll", unroll)),
            title=f"a CTA of {threads} threads per plane",
            reason="what is pooled stays in registers: neither is it written nor read again",
            need="parallel",
        )
        for threads, unroll in dict.fromkeys(((256, turns), (128, turns), (512, turns), (256, 1)))
    )
