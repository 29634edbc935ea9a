"""Linear interpolation along the last one to three axes: a thread has one column of several neighbouring rows."""

import cuda.bindings.driver as cuda
import cutlass
from cutlass import cute

from workbench.kernels.static import Many, Static


@cute.jit
def find_taps(cfg: Static, at, size, scale):
    """Return the two places along an axis that the result's place `at` lies between, and the share of the second.

    As torch computes them: `scale` is the size of x by that of the result, with aligned corners that of their spans.
    """
    if cutlass.const_expr(cfg.align_corners):
        place = at.to(cutlass.Float32) * scale
    else:
        place = cutlass.max(scale * (at.to(cutlass.Float32) + 0.5) - 0.5, 0.0)
    first = cutlass.min(cutlass.Int32(place), size - 1)
    return first, cutlass.min(first + 1, size - 1), place - first


@cute.jit
def read_line(x, line, first, second, share):
    """Return the value between two columns of a line, which starts at element `line` of x."""
    return (1.0 - share) * x[line + first].to(cutlass.Float32) + share * x[line + second].to(cutlass.Float32)


@cute.jit
def read_plane(cfg: Static, x, plane, columns, lines, width):
    """Return the value between two lines of a plane; `columns`, `lines`: (first, second, share) of each axis."""
    first, second, share = columns
    above, below, part = lines
    if cutlass.const_expr(cfg.rank == 1):
        return read_line(x, plane + above * width, first, second, share)
    return (1.0 - part) * read_line(x, plane + above * width, first, second, share) + part * read_line(
        x, plane + below * width, first, second, share
    )


@cute.kernel
def linear_kernel(
    cfg: Static,
    x: cute.Tensor,
    others: Many[cute.Tensor],
    out: cute.Tensor,
    columns: cutlass.Int32,
    lines: cutlass.Int32,
    blocks: cutlass.Int32,
    planes: cutlass.Int32,
    ends: Many[cutlass.Int32],
    sizes: Many[cutlass.Int32],
    scales: Many[cutlass.Float32],
    turns: cutlass.Constexpr,
):
    """Compute one column in each of `turns` lines per thread, which lie in one of the result's `planes`.

    `ends`, `sizes`, `scales`: of the result, of x and of `find_taps`, for each axis from the last on. `blocks`: threads
    for the `lines` of a plane; with one axis there is one plane, of all lines.
    """
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    thread = bidx * cfg.threads + tidx
    column = thread % columns
    block = thread // columns
    top = block % blocks * turns
    plane = cutlass.min(block // blocks, planes - 1)
    rows = cutlass.select_(block // blocks < planes, lines - top, 0)  # that the thread has, if fewer than `turns`
    across = find_taps(cfg, column, sizes[0], scales[0])
    near, area = plane, sizes[0]
    if cutlass.const_expr(cfg.rank > 1):
        area = sizes[1] * sizes[0]
    if cutlass.const_expr(cfg.rank == 3):
        front, back, share = find_taps(cfg, plane % ends[2], sizes[2], scales[2])
        near = plane // ends[2] * sizes[2] + front
        far = plane // ends[2] * sizes[2] + back
    totals = cute.make_rmem_tensor(cute.make_layout(turns), cutlass.Float32)
    for turn in cutlass.range_constexpr(turns):  # the last lines may be read several times
        line = cutlass.min(top + turn, lines - 1)
        down = (line, line, 0.0)
        if cutlass.const_expr(cfg.rank > 1):
            down = find_taps(cfg, line, sizes[1], scales[1])
        total = read_plane(cfg, x, near * area, across, down, sizes[0])
        if cutlass.const_expr(cfg.rank == 3):
            behind = read_plane(cfg, x, far * area, across, down, sizes[0])
            total = (1.0 - share) * total + share * behind
        if cutlass.const_expr(cfg.expression is not None):
            target = (plane * lines + line) * columns + column
            total = cfg.expression(total, *(b[target].to(cutlass.Float32) for b in others))
        totals[turn] = total
    for turn in cutlass.range_constexpr(turns):
        if turn < rows:
            out[(plane * lines + top + turn) * columns + column] = totals[turn].to(out.element_type)


@cute.jit
def launch_linear(
    cfg: Static,
    x: cute.Tensor,
    others: Many[cute.Tensor],
    out: cute.Tensor,
    columns: cutlass.Int32,
    lines: cutlass.Int32,
    blocks: cutlass.Int32,
    planes: cutlass.Int32,
    ends: Many[cutlass.Int32],
    sizes: Many[cutlass.Int32],
    scales: Many[cutlass.Float32],
    stream: cuda.CUstream,
    turns: cutlass.Constexpr,
):
    ctas = (blocks * planes * columns + (cfg.threads - 1)) // cfg.threads
    linear_kernel(cfg, x, others, out, columns, lines, blocks, planes, ends, sizes, scales, turns).launch(
        grid=[ctas, 1, 1], block=[cfg.threads, 1, 1], stream=stream
    )
