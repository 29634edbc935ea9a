"""Host side of the convolutions: check torch tensors, pack operands, launch, return the output in torch's layout.

`names` maps x, w and the roles of epilogue operands to their names in messages. Raises ValueError for shapes and
TypeError for dtypes.
"""

import functools

import torch
from cutlass import utils

from workbench.kernels.conv.direct import direct_conv
from workbench.kernels.conv.geometry import int32s, plan_geometry
from workbench.kernels.conv.layout_transforms import pack_activations, pack_filters
from workbench.kernels.conv.patch.plan import expand_setting
from workbench.kernels.conv.sliding_window import sliding_conv
from workbench.kernels.conv.sm80 import conv_sm80
from workbench.kernels.conv.sm90 import conv_sm90
from workbench.kernels.host import EXACT_DTYPES, DynamicTensor, call, check_operand, check_rank
from workbench.kernels.static import Many, Static, bind, dtype, torch_dtype


@functools.cache
def max_active_clusters(cfg: Static):
    """Return how many clusters of this shape the device runs at once."""
    return utils.HardwareInfo().get_max_active_clusters(cfg.cluster)


def find_unit_axis(tensor):
    """Return the last axis whose stride is 1, or None."""
    return next((axis for axis in (4, 3, 2, 1, 0) if tensor.stride(axis) == 1), None)


def view_along(tensor, axis):
    """Return a CuTe tensor with dynamic shape and strides, contiguous along `axis` unless it is None."""
    return DynamicTensor(tensor, **({} if axis is None else {"leading_dim": axis}))


def view_vector(tensor):
    """Return the CuTe tensor of a vector with one element per filter."""
    return DynamicTensor(tensor.detach().contiguous())


def view_like_output(tensor, y, shape):
    """Return the CuTe tensor of an operand, broadcast to the output's shape, in the layout of y (n, k, z, p, q)."""
    view = torch.broadcast_to(tensor.detach(), shape).reshape(y.shape)
    if view.stride() != y.stride():
        view = torch.empty_like(y, dtype=view.dtype).copy_(view)
    return DynamicTensor(view, leading_dim=4)


def expand_extents(tensor):
    """Expand a tensor with one to three extents after two axes to three extents."""
    return tensor.detach().unflatten(2, (1,) * (5 - tensor.dim()) + (tensor.shape[2],))


def check_filters(cfg: Static, x, w, groups):
    """Check that the filters have the channels of the input."""
    channels = w.shape[0] if cfg.transposed else w.shape[1] * groups
    if channels != x.shape[1]:
        raise ValueError(f"filters of shape {tuple(w.shape)} for an input of shape {tuple(x.shape)} in {groups} groups")


def check_extents(x, w, outputs):
    """Check that the filters fit into the input and that there are channels."""
    if min(outputs) < 1:
        raise ValueError(f"filters of {tuple(w.shape[2:])} do not fit into an input of {tuple(x.shape[2:])}")
    if x.shape[1] == 0:
        raise ValueError(f"x has the shape {tuple(x.shape)}; this kernel wants at least one channel")


def check_operands(cfg: Static, names: Static, operands: Many, shape):
    """Check the epilogue's operands: one element per filter, or a shape that broadcasts to the output's."""
    for operand, read in zip(operands, cfg.reads, strict=True):
        if read.along == "n":
            check_operand(names[read.role], operand, (shape[1],), EXACT_DTYPES)
        else:
            check_operand(names[read.role], operand, shape, EXACT_DTYPES, broadcast=True)


def make_result(cfg: Static, x, output):
    """Return y for results of shape `output` (n, k, z, p, q); with one channel where the filters are reduced.

    Raises ValueError if a tile does not hold the filters that are reduced.
    """
    if cfg.reduction and output[1] > cfg.tile_n:
        raise ValueError(f"{output[1]} filters are reduced in a tile of {cfg.tile_n}")
    shape = (output[0], 1 if cfg.reduction else output[1], *output[2:])
    return torch.empty(shape, dtype=torch_dtype(cfg.result) if cfg.result else x.dtype, device=x.device)


