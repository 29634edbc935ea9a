"""The ladder of products: Hopper's kernels, fastest first by their model, then from simple kernels to tensor cores."""

from __future__ import annotations

import dataclasses

from workbench.language import Call
from workbench.language.operations.epilogue import REDUCTIONS
from workbench.proposers.ladders import gemm_hopper, gemm_size
from workbench.proposers.ladders.base import Context, Rung, put
from workbench.proposers.recognition import Computation

# precision -> operand type of Hopper's tensor cores; tf32x3 splits each float32 into two parts
WGMMA = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "fp32": "tf32x3"}


def gemm_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs of a product.

    Hopper's kernels fuse a reduction at the end of the epilogue. Elsewhere the reduction is a stage of its own.
    """
    found = context.found
    if found.operation.named:  # distances, which tensor cores do not compute
        rungs = (*_simple_rungs(), *_register_rungs())
        return rungs[::-1] if context.arch == "sm_90a" else rungs
    if not any(call.name in REDUCTIONS for call in found.epilogues):
        return (*_hopper_rungs(context, found), *_ladder(context.precision))
    apart = () if found.unfused is None else (*_hopper_rungs(context, found.unfused)[:2], *_ladder(context.precision))
    return (
        *_hopper_rungs(context, found),
        *(
            dataclasses.replace(rung, unfused=True, title=f"{rung.title}; reduced by a kernel of its own")
            for rung in apart
        ),
    )


def _hopper_rungs(context: Context, found: Computation) -> tuple[Rung, ...]:
    kind = WGMMA.get(context.precision)
    size = gemm_size.size_of(context.facts) if context.facts is not None else None
    if context.arch != "sm_90a" or kind is None or size is None:
        return ()
    chosen = gemm_hopper.list_choices(
        found.operation, kind, size, context.device, found.layout, epilogues=found.epilogues
    )
    return tuple(
        Rung(
            settings=choice.settings,
            title=choice.title,
            reason=choice.reason,
            seconds=choice.seconds,
            risks=_risks(choice),
        )
        for choice in chosen
    )


def grouped_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs of a grouped product, modelled with groups of equal size. Only Hopper has a kernel for it."""
    kind, facts = WGMMA.get(context.precision), context.facts
    kind = None if kind == "tf32x3" else kind
    shapes = gemm_size.operand_shapes(facts, "_grouped_mm") if facts is not None else None
    if context.arch != "sm_90a" or kind is None or shapes is None:
        return ()
    (rows, k), (groups, _, n) = shapes
    size = gemm_size.Size(m=max(rows // groups, 1), n=n, k=k, batches=groups)
    chosen = gemm_hopper.list_choices(
        Call(name="gemm", positional=("a", "b")), kind, size, context.device, context.found.layout, most=60
    )
    fit = [
        choice
        for choice in chosen
        if choice.plan.schedule == "cooperative" and choice.plan.split_k == 1 and not choice.plan.swap
    ]
    return tuple(
        Rung(
            settings=choice.settings,
            title=choice.title,
            reason=f"groups of {size.m} rows on average: {choice.reason}",
            seconds=choice.seconds,
            risks=_risks(choice),
        )
        for choice in fit[:6]
    )


def _risks(choice: gemm_hopper.Choice) -> tuple[float, float]:
    """(risk that it is hard to get right, risk that it is no faster); 1 is no risk.

    Inferred: more can go wrong with parts of k and pingpong, and the model is worst for small tiles and parts of k.
    """
    plan = choice.plan
    return 1.0 + 0.1 * (plan.schedule == "pingpong") + 0.2 * (plan.split_k > 1) + 0.1 * plan.swap, 1.0 + 0.2 * (
        plan.split_k > 1
    ) + 0.2 * (plan.tile[0] == 64) + 0.1 * (plan.cluster == (2, 2))


def _ladder(precision: str) -> tuple[Rung, ...]:
    """From one output per thread to tensor cores, or to register blocking in float32."""
    mma = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32"}.get(precision)
    return (*_simple_rungs(), *(_tensor_core_rungs(mma) if mma else _register_rungs()))


def _simple_rungs() -> tuple[Rung, ...]:
    return (
        Rung(
            settings=(),
            title="one output per thread",
            reason="the simplest correct kernel: every operand is read from global memory each time",
        ),
        Rung(
            settings=(put("tile", 32, 32, 16), put("thread_tile", 2, 2)),
            title="tiles through shared memory",
            reason="each element that is loaded serves 32 outputs instead of one",
            need="sectors",
        ),
    )


def _tensor_core_rungs(mma: str) -> tuple[Rung, ...]:
    tensor = put("mma", mma)
    return (
        Rung(
            settings=(put("tile", 64, 64, 32), tensor),
            title="tensor cores",
            reason=f"mma.sync on {mma}: the tensor cores have many times the rate of the fp32 pipes",
            need="tensor",
        ),
        Rung(
            settings=(put("tile", 64, 64, 32), tensor, put("stages", 3)),
            title="three stages of cp.async",
            reason="copies that bypass registers run while the tensor cores work on the tile before",
            need="parallel",
        ),
        Rung(
            settings=(put("tile", 128, 128, 32), tensor, put("stages", 3)),
            title="128x128 tiles",
            reason="a larger tile re-uses each element more often",
            need="sectors",
        ),
        Rung(
            settings=(put("tile", 128, 128, 32), tensor, put("stages", 4)),
            title="four stages",
            reason="one more tile in flight hides more of the memory's latency",
            need="parallel",
        ),
    )


def _register_rungs() -> tuple[Rung, ...]:
    return (
        Rung(
            settings=(put("tile", 64, 64, 16), put("thread_tile", 4, 4)),
            title="4x4 outputs per thread",
            reason="register blocking: eight shared-memory reads feed sixteen multiply-adds",
            need="wavefronts",
        ),
        Rung(
            settings=(put("tile", 128, 128, 8), put("thread_tile", 8, 8)),
            title="8x8 outputs per thread",
            reason="sixteen shared-memory reads feed sixty-four multiply-adds",
            need="wavefronts",
        ),
    )
