"""Host side of convolutions with halos: checks, the plan, packed operands, the result, the launch."""

import functools

import torch

from workbench.kernels.conv.geometry import int32s
from workbench.kernels.conv.halo.kernel import conv_halo
from workbench.kernels.conv.halo.pack import pack_halo, pack_taps
from workbench.kernels.conv.halo.plan import plan_halo
from workbench.kernels.conv.host import (
    check_extents,
    check_filters,
    check_operands,
    expand_extents,
    find_unit_axis,
    make_result,
    max_active_clusters,
    view_along,
    view_like_output,
    view_vector,
)
from workbench.kernels.host import DynamicTensor, call, check_operand, check_rank
from workbench.kernels.static import Many, Static, bind, torch_dtype


@functools.cache
def plan_convolution(cfg: Static, extents, taps):
    """Return the plan for these extents; ValueError if the filters or the stages do not fit."""
    how = (cfg.padding, cfg.dilation, cfg.output_padding, cfg.transposed)
    tile = (cfg.tile_m, cfg.tile_n, cfg.tile_k)
    plan = plan_halo(extents, taps, how, tile, 16 // cfg.chunk, cfg.stages, cfg.stages_bytes)
    if plan is None:
        room = f"two stages do not fit into {cfg.stages_bytes} bytes of shared memory"
        raise ValueError(f"filters of {taps} do not fit into an input of {extents}, or {room}")
    return plan


def pack_operands(cfg: Static, x, w, plan, blocks):
    """Return A and B as CuTe tensors, and the positions of A."""
    images, channels, filters = x.shape[0], x.shape[1], w.shape[1] if cfg.transposed else w.shape[0]
    tiles_m, tiles_n = -(-images * plan.positions // cfg.tile_m), -(-filters // cfg.tile_n)
    positions = (tiles_m - 1) * cfg.tile_m + plan.span
    chunks = blocks * cfg.tile_k // cfg.chunk
    at_once = next(count for count in (8, 6, 4, 2, 1) if chunks % count == 0)
    packed = torch.empty(chunks * positions * cfg.chunk, dtype=x.dtype, device=x.device)
    mA = DynamicTensor(packed, align=16)
    x5 = expand_extents(x)
    axis = find_unit_axis(x5)
    whole = channels % cfg.tile_k == 0
    call(
        bind(pack_halo, cfg),
        (axis, plan.grid, plan.width, plan.origins, at_once, whole),
        (view_along(x5, axis), mA, int32s(images, channels, positions), int32s(chunks // at_once)[0]),
        (plan.grid, plan.width, plan.origins, at_once, whole),
    )
    packed = torch.empty(
        tiles_n * plan.steps * blocks * plan.taps * cfg.tile_n * cfg.tile_k, dtype=w.dtype, device=w.device
    )
    mB = DynamicTensor(packed, align=16)
    mW = DynamicTensor(w.detach().flatten(2).contiguous(), leading_dim=2)
    taps = (plan.steps, plan.taps)
    call(bind(pack_taps, cfg), taps, (mW, mB, int32s(channels, filters, blocks)), (taps,))
    return mA, mB, positions


def halo_convolution(cfg: Static, names: Static, x, w, operands: Many):
    """x (n, c, 1 to 3 extents), w in torch's layout -> the convolution at stride 1, by wgmma with halos."""
    check_rank(names["x"], x, 3, 5)
    check_rank(names["w"], w, x.dim(), x.dim())
    check_operand(names["x"], x, x.shape, (torch_dtype(cfg.stored),))
    check_operand(names["w"], w, w.shape, (torch_dtype(cfg.stored),))
    check_filters(cfg, x, w, 1)
    check_extents(x, w, (1,))
    plan = plan_convolution(cfg, tuple(x.shape[2:]), tuple(w.shape[2:]))
    filters = w.shape[1] if cfg.transposed else w.shape[0]
    y = make_result(cfg, x, (x.shape[0], filters, *plan.outputs))
    result = y.reshape(*y.shape[:2], *y.shape[7 - x.dim() :])
    check_operands(cfg, names, operands, (result.shape[0], filters, *result.shape[2:]))
    if y.numel() == 0:
        return result
    blocks = -(-x.shape[1] // cfg.tile_k)
    mA, mB, positions = pack_operands(cfg, x, w, plan, blocks)
    views = tuple(
        view_vector(operand) if read.along == "n" else view_like_output(operand, y, result.shape)
        for operand, read in zip(operands, cfg.reads, strict=True)
    )
    call(
        bind(conv_halo, cfg),
        (*(operand.dtype for operand in operands), plan),
        (mA, mB, views, DynamicTensor(y, leading_dim=4), int32s(x.shape[0], filters, blocks, positions)),
        (max_active_clusters(cfg), plan),
    )
    return result
