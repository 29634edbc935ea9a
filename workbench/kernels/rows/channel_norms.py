"""Norms with one weight and bias per channel: x (batch, channels, ...) -> y of its shape.

`affine` is () or (weight, bias).
"""

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import cute

from workbench.kernels.host import EXACT_DTYPES, FLOAT_DTYPES, call, check_operand, check_rank
from workbench.kernels.rows.host import reduce_into, row_reduction
from workbench.kernels.rows.reductions import reduce_rows
from workbench.kernels.rows.two_pass_host import two_pass_columns, two_pass_reduction, value_tensor
from workbench.kernels.static import Many, Static, bind


@cute.kernel
def running_kernel(
    cfg: Static,
    mean: cute.Tensor,
    variance: cute.Tensor,
    running_mean: cute.Tensor,
    running_var: cute.Tensor,
    batches: cute.Tensor,
    channels: cutlass.Int32,
    count: cutlass.Int32,
):
    """Update the running statistics, one thread per channel; the running variance is the unbiased one."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    channel = bidx * 128 + tidx
    if channel < channels:
        before = running_mean[channel].to(cutlass.Float32)
        running_mean[channel] = (cfg.keep * before + cfg.momentum * mean[channel]).to(running_mean.element_type)
        sample = variance[channel] * (count.to(cutlass.Float32) / (count - 1).to(cutlass.Float32))
        before = running_var[channel].to(cutlass.Float32)
        running_var[channel] = (cfg.keep * before + cfg.momentum * sample).to(running_var.element_type)
    if channel == 0:
        batches[0] = batches[0] + 1


@cute.jit
def launch_running(
    cfg: Static,
    mean: cute.Tensor,
    variance: cute.Tensor,
    running_mean: cute.Tensor,
    running_var: cute.Tensor,
    batches: cute.Tensor,
    channels: cutlass.Int32,
    count: cutlass.Int32,
    stream: cuda.CUstream,
):
    running_kernel(cfg, mean, variance, running_mean, running_var, batches, channels, count).launch(
        grid=[(channels + 127) // 128, 1, 1], block=[128, 1, 1], stream=stream
    )


def check_channels(names: Static, least: Static, x, affine: Many):
    """Check that weight and bias have one element per channel."""
    check_rank(names[0], x, least)
    for name, values in zip(names[1:], affine, strict=True):
        check_operand(name, values, (x.shape[1],), EXACT_DTYPES)


def instance_norm(cfg: Static, names: Static, x, affine: Many):
    """Normalise each channel of each sample by itself."""
    check_channels(names, 3, x, affine)
    weights = tuple(values.view(-1, 1) for values in affine)
    y = reduce_rows(cfg, names, (x.reshape(*x.shape[:2], x.shape[2:].numel()),), weights)
    return y.view(x.shape)


def check_groups(names: Static, groups: Static, x):
    """Check that all groups have as many channels."""
    if x.shape[1] % groups:
        raise ValueError(
            f"{names[0]} has {x.shape[1]} channels; this kernel wants groups of them, {groups}, to be equal"
        )


def group_norm(cfg: Static, names: Static, groups: Static, x, affine: Many):
    """Normalise groups of channels of each sample."""
    check_channels(names, 2, x, affine)
    check_groups(names, groups, x)
    weights = tuple(values.view(groups, -1, 1) for values in affine)
    grouped = x.reshape(x.shape[0], groups, x.shape[1] // groups, x.shape[2:].numel())
    y = reduce_rows(cfg, names, (grouped,), weights)
    return y.view(x.shape)


def group_norm_means(cfg: Static, ending: Static, keepdim: Static, names: Static, groups: Static, x, affine: Many):
    """Return the mean over its positions of each channel of a group norm, (batch, channels); x is read once.

    `cfg` computes mean and variance of each channel, `ending` the results of a group from those of its channels.
    """
    check_channels(names, 3, x, affine)
    check_groups(names, groups, x)
    batch, channels = x.shape[:2]
    moments = row_reduction(cfg, names[:1], (x.reshape(batch, channels, x.shape[2:].numel()),), ())
    y = torch.empty((batch, channels), dtype=x.dtype, device=x.device)
    if y.numel():
        weights = tuple(values.view(groups, -1) for values in affine)
        by_group = (batch, groups, channels // groups)
        reduce_into(ending, (moments[0].view(by_group), moments[1].view(by_group)), weights, y.view(by_group))
    return y.view(batch, channels, *[1] * (x.dim() - 2)) if cutlass.const_expr(keepdim) else y


def batch_norm(cfg: Static, names: Static, x, affine: Many):
    """Normalise each channel over the batch."""
    check_channels(names, 2, x, affine)
    weights = tuple(values.view(-1, *[1] * (x.dim() - 2)) for values in affine)
    return reduce_channels(cfg, names, x, weights)


def reduce_channels(cfg: Static, names: Static, x, weights: Many):
    """Reduce all axes but that of the channels, or the first of x (batch, channels)."""
    if cutlass.const_expr(cfg.layout == "columns"):
        if x.dim() != 2:
            raise ValueError(f"{names[0]} has {x.dim()} axes; axis=first wants (batch, channels)")
        return two_pass_columns(cfg, names, (x,), weights)
    return two_pass_reduction(cfg, names, (x,), weights)


def batch_norm_training(
    cfg: Static,
    running: Static,
    names: Static,
    running_names: Static,
    x,
    affine: Many,
    running_mean,
    running_var,
    batches,
):
    """Normalise each channel over the batch and update the running statistics."""
    check_channels(names, 2, x, affine)
    weights = tuple(values.view(-1, *[1] * (x.dim() - 2)) for values in affine)
    check_operand(running_names[0], running_mean, (x.shape[1],), FLOAT_DTYPES)
    check_operand(running_names[1], running_var, (x.shape[1],), FLOAT_DTYPES)
    if x.numel() == 0:
        return torch.empty_like(x)
    y, mean, variance = reduce_channels(cfg, names, x, weights)
    call(
        bind(launch_running, running),
        (),
        (
            value_tensor(mean),
            value_tensor(variance),
            value_tensor(running_mean.view(-1)),
            value_tensor(running_var.view(-1)),
            value_tensor(batches.view(-1)),
            x.shape[1],
            x.numel() // x.shape[1],
        ),
    )
    return y
