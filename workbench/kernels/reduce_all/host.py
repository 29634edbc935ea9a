"""Host side of the reduction of all elements: checks, types of sums, the grid, the launch."""

import cutlass
import torch

from workbench.kernels.host import FLOAT_DTYPES, call, check_operand
from workbench.kernels.reduce_all.kernel import launch_reduce_all
from workbench.kernels.static import Static, bind
from workbench.kernels.tensors import access_width, count_sms, device_key, expect_contiguous, view_flat, zero_counters


def accumulator_of(cfg: Static, dtype):
    """Return (torch dtype, CuTe type) of the accumulator: float32 for floats, int64 for sums of int32."""
    if dtype != torch.int32:
        return torch.float32, cutlass.Float32
    if cutlass.const_expr(cfg.op == "sum"):
        return torch.int64, cutlass.Int64
    return torch.int32, cutlass.Int32


def start_value(cfg: Static, dtype):
    """Return the identity of the reduction."""
    if cutlass.const_expr(cfg.op == "sum"):
        return 0
    if cutlass.const_expr(cfg.op == "max"):
        return torch.iinfo(torch.int32).min if dtype == torch.int32 else float("-inf")
    return torch.iinfo(torch.int32).max if dtype == torch.int32 else float("inf")


def reduce_all(cfg: Static, names: Static, x):
    """The sum, maximum or minimum of all elements of x, as a tensor without axes; bitwise reproducible on one device.

    x is contiguous, of any shape: float32, float16, bfloat16 or int32. The result is float32 for sums of floats, int64
    for sums of int32, and of x's type for maximum and minimum.
    """
    check_operand(names["x"], x, x.shape, (*FLOAT_DTYPES, torch.int32))
    if cutlass.const_expr(cfg.op != "sum"):  # noqa: SIM102
        if x.numel() == 0:
            raise ValueError(f"the {cfg.op} of no elements is not defined")
    expect_contiguous(x)
    accumulator, kind = accumulator_of(cfg, x.dtype)
    width = access_width(0, x)
    blocks = max(1, min(count_sms(x.device) * cfg.ctas_per_sm, -(-x.numel() // (width * cfg.threads))))
    result = torch.empty((), dtype=accumulator if cfg.op == "sum" else x.dtype, device=x.device)
    partials = torch.empty(blocks, dtype=accumulator, device=x.device)
    call(
        bind(launch_reduce_all, cfg),
        (device_key(), x.dtype, width),
        (
            view_flat(x, width * x.element_size()),
            view_flat(partials, partials.element_size()),
            view_flat(result, result.element_size()),
            view_flat(zero_counters(x.device, 1), 4),
            x.numel(),
            kind(start_value(cfg, x.dtype)),
            blocks,
        ),
        (width,),
    )
    return result
