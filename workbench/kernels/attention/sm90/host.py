"""Host side of attention on Hopper: operands that TMA can read, the width of tiles, sections of heads, the launch."""

import functools

import cutlass
import cutlass.utils as utils
import torch
from cutlass.cute.runtime import from_dlpack

from workbench.kernels.attention.host import expect_attention, expect_dim, to_4d
from workbench.kernels.attention.sm90.kernel import attention, fits_output
from workbench.kernels.attention.sm90.pack import readable_by_tma
from workbench.kernels.host import call
from workbench.kernels.static import Static, bind, torch_dtype


@functools.cache
def count_sms():
    """SMs of the device."""
    return utils.HardwareInfo().get_device_multiprocessor_count()


def permuted_view(tensor, *order):
    """The tensor for CuTe, its axes in this order, with dynamic sizes."""
    leading = order.index(3)
    return from_dlpack(tensor.detach().permute(order), assumed_align=16).mark_layout_dynamic(leading_dim=leading)


def launch_attention(cfg: Static, q, k, v, out, scale, ctas):
    """Compute `out` on at most `ctas` CTAs; all operands (batch, heads, rows, dim), q, k and v as TMA can read them."""
    dim = q.shape[3]
    width = -(-dim // 64) * 64
    # otherwise the threads store the result
    by_tma = dim % 8 == 0 and out.data_ptr() % 16 == 0 and fits_output(cfg, width)
    section = max(1, min(q.shape[0] * q.shape[1], cfg.l2_bytes // (4 * k.shape[2] * dim)))
    call(
        bind(attention, cfg),
        (q.dtype, width, by_tma),
        (
            permuted_view(q, 2, 3, 1, 0),
            permuted_view(k, 2, 3, 1, 0),
            permuted_view(v, 3, 2, 1, 0),
            permuted_view(out, 2, 3, 1, 0),
            cutlass.Float32(scale),
            cutlass.Int32(section),
            cutlass.Int32(ctas),
        ),
        (width, by_tma),
    )


def attention_sm90(cfg: Static, names: Static, q, k, v):
    """softmax(scale * q @ k^T) @ v, of q's shape and dtype; q, k, v of the configured element, dims up to 256."""
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    q4, k4, v4, o4 = to_4d(q), to_4d(k), to_4d(v), to_4d(out)
    expect_attention(names, q4, k4, v4)
    if out.numel() == 0 or k.numel() == 0:
        return out.zero_()  # nothing to attend to
    scale = q.shape[-1] ** -0.5 if cfg.scale is None else cfg.scale
    expect_dim(q4, torch_dtype(cfg.element), torch_dtype(cfg.element))
    q4, k4, v4 = readable_by_tma(q4), readable_by_tma(k4), readable_by_tma(v4)
    launch_attention(cfg, q4, k4, v4, o4, scale, count_sms())
    return out
