"""Masks of attention: tensors that broadcast to the scores' shape, and hide scores or are added to them.

A thread reads the elements of its scores from global memory: neighbouring threads read neighbouring elements, and a
row's lines stay in L1 from one element to the next. Scores are in units of exp2's exponent from then on.
"""

import math

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

from workbench.kernels.attention.config import LEAST
from workbench.kernels.attention.online_softmax import view_rows
from workbench.kernels.host import FLOAT_DTYPES, READ_DTYPES, DynamicTensor, check_operand
from workbench.kernels.static import Static


def broadcast_mask(cfg: Static, names: Static, mask, shape):
    """Return the mask as (batch, heads, queries, keys), with strides of 0 where it broadcasts to `shape`.

    `shape` is that of the scores, in the axes of q. Keys have stride 1. Bools are bytes.
    """
    if cutlass.const_expr(cfg.mask.hides is None):
        check_operand(names["mask"], mask, shape, FLOAT_DTYPES, broadcast=True)
    else:
        check_operand(names["mask"], mask, shape, READ_DTYPES, broadcast=True)
    mask = mask.detach().view(torch.uint8) if mask.dtype == torch.bool else mask.detach()
    mask = mask.expand(*mask.shape[:-1], shape[-1])
    mask = mask if mask.stride(-1) == 1 else mask.clone(memory_format=torch.contiguous_format)
    mask = torch.broadcast_to(mask, shape)
    while mask.dim() < 4:
        mask = mask.unsqueeze(0)
    return mask


def mask_width(mask):
    """Return the elements of one access: 2 where all addresses and lengths of rows allow it, else 1."""
    places = (mask.data_ptr() // mask.element_size(), mask.shape[3], *mask.stride()[:3])
    return 1 if any(place % 2 for place in places) else 2


def mask_form(mask):
    """Return what a kernel is compiled for: dtype, elements of one access, and axes along which the mask broadcasts.

    Strides of 0 are constants of the compiled kernel.
    """
    return mask.dtype, mask_width(mask), tuple(stride == 0 for stride in mask.stride()[:3])


class BroadcastMask(DynamicTensor):
    """A broadcast mask as an argument of `call`, for which `mask_form` is a part of the key."""

    def as_cute(self):
        """Return the CuTe tensor, whose strides of 0 are constants."""
        return from_dlpack(self.tensor, assumed_align=self.align).mark_layout_dynamic(leading_dim=self.leading_dim)


def view_mask(mask):
    """Return the CuTe tensor of a broadcast mask, with dynamic shape, aligned to one access."""
    return BroadcastMask(mask, align=mask_width(mask) * mask.element_size(), leading_dim=3)


def head_mask(mask: cute.Tensor, batch, head):
    """Return the part (queries, keys) of a mask that `view_mask` returned, aligned to one access."""
    part = mask[batch, head, None, None]
    return cute.make_tensor(part.iterator.align(mask.iterator.alignment), part.layout)


def score_scale(cfg: Static, scale_log2):
    """Return what the softmax multiplies scores by: 1 behind a mask, which has scaled them."""
    return cutlass.Float32(1.0) if cutlass.const_expr(cfg.mask is not None) else scale_log2


@cute.jit
def mask_score(cfg: Static, score, value, unit: cutlass.Constexpr, fill: cutlass.Constexpr):
    """Return a scaled score that the mask's element `value` may hide, or with that element added.

    `unit`: what a sum is multiplied by in the units of scores. `fill`: a hidden score in these units.
    """
    if cutlass.const_expr(cfg.mask.hides == "zero"):
        score = fill if value == 0 else score
    elif cutlass.const_expr(cfg.mask.hides == "nonzero"):
        score = score if value == 0 else fill
    else:
        added = value.to(cutlass.Float32)
        # a finite number stays one, so that a row of the least numbers has a softmax, as in torch
        score += cute.arch.fmax(added * unit, LEAST) if added > -cutlass.Float32.inf else added
    return score


@cute.jit
def apply_mask(
    cfg: Static,
    tSrS,
    place,
    scale_log2,
    ragged: cutlass.Constexpr,
):
    """Scale a thread's scores and apply a mask to them.

    `place` is (what `head_mask` returned, row and column of this thread's first element). `ragged`: whether columns may
    lie past the last key.
    """
    gM, row, column = place
    vector = gM.iterator.alignment // (gM.element_type.width // 8)
    for half in cutlass.range_constexpr(2):
        scores = view_rows(tSrS)[half, None]
        at = gM[cutlass.min(row + half * 8, gM.shape[0] - 1), None]
        rM = cute.make_rmem_tensor(cute.make_layout((vector, cute.size(scores) // vector)), gM.element_type)
        for e in cutlass.range_constexpr(cute.size(scores) // vector):
            first = column + e * vector // 2 * 8 + e * vector % 2
            if cutlass.const_expr(ragged):
                first = cutlass.min(first, gM.shape[1] - vector)
            source = cute.domain_offset((first,), at)
            if cutlass.const_expr(vector == 2):
                pair = cute.make_tensor(source.iterator.align(2 * gM.element_type.width // 8), cute.make_layout(2))
                cute.autovec_copy(pair, rM[None, e])
            else:
                rM[0, e] = source[0]
        for e in cutlass.range_constexpr(cute.size(scores)):
            score = scores[e] * scale_log2
            scores[e] = mask_score(cfg, score, rM[e % vector, e // vector], math.log2(math.e), cfg.mask.fill_log2)


@cute.jit
def apply_block_mask(cfg: Static, tSrS, place, scale_log2, ragged: cutlass.Boolean):
    """Apply a mask as `apply_mask` does, where the block of keys decides whether it is ragged."""
    if ragged:
        apply_mask(cfg, tSrS, place, scale_log2, True)
    else:
        apply_mask(cfg, tSrS, place, scale_log2, False)
