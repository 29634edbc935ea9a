"""The ladders of sddmm and segment_softmax: threads for the columns of a neighbour, then several neighbours at once.

Rules are inferred. Neighbours are often few, so a warp has several of them, or several rows.
"""

from __future__ import annotations

from workbench.language import Call
from workbench.proposers.ladders.base import Context, Rung, put
from workbench.proposers.ladders.graphs.aggregate import known_shapes

CTA = 256  # threads


def _settings(threads: int, split: int, *more: Call) -> tuple[Call, ...]:
    rows = max(CTA // (threads * split), 1)
    return (put("rows", rows), put("threads_per_row", threads), put("split", split), *more)


def sddmm_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs of sddmm."""
    wide, shape = context.wide, known_shapes(context).get("k")
    vectors = max(-(-shape[-1] // wide), 1) if shape else 8
    threads = min(1 << (vectors - 1).bit_length(), 32)
    split = max(32 // threads, 1)
    settings = _settings(threads, split, put("vector", wide))
    return (
        Rung(
            settings=(*settings, put("unroll", 4)),
            title="a warp per row, four neighbours on the way per group",
            reason="loads of 16 bytes; a group of threads has a neighbour, and its product is added up by shuffles",
        ),
        Rung(
            settings=(*_settings(threads, 1, put("vector", wide)), put("unroll", 2)),
            title="one group of threads per row",
            reason="rows with few neighbours leave no threads idle",
            need="parallel",
        ),
        Rung(
            settings=(*settings, put("unroll", 8)),
            title="eight neighbours on the way",
            reason="more loads in flight",
            need="parallel",
        ),
        Rung(
            settings=_settings(32, 1, put("vector", 1), put("unroll", 1)),
            title="one element per thread",
            reason="the simplest correct kernel",
        ),
    )


def softmax_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs of segment_softmax."""
    return (
        Rung(
            settings=_settings(32, 1, put("unroll", 2)),
            title="a warp per row",
            reason="the largest score and the sum in one pass, by shuffles; the second pass reads L1",
        ),
        Rung(
            settings=_settings(8, 1, put("unroll", 2)),
            title="eight threads per row",
            reason="rows with few neighbours leave fewer threads idle",
            need="parallel",
        ),
        Rung(
            settings=_settings(32, 8, put("unroll", 4)),
            title="a CTA per row",
            reason="for very long rows",
            need="parallel",
        ),
    )
