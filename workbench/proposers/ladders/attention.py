"""The ladder of attention: flash attention if the head dimension fits into registers, else three kernels.

A model of both decides which goes first.
"""

from __future__ import annotations

import math

from workbench.analysis import devices
from workbench.language import Call
from workbench.proposers.ladders import gemm_hopper, gemm_size
from workbench.proposers.ladders.base import Context, Rung, put
from workbench.records import Facts, record

KINDS = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32"}  # precision -> operand type of tensor cores
MMA_SYNC_SHARE = 0.4  # share of the tensor cores' rate with mma.sync, if each warp loads operands itself; inferred
WGMMA_SHARE = 0.7  # share of that rate with wgmma; inferred from measured rates of flash attention and gemm
WIDEST = 256  # largest head dimension at which O fits into registers


@record
class Size:
    """Extents of an attention; `heads` is the number of heads of all batch entries."""

    heads: int
    queries: int
    keys: int
    dim: int


def size_of(facts: Facts | None) -> Size | None:
    """The extents at the full case; None if the facts do not tell them."""
    case = next((case for case in facts.cases if case.name == "full"), None) if facts is not None else None
    if case is None or not case.outputs or len(case.outputs[0].shape) < 3 or len(case.inputs) < 2:
        return None
    *lead, queries, dim = case.outputs[0].shape
    other = case.inputs[1].shape
    keys = other[-2] if len(other) >= 2 and other[-1] == dim else queries
    return Size(heads=math.prod(lead), queries=queries, keys=keys, dim=dim)


def attention_rungs(context: Context) -> tuple[Rung, ...]:
    """The rungs of an attention."""
    size, kind = size_of(context.facts), KINDS.get(context.precision)
    apart = "mask" not in dict(context.found.operation.named)  # three kernels read no mask
    narrow = size is None or size.dim <= WIDEST
    simple, smaller = _float32_flash()
    plain = (simple,) if narrow else ()
    if context.arch != "sm_90a":
        return (*plain, *_mma_sync_rungs(kind, narrow)) if narrow else (_float32_rung(),)
    if kind is None:
        return (*plain, *((smaller,) if narrow else ()), *((_float32_rung(),) if apart else ()))
    flash = (*_wgmma_rungs(kind, narrow), *_mma_sync_rungs(kind, narrow))
    stages = _unfused_rungs(context, kind, size) if apart else ()
    first = (
        (*stages, *flash) if size is not None and _stages_are_faster(size, kind, context.device) else (*flash, *stages)
    )
    return (*first, *plain)


def _float32_flash() -> tuple[Rung, Rung]:
    """Flash attention in float32: the simplest kernel, and one with smaller tiles."""
    return (
        Rung(
            settings=(),
            title="float32 on the ordinary pipes",
            reason=(
                "flash attention in its simplest form: a block of keys at a time through shared memory, "
                "the scores never in memory"
            ),
        ),
        Rung(
            settings=(put("tile", 64, 32),),
            title="32 keys a step",
            reason="less shared memory, so more CTAs side by side",
            need="parallel",
        ),
    )


def _wgmma_rungs(kind: str, narrow: bool) -> tuple[Rung, ...]:
    if kind == "tf32" or not narrow:
        return ()
    base = (put("mma", kind), put("schedule", "flash"))
    return (
        Rung(
            settings=base,
            title="flash attention on wgmma",
            reason=(
                "TMA feeds wgmma; two warpgroups take turns, one multiplies while the other is in its softmax; "
                "the scores never leave registers"
            ),
        ),
        Rung(
            settings=(*base, put("tile", 128, 64)),
            title="64 keys a step",
            reason="smaller steps: less waste at the diagonal and at the end, fewer registers",
        ),
        Rung(
            settings=(*base, put("tile", 64, 128)),
            title="64 queries a CTA",
            reason="twice as many tiles, which fill the device when there are few queries",
            need="parallel",
        ),
    )


def _mma_sync_rungs(kind: str | None, narrow: bool) -> tuple[Rung, ...]:
    if kind is None or not narrow:
        return ()
    return (
        Rung(
            settings=(put("mma", kind),),
            title="flash attention on mma.sync",
            reason=f"tensor cores on {kind}; K and V arrive by cp.async while the block before is multiplied",
            need="tensor",
        ),
        Rung(
            settings=(put("mma", kind), put("tile", 64, 32)),
            title="64 queries, 32 keys",
            reason="less shared memory, so that two CTAs share an SM",
            need="parallel",
        ),
    )


def _unfused_rungs(context: Context, kind: str, size: Size | None) -> tuple[Rung, ...]:
    if size is None:
        return ()
    product = gemm_size.Size(m=size.queries, n=size.keys, k=size.dim, batches=size.heads)
    found = [
        choice
        for choice in gemm_hopper.list_choices(Call(name="gemm", positional=("a", "b")), kind, product, context.device)
        if choice.plan.split_k == 1 and choice.plan.schedule == "cooperative"
    ]
    reason = "the products run at a gemm's rate for any head dimension; the scores go through memory four times"
    rungs = []
    for choice in found[:2]:
        kept = tuple(call for call in choice.settings if call.name in ("tile", "cluster"))
        rungs.append(
            Rung(
                settings=(put("mma", kind), put("schedule", "stages"), *kept),
                title=f"q k^T, softmax and the product with v one after the other, {choice.title}",
                reason=reason,
            )
        )
    return tuple(rungs)


def _float32_rung() -> Rung:
    return Rung(
        settings=(put("schedule", "stages"),),
        title="q k^T, softmax and the product with v one after the other",
        reason="each product with 8x8 outputs per thread, which flash attention has no registers for",
    )


def _stages_are_faster(size: Size, kind: str, name: str) -> bool:
    """Whether three kernels are faster by the model.

    The model adds the FLOPs at a share of the peak rate and, for three kernels, the bytes of the scores.
    """
    if size.dim > WIDEST:
        return True
    if kind != "tf32":
        return False
    device = devices.find(name)
    flops = 4 * size.heads * size.queries * size.keys * size.dim
    scores, operands = (
        size.heads * size.queries * size.keys * 4,
        size.heads * (size.queries + size.keys) * size.dim * 4 * 2,
    )
    flash = flops / (device.tf32 * MMA_SYNC_SHARE)
    apart = max(flops / (device.tf32 * WGMMA_SHARE), 0.0) + (
        4 * scores + operands + size.heads * size.keys * size.dim * 8
    ) / (device.copy_bandwidth or device.bandwidth)
    return apart < flash