def direct_convolution(cfg: Static, names: Static, x, w, operands: Many):
    """x (n, c, 1 to 3 extents), w in torch's layout -> the convolution, by direct sums on CUDA cores."""
    check_rank(names["x"], x, 3, 5)
    check_rank(names["w"], w, x.dim(), x.dim())
    check_operand(names["x"], x, x.shape)
    if x.dtype != w.dtype:
        raise TypeError(f"this kernel multiplies one type, not {x.dtype} by {w.dtype}")
    space, groups = x.dim() - 2, x.shape[1] if cfg.depthwise else cfg.groups
    stride = expand_setting(cfg.stride, space, 1)
    padding = expand_setting(cfg.padding, space, 0)
    dilation = expand_setting(cfg.dilation, space, 1)
    check_filters(cfg, x, w, groups)
    x5, w5 = expand_extents(x), expand_extents(w)
    taps = tuple(w5.shape[2:])
    if cfg.transposed:
        output_padding = expand_setting(cfg.output_padding, space, 0)
        outputs = [
            (x5.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (taps[i] - 1) + output_padding[i] + 1
            for i in range(3)
        ]
    else:
        outputs = [
            (x5.shape[2 + i] + 2 * padding[i] - dilation[i] * (taps[i] - 1) - 1) // stride[i] + 1 for i in range(3)
        ]
    check_extents(x, w, outputs)
    filters = w.shape[1] * groups if cfg.transposed else w.shape[0]
    y = torch.empty(
        x.shape[0], filters, *outputs, dtype=torch_dtype(cfg.result) if cfg.result else x.dtype, device=x.device
    )
    result = y.reshape(*y.shape[:2], *outputs[3 - space :])
    check_operands(cfg, names, operands, result.shape)
    if y.numel() == 0:
        return result
    axis_x, axis_w, axis_y = find_unit_axis(x5), find_unit_axis(w5), find_unit_axis(y)
    mX, mW, mY = view_along(x5, axis_x), view_along(w5, axis_w), view_along(y, axis_y)
    views = tuple(
        view_vector(operand) if read.along == "n" else view_like_output(operand, y, result.shape)
        for operand, read in zip(operands, cfg.reads, strict=True)
    )
    key = (x.dtype, *(operand.dtype for operand in operands), axis_x, axis_w, axis_y)
    if cfg.rows is None:
        call(
            bind(direct_conv, cfg),
            key,
            (mX, mW, views, mY, int32s(*stride), int32s(*padding), int32s(*dilation), groups),
        )
    else:
        call(
            bind(sliding_conv, cfg),
            (*key, stride, padding, dilation, taps),
            (mX, mW, views, mY, groups),
            (stride, padding, dilation, taps),
        )
    return result


def pack_input(cfg: Static, x, geometry, origins):
    """Return A (positions, channels) of the implicit GEMM as a CuTe tensor."""
    x5 = expand_extents(x)
    axis = find_unit_axis(x5)
    tile_c = next(width for width in (1024 // dtype(cfg.stored).width, cfg.tile_k) if geometry.columns % width == 0)
    tile_q = 128 if geometry.line > 64 else 64  # positions of one CTA
    packed = torch.empty(geometry.rows, geometry.columns, dtype=x.dtype, device=x.device)
    mA = DynamicTensor(packed, align=16, leading_dim=1)
    one_to_one, channels_per_tap = geometry.one_to_one, geometry.channels_per_tap
    mX = view_along(x5, axis)
    call(
        bind(pack_activations, cfg),
        (x.dtype, axis, tile_c, tile_q, one_to_one, channels_per_tap),
        (mX, mA, origins, geometry.grid, geometry.steps, geometry.tap_stride, geometry.activation_sizes),
        (tile_c, tile_q, one_to_one, channels_per_tap),
    )
    return mA


def pack_weights(cfg: Static, w, geometry, taps):
    """Return B (k, taps * channels) of the implicit GEMM as a CuTe tensor."""
    packed = torch.empty(geometry.output[1], geometry.filter_columns, dtype=w.dtype, device=w.device)
    mB = DynamicTensor(packed, align=16, leading_dim=1)
    mW = DynamicTensor(w.detach().flatten(2).contiguous(), leading_dim=2)
    call(bind(pack_filters, cfg), (w.dtype,), (mW, mB, taps, geometry.filter_sizes))
    return mB


def implicit_gemm_convolution(cfg: Static, names: Static, x, w, operands: Many):
    """x (n, c, 1 to 3 extents), w in torch's layout -> the convolution, by an implicit GEMM on tensor cores."""
    if x.dtype != torch_dtype(cfg.stored) or w.dtype != torch_dtype(cfg.stored):
        raise TypeError(f"this kernel multiplies {torch_dtype(cfg.stored)}, not {x.dtype} by {w.dtype}")
    check_rank(names["x"], x, 3, 5)
    check_rank(names["w"], w, x.dim(), x.dim())
    geometry = plan_geometry(cfg, tuple(x.shape), tuple(w.shape), x.device)
    y = make_result(cfg, x, geometry.output)
    result = y.reshape(*y.shape[:2], *y.shape[7 - x.dim() :])
    check_operands(cfg, names, operands, (result.shape[0], geometry.output[1], *result.shape[2:]))
    if y.numel() == 0:
        return result
    if x.shape[1] == 0:
        raise ValueError(f"x has the shape {tuple(x.shape)}; this kernel wants at least one channel")
    taps, phases, origins = (DynamicTensor(table, leading_dim=1) for table in geometry.tables)
    mA = pack_input(cfg, x, geometry, origins)
    mB = pack_weights(cfg, w, geometry, taps)
    mY = DynamicTensor(y, leading_dim=4)
    views = tuple(
        view_vector(operand) if read.along == "n" else view_like_output(operand, y, result.shape)
        for operand, read in zip(operands, cfg.reads, strict=True)
    )
    key = (x.dtype, *(operand.dtype for operand in operands))
    if cfg.warpgroup_mma:
        call(
            bind(conv_sm90, cfg),
            key,
            (mA, mB, taps, phases, views, mY, geometry.grid, geometry.scale, geometry.gemm_sizes),
            (max_active_clusters(cfg),),
        )
    else:
        call(
            bind(conv_sm80, cfg),
            key,
            (mA, mB, taps, phases, views, mY, geometry.grid, geometry.scale, geometry.gemm_sizes),
        )
    return result
