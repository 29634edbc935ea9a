"""Pooling by windows that lie side by side: no element is read twice, and windows are combined in registers.

A group of threads takes a row of windows. Each of its threads loads what lies under a cell: the columns of one vector,
or of one window where vectors do not end at windows.
"""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute

from workbench.kernels.pool.strip import load_tap
from workbench.kernels.pool.window import combine
from workbench.kernels.static import Static


def plan_cells(cfg: Static, columns, vector, threads):
    """Return (columns of a cell, elements of an access, cells of a row of windows, threads across it)."""
    window = cfg.window[2]
    if vector % window == 0:
        cell, width = vector, vector
    else:
        cell, width = window, math.gcd(vector, window)
    cells = columns // cell
    return cell, width, cells, min(1 << (cells - 1).bit_length(), threads)


def make_fragment(cfg: Static, kind, turns, cell, width):
    """Allocate registers for what lies under a cell in several rows of windows."""
    return cute.make_rmem_tensor(cute.make_layout((width, cfg.taps, cell // width, turns)), kind)


@cute.jit
def load_cell(cfg: Static, x: cute.Tensor, fragment: cute.Tensor, start, layer, line, first, cell: cutlass.Constexpr):
    """Load what lies under a cell, whose first column is `first`; `start` is where its plane begins."""
    width = cute.size(fragment, mode=[0])
    for tap in cutlass.range_constexpr(cfg.taps):
        i = layer * cfg.window[0] + tap // cfg.window[1]
        j = line * cfg.window[1] + tap % cfg.window[1]
        for part in cutlass.range_constexpr(cell // width):
            load_tap(x, start, fragment[None, tap, part], i, j, first + part * width, width)


def combine_window(cfg: Static, fragment, turn, window, width):
    """Return the maximum or the average of a window of a cell."""
    total = -cutlass.Float32.inf if cfg.op == "max" else cutlass.Float32(0.0)
    for tap in range(cfg.taps):
        for column in range(window * cfg.window[2], (window + 1) * cfg.window[2]):
            value = fragment[column % width, tap, column // width, turn].to(cutlass.Float32)
            total = combine(cfg, total, value)
    return total * cfg.factor if cfg.op == "avg" else total


@cute.kernel
def cells_kernel(
    cfg: Static,
    x: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    cells: cutlass.Int32,
    across: cutlass.Constexpr,
    cell: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    """Compute ROWS rows of windows with each group of threads."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    _, depth, height, _ = y.shape
    groups = cfg.threads // across
    own = cell // cfg.window[2]
    first = bidx * (groups * cfg.rows) + tidx // across
    for column in range(tidx % across, cells, across):
        fragment = make_fragment(cfg, x.element_type, cfg.rows, cell, width)
        for turn in cutlass.range_constexpr(cfg.rows):
            row = first + turn * groups
            if row < rows:
                plane = row // (height * depth)
                start = x.iterator + cutlass.Int64(plane) * (x.shape[1] * x.shape[2] * x.shape[3])
                load_cell(
                    cfg,
                    x,
                    fragment[None, None, None, turn],
                    start,
                    row // height % depth,
                    row % height,
                    column * cell,
                    cell,
                )
        for turn in cutlass.range_constexpr(cfg.rows):
            row = first + turn * groups
            if row < rows:
                result = cute.make_rmem_tensor(own, y.element_type)
                for window in cutlass.range_constexpr(own):
                    result[window] = combine_window(cfg, fragment, turn, window, width).to(y.element_type)
                place = y.iterator + (cutlass.Int64(row) * y.shape[3] + column * own)
                target = place.align(own * y.element_type.width // 8)
                cute.autovec_copy(result, cute.make_tensor(target, cute.make_layout(own)))


@cute.jit
def launch_cells(
    cfg: Static,
    x: cute.Tensor,
    y: cute.Tensor,
    rows: cutlass.Int32,
    cells: cutlass.Int32,
    stream: cuda.CUstream,
    across: cutlass.Constexpr,
    cell: cutlass.Constexpr,
    width: cutlass.Constexpr,
):
    share = cfg.threads // across * cfg.rows
    cells_kernel(cfg, x, y, rows, cells, across, cell, width).launch(
        grid=[(rows + share - 1) // share, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )
