"""The ladders of gather, scatters and other moves: several loads in flight per thread."""

from __future__ import annotations

from workbench.proposers.ladders.base import Context, Rung, put


def gather_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs of gather, scatter_add and scatter_max."""
    return (
        Rung(
            settings=(put("threads", 256), put("unroll", 4)),
            title="four pieces on the way per thread",
            reason=(
                "an element waits for its index, then for memory: four at once hide both; "
                "layers move in vectors of 16 bytes"
            ),
        ),
        Rung(
            settings=(put("threads", 256), put("unroll", 8)),
            title="eight pieces on the way",
            reason="more loads in flight",
            need="parallel",
        ),
        Rung(
            settings=(put("threads", 128), put("unroll", 2)),
            title="two pieces, 128 threads",
            reason="fewer registers, more CTAs side by side",
            need="parallel",
        ),
        Rung(
            settings=(put("threads", 256), put("unroll", 1)),
            title="one piece per thread",
            reason="the simplest correct kernel",
        ),
    )


def concat_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs of concat."""
    return (
        Rung(
            settings=(put("threads", 256),),
            title="one word per thread",
            reason="each tensor is copied to its place in words of up to 8 bytes",
        ),
        Rung(
            settings=(put("threads", 128),),
            title="128 threads",
            reason="more CTAs side by side, for small tensors",
            need="parallel",
        ),
    )


def remap_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs of pad, flip, roll and interpolate."""
    return (
        Rung(
            settings=(put("threads", 256), put("vector", context.wide), put("unroll", 4)),
            title="four rows per thread",
            reason="a thread finds its column once for four rows; columns that stay as they are move by 16 bytes",
        ),
        Rung(
            settings=(put("threads", 256), put("vector", context.wide), put("unroll", 8)),
            title="eight rows per thread",
            reason="a column is found once for more rows, and more loads are in flight",
            need="parallel",
        ),
        Rung(
            settings=(put("threads", 128), put("vector", context.wide), put("unroll", 2)),
            title="two rows, 128 threads",
            reason="more CTAs side by side, for small tensors",
            need="parallel",
        ),
        Rung(
            settings=(put("threads", 256), put("unroll", 1)),
            title="one element per thread",
            reason="the simplest correct kernel",
        ),
    )


def top_k_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs of topk."""
    return (
        Rung(
            settings=(put("unroll", 4),),
            title="a warp keeps the best in registers",
            reason="few elements pass the k-th best so far, and those alone are sorted",
        ),
        Rung(
            settings=(put("unroll", 8),),
            title="eight loads on the way",
            reason="more loads in flight",
            need="parallel",
        ),
    )
