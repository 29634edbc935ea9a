"""Host side of attention on Hopper: TMA-readable operands, tile width, sections of heads, launch.

`masks` is () or a tensor that broadcasts to the scores' shape (batch, heads, queries, keys); see `mask`.
"""

import functools

import cutlass.utils as utils
import torch

from workbench.kernels.attention.host import check_attention_operands, check_head_dim, to_4d
from workbench.kernels.attention.mask import broadcast_mask, mask_form, view_mask
from workbench.kernels.attention.sm90.kernel import attention, fits_output
from workbench.kernels.attention.sm90.pack import make_tma_readable
from workbench.kernels.host import DynamicTensor, call
from workbench.kernels.static import Many, Static, bind, torch_dtype


@functools.cache
def count_sms():
    """Return the number of SMs of the device."""
    return utils.HardwareInfo().get_device_multiprocessor_count()


def permuted_view(tensor, *order):
    """Return the CuTe tensor of a tensor with permuted axes and dynamic shape."""
    leading = order.index(3)
    return DynamicTensor(tensor.detach().permute(order), align=16, leading_dim=leading)


def count_heads(cfg: Static, q, k):
    """Return how many heads run at the same time: those whose K and V fit into L2."""
    return max(1, min(q.shape[0] * q.shape[1], cfg.l2_bytes // (4 * k.shape[2] * q.shape[3])))


def launch_attention(cfg: Static, q, k, v, masks: Many, out, scale, ctas):
    """Compute `out` with at most `ctas` persistent CTAs; all tensors are (batch, heads, rows, dim).

    TMA must be able to read q, k and v.
    """
    dim = q.shape[3]
    width = -(-dim // 64) * 64
    # if TMA cannot store the result, the threads do
    by_tma = dim % 8 == 0 and out.data_ptr() % 16 == 0 and fits_output(cfg, width)
    call(
        bind(attention, cfg),
        (q.dtype, width, by_tma, *(mask_form(mask) for mask in masks)),
        (
            permuted_view(q, 2, 3, 1, 0),
            permuted_view(k, 2, 3, 1, 0),
            permuted_view(v, 3, 2, 1, 0),
            tuple(view_mask(mask) for mask in masks),
            permuted_view(out, 2, 3, 1, 0),
            scale,
            count_heads(cfg, q, k),
            ctas,
        ),
        (width, by_tma),
    )


def attention_sm90(cfg: Static, names: Static, q, k, v, masks: Many):
    """Return softmax(scale * q @ k^T) @ v, of q's shape and dtype.

    q, k and v have the configured element type and a head dimension of at most 256.
    """
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    q4, k4, v4, o4 = to_4d(q), to_4d(k), to_4d(v), to_4d(out)
    check_attention_operands(names, q4, k4, v4)
    if out.numel() == 0 or k.numel() == 0:
        return out.zero_()  # no keys: the sum over them is zero
    scale = q.shape[-1] ** -0.5 if cfg.scale is None else cfg.scale
    check_head_dim(q4, torch_dtype(cfg.element), torch_dtype(cfg.element))
    q4, k4, v4 = make_tma_readable(q4), make_tma_readable(k4), make_tma_readable(v4)
    masks = tuple(broadcast_mask(cfg, names, mask, (*q.shape[:-1], k.shape[-2])) for mask in masks)
    launch_attention(cfg, q4, k4, v4, masks, o4, scale, count_sms())
    return out
