"""Host side of convolutions over channels-last images: checks, geometry, the result, the launch."""

import math

import torch

from workbench.kernels.conv.channels_last.kernel import launch_conv2d
from workbench.kernels.conv.geometry import int32s
from workbench.kernels.host import call, check_operand, check_rank
from workbench.kernels.static import Static, bind, torch_dtype
from workbench.kernels.tensors import device_key, expect_on_device, view_flat, view_last


def expand_pair(value, name, least):
    """Return (vertical, horizontal) of a setting that is one number or two."""
    both = (value, value) if isinstance(value, int) else (value[0], value[1])
    if min(both) < least:
        raise ValueError(f"{name} must be one or two numbers, at least {least}, not {value}")
    return both


def expect_images(names: Static, x, w):
    """Refuse images and filters that do not go together, or whose channels do not come last in memory."""
    check_rank(names["x"], x, 4, 4)
    check_rank(names["w"], w, 4, 4)
    if x.shape[1] != w.shape[1]:
        raise ValueError(f"filters of shape {tuple(w.shape)} for images of shape {tuple(x.shape)}")
    expect_on_device(x, w)
    for name, tensor in ((names["x"], x), (names["w"], w)):
        if not tensor.permute(0, 2, 3, 1).is_contiguous():
            advice = f"{name}.contiguous(memory_format=torch.channels_last)"
            raise ValueError(f"{name} must be contiguous with the channels last: {advice}")


def output_extents(x, w, stride, padding, dilation):
    """Return (rows, columns) of the output."""
    extents = []
    for axis in (0, 1):
        window = dilation[axis] * (w.shape[2 + axis] - 1) + 1
        extents.append((x.shape[2 + axis] + 2 * padding[axis] - window) // stride[axis] + 1)
    if min(extents) < 1 or min(w.shape) < 1:
        fitting = f"images of {tuple(x.shape[2:])} with padding {padding} and dilation {dilation}"
        raise ValueError(f"filters of {tuple(w.shape[2:])} do not fit into {fitting}")
    return extents


def plan_output(names: Static, x, w, stride, padding, dilation):
    """Check images and filters; return (extents of the output; stride, padding and dilation as pairs)."""
    expect_images(names, x, w)
    stride, padding = expand_pair(stride, "stride", 1), expand_pair(padding, "padding", 0)
    dilation = expand_pair(dilation, "dilation", 1)
    return output_extents(x, w, stride, padding, dilation), stride, padding, dilation


def pad_channels(tensor):
    """Return the tensor with its channels padded with zeros to a multiple of 4, so that cp.async can copy them."""
    missing = -tensor.shape[1] % 4
    if not missing:
        return tensor
    return torch.nn.functional.pad(tensor.permute(0, 2, 3, 1), (0, missing)).permute(0, 3, 1, 2)


def conv2d(cfg: Static, names: Static, x, w, stride, padding, dilation):
    """x (images, channels, height, columns), w (filters, channels, R, S) -> (images, filters, P, Q) of x's type.

    All of the configured type, in memory order channels_last, summed in float32. stride, padding and dilation are one
    number or (vertical, horizontal); no bias, no groups.
    """
    check_operand(names["x"], x, x.shape, (torch_dtype(cfg.element),))
    check_operand(names["w"], w, w.shape, (torch_dtype(cfg.element),))
    out, stride, padding, dilation = plan_output(names, x, w, stride, padding, dilation)
    x, w = pad_channels(x), pad_channels(w)
    images, channels, height, columns = x.shape
    filters, pixels = w.shape[0], images * out[0] * out[1]
    y = torch.empty((images, filters, *out), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    if pixels == 0:
        return y
    width, pairs = math.gcd(8, channels, x.data_ptr() // 2, w.data_ptr() // 2), filters % 2 == 0
    geometry = (*int32s(height, columns, *out, channels, pixels), int32s(*stride), int32s(*padding))
    call(
        bind(launch_conv2d, cfg),
        (device_key(), width, pairs),
        (
            view_flat(x.permute(0, 2, 3, 1), 2 * width),
            view_last(w.permute(0, 2, 3, 1).reshape(filters, -1), 2 * width),
            view_flat(y.permute(0, 2, 3, 1), 4),
            geometry,
            int32s(*w.shape[2:]),
            int32s(*dilation),
            filters,
        ),
        (width, pairs),
    )
    return y
