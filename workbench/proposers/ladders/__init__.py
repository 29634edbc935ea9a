"""The planner's ladders: for each kind of computation the settings to try, simplest first, each with its reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from workbench.proposers.ladders import (
    attention,
    convolutions,
    gathers,
    graphs,
    pipelines,
    pointwise,
    pools,
    products,
    rows,
    scans,
)
from workbench.proposers.ladders.base import Context, Rung, put
from workbench.proposers.ladders.convolutions.reduced_filters import fuse_reductions, saved_seconds
from workbench.proposers.recognition import Computation
from workbench.proposers.recognition.graph import Piece
from workbench.proposers.recognition.types import PRECISIONS

__all__ = ["Context", "Rung", "explain_no_rung", "fuse_stages", "ladder", "put"]

LADDERS: dict[str, Callable[[Context], tuple[Rung, ...]]] = {
    "elementwise": pointwise.elementwise_rungs,
    "gemm": products.gemm_rungs,
    "ggemm": products.grouped_rungs,
    "convolution": convolutions.convolution_rungs,
    "attention": attention.attention_rungs,
    "scan": scans.scan_rungs,
    "pool": pools.pool_rungs,
    "poolwise": pools.poolwise_rungs,
    "gather": gathers.gather_rungs,
    "aggregate": graphs.aggregate_rungs,
    "sddmm": graphs.sddmm_rungs,
    "segment_softmax": graphs.softmax_rungs,
    "view": lambda context: (Rung(settings=(), title="a view", reason="no kernel runs"),),
    "outputs": lambda context: (Rung(settings=(), title="the results", reason="no kernel runs"),),
    "store": lambda context: (Rung(settings=(), title="state", reason="no kernel runs"),),
    "concat": gathers.concat_rungs,
    "topk": gathers.top_k_rungs,
    "remap": gathers.remap_rungs,
    "scatter_add": gathers.gather_rungs,
    "scatter_max": gathers.gather_rungs,
    **dict.fromkeys(
        ("rowwise", "batchnorm", "batch_norm_stats", "groupnorm", "groupnorm_means", "instancenorm"), rows.row_rungs
    ),
    **dict.fromkeys(("softmax", "layernorm", "rmsnorm", "reduce", "matvec", "crossentropy"), rows.row_rungs),
}


def ladder(context: Context) -> tuple[Rung, ...]:
    """The rungs of a computation, simplest first. On Hopper, products start with Hopper's kernels, fastest first."""
    if context.found.pieces:
        return pipelines.pipeline_rungs(context, _ladders_of_pieces(context))
    own = PRECISIONS.get(context.found.dtype, context.precision)
    if own != "fp32" or context.precision != "tf32":  # tf32 is a choice of arithmetic on float32
        context = dataclasses.replace(context, precision=own)
    return LADDERS[context.found.kind](context)


def fuse_stages(context: Context) -> Computation:
    """The computation of a context with reductions in the epilogues of convolutions, where that is modelled as faster
    than the fastest convolution and a stage that reads its result.
    """

    def is_faster(convolution: Piece, fused: Piece) -> bool:
        facts = convolution.facts if convolution.facts.full else None
        apart = dataclasses.replace(context, found=convolution.alone, facts=facts)
        together = dataclasses.replace(context, found=fused.alone, facts=facts)
        first, other = ladder(apart)[:1], ladder(together)[:1]
        if not first or not other or first[0].seconds is None or other[0].seconds is None:
            return False
        return other[0].seconds < first[0].seconds + saved_seconds(apart)

    return fuse_reductions(context.found, is_faster)


def list_legal(context: Context) -> list[list[Rung]]:
    """The legal rungs of each piece of a pipeline that its ladder may use."""
    return pipelines.keep_legal(context, _ladders_of_pieces(context))


def explain_no_rung(context: Context) -> str:
    """Why a computation has no rung: its stages, what was tried for the one that has none, and what to do."""
    if context.found.pieces:
        return pipelines.explain_no_rung(context, _ladders_of_pieces(context))
    return (
        f"the planner has no settings of {context.found.operation.name} for {context.precision} on {context.arch}; "
        f"{pipelines.WHAT_TO_DO}"
    )


def _ladders_of_pieces(context: Context) -> tuple[tuple[Rung, ...], ...]:
    return tuple(
        ladder(dataclasses.replace(context, found=piece.alone, facts=piece.facts if piece.facts.full else None))
        for piece in context.found.pieces
    )
