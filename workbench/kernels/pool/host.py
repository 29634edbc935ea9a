"""Pooling of a torch tensor over its last one to three axes: check, allocate the result, launch."""

import math

import cutlass
import torch

from workbench.kernels.host import FLOAT_DTYPES, DynamicTensor, call, check_operand, check_rank
from workbench.kernels.pool.cells import launch_cells, plan_cells
from workbench.kernels.pool.direct import launch_pool
from workbench.kernels.pool.strip import launch_strip, plan_tiles
from workbench.kernels.pool.window import extent
from workbench.kernels.static import Static, bind


def pool(cfg: Static, names: Static, x):
    """Return maxima or averages of windows, with torch's padding, dilation and rounding of extents."""
    x = x.detach().contiguous()
    check_rank(names["x"], x, cfg.rank)
    check_operand(names["x"], x, x.shape, FLOAT_DTYPES)
    lead, inner = x.shape[: -cfg.rank], x.shape[-cfg.rank :]
    outer = [extent(cfg, size, axis) for axis, size in enumerate(inner, cfg.first_axis)]
    if min(outer) < 1:
        raise ValueError(f"{names['x']} has the shape {tuple(x.shape)}; the window does not fit into it")
    y = torch.empty(*lead, *outer, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x4, y4 = x.view(math.prod(lead), *cfg.ones, *inner), y.view(math.prod(lead), *cfg.ones, *outer)
    if cutlass.const_expr(cfg.schedule == "cells"):
        vector = math.gcd(inner[-1], 16 // x.element_size(), x.data_ptr() // x.element_size())
        cell, width, cells, across = plan_cells(cfg, inner[-1], vector, cfg.threads)
        call(
            bind(launch_cells, cfg),
            (x.dtype, across, cell, width),
            (
                DynamicTensor(x4, align=width * x.element_size(), leading_dim=3),
                DynamicTensor(y4, align=cell // cfg.window[2] * x.element_size(), leading_dim=3),
                y.numel() // outer[-1],
                cells,
            ),
            (across, cell, width),
        )
    elif cutlass.const_expr(cfg.schedule == "strip"):
        vector = math.gcd(inner[-1], 16 // x.element_size(), x.data_ptr() // x.element_size())
        tile, across = plan_tiles(cfg, outer[-1], vector)
        call(
            bind(launch_strip, cfg),
            (x.dtype, tile, across, vector),
            (
                DynamicTensor(x4, align=vector * x.element_size(), leading_dim=3),
                DynamicTensor(y4, leading_dim=3),
            ),
            (tile, across, vector),
        )
    else:
        call(
            bind(launch_pool, cfg),
            x.dtype,
            (
                DynamicTensor(x4, leading_dim=3),
                DynamicTensor(y4, leading_dim=3),
            ),
        )
    return y
