"""Pooling whose result is reduced over its plane: one CTA per plane, and what is pooled stays in registers.

Windows lie side by side and are read as in `cells`.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch

from workbench.kernels.host import FLOAT_DTYPES, DynamicTensor, call, check_operand, check_rank
from workbench.kernels.pool.cells import combine_window, load_cell, make_fragment, plan_cells
from workbench.kernels.rows.block_reduce import all_reduce
from workbench.kernels.static import Many, Static, bind, dtype


@cute.jit
def reduce_rows_of_windows(
    cfg: Static,
    level: Static,
    state: Many,
    x: cute.Tensor,
    start,
    first,
    rows,
    height,
    column,
    groups: cutlass.Constexpr,
    cell: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    """Load a cell in TURNS rows of windows, then accumulate its windows into the thread's state."""
    fragment = make_fragment(cfg.pool, x.element_type, cfg.turns, cell, width)
    for turn in cutlass.range_constexpr(cfg.turns):
        row = first + turn * groups
        if row < rows:
            cell_fragment = fragment[None, None, None, turn]
            load_cell(cfg.pool, x, cell_fragment, start, row // height, row % height, column * cell, cell)
    for turn in cutlass.range_constexpr(cfg.turns):
        if first + turn * groups < rows:
            for window in cutlass.range_constexpr(cell // cfg.pool.window[2]):
                state = level.absorb(*state, combine_window(cfg.pool, fragment, turn, window, width))
    return state


@cute.kernel
def planes_kernel(
    cfg: Static,
    x: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    height: cutlass.Int32,
    cells: cutlass.Int32,
    count: cutlass.Int32,
    across: cutlass.Constexpr,
    cell: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    """Pool and reduce a plane: `rows` rows of windows, `height` in each layer, `cells` cells and `count` windows."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    groups = cfg.threads // across
    smem = cutlass.memory.SmemAllocator()
    memory = tuple(smem.allocate_tensor(dtype(slot.kind), cute.make_layout(cfg.warps), 16) for slot in cfg.rows.memory)
    start = x.iterator + cutlass.Int64(bidx) * (x.shape[1] * x.shape[2] * x.shape[3])
    state = cfg.level.start()
    for column in range(tidx % across, cells, across):
        for first in range(tidx // across, rows, groups * cfg.turns):
            state = reduce_rows_of_windows(
                cfg, cfg.level, state, x, start, first, rows, height, column, groups, cell, width
            )
    state = all_reduce(cfg.warps, 1, cfg.level.merge, state, tuple(memory[n] for n in cfg.level.slots), tidx)
    if cutlass.const_expr(cfg.level.is_counted):
        values = cfg.level.finish(*state, count)
    elif cutlass.const_expr(cfg.level.finish is not None):
        values = cfg.level.finish(*state)
    else:
        values = state
    if tidx == 0:
        y[bidx] = cfg.rows.result.expression(*(values[n] for n in cfg.rows.result.reads)).to(y.element_type)


@cute.jit
def launch_planes(
    cfg: Static,
    x: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    height: cutlass.Int32,
    cells: cutlass.Int32,
    count: cutlass.Int32,
    stream: cuda.CUstream,
    across: cutlass.Constexpr,
    cell: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    planes_kernel(cfg, x, y, rows, height, cells, count, across, cell, width).launch(
        grid=[x.shape[0], 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )


def pool_planes(cfg: Static, names: Static, x):
    """Return one value for each plane of x: of the last axes, as many as the window has."""
    x = x.detach().contiguous()
    check_rank(names[0], x, cfg.pool.rank)
    check_operand(names[0], x, x.shape, FLOAT_DTYPES)
    lead, inner = x.shape[: -cfg.pool.rank], x.shape[-cfg.pool.rank :]
    outer = [size // window for size, window in zip(inner, cfg.pool.window[cfg.pool.first_axis :], strict=True)]
    if min(outer) < 1:
        raise ValueError(f"{names[0]} has the shape {tuple(x.shape)}; the window does not fit into it")
    y = torch.empty((*lead, *(1,) * cfg.pool.rank) if cfg.keepdim else lead, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    vector = math.gcd(inner[-1], 16 // x.element_size(), x.data_ptr() // x.element_size())
    cell, width, cells, across = plan_cells(cfg.pool, inner[-1], vector, cfg.threads)
    rows = math.prod(outer[:-1])
    call(
        bind(launch_planes, cfg),
        (x.dtype, across, cell, width),
        (
            DynamicTensor(
                x.view(math.prod(lead), *cfg.pool.ones, *inner), align=width * x.element_size(), leading_dim=3
            ),
            DynamicTensor(y.view(-1)),
            rows,
            outer[-2] if len(outer) > 1 else 1,
            cells,
            rows * outer[-1],
        ),
        (across, cell, width),
    )
    return y
