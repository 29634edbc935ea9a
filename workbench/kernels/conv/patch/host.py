"""Host side of convolutions by patches: checks, the plan, packed filters, the result, the launch."""

import functools

import torch

from workbench.kernels.conv.geometry import int32s
from workbench.kernels.conv.host import (
    check_extents,
    check_filters,
    check_operands,
    expand_extents,
    find_unit_axis,
    view_along,
    view_like_output,
    view_vector,
)
from workbench.kernels.conv.patch.filters import pack_fragments
from workbench.kernels.conv.patch.kernel import patch_conv
from workbench.kernels.conv.patch.plan import count_tiles, plan_patches
from workbench.kernels.host import DynamicTensor, call, check_operand, check_rank
from workbench.kernels.static import Many, Static, bind, torch_dtype


@functools.cache
def plan_convolution(cfg: Static, extents, taps, channels, device):
    """Return (plan, table of k, ranges of phases) for these extents; ValueError if no patch fits."""
    how = (cfg.stride, cfg.padding, cfg.dilation, cfg.output_padding, cfg.transposed)
    tile = (cfg.tile_m, cfg.tile_n, cfg.tile_k)
    plan = plan_patches(extents, taps, channels, how, tile, cfg.stages, cfg.smem_bytes)
    if plan is None:
        raise ValueError(f"filters of {taps}: their patches do not fit into {cfg.smem_bytes} bytes of shared memory")
    tables = [torch.tensor(table, dtype=torch.int32).to(device) for table in (plan.entries, plan.ranges)]
    return plan, tables[0], tables[1]


def patch_convolution(cfg: Static, names: Static, x, w, operands: Many):
    """x (n, c, 1 to 3 extents), w in torch's layout -> the convolution, by patches in shared memory."""
    check_rank(names["x"], x, 3, 5)
    check_rank(names["w"], w, x.dim(), x.dim())
    check_operand(names["x"], x, x.shape, (torch.float32,))
    check_operand(names["w"], w, w.shape, (torch.float32,))
    check_filters(cfg, x, w, cfg.groups)
    check_extents(x, w, (1,))
    channels = x.shape[1] // cfg.groups
    filters = w.shape[1] if cfg.transposed else w.shape[0] // cfg.groups
    plan, entries, ranges = plan_convolution(cfg, tuple(x.shape[2:]), tuple(w.shape[2:]), channels, x.device)
    outputs = [axis.outputs for axis in plan.axes]
    check_extents(x, w, outputs)
    y = torch.empty(
        x.shape[0],
        filters * cfg.groups,
        *outputs,
        dtype=torch_dtype(cfg.result) if cfg.result else x.dtype,
        device=x.device,
    )
    result = y.reshape(*y.shape[:2], *outputs[5 - x.dim() :])
    check_operands(cfg, names, operands, result.shape)
    if y.numel() == 0:
        return result
    sizes = int32s(channels, filters, cfg.groups, plan.channels)
    table = DynamicTensor(entries, leading_dim=1)
    tiles_n = -(-filters // cfg.tile_n) * cfg.groups
    packed = torch.empty(
        -(-channels // plan.channels) * tiles_n * len(plan.entries) * cfg.tile_n, dtype=w.dtype, device=w.device
    )
    mB = DynamicTensor(packed, align=16)
    mW = DynamicTensor(w.detach().flatten(2).contiguous(), leading_dim=2)
    call(bind(pack_fragments, cfg), (), (mW, mB, table, sizes))
    x5 = expand_extents(x)
    axis = find_unit_axis(x5)
    pairs = cfg.phases == 2 and outputs[2] % 2 == 0
    views = tuple(
        view_vector(operand) if read.along == "n" else view_like_output(operand, y, result.shape)
        for operand, read in zip(operands, cfg.reads, strict=True)
    )
    shape = (plan.box, plan.patch, plan.pitch, plan.channels, plan.zeros, plan.stages)
    steps = tuple(each.step for each in plan.axes)
    scales = tuple(each.scale for each in plan.axes)
    tiles = int32s(*count_tiles(plan.axes, plan.box))
    low = int32s(*(each.low for each in plan.axes))
    call(
        bind(patch_conv, cfg),
        (axis, *(operand.dtype for operand in operands), shape, steps, scales, plan.blocks, pairs),
        (
            view_along(x5, axis),
            mB,
            table,
            DynamicTensor(ranges, leading_dim=1),
            views,
            DynamicTensor(y, align=8 if pairs else None, leading_dim=4),
            tiles,
            low,
            sizes,
        ),
        (shape, steps, scales, plan.blocks, pairs),
    )
    return result
