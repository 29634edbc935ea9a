"""Pooling whose result is reduced over its plane: one CTA per plane, and what is pooled stays in registers.

Windows lie side by side. A group of threads takes a row of windows at a time; each of its threads loads the rows of a
cell, which are the columns of one vector, or of one window where vectors do not end at windows.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch

from workbench.kernels.host import FLOAT_DTYPES, DynamicTensor, call, check_operand, check_rank
from workbench.kernels.pool.strip import load_tap
from workbench.kernels.pool.window import combine
from workbench.kernels.rows.block_reduce import all_reduce
from workbench.kernels.static import Many, Static, bind, dtype


@cute.jit
def load_cells(
    cfg: Static,
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
    """Load what lies under a cell in TURNS rows of windows, in vectors of `width`."""
    layout = cute.make_layout((width, cfg.pool.taps, cell // width, cfg.turns))
    fragment = cute.make_rmem_tensor(layout, x.element_type)
    for turn in cutlass.range_constexpr(cfg.turns):
        row = first + turn * groups
        if row < rows:
            for tap in cutlass.range_constexpr(cfg.pool.taps):
                i = row // height * cfg.pool.window[0] + tap // cfg.pool.window[1]
                j = row % height * cfg.pool.window[1] + tap % cfg.pool.window[1]
                for part in cutlass.range_constexpr(cell // width):
                    load_tap(x, start, fragment[None, tap, part, turn], i, j, column * cell + part * width, width)
    return fragment


@cute.jit
def absorb_cells(
    cfg: Static,
    level: Static,
    state: Many,
    fragment: cute.Tensor,
    first,
    rows,
    groups: cutlass.Constexpr,
    cell: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    """Combine the elements of each window and accumulate the results into the thread's state."""
    for turn in cutlass.range_constexpr(cfg.turns):
        if first + turn * groups < rows:
            for window in cutlass.range_constexpr(cell // cfg.pool.window[2]):
                total = -cutlass.Float32.inf if cfg.pool.op == "max" else cutlass.Float32(0.0)
                for tap in cutlass.range_constexpr(cfg.pool.taps):
                    for c in cutlass.range_constexpr(cfg.pool.window[2]):
                        column = window * cfg.pool.window[2] + c
                        value = fragment[column % width, tap, column // width, turn].to(cutlass.Float32)
                        total = combine(cfg.pool, total, value)
                if cutlass.const_expr(cfg.pool.op == "avg"):
                    total = total * cfg.pool.factor
                state = level.absorb(*state, total)
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
            fragment = load_cells(cfg, x, start, first, rows, height, column, groups, cell, width)
            state = absorb_cells(cfg, cfg.level, state, fragment, first, rows, groups, cell, width)
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


def plan_cells(cfg: Static, columns, vector):
    """Return (columns of a cell, elements of an access, cells of a row of windows)."""
    window = cfg.pool.window[2]
    if vector % window == 0:
        return vector, vector, columns // vector
    return window, math.gcd(vector, window), columns // window


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
    cell, width, cells = plan_cells(cfg, inner[-1], vector)
    across = min(1 << (cells - 1).bit_length(), cfg.threads)
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
