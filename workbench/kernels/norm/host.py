"""Host side of the norms: checks, results, threads of a row, the launch.

`residual` and `bias` are tuples of one tensor, or empty, as the configuration says.
"""

import cutlass
import torch

from workbench.kernels.host import FLOAT_DTYPES, call, check_operand, check_rank
from workbench.kernels.norm.kernel import launch_norm
from workbench.kernels.static import Many, Static, bind
from workbench.kernels.tensors import access_width, device_key, expect_contiguous, view_flat


def weights_width(width, *weights):
    """Elements of an access, at most `width`, that keep the weights aligned to as many bytes, at most 16."""
    while any(w.data_ptr() % min(16, width * w.element_size()) for w in weights):
        width //= 2
    return width


def row_threads(cfg: Static, columns):
    """Threads that share a row: a power of two, so that each has about `per_thread` elements."""
    return min(cfg.max_threads, max(32, 1 << (-(-columns // cfg.per_thread) - 1).bit_length()))


def expect_norm(names: Static, x, residual: Many, weight, bias: Many):
    """Refuse rows without elements, and other tensors that do not go with x."""
    check_operand(names["x"], x, x.shape)
    check_rank(names["x"], x, 1)
    if x.shape[-1] == 0:
        raise ValueError(f"{names['x']} has the shape {tuple(x.shape)}; the last axis must have elements")
    check_operand(names["weight"], weight, x.shape[-1:], FLOAT_DTYPES)
    for tensor in bias:
        check_operand(names["bias"], tensor, x.shape[-1:], (weight.dtype,))
    for tensor in residual:
        check_operand(names["residual"], tensor, x.shape, (x.dtype,))


def norm(cfg: Static, names: Static, x, residual: Many, weight, bias: Many, eps):
    """Norm of x, or of x + residual, over the last axis: (y, x + residual), both of x's shape and type.

    x and residual (..., columns) are contiguous float32, float16 or bfloat16; weight and bias (columns,) may be of
    another of these types.
    """
    expect_norm(names, x, residual, weight, bias)
    columns = x.shape[-1]
    y = torch.empty_like(x)
    total = x
    if cutlass.const_expr(cfg.adds_residual):
        total = torch.empty_like(x)
    expect_contiguous(x, y, total, *residual, weight, *bias)
    width = weights_width(access_width(columns, x, y, total, *residual), weight, *bias)
    threads = row_threads(cfg, columns)
    turns = -(-(columns // width) // threads)
    if turns * width > cfg.max_per_thread:
        most = cfg.max_threads * cfg.max_per_thread
        raise ValueError(f"{columns} columns do not fit the registers of {cfg.max_threads} threads: at most {most}")
    if x.numel() == 0:
        return y, total
    rows_per_cta = cfg.small_cta // threads if threads == 32 else 1
    align, weight_align = width * x.element_size(), min(16, width * weight.element_size())
    shift, added = (*bias, weight)[0], (*residual, x)[0]
    call(
        bind(launch_norm, cfg),
        (device_key(), x.dtype, weight.dtype, width, turns, threads, rows_per_cta),
        (
            view_flat(x, align),
            view_flat(added, align),
            view_flat(weight, weight_align),
            view_flat(shift, weight_align),
            view_flat(total, align),
            view_flat(y, align),
            x.numel() // columns,
            columns,
            eps,
        ),
        (width, turns, threads, rows_per_cta),
    )
    return y, total
