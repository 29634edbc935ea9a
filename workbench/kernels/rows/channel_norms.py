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
def statistics_kernel(
    cfg: Static,
    mean: cute.Tensor,
    variance: cute.Tensor,
    scales: Many[cute.Tensor],
    running: Many[cute.Tensor],
    channels: cutlass.Int32,
    count: cutlass.Int32,
):
    """Update the running statistics, one thread per channel; the running variance is the unbiased one.

    `scales` is () or one tensor for 1 / sqrt(variance + eps), `running` () or (mean, variance, number of batches).
    """
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    channel = bidx * 128 + tidx
    if channel < channels:
        for scale in scales:
            scale[channel] = cute.math.rsqrt(variance[channel] + cutlass.Float32(cfg.eps))
        if cutlass.const_expr(len(running) > 0):
            means, variances, counter = running
            before = means[channel].to(cutlass.Float32)
            means[channel] = (cfg.keep * before + cfg.momentum * mean[channel]).to(means.element_type)
            sample = variance[channel] * (count.to(cutlass.Float32) / (count - 1).to(cutlass.Float32))
            before = variances[channel].to(cutlass.Float32)
            variances[channel] = (cfg.keep * before + cfg.momentum * sample).to(variances.element_type)
            if channel == 0:
                counter[0] = counter[0] + 1


@cute.jit
def launch_statistics(
    cfg: Static,
    mean: cute.Tensor,
    variance: cute.Tensor,
    scales: Many[cute.Tensor],
    running: Many[cute.Tensor],
    channels: cutlass.Int32,
    count: cutlass.Int32,
    stream: cuda.CUstream,
):
    statistics_kernel(cfg, mean, variance, scales, running, channels, count).launch(
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


def write_statistics(cfg: Static, x, mean, variance, scales: Many, running: Many):
    """Launch the kernel that derives what is wanted of the statistics of x."""
    call(
        bind(launch_statistics, cfg),
        (*(values.dtype for values in running),),
        (
            value_tensor(mean),
            value_tensor(variance),
            tuple(value_tensor(values) for values in scales),
            tuple(value_tensor(values.view(-1)) for values in running),
            x.shape[1],
            x.numel() // x.shape[1],
        ),
    )


def check_running(names: Static, x, running: Many):
    """Check that the running mean and variance have one element per channel."""
    for name, values in zip(names, running[:2], strict=True):
        check_operand(name, values, (x.shape[1],), FLOAT_DTYPES)


def batch_norm_training(
    cfg: Static, statistics: Static, names: Static, running_names: Static, x, affine: Many, running: Many
):
    """Normalise each channel over the batch and update the running statistics."""
    check_channels(names, 2, x, affine)
    weights = tuple(values.view(-1, *[1] * (x.dim() - 2)) for values in affine)
    check_running(running_names, x, running)
    if x.numel() == 0:
        return torch.empty_like(x)
    y, mean, variance = reduce_channels(cfg, names, x, weights)
    write_statistics(statistics, x, mean, variance, (), running)
    return y


def batch_norm_stats(cfg: Static, statistics: Static, names: Static, running_names: Static, x, running: Many):
    """Return mean and 1 / sqrt(variance + eps) of each channel, (channels, 1, ...) in float32.

    Running statistics, if there are any, are updated. Of no elements both are zeros.
    """
    check_channels(names, 2, x, ())
    check_running(running_names, x, running)
    shape = (x.shape[1], *[1] * (x.dim() - 2))
    if x.numel() == 0:
        none = torch.zeros(shape, dtype=torch.float32, device=x.device)
        return none, none
    scale = torch.empty(shape, dtype=torch.float32, device=x.device)
    _, mean, variance = reduce_channels(cfg, names, x, ())
    write_statistics(statistics, x, mean, variance, (scale.view(-1),), running)
    return mean.view(shape), scale
