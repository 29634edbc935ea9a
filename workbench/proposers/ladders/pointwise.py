"""The ladder of element-wise kernels: vectors, then CTA sizes; on Hopper several vectors per thread first."""

from __future__ import annotations

from workbench.language.expressions.expressions import leaves
from workbench.proposers.ladders.base import Context, Rung, put


def elementwise_rungs(context: Context) -> tuple[Rung, ...]:
    """One element per thread, then wide accesses, then other CTA sizes."""
    wide = context.wide
    fast = _fast_rungs(wide, is_spread=bool(leaves(context.found.operation.positional[0])[1]))
    return (
        *(fast if context.arch == "sm_90a" else ()),
        Rung(settings=(put("threads", 256),), title="one element per thread", reason="the simplest correct kernel"),
        Rung(
            settings=(put("threads", 256), put("vector", wide)),
            title=f"{wide} elements per access",
            reason="128-bit accesses need a quarter of the memory instructions or fewer",
            need="requests",
        ),
        Rung(
            settings=(put("threads", 512), put("vector", wide)),
            title="512 threads per CTA",
            reason="larger CTAs launch in fewer waves",
        ),
        Rung(
            settings=(put("threads", 128), put("vector", wide)),
            title="128 threads per CTA",
            reason="smaller CTAs balance the last wave better",
        ),
        *(fast[:1] if context.arch != "sm_90a" else ()),
    )


def _fast_rungs(wide: int, *, is_spread: bool) -> tuple[Rung, ...]:
    """Several vectors per thread, in the order measured on an H200 for ReLU of 6.4 GB.

    With broadcast tensors those come first that load an element of these for several vectors (by the time model).
    """
    shared = ((128, 4), (128, 8)) if is_spread else ()
    return tuple(
        Rung(
            settings=(put("threads", threads), put("vector", wide), put("unroll", unroll)),
            title=f"{unroll} access{'es' if unroll > 1 else ''} of {wide} elements, {threads} threads",
            reason="all are loaded before the first is used, which hides the memory's latency",
            need="parallel",
        )
        for threads, unroll in (*shared, (128, 1), (256, 1), (512, 1), (256, 2), (128, 2), (256, 4))
    )
