"""Ladders of the planner: for each kind of computation the settings to try, simplest first, each with its reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from workbench.proposers.ladders import (
    attention,
    convolutions,
    gathers,
    pipelines,
    pointwise,
    pools,
    products,
    rows,
    scans,
)
from workbench.proposers.ladders.base import Context, Rung, put

__all__ = ["Context", "Rung", "ladder", "put"]

LADDERS: dict[str, Callable[[Context], tuple[Rung, ...]]] = {
    "elementwise": pointwise.elementwise,
    "gemm": products.gemm,
    "ggemm": products.grouped,
    "convolution": convolutions.convolutions,
    "attention": attention.attention,
    "scan": scans.scan,
    "pool": pools.pool,
    "gather": gathers.gather,
    "view": lambda context: (Rung(settings=(), title="a view", reason="no kernel runs"),),
    "scatter_add": gathers.gather,
    **dict.fromkeys(("rowwise", "batchnorm", "groupnorm", "instancenorm"), rows.rows),
    **dict.fromkeys(("softmax", "layernorm", "rmsnorm", "reduce", "matvec", "crossentropy"), rows.rows),
}


def ladder(context: Context) -> tuple[Rung, ...]:
    """The rungs for a computation, simplest first; products on Hopper start with its own kernels, fastest first."""
    if context.found.pieces:
        return pipelines.pipeline(
            context,
            tuple(
                ladder(dataclasses.replace(context, found=piece.alone, facts=piece.facts if piece.facts.full else None))
                for piece in context.found.pieces
            ),
        )
    return LADDERS[context.found.kind](context)
